//! Votes in headers: each header's coinbase may vote on one validator, and what more than half want happens from the next block on.
//!
//! At each epoch block all votes end.

use super::{ValidatorSet, Vote};
use alloy_primitives::Address;
use std::collections::{BTreeMap, BTreeSet};

/// Who voted to add and to drop an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Votes {
    add: BTreeSet<Address>,
    drop: BTreeSet<Address>,
}

/// The validators after a block, and the votes that have not passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoteTally {
    validators: ValidatorSet,
    /// By whom they are on.
    votes: BTreeMap<Address, Votes>,
}

impl VoteTally {
    /// These validators, and no votes.
    pub fn new(validators: ValidatorSet) -> Self {
        Self {
            validators,
            votes: BTreeMap::new(),
        }
    }

    /// The validators of the next block.
    pub fn validators(&self) -> &ValidatorSet {
        &self.validators
    }

    /// Whether a vote would change anything: its validator is not yet where it wants it, and the voter has not cast it.
    pub fn is_open(&self, voter: &Address, vote: &Vote) -> bool {
        let votes = self.votes.get(&vote.validator);
        let is_cast = votes.is_some_and(|votes| match vote.is_add {
            true => votes.add.contains(voter),
            false => votes.drop.contains(voter),
        });
        !is_cast && self.validators.contains(&vote.validator) != vote.is_add
    }

    /// A transition names the validators. In networks of GoQuorum votes stay.
    pub fn set_validators(&mut self, validators: ValidatorSet) {
        self.validators = validators;
    }

    /// All votes end.
    pub fn end_votes(&mut self) {
        self.votes.clear();
    }

    /// The coinbase of a header has voted. A later vote on the same account replaces its earlier one.
    pub fn vote(&mut self, voter: Address, vote: Vote) {
        let Vote { validator, is_add } = vote;
        let votes = self.votes.entry(validator).or_default();
        let (own, other) = match is_add {
            true => (&mut votes.add, &mut votes.drop),
            false => (&mut votes.drop, &mut votes.add),
        };
        own.insert(voter);
        other.remove(&voter);
        let half = self.validators.as_slice().len().div_euclid(2);
        // Both, as Besu does: fewer validators make earlier votes pass.
        let (is_added, is_dropped) = (votes.add.len() > half, votes.drop.len() > half);
        if is_added || is_dropped {
            self.votes.remove(&validator);
        }
        if is_added {
            self.validators.insert(validator);
        }
        if is_dropped {
            self.drop(&validator);
        }
    }

    /// A validator goes, and its votes with it.
    fn drop(&mut self, validator: &Address) {
        self.validators.remove(validator);
        for votes in self.votes.values_mut() {
            votes.add.remove(validator);
            votes.drop.remove(validator);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u8) -> Address {
        Address::repeat_byte(number)
    }

    fn tally(numbers: &[u8]) -> VoteTally {
        VoteTally::new(ValidatorSet::new(numbers.iter().copied().map(at)))
    }

    fn vote(tally: &mut VoteTally, voter: u8, validator: u8, is_add: bool) {
        let validator = at(validator);
        tally.vote(at(voter), Vote { validator, is_add });
    }

    fn validators(tally: &VoteTally) -> Vec<u8> {
        let all = tally.validators().as_slice().iter();
        all.map(|validator| validator.0[0]).collect()
    }

    #[test]
    fn more_than_half_add_and_drop_a_validator() {
        let mut own = tally(&[1, 2, 3, 4]);
        vote(&mut own, 1, 9, true);
        vote(&mut own, 1, 9, true);
        vote(&mut own, 2, 9, true);
        assert_eq!(validators(&own), [1, 2, 3, 4]);
        vote(&mut own, 3, 9, true);
        assert_eq!(validators(&own), [1, 2, 3, 4, 9]);
        for voter in [1, 2] {
            vote(&mut own, voter, 4, false);
        }
        assert_eq!(validators(&own), [1, 2, 3, 4, 9]);
        vote(&mut own, 9, 4, false);
        assert_eq!(validators(&own), [1, 2, 3, 9]);
    }

    #[test]
    fn a_later_vote_replaces_an_earlier_one() {
        let mut own = tally(&[1, 2, 3]);
        vote(&mut own, 1, 9, true);
        vote(&mut own, 1, 9, false);
        vote(&mut own, 2, 9, true);
        assert_eq!(validators(&own), [1, 2, 3]);
        vote(&mut own, 1, 9, true);
        assert_eq!(validators(&own), [1, 2, 3, 9]);
    }

    #[test]
    fn the_votes_of_a_dropped_validator_and_those_on_it_are_gone() {
        let mut own = tally(&[1, 2, 3, 4, 5]);
        vote(&mut own, 5, 9, true);
        vote(&mut own, 1, 9, true);
        for voter in [1, 2, 3] {
            vote(&mut own, voter, 5, false);
        }
        assert_eq!(validators(&own), [1, 2, 3, 4]);
        vote(&mut own, 2, 9, true);
        assert_eq!(validators(&own), [1, 2, 3, 4]);
        vote(&mut own, 3, 9, true);
        assert_eq!(validators(&own), [1, 2, 3, 4, 9]);
    }

    #[test]
    fn earlier_votes_pass_with_the_next_one_when_there_are_fewer_validators() {
        let mut own = tally(&[1, 2, 3, 4, 5, 6]);
        for voter in [1, 2, 3] {
            vote(&mut own, voter, 9, true);
        }
        for dropped in [6, 5, 4] {
            for voter in [1, 2, 3, 4] {
                vote(&mut own, voter, dropped, false);
            }
        }
        assert_eq!(validators(&own), [1, 2, 3]);
        // Two of three are for it, although this vote is against it.
        vote(&mut own, 1, 9, false);
        assert_eq!(validators(&own), [1, 2, 3, 9]);
    }

    #[test]
    fn an_epoch_ends_all_votes() {
        let mut own = tally(&[1, 2]);
        vote(&mut own, 1, 9, true);
        own.end_votes();
        vote(&mut own, 2, 9, true);
        assert_eq!(validators(&own), [1, 2]);
    }
}
