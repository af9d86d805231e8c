//! The transactions of a generated chain, one after the other: a kind by the mix, a sender, a call,
//! a type, a signature.
//!
//! What is drawn counts on everything drawn before being in the chain, in the order of drawing.

use super::abi::call_execute;
use super::calls::{Call, Calls};
use super::contracts::{Contract, of_address};
use super::genesis::{ChainFork, Filling, Size};
use super::mix::{self, Kind, Row};
use super::people::{CHAIN_ID, Senders};
use crate::random::Random;
use eyre::{Result, eyre};
use niwaki_primitives::{
    AccessList, AccessListItem, Address, B256, SignedAuthorization, TxEip1559, TxEip2930,
    TxEip4844, TxEip7702, TxEnvelope, TxKind, TxLegacy, U256,
};

/// What everybody would pay for a gas, wei: more than the base fee ever is.
const MAX_FEE: u128 = 1 << 65;
/// What everybody would pay for a blob's gas, wei.
const MAX_BLOB_FEE: u128 = 1 << 70;
/// Of a thousand transactions that could be of any type, so many are of the oldest.
const LEGACY_PER_MILLE: u64 = 110;
/// And so many are of type 1, with the slot of the sender's balance.
const ACCESS_LIST_PER_MILLE: u64 = 4;

/// A transaction that was drawn.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) row: &'static Row,
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

/// What goes with a call.
enum With {
    Nothing,
    Blobs(Vec<B256>),
    /// Under the nonce that the sender had before.
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

    /// Chance, for what is not a transaction.
    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The next transaction, with at most so many blobs.
    pub(super) fn next(&mut self, most_blobs: u64) -> Result<Drawn> {
        let mut row = mix::at(self.random.below(mix::total()));
        if row.kind == Kind::Blob && most_blobs == 0 {
            row = &mix::MIX[0];
        }
        let drawn = self.senders.draw(&mut self.random);
        let (call, with) = match row.kind {
            Kind::Blob => {
                let count = 1 + self.random.below(most_blobs.min(3));
                let hashes = (0..count).map(|_| {
                    let mut hash = self.random.word();
                    hash[0] = 1;
                    B256::from(hash)
                });
                let hashes = hashes.collect();
                let call = self.calls.inbox(&mut self.random, drawn);
                (call, With::Blobs(hashes))
            }
            Kind::SetCode => self.set_code(drawn)?,
            Kind::WalletBatch => match self.senders.draw_wallet(&mut self.random) {
                Some(wallet) => (self.batch(wallet)?, With::Nothing),
                None => {
                    row = mix::of(Kind::SetCode);
                    self.set_code(drawn)?
                }
            },
            kind => {
                let call = self
                    .calls
                    .of(kind, &mut self.random, &self.senders, drawn)?;
                (call, With::Nothing)
            }
        };
        self.sign(row, call, with)
    }

    /// The drawn sender, or another one who does not pay, comes to delegate to the wallet.
    fn set_code(&mut self, drawn: u64) -> Result<(Call, With)> {
        let other = self.random.skewed(self.senders.all().len() as u64);
        let is_own = self.random.per_mille(500) || other == drawn;
        let authority = if is_own { drawn } else { other };
        // The sender's nonce goes up before that of the authority is compared.
        let nonce = self.raise_nonce(drawn)?;
        let promised = self.raise_nonce(authority)?;
        let wallet = Contract::Wallet.address();
        let key = self.sender(authority)?.key;
        let authorization = key.authorize(CHAIN_ID, wallet, promised);
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
        self.senders.delegates(authority);
        Ok((call, With::Authorization(nonce, authorization)))
    }

    /// Several calls of one account that delegates to the wallet.
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

    fn sender(&self, number: u64) -> Result<&super::people::Sender> {
        let sender = self.senders.get(number);
        sender.ok_or_else(|| eyre!("there is no sender {number}"))
    }

    /// Uses a nonce.
    fn raise_nonce(&mut self, number: u64) -> Result<u64> {
        let sender = self.senders.get_mut(number);
        let sender = sender.ok_or_else(|| eyre!("there is no sender {number}"))?;
        let nonce = sender.nonce;
        sender.nonce += 1;
        Ok(nonce)
    }

    fn sign(&mut self, row: &'static Row, call: Call, with: With) -> Result<Drawn> {
        let chain_id = CHAIN_ID;
        let gas_limit = gas_limit(row, call.steps, self.is_amsterdam);
        let tip = 1_000_000_000 + u128::from(self.random.below(2_000_000_000));
        let (legacy, listed) = (
            self.random.per_mille(LEGACY_PER_MILLE),
            self.random.per_mille(ACCESS_LIST_PER_MILLE),
        );
        let nonce = match &with {
            With::Authorization(nonce, _) => *nonce,
            _ => self.raise_nonce(call.sender)?,
        };
        let key = self.sender(call.sender)?.key;
        let Call {
            to, value, input, ..
        } = call;
        let max_fee = MAX_FEE;
        let target = to.to().copied().unwrap_or_default();
        let none = AccessList::default();
        let tx = match with {
            With::Blobs(blob_versioned_hashes) => key.sign(TxEip4844 {
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
            With::Authorization(_, authorization) => key.sign(TxEip7702 {
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
            With::Nothing if legacy => key.sign(TxLegacy {
                chain_id: Some(chain_id),
                nonce,
                gas_price: max_fee,
                gas_limit,
                to,
                value,
                input,
            }),
            With::Nothing if listed && !input.is_empty() => key.sign(TxEip2930 {
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
            With::Nothing => key.sign(TxEip1559 {
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

/// What a transaction may use. Amsterdam charges for what the state grows by as well (EIP-8037).
fn gas_limit(row: &Row, steps: u64, is_amsterdam: bool) -> u64 {
    let limit = row.gas_limit + steps * row.gas_by_step;
    match is_amsterdam {
        true => 3 * limit + 400_000,
        false => limit,
    }
}
