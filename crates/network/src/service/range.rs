//! Says to all peers which blocks this node has: when the head has moved by 32 blocks or backwards, and each minute if it has moved at all;
//! at each move, but ten times a second at most, on a chain of validators, where peers know of a block by this.
//!
//! Spec: devp2p `caps/eth.md`, BlockRangeUpdate (EIP-7642).

use crate::peer::{LocalChain, Peer};
use crate::wire::BlockRange;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// A smaller move of the head waits for the next minute.
const LARGE_MOVE_BLOCKS: u64 = 32;
const PERIOD: Duration = Duration::from_secs(60);
/// A chain that is catching up moves thousands of times a second.
const MIN_GAP: Duration = Duration::from_millis(100);

/// Runs until the sender of `chain` is gone.
pub(super) async fn announce(
    mut chain: watch::Receiver<LocalChain>,
    peers: watch::Receiver<Arc<[Arc<Peer>]>>,
) {
    let mut sent = chain.borrow_and_update().range;
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_tick = tokio::select! {
            changed = chain.changed() => match changed {
                Ok(()) => false,
                Err(_) => return,
            },
            _ = ticks.tick() => true,
        };
        let (range, says_each_block) = {
            let chain = chain.borrow_and_update();
            (chain.range, chain.has_validators)
        };
        if range != sent && (is_tick || says_each_block || is_large(sent, range)) {
            peers
                .borrow()
                .iter()
                .for_each(|peer| peer.send_range(range));
            sent = range;
            if says_each_block {
                sleep(MIN_GAP).await;
            }
        }
    }
}

/// Whether peers should know at once.
fn is_large(sent: BlockRange, now: BlockRange) -> bool {
    now.latest < sent.latest || now.latest - sent.latest >= LARGE_MOVE_BLOCKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_of_32_blocks_or_backwards_is_said_at_once() {
        let range = |latest| BlockRange {
            latest,
            ..BlockRange::default()
        };
        let at_once = |now| is_large(range(100), range(now));
        assert!(!at_once(100) && !at_once(131));
        assert!(at_once(132) && at_once(99));
    }
}
