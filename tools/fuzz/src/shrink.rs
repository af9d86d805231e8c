//! Shrinks a case in which machines differ: fewer transactions and accounts, shorter code, smaller values, as long as
//! they still differ.

use crate::case::{CHAIN_ID, Case, sign};
use niwaki_execution::Executor;
use niwaki_primitives::{
    AccessList, Address, Bytes, Transaction, TxEnvelope, TxKind, TxLegacy, U256,
};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryAccount;

/// The difference in a case, if there is one.
pub(crate) type Differs<'a> = &'a dyn Fn(&Case) -> Option<String>;

/// Limit of cases that are tried.
const MAX_TRIES: usize = 20_000;
const JUMPDEST: u8 = 0x5b;
/// Length up to which every piece of bytes is tried.
const FEW: usize = 128;

struct Shrink<'a> {
    case: Case,
    what: String,
    differs: Differs<'a>,
    tries: usize,
}

/// Shrinks `case`, in which `what` differs; returns the smaller case and its difference.
pub(crate) fn shrink(case: Case, what: String, differs: Differs<'_>) -> (Case, String) {
    let mut shrink = Shrink {
        case,
        what,
        differs,
        tries: 0,
    };
    while shrink.round() && shrink.tries < MAX_TRIES {}
    (shrink.case, shrink.what)
}

