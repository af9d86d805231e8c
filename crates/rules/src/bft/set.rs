//! The validators of a block.

use alloy_primitives::Address;

/// The validators of a block, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidatorSet(Vec<Address>);

impl ValidatorSet {
    /// A set of these, in any order.
    pub fn new(validators: impl IntoIterator<Item = Address>) -> Self {
        let mut validators: Vec<Address> = validators.into_iter().collect();
        validators.sort_unstable();
        validators.dedup();
        Self(validators)
    }

    /// The list of a contract: what is in it twice counts twice, as in Besu.
    pub fn of_contract(mut validators: Vec<Address>) -> Self {
        validators.sort_unstable();
        Self(validators)
    }

    /// The validators, ascending.
    pub fn as_slice(&self) -> &[Address] {
        &self.0
    }

    /// Whether this is one of them.
    pub fn contains(&self, validator: &Address) -> bool {
        self.0.binary_search(validator).is_ok()
    }

    /// How many must agree: two thirds, rounded up.
    pub fn quorum(&self) -> usize {
        self.0.len().saturating_mul(2).div_ceil(3)
    }

    /// So many are more than can be faulty.
    pub fn one_honest(&self) -> usize {
        self.0
            .len()
            .saturating_sub(1)
            .div_euclid(3)
            .saturating_add(1)
    }

    /// Who proposes the child of a block with this coinbase in a round: the validator after the last proposer in round 0, then each
    /// next one. `None` if there is no validator.
    pub fn proposer(&self, parent_coinbase: &Address, round: u32) -> Option<Address> {
        let after = match self.0.binary_search(parent_coinbase) {
            Ok(index) => index.saturating_add(1),
            Err(index) => index,
        };
        let at = after.saturating_add(usize::try_from(round).unwrap_or(usize::MAX));
        let at = at.checked_rem(self.0.len())?;
        self.0.get(at).copied()
    }

    /// The same by GoQuorum's rule: after a proposer that is no validator any more comes not the next one by address, but the second of
    /// all.
    ///
    /// Source: GoQuorum's `consensus/istanbul/validator/default.go`, `roundRobinProposer`.
    pub fn quorum_proposer(&self, parent_coinbase: &Address, round: u32) -> Option<Address> {
        let is_gone = !parent_coinbase.is_zero() && !self.contains(parent_coinbase);
        match (is_gone, self.0.first()) {
            (true, Some(first)) => self.proposer(first, round),
            _ => self.proposer(parent_coinbase, round),
        }
    }

    pub(super) fn insert(&mut self, validator: Address) {
        if let Err(index) = self.0.binary_search(&validator) {
            self.0.insert(index, validator);
        }
    }

    pub(super) fn remove(&mut self, validator: &Address) {
        self.0.retain(|own| own != validator);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[u8]) -> ValidatorSet {
        ValidatorSet::new(numbers.iter().map(|number| Address::repeat_byte(*number)))
    }

    #[test]
    fn two_thirds_agree_and_one_third_may_be_faulty() {
        let sizes = [1, 2, 3, 4, 5, 6, 7, 9, 10, 100];
        let quorums = [1, 2, 2, 3, 4, 4, 5, 6, 7, 67];
        let honest = [1, 1, 1, 2, 2, 2, 3, 3, 4, 34];
        for ((size, most), one) in sizes.into_iter().zip(quorums).zip(honest) {
            let own = set(&(0..size).collect::<Vec<u8>>());
            assert_eq!((own.quorum(), own.one_honest()), (most, one), "{size}");
        }
    }

    #[test]
    fn validators_propose_in_turn_from_the_one_after_the_last_proposer() {
        let own = set(&[7, 1, 3, 5, 3]);
        let proposer = |parent: u8, round| own.proposer(&Address::repeat_byte(parent), round);
        let expected = |number| Some(Address::repeat_byte(number));
        assert_eq!(proposer(1, 0), expected(3));
        assert_eq!(proposer(7, 0), expected(1));
        assert_eq!(proposer(3, 2), expected(1));
        // The last one is no validator any more, or the parent is a genesis block without one.
        assert_eq!(proposer(4, 0), expected(5));
        assert_eq!(proposer(8, 0), expected(1));
        assert_eq!(proposer(0, 5), expected(3));
        assert_eq!(proposer(1, u32::MAX), expected(1));
        let by_quorum =
            |parent: u8, round| own.quorum_proposer(&Address::repeat_byte(parent), round);
        assert_eq!(by_quorum(1, 0), expected(3));
        assert_eq!(by_quorum(0, 5), expected(3));
        assert_eq!(by_quorum(4, 0), expected(3));
        assert_eq!(by_quorum(8, 2), expected(7));
        assert_eq!(ValidatorSet::default().proposer(&Address::ZERO, 0), None);
    }
}
