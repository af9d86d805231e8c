//! Which found nodes are worth a dial: those whose records say a fork id that fits this node's chain.
//!
//! A table holds the nodes of all chains, and a small network is lost in it: without this check a node dials hundreds of strangers
//! before it finds one of its own. A node without a record, or whose record doesn't say which chain it is of, may fit: it is dialled
//! last. A node of another chain is left alone for a day, also when it is found again without its record.
//!
//! Spec: EIP-2124, devp2p `enr-entries/eth.md`.

use crate::key::NodeId;
use crate::record::Record;
use niwaki_rules::ForkFilter;
use std::collections::HashMap;

/// So long a node of another chain is left alone.
const STRANGER_MS: u64 = 24 * 60 * 60 * 1000;

/// Most nodes of other chains in each of two generations; when the younger one is full, the older one is forgotten.
const MAX_STRANGERS: usize = 8192;

/// What to do with a found node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is of this chain.
    Dial,
    /// It doesn't say.
    DialLast,
    /// It is of another chain.
    OtherChain,
}

/// The check, with its memory.
#[derive(Debug, Default)]
pub(crate) struct Sieve {
    /// Until when.
    young: HashMap<NodeId, u64>,
    old: HashMap<NodeId, u64>,
}

impl Sieve {
    /// What to do with a node that has this record.
    pub(crate) fn judge(
        &mut self,
        id: NodeId,
        record: Option<&Record>,
        forks: &ForkFilter,
        now_ms: u64,
    ) -> Verdict {
        match record.map(|record| (record.fork_id(), record)) {
            Some((Some(fork_id), _)) => match forks.validate(fork_id) {
                Ok(()) => {
                    self.forget(&id);
                    Verdict::Dial
                }
                Err(_) => {
                    self.note(id, now_ms);
                    Verdict::OtherChain
                }
            },
            Some((None, record)) if record.is_consensus_node() => Verdict::OtherChain,
            _ if self.is_stranger(&id, now_ms) => Verdict::OtherChain,
            _ => Verdict::DialLast,
        }
    }

    fn is_stranger(&self, id: &NodeId, now_ms: u64) -> bool {
        let until_ms = self.young.get(id).or_else(|| self.old.get(id));
        until_ms.is_some_and(|until_ms| *until_ms > now_ms)
    }

    fn note(&mut self, id: NodeId, now_ms: u64) {
        if self.young.len() >= MAX_STRANGERS && !self.young.contains_key(&id) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, now_ms.saturating_add(STRANGER_MS));
    }

    fn forget(&mut self, id: &NodeId) {
        self.young.remove(id);
        self.old.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::NodeKey;
    use crate::record::RecordEntries;
    use niwaki_primitives::{B256, FixedBytes};
    use niwaki_rules::{ForkId, Network, fork_filter};

    fn forks(network: Network) -> ForkFilter {
        let genesis = network.genesis();
        let hash = network.genesis_hash();
        fork_filter(&genesis.spec, hash, 0, 0, 0)
    }

    fn record(fork_id: Option<ForkId>) -> Record {
        let key = NodeKey::new(B256::repeat_byte(1)).unwrap();
        let entries = RecordEntries {
            fork_id,
            ..Default::default()
        };
        Record::sign(&key, 1, &entries).unwrap()
    }

    #[test]
    fn a_fork_id_that_fits_is_dialled_none_last_and_another_chain_not_for_a_day() {
        let (ours, other) = (forks(Network::Mainnet), forks(Network::Sepolia));
        let mut sieve = Sieve::default();
        let same = record(Some(ours.current()));
        let silent = record(None);
        let stranger = record(Some(other.current()));
        let id = same.id();
        let mut judge = |record, now_ms| sieve.judge(id, record, &ours, now_ms);
        assert_eq!(judge(Some(&same), 0), Verdict::Dial);
        assert_eq!(judge(Some(&silent), 0), Verdict::DialLast);
        assert_eq!(judge(None, 0), Verdict::DialLast);
        assert_eq!(judge(Some(&stranger), 0), Verdict::OtherChain);
        assert_eq!(judge(None, STRANGER_MS - 1), Verdict::OtherChain);
        assert_eq!(judge(Some(&silent), STRANGER_MS - 1), Verdict::OtherChain);
        assert_eq!(judge(None, STRANGER_MS), Verdict::DialLast);
        assert_eq!(judge(Some(&stranger), 0), Verdict::OtherChain);
        assert_eq!(judge(Some(&same), 1), Verdict::Dial, "it changed its chain");
        assert_eq!(judge(None, 1), Verdict::DialLast);
    }

    #[test]
    fn at_most_16384_nodes_of_other_chains_are_remembered() {
        let mut sieve = Sieve::default();
        for number in 0..5 * MAX_STRANGERS {
            let id = NodeId(FixedBytes::left_padding_from(&number.to_be_bytes()));
            sieve.note(id, 0);
            assert!(sieve.is_stranger(&id, 1));
            assert!(sieve.young.len() <= MAX_STRANGERS && sieve.old.len() <= MAX_STRANGERS);
        }
    }
}
