//! Draws the transactions of a generated chain: a kind from the mix, a sender, a call, a type, a signature.
//!
//! A transaction relies on all transactions drawn before being included, in the order of drawing.

use super::abi::call_execute;
use super::calls::{Call, Calls};
use super::contracts::{Contract, of_address};
use super::genesis::{ChainFork, Filling, Size};
use super::mix::{self, Kind, KindRow};
use super::population::{CHAIN_ID, Senders};
use crate::random::Random;
use eyre::{Result, eyre};
use niwaki_primitives::{
    AccessList, AccessListItem, Address, B256, SignedAuthorization, TxEip1559, TxEip2930,
    TxEip4844, TxEip7702, TxEnvelope, TxKind, TxLegacy, U256,
};

/// Maximum fee per gas of every transaction, wei: more than the base fee ever is.
const MAX_FEE: u128 = 1 << 65;
/// Maximum fee per blob gas, wei.
const MAX_BLOB_FEE: u128 = 1 << 70;
/// Legacy transactions per thousand that could have any type.
const LEGACY_PER_MILLE: u64 = 110;
/// Type-1 transactions per thousand, whose access list is the slot of the sender's balance.
const ACCESS_LIST_PER_MILLE: u64 = 4;

/// A drawn transaction.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) row: &'static KindRow,
    pub(super) tx: TxEnvelope,
    pub(super) sender: Address,
    pub(super) gas_limit: u64,
}

/// Draws transactions.
#[derive(Debug)]
pub(super) struct Draw {
    random: Random,
    senders: Senders,
    calls: Calls,
    is_amsterdam: bool,
}

/// What a call carries besides.
enum Extra {
    Nothing,
    Blobs(Vec<B256>),
    /// The nonce of the transaction, and an authorization.
    Authorization(u64, SignedAuthorization),
}

impl Draw {
    pub(super) fn new(size: &Size, filling: Filling, senders: Senders) -> Self {
        Self {
            random: Random(size.seed),
            senders,
            calls: Calls::new(size, filling),
            is_amsterdam: size.fork == ChainFork::Amsterdam,
        }
    }

    /// The generator, for everything that is not a transaction.
    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The next transaction, with at most `max_blobs` blobs.
    pub(super) fn next(&mut self, max_blobs: u64) -> Result<Drawn> {
        let mut row = mix::at(self.random.below(mix::total()));
        if row.kind == Kind::Blob && max_blobs == 0 {
            row = &mix::MIX[0];
        }
        let drawn = self.senders.draw(&mut self.random);
        let (call, extra) = match row.kind {
            Kind::Blob => {
                let count = 1 + self.random.below(max_blobs.min(3));
                let hashes = (0..count).map(|_| {
                    let mut hash = self.random.word();
                    hash[0] = 1;
                    B256::from(hash)
                });
                let hashes = hashes.collect();
                let call = self.calls.inbox(&mut self.random, drawn);
                (call, Extra::Blobs(hashes))
            }
            Kind::SetCode => self.set_code(drawn)?,
            Kind::WalletBatch => match self.senders.draw_wallet(&mut self.random) {
                Some(wallet) => (self.batch(wallet)?, Extra::Nothing),
                None => {
                    row = mix::of(Kind::SetCode);
                    self.set_code(drawn)?
                }
            },
            kind => {
                let call = self
                    .calls
                    .of(kind, &mut self.random, &self.senders, drawn)?;
                (call, Extra::Nothing)
            }
        };
        self.sign(row, call, extra)
    }

    /// Lets the drawn sender, or another one that does not pay, delegate to the wallet.
    fn set_code(&mut self, drawn: u64) -> Result<(Call, Extra)> {
        let other = self.random.skewed(self.senders.all().len() as u64);
        let is_own = self.random.per_mille(500) || other == drawn;
        let authority = if is_own { drawn } else { other };
        // The sender's nonce goes up before that of the authority is compared.
        let nonce = self.use_nonce(drawn)?;
        let authority_nonce = self.use_nonce(authority)?;
        let wallet = Contract::Wallet.address();
        let key = self.sender(authority)?.key;
        let authorization = key.authorize(CHAIN_ID, wallet, authority_nonce);
        let call = if is_own {
            self.batch(drawn)?
        } else {
            Call {
                sender: drawn,
                to: TxKind::Call(key.address),
                value: U256::ONE,
                ..Call::default()
            }
        };
        self.senders.set_delegated(authority);
        Ok((call, Extra::Authorization(nonce, authorization)))
    }

