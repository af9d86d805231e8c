//! The block to reach on a chain that no consensus client drives: the highest one that peers say they have.
//!
//! What they say proves nothing; the blocks on the way do, which validators have sealed. A block that could not be reached is not tried
//! again for a while, and its peer is left alone for some seconds: one that invents blocks costs an attempt now and then.

use crate::source::Offer;
use niwaki_chain::Consensus;
use niwaki_network::peers::ConnId;
use niwaki_network::wire::BlockRange;
use niwaki_primitives::{B256, Fault};
use std::fmt;

/// How long a block that could not be reached is left alone.
const REFUSED_MS: u64 = 30_000;
/// How long the peer that named it is left alone.
const PEER_REFUSED_MS: u64 = 5_000;
/// How long both are left alone if peers were too slow to show the block: in a network that has more to do than it can, none is faster.
const LATE_MS: u64 = 1_000;
/// Blocks that are left alone, at most.
const MAX_REFUSED: usize = 64;
/// A validator finishes the next block itself, at about the time at which its peers have it: after this it does not wait for that any more.
const GRACE_MS: u64 = 1_000;

/// What a sync that goes where its peers are asks the node.
pub struct FollowsPeers {
    /// Whether this node is one of the validators of the next block.
    pub is_validator: Box<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for FollowsPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowsPeers").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct Followed {
    node: FollowsPeers,
    current: Option<(B256, ConnId)>,
    refused: Vec<Refused>,
    /// Since when a peer has had one block more than this node.
    ahead_since_ms: Option<u64>,
}

impl Followed {
    pub(crate) fn new(node: FollowsPeers) -> Self {
        Self {
            node,
            current: None,
            refused: Vec::new(),
            ahead_since_ms: None,
        }
    }

    /// The block to reach; the same one until it is here or refused.
    pub(crate) fn choose(
        &mut self,
        consensus: &Consensus,
        offers: &[Offer],
        now_ms: u64,
    ) -> Result<Option<B256>, Fault> {
        let chain = consensus.chain();
        if let Some((hash, _)) = self.current
            && chain.number_of(&hash)?.is_none()
        {
            return Ok(Some(hash));
        }
        self.refused.retain(|refused| now_ms < refused.until_ms);
        let head = chain.head().id.number;
        let is_refused = |offer: &Offer| {
            let mut refused = self.refused.iter();
            refused.any(|refused| refused.holds_for(offer, now_ms))
        };
        let ahead = offers.iter().filter(|offer| {
            let hash = &offer.latest_hash;
            // A peer before eth/69 says no number when it connects.
            let is_known = offer.latest == BlockRange::UNKNOWN
                && chain.number_of(hash).is_ok_and(|number| number.is_some());
            offer.latest > head && !is_known && !is_refused(offer) && !consensus.is_rejected(hash)
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
                (is_far || is_due || !(self.node.is_validator)())
                    .then_some((best.latest_hash, best.conn))
            }
        };
        Ok(self.current.map(|(hash, _)| hash))
    }

    /// The block could not be reached; `is_late`: none of the peers answered in time.
    pub(crate) fn refuse_current(&mut self, is_late: bool, now_ms: u64) {
        let Some((hash, conn)) = self.current.take() else {
            return;
        };
        if self.refused.len() >= MAX_REFUSED {
            self.refused.remove(0);
        }
        let (block_ms, peer_ms) = match is_late {
            true => (LATE_MS, LATE_MS),
            false => (REFUSED_MS, PEER_REFUSED_MS),
        };
        self.refused.push(Refused {
            hash,
            conn,
            until_ms: now_ms.saturating_add(block_ms),
            peer_until_ms: now_ms.saturating_add(peer_ms),
        });
    }
}

/// A block that could not be reached, and who named it.
#[derive(Debug)]
struct Refused {
    hash: B256,
    conn: ConnId,
    until_ms: u64,
    peer_until_ms: u64,
}

