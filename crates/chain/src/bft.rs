//! The validators of a BFT chain, block after block: who must have sealed a block follows from its parent.
//!
//! ```text
//! genesis or epoch block --list--> tally --vote of each header--> tally after the parent --> validators of the block
//!                                   ^ a transition replaces it          contract: getValidators() in the parent's state
//! ```

use crate::import::{ImportFailure, fault};
use crate::tree::StoredHeader;
use crate::{Chain, ContractAnswer, ImportError};
use niwaki_primitives::{Address, B256, Bytes, Fault, Header};
use niwaki_rules::{
    BftExtra, BftRules, BftStart, InvalidBlock, ValidatorSet, ValidatorSource, Vote, VoteTally,
    check_bft_proposal, check_bft_validators,
};
use niwaki_storage::{Segment, corrupt};
use niwaki_threads::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Tallies that are remembered.
const MAX_TALLIES: usize = 256;
/// Whether a block must have its seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seals {
    Needed,
    ToCome,
}

/// `getValidators()`.
const GET_VALIDATORS: [u8; 4] = [0xb7, 0xab, 0x4d, 0xb5];

/// The tallies after the blocks that were looked at last, the latest last.
#[derive(Default)]
pub(crate) struct Tallies(Mutex<VecDeque<(B256, Arc<VoteTally>)>>);

impl Tallies {
    fn find(&self, hash: &B256) -> Option<Arc<VoteTally>> {
        let known = lock(&self.0);
        let mut latest_first = known.iter().rev();
        latest_first
            .find(|(own, _)| own == hash)
            .map(|(_, tally)| Arc::clone(tally))
    }

    fn add(&self, hash: B256, tally: Arc<VoteTally>) {
        let mut known = lock(&self.0);
        if known.len() >= MAX_TALLIES {
            known.pop_front();
        }
        known.push_back((hash, tally));
    }
}

impl Chain {
    /// Checks who made and sealed a block, if validators agree on those of this chain. One that they are to agree on has no seals yet.
    pub(crate) fn check_validators(
        &self,
        header: &Header,
        parent: &StoredHeader,
        seals: Seals,
    ) -> Result<(), ImportFailure> {
        let spec = self.spec();
        let Some(rules) = spec.bft_rules_after(&parent.header) else {
            return Ok(());
        };
        let validators = self.validators_after(rules, parent)?;
        let checked = match seals {
            Seals::Needed => check_bft_validators(rules, header, &validators),
            Seals::ToCome => check_bft_proposal(spec, rules, header, &parent.header, &validators),
        };
        checked.map_err(InvalidBlock::from)?;
        Ok(())
    }

    /// The validators of the children of a block; `None` if validators do not agree on these.
    ///
    /// # Errors
    /// [`ImportError::OutOfReach`] if a contract names them and the state after the block is too far from the head; a
    /// [`ImportError::Fault`].
    pub fn next_validators(
        &self,
        parent: &StoredHeader,
    ) -> Result<Option<ValidatorSet>, ImportError> {
        let Some(rules) = self.spec().bft_rules_after(&parent.header) else {
            return Ok(None);
        };
        let validators = self.validators_after(rules, parent);
        validators
            .map(Some)
            .map_err(|failure| failure.at_block(parent.id, parent.header.parent_hash))
    }