impl Shrink<'_> {
    /// Applies `change` to the case if the result still differs.
    fn attempt(&mut self, change: impl FnOnce(&mut Case) -> Option<()>) -> bool {
        let mut smaller = self.case.clone();
        if self.tries >= MAX_TRIES || change(&mut smaller).is_none() {
            return false;
        }
        self.tries += 1;
        let found = (self.differs)(&smaller);
        let differs = found.is_some();
        if let Some(what) = found {
            (self.case, self.what) = (smaller, what);
        }
        differs
    }

    /// Tries each change once; true if the case became smaller.
    fn round(&mut self) -> bool {
        let mut smaller = self.transactions();
        for address in self.addresses() {
            smaller |= self.attempt(|case| case.state.accounts.remove(&address).map(drop));
        }
        for at in 0..self.case.transactions.len() {
            smaller |= self.transaction(at);
        }
        for address in self.addresses() {
            smaller |= self.account(address);
        }
        smaller
    }

    fn addresses(&self) -> Vec<Address> {
        self.case.state.accounts.keys().copied().collect()
    }

    fn transactions(&mut self) -> bool {
        let mut smaller = false;
        let mut at = 0;
        while at < self.case.transactions.len() && self.case.transactions.len() > 1 {
            let gone = self.attempt(|case| case.transactions.drain(at..=at).next().map(drop))
                || (at == 0 && self.attempt(run_first));
            smaller |= gone;
            at += usize::from(!gone);
        }
        smaller
    }

    fn transaction(&mut self, at: usize) -> bool {
        let mut smaller = self.edit(at, plain);
        for count in (0..authorizations(&self.case.transactions[at].0)).rev() {
            smaller |= self.edit(at, |tx| without_authorization(tx, count));
        }
        smaller |= self.edit(at, without_access_list);
        smaller |= self.edit(at, |tx| with_value(tx, U256::ZERO));
        // A callee instead of its caller.
        for address in self.addresses() {
            smaller |= self.attempt(|case| {
                let tx = &mut case.transactions[at].0;
                let caller = tx.to().filter(|to| *to != address)?;
                *tx = with_receiver(tx, address);
                case.state.accounts.remove(&caller).map(drop)
            });
        }
        let code = self.case.transactions[at].0.is_create();
        smaller |= self.bytes(
            code,
            &|case| case.transactions[at].0.input().to_vec(),
            &|case, bytes| {
                let tx = &mut case.transactions[at].0;
                *tx = with_input(tx, bytes.into());
            },
        );
        // Roughly the least gas.
        while self.edit(at, |tx| with_gas(tx, tx.gas_limit() / 2))
            || self.edit(at, |tx| with_gas(tx, tx.gas_limit() / 8 * 7))
        {
            smaller = true;
        }
        smaller
    }

    /// Replaces a transaction.
    fn edit(&mut self, at: usize, change: impl FnOnce(&TxEnvelope) -> Option<TxEnvelope>) -> bool {
        self.attempt(|case| {
            let tx = &mut case.transactions[at].0;
            *tx = change(tx)?;
            Some(())
        })
    }

    fn account(&mut self, address: Address) -> bool {
        let account_of = |case: &Case| case.state.accounts[&address].clone();
        let put = |case: &mut Case, account: MemoryAccount| case.state.insert(address, account);
        let mut smaller = false;
        for slot in account_of(&self.case).storage.into_keys() {
            smaller |= self.attempt(|case| {
                let account = case.state.accounts.get_mut(&address)?;
                account.storage.remove(&slot).map(drop)
            });
        }
        smaller |= self.attempt(|case| {
            let account = account_of(case);
            let balance = U256::ZERO;
            (account.balance > balance).then(|| put(case, MemoryAccount { balance, ..account }))
        });
        smaller |= self.attempt(|case| {
            let account = account_of(case);
            let nonce = 0;
            (account.nonce > nonce).then(|| put(case, MemoryAccount { nonce, ..account }))
        });
        let code = |case: &Case| account_of(case).code.to_vec();
        let set = |case: &mut Case, code: Vec<u8>| {
            let code = Bytes::from(code).into();
            let account = account_of(case);
            put(case, MemoryAccount { code, ..account });
        };
        smaller | self.bytes(true, &code, &set)
    }

    /// Removes pieces of bytes, large ones first. In code it also moves jump targets, and replaces bytes by JUMPDESTs
    /// or zeros, which keep jump targets in place.
    fn bytes(
        &mut self,
        is_code: bool,
        get: &dyn Fn(&Case) -> Vec<u8>,
        set: &dyn Fn(&mut Case, Vec<u8>),
    ) -> bool {
        let mut smaller = false;
        let length = |shrink: &Self| get(&shrink.case).len();
        let mut size = length(self);
        while size > 0 {
            // Of short bytes, every piece.
            let few = length(self) <= FEW;
            let mut end = length(self);
            while end > 0 {
                let start = end.saturating_sub(size);
                let gone = self.attempt(|case| {
                    let mut bytes = get(case);
                    if is_code {
                        move_jumps(&mut bytes, start, end);
                    }
                    bytes.drain(start..end);
                    set(case, bytes);
                    Some(())
                });
                let filled = !gone && self.fill(is_code, start, end, get, set);
                smaller |= gone | filled;
                end = match few && !gone {
                    true if start == 0 => 0,
                    true => end - 1,
                    false => start,
                };
            }
            size = if few { size - 1 } else { size / 2 };
        }
        smaller
    }

    fn fill(
        &mut self,
        is_code: bool,
        start: usize,
        end: usize,
        get: &dyn Fn(&Case) -> Vec<u8>,
        set: &dyn Fn(&mut Case, Vec<u8>),
    ) -> bool {
        let with = if is_code { JUMPDEST } else { 0 };
        // A pushed zero is as small; pieces of only zeros and JUMPDESTs stay.
        let fills = [Some(with), is_code.then_some(0)];
        fills.into_iter().flatten().any(|with| {
            self.attempt(|case| {
                let mut bytes = get(case);
                let piece = bytes.get_mut(start..end)?;
                if piece.iter().all(|byte| matches!(*byte, 0 | JUMPDEST)) {
                    return None;
                }
                piece.fill(with);
                set(case, bytes);
                Some(())
            })
        })
    }
}

/// Adjusts the targets of PUSH2 and jump for the removal of the bytes from `start` to `end`.
fn move_jumps(code: &mut [u8], start: usize, end: usize) {
    const PUSH2: u8 = 0x61;
    const JUMPS: [u8; 2] = [0x56, 0x57];
    for at in 0..code.len().saturating_sub(3) {
        let [PUSH2, high, low, jump] = code[at..at + 4] else {
            continue;
        };
        let target = u16::from_be_bytes([high, low]);
        if JUMPS.contains(&jump) && usize::from(target) >= end {
            let gone = u16::try_from(end - start).expect("the target is beyond");
            code[at + 1..at + 3].copy_from_slice(&(target - gone).to_be_bytes());
        }
    }
}

