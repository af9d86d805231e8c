//! Senders, recipients, and the tokens that each sender holds.

use super::contracts::TOKENS;
use crate::random::Random;
use eyre::{Result, eyre};
use niwaki_crypto::keccak256;
use niwaki_primitives::Address;
use niwaki_testkit::Key;

/// Chain id of generated chains.
pub(super) const CHAIN_ID: u64 = 7_015;

/// Number of tokens that every sender holds: the first ones.
const HELD_BY_ALL: u64 = 5;
/// Number of other tokens that a sender holds.
const HELD_BY_SOME: u64 = 3;
/// Transactions per thousand with the sender of the previous one.
const RUNS_PER_MILLE: u64 = 200;

/// Number of tokens that a sender holds.
pub(super) const TOKENS_PER_SENDER: u64 = HELD_BY_ALL + HELD_BY_SOME;

/// Token number `index` of a sender.
pub(super) fn token_of(sender: u64, index: u64) -> u64 {
    match index < HELD_BY_ALL {
        true => index,
        // The step is coprime to the number of other tokens.
        false => HELD_BY_ALL + (sender * 7 + index * 10) % (TOKENS - HELD_BY_ALL),
    }
}

/// An account that only receives; those below `--accounts` exist at genesis.
pub(super) fn account(seed: u64, number: u64) -> Address {
    Address::from_word(keccak256(format!("niwaki chain account {seed} {number}")))
}

/// An account with a known key.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) key: Key,
    /// Nonce of its next transaction.
    pub(super) nonce: u64,
    /// Whether it delegates to the wallet.
    pub(super) is_wallet: bool,
}

/// All senders. A few send often, many rarely; a fifth of the transactions has the previous sender.
#[derive(Debug)]
pub(super) struct Senders {
    all: Vec<Sender>,
    last: u64,
    /// Senders that delegate to the wallet.
    wallets: Vec<u64>,
}

impl Senders {
    /// `count` senders, at least two; about 30 us each.
    pub(super) fn new(seed: u64, count: u64) -> Self {
        let all = (0..count).map(|number| Sender {
            key: Key::of(&format!("niwaki chain key {seed} {number}")),
            nonce: 0,
            is_wallet: false,
        });
        Self {
            all: all.collect(),
            last: 0,
            wallets: Vec::new(),
        }
    }

    pub(super) fn all(&self) -> &[Sender] {
        &self.all
    }

    pub(super) fn count(&self) -> u64 {
        self.all.len() as u64
    }

    /// The key of a sender.
    pub(super) fn key(&self, number: u64) -> Result<Key> {
        let sender = self.all.get(usize::try_from(number)?);
        Ok(sender
            .ok_or_else(|| eyre!("there is no sender {number}"))?
            .key)
    }

    fn get_mut(&mut self, number: u64) -> Result<&mut Sender> {
        let sender = self.all.get_mut(usize::try_from(number)?);
        sender.ok_or_else(|| eyre!("there is no sender {number}"))
    }

    /// Uses the next nonce of a sender.
    pub(super) fn use_nonce(&mut self, number: u64) -> Result<u64> {
        let sender = self.get_mut(number)?;
        sender.nonce += 1;
        Ok(sender.nonce - 1)
    }

    /// Draws the next sender.
    pub(super) fn draw(&mut self, random: &mut Random) -> u64 {
        if !random.per_mille(RUNS_PER_MILLE) {
            self.last = random.skewed(self.count());
        }
        self.last
    }

    /// Draws a sender that delegates to the wallet, if there is one.
    pub(super) fn draw_wallet(&self, random: &mut Random) -> Option<u64> {
        let count = self.wallets.len() as u64;
        (count > 0).then(|| self.wallets[usize::try_from(random.below(count)).unwrap_or(0)])
    }

    /// Records that a sender delegates to the wallet.
    pub(super) fn set_delegated(&mut self, number: u64) -> Result<()> {
        let sender = self.get_mut(number)?;
        if !std::mem::replace(&mut sender.is_wallet, true) {
            self.wallets.push(number);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_sender_holds_8_different_tokens() {
        for sender in 0..200 {
            let tokens: BTreeSet<u64> = (0..TOKENS_PER_SENDER)
                .map(|index| token_of(sender, index))
                .collect();
            assert_eq!(tokens.len() as u64, TOKENS_PER_SENDER, "{sender}");
            assert!(tokens.iter().all(|token| *token < TOKENS));
        }
    }

    #[test]
    fn an_eighth_of_the_senders_sends_half_and_a_fifth_repeats() {
        let mut senders = Senders::new(1, 64);
        let mut random = Random(3);
        let drawn: Vec<u64> = (0..4000).map(|_| senders.draw(&mut random)).collect();
        let hot = drawn.iter().filter(|sender| **sender < 8).count();
        assert!((1_800..2_200).contains(&hot), "{hot}");
        let runs = drawn.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(runs > 800, "{runs}");
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 64);
    }
}