    /// Those of some votes that would change anything in a child of a block; none where a header has no vote.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn open_votes(
        &self,
        parent: &StoredHeader,
        voter: &Address,
        votes: &[Vote],
    ) -> Result<Vec<Vote>, Fault> {
        let number = parent.id.number.saturating_add(1);
        let rules = self.spec().bft_rules_after(&parent.header);
        let has_votes = |rules: &&BftRules| {
            rules.source == ValidatorSource::Headers && (rules.is_quorum || !rules.is_epoch(number))
        };
        if rules.filter(has_votes).is_none() {
            return Ok(Vec::new());
        }
        let tally = self.tally_after(parent)?;
        let open = votes.iter().filter(|vote| tally.is_open(voter, vote));
        Ok(open.copied().collect())
    }

    /// The validators of the children of a block, for which these rules hold.
    fn validators_after(
        &self,
        rules: &BftRules,
        parent: &StoredHeader,
    ) -> Result<ValidatorSet, ImportFailure> {
        match rules.source {
            ValidatorSource::Contract(contract) => self.validators_of(contract, parent),
            ValidatorSource::Headers => {
                let tally = self.tally_after(parent).map_err(fault)?;
                Ok(tally.validators().clone())
            }
        }
    }

    /// What a contract says in the state after a block.
    fn validators_of(
        &self,
        contract: Address,
        parent: &StoredHeader,
    ) -> Result<ValidatorSet, ImportFailure> {
        let input = Bytes::from_static(&GET_VALIDATORS);
        let answer = self.ask_contract(parent, contract, input).map_err(fault)?;
        let validators = match answer.ok_or(ImportFailure::OutOfReach)? {
            ContractAnswer::Output(output) => read_addresses(&output),
            ContractAnswer::Absent | ContractAnswer::Failed => None,
        };
        // A network without validators can't have made this block: what is here is wrong, not the block.
        validators
            .filter(|all| !all.is_empty())
            .map(ValidatorSet::of_contract)
            .ok_or_else(|| {
                let reason = "getValidators() of the validator contract gives no addresses";
                fault(corrupt(Segment::Accounts, contract.as_slice(), reason))
            })
    }

    /// The tally after a block: it holds for the children.
    fn tally_after(&self, block: &StoredHeader) -> Result<Arc<VoteTally>, Fault> {
        let mut above = Vec::new();
        let mut current = block.clone();
        let mut tally = loop {
            if let Some(tally) = self.tallies.find(&current.id.hash) {
                break tally;
            }
            if let Some(tally) = self.first_tally(&current)? {
                break Arc::new(tally);
            }
            let key = current.header.parent_hash;
            // In a batch it is not stored yet.
            if let Some(tally) = self.tallies.find(&key) {
                above.push(current);
                break tally;
            }
            let parent = self.voting_parent(&key)?;
            above.push(std::mem::replace(&mut current, parent));
        };
        for header in above.iter().rev() {
            let mut next = VoteTally::clone(&tally);
            self.vote(header, &mut next)?;
            tally = Arc::new(next);
        }
        if self.tallies.find(&block.id.hash).is_none() {
            self.tallies.add(block.id.hash, Arc::clone(&tally));
        }
        Ok(tally)
    }

    /// The first block whose vote counts after this one, or whose list does; `None` if no header names the validators of its children.
    pub(crate) fn votes_since(&self, block: &StoredHeader) -> Result<Option<u64>, Fault> {
        let rules = self.spec().bft_rules_after(&block.header);
        if rules.is_none_or(|rules| rules.source != ValidatorSource::Headers) {
            return Ok(None);
        }
        let mut current = block.clone();
        while self.first_tally(&current)?.is_none() {
            current = self.voting_parent(&current.header.parent_hash)?;
        }
        Ok(Some(current.id.number))
    }

    fn voting_parent(&self, hash: &B256) -> Result<StoredHeader, Fault> {
        let reason = "the ancestor with the last list is missing";
        let parent = self.header(hash)?;
        parent.ok_or_else(|| corrupt(Segment::Headers, hash.as_slice(), reason))
    }

    /// The tally after a block that does not depend on its ancestors: a genesis or epoch block, or one before a transition that names
    /// the validators (but in a network of GoQuorum, whose votes stay).
    fn first_tally(&self, block: &StoredHeader) -> Result<Option<VoteTally>, Fault> {
        let number = block.id.number;
        let rules = self.spec().bft_rules_of(&block.header);
        let next = self.spec().bft_rules_after(&block.header);
        // Of a genesis block it is said too. GoQuorum's chains have no migration, and their genesis block may be followed by a list.
        let is_migrated = next.is_some_and(|rules| rules.epochs_from == number && !rules.is_quorum);
        let have_votes =
            rules.is_some_and(|rules| rules.is_quorum && rules.source == ValidatorSource::Headers);
        if let Some(validators) = self.validators_named_after(block)
            && !have_votes
        {
            let mut tally = VoteTally::new(validators.clone());
            if !is_migrated {
                self.vote(block, &mut tally)?;
            }
            return Ok(Some(tally));
        }
        if !is_migrated && !rules.is_some_and(|rules| rules.is_epoch(number)) {
            return Ok(None);
        }
        let extra = self.bft_extra(block)?;
        let mut tally = VoteTally::new(ValidatorSet::new(extra.validators));
        if !is_migrated {
            self.vote(block, &mut tally)?;
        }
        Ok(Some(tally))
    }

    /// The validators that a transition names for the children of a block.
    fn validators_named_after(&self, block: &StoredHeader) -> Option<&ValidatorSet> {
        let start = BftStart::Block(block.id.number.saturating_add(1));
        let next = self.spec().bft_rules_after(&block.header);
        let next = next.filter(|rules| rules.from == start);
        next.and_then(|rules| rules.validators.as_ref())
    }

    /// Counts the vote of a header. At an epoch block all votes end: that of its own header too, but in a network of GoQuorum.
    fn vote(&self, block: &StoredHeader, tally: &mut VoteTally) -> Result<(), Fault> {
        let rules = self.spec().bft_rules_of(&block.header);
        let is_epoch = rules.is_some_and(|rules| rules.is_epoch(block.id.number));
        let is_quorum = rules.is_some_and(|rules| rules.is_quorum);
        if is_epoch {
            tally.end_votes();
        }
        if (!is_epoch || is_quorum)
            && let Some(vote) = self.bft_extra(block)?.vote
        {
            tally.vote(block.header.beneficiary, vote);
        }
        if is_quorum && let Some(validators) = self.validators_named_after(block) {
            tally.set_validators(validators.clone());
        }
        Ok(())
    }

    fn bft_extra(&self, block: &StoredHeader) -> Result<BftExtra, Fault> {
        let bad = |reason: &str| corrupt(Segment::Headers, &block.id.to_key(), reason);
        let rules = self.spec().bft_rules_of(&block.header);
        let rules = rules.ok_or_else(|| bad("no rules of BFT hold for it"))?;
        BftExtra::decode(rules.protocol, &block.header.extra_data)
            .map_err(|error| bad(&error.to_string()))
    }
}

