//! Which way a node gets to its target: a pure function of where it is.
//!
//! | situation | way |
//! |---|---|
//! | the missing block is stored | import the blocks that wait upon it |
//! | no peers | wait |
//! | the number of the target is not known | ask for its header |
//! | a state is being downloaded | it goes on |
//! | one is wanted, and the disk is nearly full | wait |
//! | the chain has its genesis block only, wants the state and the target is 192 blocks away | the state is downloaded |
//! | headers of a full sync are stored | full sync goes on |
//! | at most 1,024 blocks are missing, as far as numbers say | backward sync |
//! | else, or if backward sync has failed | full sync |

use crate::progress::Waiting;
use crate::source::Offer;
use crate::state_sync::MIN_DISTANCE;

/// Most headers that are held in memory: longer gaps are for full sync.
pub(crate) const MAX_BACKWARD: u64 = 1_024;

/// How a node gets to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Blocks that are here are imported.
    Import,
    /// The target's header is asked for.
    Locate,
    /// Headers in memory from the target down to a stored block, then bodies upwards.
    Backward,
    /// The same with stored headers, for any distance.
    Full,
    /// The state of a late block is downloaded.
    Snap,
}

impl Way {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::Locate => "locate",
            Self::Backward => "backward",
            Self::Full => "full",
            Self::Snap => "snap",
        }
    }
}

/// Where a node is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'s> {
    /// The number of its head.
    pub(crate) head: u64,
    /// Whether the target is stored.
    pub(crate) is_stored: bool,
    /// The target's number, if its header is known.
    pub(crate) target: Option<u64>,
    /// What the peers have.
    pub(crate) offers: &'s [Offer],
    /// Whether a state is being downloaded.
    pub(crate) has_download: bool,
    /// Whether the node wants the state of a late block, and has only its genesis block so far.
    pub(crate) wants_state: bool,
    /// Whether the disk has room for a state.
    pub(crate) has_space: bool,
    /// Whether headers of a full sync are stored.
    pub(crate) is_unfinished: bool,
    /// The way that has failed to reach this target last.
    pub(crate) failed: Option<Way>,
}

/// The way, or what has to be waited for.
pub(crate) fn pick(situation: &Situation<'_>) -> Result<Way, Waiting> {
    if situation.is_stored {
        return Ok(Way::Import);
    }
    if situation.offers.is_empty() {
        return Err(Waiting::NoPeers);
    }
    let Some(target) = situation.target else {
        return Ok(Way::Locate);
    };
    let is_far = target >= situation.head.saturating_add(MIN_DISTANCE);
    if situation.has_download || situation.wants_state && is_far {
        if !situation.has_download && !situation.has_space {
            return Err(Waiting::NoSpace);
        }
        let has_snap = situation.offers.iter().any(|offer| offer.has_snap);
        return has_snap.then_some(Way::Snap).ok_or(Waiting::NoSnapPeers);
    }
    let is_near = target.saturating_sub(situation.head) <= MAX_BACKWARD;
    Ok(match situation.failed {
        Some(Way::Backward) => Way::Full,
        Some(Way::Full) if is_near => Way::Backward,
        _ if situation.is_unfinished || !is_near => Way::Full,
        _ => Way::Backward,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_network::peers::ConnId;
    use proptest::prelude::*;

    const PEERS: &[Offer] = &[Offer {
        conn: ConnId(1),
        latest: 9,
        latest_hash: niwaki_primitives::B256::ZERO,
        has_snap: false,
        has_nodes: false,
    }];

    fn behind(head: u64, target: u64) -> Situation<'static> {
        Situation {
            head,
            is_stored: false,
            target: Some(target),
            offers: PEERS,
            has_download: false,
            wants_state: false,
            has_space: true,
            is_unfinished: false,
            failed: None,
        }
    }

    #[test]
    fn a_gap_of_1024_is_for_backward_sync_and_one_of_1025_for_full_sync() {
        assert_eq!(pick(&behind(10, 1_034)), Ok(Way::Backward));
        assert_eq!(pick(&behind(10, 1_035)), Ok(Way::Full));
        // A reorganisation to a lower block.
        assert_eq!(pick(&behind(10, 3)), Ok(Way::Backward));
    }

    #[test]
    fn an_unfinished_full_sync_goes_on_although_the_gap_is_small() {
        let situation = Situation {
            is_unfinished: true,
            ..behind(10, 20)
        };
        assert_eq!(pick(&situation), Ok(Way::Full));
    }

    #[test]
    fn the_other_way_is_taken_after_a_failure() {
        let failed = |way| Situation {
            failed: Some(way),
            ..behind(10, 20)
        };
        assert_eq!(pick(&failed(Way::Backward)), Ok(Way::Full));
        assert_eq!(pick(&failed(Way::Full)), Ok(Way::Backward));
        let far = Situation {
            failed: Some(Way::Full),
            ..behind(10, 99_999)
        };
        assert_eq!(pick(&far), Ok(Way::Full));
    }

    #[test]
    fn a_state_is_downloaded_by_a_chain_of_a_genesis_block_192_blocks_away_once_a_peer_gives_it() {
        let with_snap = [Offer {
            has_snap: true,
            ..PEERS[0]
        }];
        let at = |target| Situation {
            wants_state: true,
            offers: &with_snap,
            ..behind(0, target)
        };
        assert_eq!(pick(&at(191)), Ok(Way::Backward));
        assert_eq!(pick(&at(192)), Ok(Way::Snap));
        let without = Situation {
            offers: PEERS,
            ..at(192)
        };
        assert_eq!(pick(&without), Err(Waiting::NoSnapPeers));
        let full_disk = Situation {
            has_space: false,
            ..at(192)
        };
        assert_eq!(pick(&full_disk), Err(Waiting::NoSpace));
        // What was begun goes on, however near the target is.
        let begun = Situation {
            has_download: true,
            wants_state: false,
            has_space: false,
            ..at(3)
        };
        assert_eq!(pick(&begun), Ok(Way::Snap));
    }

    proptest! {
        #[test]
        fn a_stored_target_is_never_asked_for_and_nothing_is_asked_without_peers(
            head: u64, target: Option<u64>, has_peers: bool, is_stored: bool, is_unfinished: bool
        ) {
            let offers = if has_peers { PEERS } else { &[] };
            let way = pick(&Situation {
                head,
                is_stored,
                target,
                offers,
                has_download: false,
                wants_state: false,
                has_space: false,
                is_unfinished,
                failed: None,
            });
            prop_assert_eq!(way == Ok(Way::Import), is_stored);
            prop_assert_eq!(way == Err(Waiting::NoPeers), !is_stored && !has_peers);
            prop_assert_eq!(way == Ok(Way::Locate), !is_stored && has_peers && target.is_none());
        }
    }
}
