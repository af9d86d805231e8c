//! Log lines about the head: reorganisations and fork activations. The Engine API logs the line of each block.

use niwaki_chain::{BlockId, Chain, HeadChange};
use niwaki_primitives::Fork;
use niwaki_rpc::human::ShortHash;
use tracing::{debug, info, warn};

/// The previous head, to compare the next one with.
pub(super) struct HeadLog {
    head: BlockId,
    fork: Fork,
    /// Reorganisations that remove more blocks than this are warnings.
    reorg_threshold: u64,
}

/// The figures of a reorganisation's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reorg {
    /// Number of blocks that left the canonical chain.
    removed: usize,
    /// Number of blocks that joined it.
    added: usize,
    /// Number of the common ancestor.
    ancestor: u64,
}

impl Reorg {
    /// `None` if the head moved forward or back on one chain.
    fn of(change: &HeadChange) -> Option<Self> {
        let lowest = change.removed.last()?;
        let added = change.added.first()?;
        Some(Self {
            removed: change.removed.len(),
            added: change.added.len(),
            ancestor: lowest.number.min(added.number).saturating_sub(1),
        })
    }
}

impl HeadLog {
    pub(super) fn new(chain: &Chain, reorg_threshold: u64) -> Self {
        let head = chain.head();
        Self {
            head: head.id,
            fork: chain.spec().fork_of(&head.header),
            reorg_threshold,
        }
    }

    /// Logs what is notable about a new head.
    pub(super) fn write(&mut self, chain: &Chain, change: &HeadChange) {
        let head = change.head.id;
        debug!(number = head.number, hash = %head.hash, "Head");
        let old = std::mem::replace(&mut self.head, head);
        match Reorg::of(change) {
            Some(reorg) => self.write_reorg(chain, reorg, old, head),
            None if !change.removed.is_empty() => {
                let (removed, number) = (change.removed.len(), head.number);
                let (hash, old) = (ShortHash(head.hash), old.number);
                warn!(removed, old, number, %hash, "The head was set back");
            }
            None => {}
        }
        let fork = chain.spec().fork_of(&change.head.header);
        if std::mem::replace(&mut self.fork, fork) < fork {
            let (number, hash) = (head.number, ShortHash(head.hash));
            info!(%fork, number, %hash, "Fork activated");
        }
    }

    fn write_reorg(&self, chain: &Chain, reorg: Reorg, old: BlockId, new: BlockId) {
        let ancestor_hash = chain.canonical_hash(reorg.ancestor).ok().flatten();
        let ancestor_hash = ShortHash(ancestor_hash.unwrap_or_default());
        let (old_hash, new_hash) = (ShortHash(old.hash), ShortHash(new.hash));
        let Reorg {
            removed,
            added,
            ancestor,
        } = reorg;
        let (old, new) = (old.number, new.number);
        // `tracing` needs the level at compile time.
        macro_rules! line {
            ($level:ident) => {
                $level!(
                    removed, added, ancestor, %ancestor_hash, old, %old_hash, new, %new_hash,
                    "Reorganised"
                )
            };
        }
        match removed as u64 > self.reorg_threshold {
            true => line!(warn),
            false => line!(info),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_chain::StoredHeader;
    use niwaki_primitives::{B256, Header, U256};

    fn id(number: u64) -> BlockId {
        BlockId {
            number,
            hash: B256::repeat_byte(7),
        }
    }

    fn change(removed: &[u64], added: &[u64]) -> HeadChange {
        HeadChange {
            head: StoredHeader {
                id: id(9),
                header: Header::default(),
                total_difficulty: U256::ZERO,
            },
            removed: removed.iter().map(|number| id(*number)).collect(),
            added: added.iter().map(|number| id(*number)).collect(),
            changed: None,
        }
    }

    #[test]
    fn a_reorganisation_has_its_common_ancestor() {
        assert_eq!(Reorg::of(&change(&[], &[9])), None);
        assert_eq!(Reorg::of(&change(&[9, 8], &[])), None);
        let reorg = Reorg::of(&change(&[9, 8], &[8, 9, 10])).unwrap();
        let expected = Reorg {
            removed: 2,
            added: 3,
            ancestor: 7,
        };
        assert_eq!(reorg, expected);
    }
}