    /// Several calls in one, by an account that delegates to the wallet.
    fn batch(&mut self, sender: u64) -> Result<Call> {
        let count = 2 + self.random.below(2);
        let calls = (0..count).map(|_| {
            let call = self
                .calls
                .token_transfer(&mut self.random, &self.senders, sender)?;
            let to = call.to.to().copied();
            Ok((to.unwrap_or_default(), call.input))
        });
        let calls: Vec<_> = calls.collect::<Result<_>>()?;
        Ok(Call {
            sender,
            to: TxKind::Call(self.sender(sender)?.key.address),
            input: call_execute(&calls),
            ..Call::default()
        })
    }

    fn sender(&self, number: u64) -> Result<&super::population::Sender> {
        let sender = self.senders.get(number);
        sender.ok_or_else(|| eyre!("there is no sender {number}"))
    }

    /// Uses the next nonce of a sender.
    fn use_nonce(&mut self, number: u64) -> Result<u64> {
        let sender = self.senders.get_mut(number);
        let sender = sender.ok_or_else(|| eyre!("there is no sender {number}"))?;
        let nonce = sender.nonce;
        sender.nonce += 1;
        Ok(nonce)
    }

    fn sign(&mut self, row: &'static KindRow, call: Call, extra: Extra) -> Result<Drawn> {
        let chain_id = CHAIN_ID;
        let gas_limit = gas_limit(row, call.steps, self.is_amsterdam);
        let tip = 1_000_000_000 + u128::from(self.random.below(2_000_000_000));
        let (is_legacy, has_access_list) = (
            self.random.per_mille(LEGACY_PER_MILLE),
            self.random.per_mille(ACCESS_LIST_PER_MILLE),
        );
        let nonce = match &extra {
            Extra::Authorization(nonce, _) => *nonce,
            _ => self.use_nonce(call.sender)?,
        };
        let key = self.sender(call.sender)?.key;
        let Call {
            to, value, input, ..
        } = call;
        let max_fee = MAX_FEE;
        let target = to.to().copied().unwrap_or_default();
        let none = AccessList::default();
        let tx = match extra {
            Extra::Blobs(blob_versioned_hashes) => key.sign(TxEip4844 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: max_fee,
                max_priority_fee_per_gas: tip,
                to: target,
                value,
                access_list: none,
                blob_versioned_hashes,
                max_fee_per_blob_gas: MAX_BLOB_FEE,
                input,
            }),
            Extra::Authorization(_, authorization) => key.sign(TxEip7702 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: max_fee,
                max_priority_fee_per_gas: tip,
                to: target,
                value,
                access_list: none,
                authorization_list: vec![authorization],
                input,
            }),
            Extra::Nothing if is_legacy => key.sign(TxLegacy {
                chain_id: Some(chain_id),
                nonce,
                gas_price: max_fee,
                gas_limit,
                to,
                value,
                input,
            }),
            Extra::Nothing if has_access_list && !input.is_empty() => key.sign(TxEip2930 {
                chain_id,
                nonce,
                gas_price: max_fee,
                gas_limit: gas_limit + 10_000,
                to,
                value,
                access_list: AccessList(vec![AccessListItem {
                    address: target,
                    storage_keys: vec![of_address(key.address, 1)],
                }]),
                input,
            }),
            Extra::Nothing => key.sign(TxEip1559 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: max_fee,
                max_priority_fee_per_gas: tip,
                to,
                value,
                access_list: none,
                input,
            }),
        };
        Ok(Drawn {
            row,
            sender: key.address,
            tx,
            gas_limit,
        })
    }
}

/// The gas limit of a transaction. Amsterdam charges for state growth too (EIP-8037).
fn gas_limit(row: &KindRow, steps: u64, is_amsterdam: bool) -> u64 {
    let limit = row.gas_limit + steps * row.gas_by_step;
    match is_amsterdam {
        true => 3 * limit + 400_000,
        false => limit,
    }
}
