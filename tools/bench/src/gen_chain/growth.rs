//! The first blocks of a chain that grows beyond its genesis: transactions that write slots and give accounts their first balance.
//!
//! A client reads the whole genesis file into memory; `geth init` takes more than 24 GiB for 10 million slots.

use super::calls::Call;
use super::contracts::{Contract, TOKENS};
use super::genesis::ranked_shares;
use niwaki_primitives::{TxKind, U256};
use std::collections::VecDeque;
use std::ops::Range;

/// Slots that one transaction writes, accounts that one makes: less than 16 Mgas each (EIP-7825 allows 16.7).
const SLOTS_EACH: u64 = 700;
const ACCOUNTS_EACH: u64 = 420;
/// Percentage of the gas limit that the blocks use: the base fee stays as it is.
pub(super) const FILL_PERCENT: u64 = 50;

/// What is to be made yet, each range by one contract.
#[derive(Debug)]
pub(super) struct Growth {
    left: VecDeque<(Contract, Range<u64>)>,
    total: u64,
}

impl Growth {
    /// The slots lie in as many contracts as there are tokens, by rank as their holders.
    pub(super) fn new(slots: u64, accounts: u64) -> Self {
        let shares = (0..TOKENS).zip(ranked_shares(slots));
        let slots = shares.map(|(number, count)| (Contract::Slots(number), 0..count));
        let accounts = std::iter::once((Contract::Accounts, 0..accounts));
        let left: VecDeque<_> = slots.chain(accounts).collect();
        let total = left.iter().map(|(_, range)| range.end).sum();
        Self { left, total }
    }

    /// All slots and accounts.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// How many are not made yet.
    pub(super) fn left(&self) -> u64 {
        let ranges = self.left.iter().map(|(_, range)| range.end - range.start);
        ranges.sum()
    }

    /// The call that makes the next of them, by the first sender.
    pub(super) fn next(&mut self) -> Option<Call> {
        while self.left.front()?.1.is_empty() {
            self.left.pop_front();
        }
        let (contract, range) = self.left.front_mut()?;
        let each = match contract {
            Contract::Accounts => ACCOUNTS_EACH,
            _ => SLOTS_EACH,
        };
        let end = range.end.min(range.start + each);
        let words = [range.start, end].map(U256::from);
        range.start = end;
        Some(Call {
            to: TxKind::Call(contract.address()),
            input: words.iter().flat_map(U256::to_be_bytes::<32>).collect(),
            ..Call::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_and_account_is_made_once() {
        let mut growth = Growth::new(10_000, 1_000);
        let (total, mut made) = (growth.total(), 0);
        assert!((10_950..=11_000).contains(&total), "{total}");
        while let Some(call) = growth.next() {
            let word = |at: usize| U256::from_be_slice(&call.input[at..at + 32]);
            made += (word(32) - word(0)).to::<u64>();
            assert_eq!(growth.left(), total - made);
        }
        assert_eq!(made, total);
        assert!(Growth::new(0, 0).next().is_none());
    }
}