/// An ABI-encoded `address[]`, the only result.
fn read_addresses(output: &[u8]) -> Option<Vec<Address>> {
    let word = |at: usize| output.get(at..at.checked_add(32)?);
    let number = |at: usize| {
        let (high, low) = word(at)?.split_at(24);
        let low = u64::from_be_bytes(low.try_into().ok()?);
        let is_small = high.iter().all(|byte| *byte == 0);
        usize::try_from(low).ok().filter(|_| is_small)
    };
    let start = number(0)?;
    let count = number(start)?;
    // The output has a word for each.
    if count > output.len() / 32 {
        return None;
    }
    let first = start.checked_add(32)?;
    let all = (0..count).map(|index| {
        let word = word(first.checked_add(index.checked_mul(32)?)?)?;
        Some(Address::from_slice(&word[12..]))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_addresses_is_read_and_what_is_none_is_not() {
        let word = |number: u8| B256::with_last_byte(number).0;
        let list = [word(32), word(2), word(7), word(9)].concat();
        let read = read_addresses(&list).unwrap();
        assert_eq!(read, [7, 9].map(Address::with_last_byte));
        for end in 0..list.len() {
            assert_eq!(read_addresses(&list[..end]), None, "{end}");
        }
        let huge = [word(32), [0xff; 32], word(7)].concat();
        assert_eq!(read_addresses(&huge), None);
        assert_eq!(read_addresses(&[word(32), word(0)].concat()), Some(vec![]));
    }
}