impl Refused {
    fn holds_for(&self, offer: &Offer, now_ms: u64) -> bool {
        let is_peers = now_ms < self.peer_until_ms;
        offer.latest_hash == self.hash || (is_peers && offer.conn == self.conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{empty_chain, hash_of, main_branch};

    fn followed(is_validator: bool) -> Followed {
        Followed::new(FollowsPeers {
            is_validator: Box::new(move || is_validator),
        })
    }

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
        let mut followed = followed(false);
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
        followed.refuse_current(false, 60_000);
        let mut choose = |now_ms| followed.choose(&consensus, &both, now_ms).unwrap();
        assert_eq!(choose(60_001), Some(low));
        followed.refuse_current(false, 60_001);
        let mut choose = |now_ms| followed.choose(&consensus, &both, now_ms).unwrap();
        assert_eq!(choose(89_999), None);
        assert_eq!(choose(90_000), Some(high));
    }

    #[test]
    fn a_peer_that_invents_blocks_is_left_alone_for_some_seconds() {
        let consensus = Consensus::new(empty_chain(None));
        let mut followed = followed(false);
        let [honest, first, second] = [1, 2, 3].map(B256::repeat_byte);
        let choose = |followed: &mut Followed, invented, now_ms| {
            let offers = [offer(1, 20, honest), offer(2, 9_000, invented)];
            followed.choose(&consensus, &offers, now_ms).unwrap()
        };
        assert_eq!(choose(&mut followed, first, 0), Some(first));
        followed.refuse_current(false, 1_000);
        assert_eq!(choose(&mut followed, second, 1_000), Some(honest));
        followed.refuse_current(false, 2_000);
        assert_eq!(choose(&mut followed, second, 5_999), None);
        assert_eq!(choose(&mut followed, second, 6_000), Some(second));
    }

    #[test]
    fn a_block_that_slow_peers_did_not_show_is_asked_for_again_soon() {
        let consensus = Consensus::new(empty_chain(None));
        let mut followed = followed(false);
        let high = B256::repeat_byte(1);
        let choose = |followed: &mut Followed, now_ms| {
            let offers = [offer(1, 20, high)];
            followed.choose(&consensus, &offers, now_ms).unwrap()
        };
        assert_eq!(choose(&mut followed, 0), Some(high));
        followed.refuse_current(true, 6_000);
        assert_eq!(choose(&mut followed, 6_999), None);
        assert_eq!(choose(&mut followed, 7_000), Some(high));
    }

    #[test]
    fn a_block_whose_number_is_not_said_is_followed_unless_it_is_here() {
        let consensus = Consensus::new(empty_chain(None));
        let blocks = main_branch();
        let unknown = [offer(1, BlockRange::UNKNOWN, hash_of(&blocks[0]))];
        let mut followed = followed(false);
        let mut choose = || followed.choose(&consensus, &unknown, 0).unwrap();
        assert_eq!(choose(), Some(unknown[0].latest_hash));
        consensus.chain().import(blocks[0].clone()).unwrap();
        assert_eq!(choose(), None);
    }

    #[test]
    fn a_validator_leaves_the_next_block_a_moment_and_a_known_one_is_no_target() {
        let consensus = Consensus::new(empty_chain(None));
        let blocks = main_branch();
        let next = [offer(1, 1, hash_of(&blocks[0]))];
        let [mut follower, mut followed] = [false, true].map(followed);
        let at_once = follower.choose(&consensus, &next, 1_000).unwrap();
        assert_eq!(at_once, Some(next[0].latest_hash));
        let mut choose = |now_ms| followed.choose(&consensus, &next, now_ms).unwrap();
        assert_eq!(choose(1_000), None);
        assert_eq!(choose(1_000 + GRACE_MS - 1), None);
        assert_eq!(choose(1_000 + GRACE_MS), Some(next[0].latest_hash));
        consensus.chain().import(blocks[0].clone()).unwrap();
        assert_eq!(choose(1_000 + GRACE_MS), None);
    }
}