/// Replaces the first transaction by the state after it.
fn run_first(case: &mut Case) -> Option<()> {
    let (tx, sender) = case.transactions.remove(0);
    let spec = ChainSpec::single(CHAIN_ID, case.fork);
    let diff = {
        let mut executor = Executor::new(&spec, &case.header, &case.state);
        executor.process_transaction(&tx, sender, None).ok()?;
        executor.diff()
    };
    case.state.apply(&diff);
    Some(())
}

/// The transaction with `change` applied to its fields, for any type.
macro_rules! changed {
    ($tx:expr, $fields:ident => $change:expr) => {
        match $tx {
            TxEnvelope::Legacy(signed) => changed!(@ signed, $fields => $change),
            TxEnvelope::Eip2930(signed) => changed!(@ signed, $fields => $change),
            TxEnvelope::Eip1559(signed) => changed!(@ signed, $fields => $change),
            TxEnvelope::Eip4844(signed) => changed!(@ signed, $fields => $change),
            TxEnvelope::Eip7702(signed) => changed!(@ signed, $fields => $change),
        }
    };
    (@ $signed:ident, $fields:ident => $change:expr) => {{
        let mut $fields = $signed.tx().clone();
        $change;
        sign($fields)
    }};
}

fn with_value(tx: &TxEnvelope, value: U256) -> Option<TxEnvelope> {
    (tx.value() != value).then(|| changed!(tx, fields => fields.value = value))
}

/// The transaction with another receiver; it must not be a creation.
fn with_receiver(tx: &TxEnvelope, to: Address) -> TxEnvelope {
    match tx {
        TxEnvelope::Legacy(signed) => changed!(@ signed, fields => fields.to = to.into()),
        TxEnvelope::Eip2930(signed) => changed!(@ signed, fields => fields.to = to.into()),
        TxEnvelope::Eip1559(signed) => changed!(@ signed, fields => fields.to = to.into()),
        TxEnvelope::Eip4844(signed) => changed!(@ signed, fields => fields.to = to),
        TxEnvelope::Eip7702(signed) => changed!(@ signed, fields => fields.to = to),
    }
}

fn with_gas(tx: &TxEnvelope, gas: u64) -> Option<TxEnvelope> {
    (gas > 0 && gas < tx.gas_limit()).then(|| changed!(tx, fields => fields.gas_limit = gas))
}

fn with_input(tx: &TxEnvelope, input: Bytes) -> TxEnvelope {
    changed!(tx, fields => fields.input = input)
}

/// The transaction as a legacy one, which has the fewest fields.
fn plain(tx: &TxEnvelope) -> Option<TxEnvelope> {
    (!matches!(tx, TxEnvelope::Legacy(_))).then(|| {
        sign(TxLegacy {
            chain_id: Some(CHAIN_ID),
            nonce: tx.nonce(),
            gas_price: tx.max_fee_per_gas(),
            gas_limit: tx.gas_limit(),
            to: tx.to().map_or(TxKind::Create, TxKind::Call),
            value: tx.value(),
            input: tx.input().clone(),
        })
    })
}

fn without_access_list(tx: &TxEnvelope) -> Option<TxEnvelope> {
    let list = tx.access_list().filter(|list| !list.is_empty());
    list?;
    let none = AccessList::default();
    Some(match tx {
        TxEnvelope::Legacy(_) => return None,
        TxEnvelope::Eip2930(signed) => changed!(@ signed, fields => fields.access_list = none),
        TxEnvelope::Eip1559(signed) => changed!(@ signed, fields => fields.access_list = none),
        TxEnvelope::Eip4844(signed) => changed!(@ signed, fields => fields.access_list = none),
        TxEnvelope::Eip7702(signed) => changed!(@ signed, fields => fields.access_list = none),
    })
}

fn authorizations(tx: &TxEnvelope) -> usize {
    tx.authorization_list().map_or(0, <[_]>::len)
}

fn without_authorization(tx: &TxEnvelope, at: usize) -> Option<TxEnvelope> {
    let TxEnvelope::Eip7702(signed) = tx else {
        return None;
    };
    (at < signed.tx().authorization_list.len())
        .then(|| changed!(@ signed, fields => { fields.authorization_list.remove(at); }))
}

#[cfg(test)]
mod tests;
