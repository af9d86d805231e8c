//! The block to reach on a chain that no consensus client drives: the highest one that peers say they have.
//!
//! What they say proves nothing; the blocks on the way do, which validators have sealed. A block that could not be reached is not tried
//! again for a while, so a peer that invents one costs one attempt.

use crate::source::Offer;
use niwaki_chain::Consensus;
use niwaki_primitives::{B256, Fault};

/// How long a block that could not be reached is left alone.
const REFUSED_MS: u64 = 30_000;
/// Blocks that are left alone, at most.
const MAX_REFUSED: usize = 64;
/// A validator finishes the next block itself, at about the time at which its peers have it.
const GRACE_MS: u64 = 300;

#[derive(Debug, Default)]
pub(crate) struct Followed {
    current: Option<B256>,
    /// Until when.
    refused: Vec<(B256, u64)>,
    /// Since when a peer has had one block more than this node.
    ahead_since_ms: Option<u64>,
}

impl Followed {
    /// The block to reach; the same one until it is here or refused.
    pub(crate) fn choose(
        &mut self,
        consensus: &Consensus,
        offers: &[Offer],
        now_ms: u64,
    ) -> Result<Option<B256>, Fault> {
        let chain = consensus.chain();
        if let Some(hash) = self.current
            && chain.number_of(&hash)?.is_none()
        {
            return Ok(Some(hash));
        }
        self.refused.retain(|(_, until_ms)| *until_ms > now_ms);
        let head = chain.head().id.number;
        let is_refused = |hash: &B256| self.refused.iter().any(|(refused, _)| refused == hash);
        let ahead = offers.iter().filter(|offer| {
            let hash = &offer.latest_hash;
            offer.latest > head && !is_refused(hash) && !consensus.is_rejected(hash)
        });
        let best = ahead.max_by_key(|offer| offer.latest);
        self.current = match best {
            None => {
                self.ahead_since_ms = None;
                None
            }
            Some(best) => {
                let since_ms = *self.ahead_since_ms.get_or_insert(now_ms);
                let is_due = now_ms.saturating_sub(since_ms) >= GRACE_MS;
                let is_far = best.latest > head.saturating_add(1);
                (is_far || is_due).then_some(best.latest_hash)
            }
        };
        Ok(self.current)
    }

    /// The block could not be reached.
    pub(crate) fn refuse(&mut self, hash: B256, now_ms: u64) {
        if self.refused.len() >= MAX_REFUSED {
            self.refused.remove(0);
        }
        self.refused.push((hash, now_ms.saturating_add(REFUSED_MS)));
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{empty_chain, hash_of, main_branch};
    use niwaki_network::peers::ConnId;

    fn offer(conn: u64, latest: u64, hash: B256) -> Offer {
        Offer {
            conn: ConnId(conn),
            latest,
            latest_hash: hash,
            has_snap: false,
            has_nodes: false,
        }
    }

    #[test]
    fn the_highest_block_of_peers_is_followed_until_it_is_here_or_refused() {
        let consensus = Consensus::new(empty_chain(None));
        let mut followed = Followed::default();
        let mut choose = |offers: &[Offer], now_ms| {
            let chosen = followed.choose(&consensus, offers, now_ms);
            chosen.unwrap()
        };
        let [low, high] = [1, 2].map(B256::repeat_byte);
        assert_eq!(choose(&[], 0), None);
        assert_eq!(choose(&[offer(1, 0, low)], 0), None);
        let both = [offer(1, 20, low), offer(2, 30, high)];
        assert_eq!(choose(&both, 0), Some(high));
        // It stays, whatever others say.
        let other = [offer(3, 99, B256::repeat_byte(3))];
        assert_eq!(choose(&other, 60_000), Some(high));
        followed.refuse(high, 60_000);
        let mut choose = |now_ms| followed.choose(&consensus, &both, now_ms).unwrap();
        assert_eq!(choose(60_001), Some(low));
        followed.refuse(low, 60_001);
        let mut choose = |now_ms| followed.choose(&consensus, &both, now_ms).unwrap();
        assert_eq!(choose(60_002), None);
        assert_eq!(choose(90_000), Some(high));
    }

    #[test]
    fn the_next_block_has_a_moment_and_a_known_one_is_no_target() {
        let consensus = Consensus::new(empty_chain(None));
        let blocks = main_branch();
        let next = [offer(1, 1, hash_of(&blocks[0]))];
        let mut followed = Followed::default();
        let mut choose = |now_ms| followed.choose(&consensus, &next, now_ms).unwrap();
        assert_eq!(choose(1_000), None);
        assert_eq!(choose(1_000 + GRACE_MS - 1), None);
        assert_eq!(choose(1_000 + GRACE_MS), Some(next[0].latest_hash));
        consensus.chain().import(blocks[0].clone()).unwrap();
        assert_eq!(choose(1_000 + GRACE_MS), None);
    }
}
