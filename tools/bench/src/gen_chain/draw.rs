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
use eyre::Result;
use niwaki_primitives::{
    AccessList, AccessListItem, Address, B256, SignedAuthorization, TxEip1559, TxEip2930,
    TxEnvelope, TxKind, U256,
};
use niwaki_testkit::transactions::{eip2930, eip4844, eip7702, legacy};

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

/// Fields that some types of transactions have in addition.
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
                let hash = |_| {
                    let mut hash = self.random.word();
                    hash[0] = 1;
                    B256::from(hash)
                };
                let hashes = (0..count).map(hash).collect();
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
                let random = &mut self.random;
                (
                    self.calls.of(kind, random, &self.senders, drawn)?,
                    Extra::Nothing,
                )
            }
        };
        self.sign(row, call, extra)
    }

    /// A transaction that lets the chain grow.
    pub(super) fn growth(&mut self, call: Call) -> Result<Drawn> {
        self.sign(&mix::GROWTH, call, Extra::Nothing)
    }

    /// Lets the drawn sender, or another one that does not pay, delegate to the wallet.
    fn set_code(&mut self, drawn: u64) -> Result<(Call, Extra)> {
        let other = self.random.skewed(self.senders.count());
        let is_own = self.random.per_mille(500) || other == drawn;
        let authority = if is_own { drawn } else { other };
        // The sender's nonce goes up before that of the authority is compared.
        let nonce = self.senders.use_nonce(drawn)?;
        let authority_nonce = self.senders.use_nonce(authority)?;
        let wallet = Contract::Wallet.address();
        let key = self.senders.key(authority)?;
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
        self.senders.set_delegated(authority)?;
        Ok((call, Extra::Authorization(nonce, authorization)))
    }

    /// Several calls in one, by an account that delegates to the wallet.
    fn batch(&mut self, sender: u64) -> Result<Call> {
        let count = 2 + self.random.below(2);
        let calls = (0..count).map(|_| {
            let (random, senders) = (&mut self.random, &self.senders);
            let call = self.calls.token_transfer(random, senders, sender)?;
            let to = call.to.to().copied();
            Ok((to.unwrap_or_default(), call.input))
        });
        let calls: Vec<_> = calls.collect::<Result<_>>()?;
        Ok(Call {
            sender,
            to: TxKind::Call(self.senders.key(sender)?.address),
            input: call_execute(&calls),
            ..Call::default()
        })
    }

    fn sign(&mut self, row: &'static KindRow, call: Call, extra: Extra) -> Result<Drawn> {
        let chain_id = CHAIN_ID;
        let gas_limit = gas_limit(row, call.steps, self.is_amsterdam);
        let tip = 1_000_000_000 + u128::from(self.random.below(2_000_000_000));
        let is_legacy = self.random.per_mille(LEGACY_PER_MILLE);
        let has_access_list = self.random.per_mille(ACCESS_LIST_PER_MILLE);
        let nonce = match &extra {
            Extra::Authorization(nonce, _) => *nonce,
            _ => self.senders.use_nonce(call.sender)?,
        };
        let key = self.senders.key(call.sender)?;
        let Call {
            to, value, input, ..
        } = call;
        let target = to.to().copied().unwrap_or_default();
        let has_input = !input.is_empty();
        let tx = TxEip1559 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: MAX_FEE,
            max_priority_fee_per_gas: tip,
            to,
            value,
            access_list: AccessList::default(),
            input,
        };
        let tx = match extra {
            Extra::Blobs(hashes) => key.sign(eip4844(tx, target, MAX_BLOB_FEE, hashes)),
            Extra::Authorization(_, authorization) => {
                key.sign(eip7702(tx, target, vec![authorization]))
            }
            Extra::Nothing if is_legacy => key.sign(legacy(tx)),
            Extra::Nothing if has_access_list && has_input => key.sign(TxEip2930 {
                gas_limit: gas_limit + 10_000,
                access_list: AccessList(vec![AccessListItem {
                    address: target,
                    storage_keys: vec![of_address(key.address, 1)],
                }]),
                ..eip2930(tx)
            }),
            Extra::Nothing => key.sign(tx),
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
