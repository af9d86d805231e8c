//! Who sends, who receives, and who holds which tokens.

use super::contracts::TOKENS;
use crate::random::Random;
use niwaki_crypto::keccak256;
use niwaki_primitives::Address;
use niwaki_testkit::Key;

/// The chain that is made.
pub(super) const CHAIN_ID: u64 = 7_015;

/// The first tokens, which every sender holds.
const HELD_BY_ALL: u64 = 5;
/// Of the others, so many.
const HELD_BY_SOME: u64 = 3;
/// Of a thousand transactions, so many come from the sender of the one before.
const RUNS_PER_MILLE: u64 = 200;

/// How many tokens a sender holds.
pub(super) const HELD: u64 = HELD_BY_ALL + HELD_BY_SOME;

/// The token that is the `place`th of those that a sender holds.
pub(super) fn held(sender: u64, place: u64) -> u64 {
    match place < HELD_BY_ALL {
        true => place,
        // Places of a step that has no factor in common with the number of the rest.
        false => HELD_BY_ALL + (sender * 7 + place * 10) % (TOKENS - HELD_BY_ALL),
    }
}

/// An account that nobody sends from; those below the number asked for are there at first.
pub(super) fn account(seed: u64, number: u64) -> Address {
    Address::from_word(keccak256(format!("niwaki chain account {seed} {number}")))
}

/// An account of a known key.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) key: Key,
    /// Of its next transaction.
    pub(super) nonce: u64,
    /// Whether it delegates to the wallet.
    pub(super) is_wallet: bool,
}

/// Everybody who sends: few often, many rarely, now and then several times in a row.
#[derive(Debug)]
pub(super) struct Senders {
    all: Vec<Sender>,
    last: u64,
    /// Those that delegate to the wallet.
    wallets: Vec<u64>,
}

impl Senders {
    /// `count` accounts of known keys, at least two. About 30 us each.
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

    pub(super) fn get(&self, number: u64) -> Option<&Sender> {
        self.all.get(usize::try_from(number).ok()?)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Sender> {
        self.all.get_mut(usize::try_from(number).ok()?)
    }

    /// Who sends next.
    pub(super) fn draw(&mut self, random: &mut Random) -> u64 {
        if !random.per_mille(RUNS_PER_MILLE) {
            self.last = random.skewed(self.all.len() as u64);
        }
        self.last
    }

    /// One that delegates to the wallet, if there is one.
    pub(super) fn draw_wallet(&self, random: &mut Random) -> Option<u64> {
        let count = self.wallets.len() as u64;
        (count > 0).then(|| self.wallets[usize::try_from(random.below(count)).unwrap_or(0)])
    }

    /// Takes down that one delegates to the wallet.
    pub(super) fn delegates(&mut self, number: u64) {
        let Some(sender) = self.get_mut(number) else {
            return;
        };
        if !sender.is_wallet {
            sender.is_wallet = true;
            self.wallets.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn everybody_holds_so_many_different_tokens() {
        for sender in 0..200 {
            let tokens: BTreeSet<u64> = (0..HELD).map(|place| held(sender, place)).collect();
            assert_eq!(tokens.len() as u64, HELD, "{sender}");
            assert!(tokens.iter().all(|token| *token < TOKENS));
        }
    }

    #[test]
    fn some_senders_send_often_and_in_a_row() {
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
