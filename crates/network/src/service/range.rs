//! Says to all peers which blocks this node has: when the head has moved by 32 blocks or backwards, and each minute if it has moved at all;
//! at each move, but ten times a second at most, on a chain of validators, where peers know of a block by this. Peers before eth/69 get
//! the block itself there.
//!
//! Spec: devp2p `caps/eth.md`, BlockRangeUpdate (EIP-7642), NewBlock.

use crate::peer::{LocalChain, Peer, ValidatorsChain};
use crate::wire::{BlockRange, new_block};
use niwaki_primitives::{B256, Bytes};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
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
        let (range, validators) = {
            let chain = chain.borrow_and_update();
            (chain.range, chain.validators.clone())
        };
        if range != sent && (is_tick || validators.is_some() || is_large(sent, range)) {
            let peers = Arc::clone(&peers.borrow());
            peers.iter().for_each(|peer| peer.send_range(range));
            sent = range;
            if let Some(validators) = validators {
                send_block(&peers, validators, range.latest_hash).await;
                sleep(MIN_GAP).await;
            }
        }
    }
}

/// Sends the block to those that know of it in no other way.
async fn send_block(peers: &[Arc<Peer>], validators: ValidatorsChain, hash: B256) {
    if peers.iter().all(|peer| peer.info.version.has_ranges()) {
        return;
    }
    let read = spawn_blocking(move || (validators.block)(&hash)).await;
    if let Ok(Some((block, total_difficulty))) = read {
        let message = Bytes::from(new_block(&block, total_difficulty));
        peers.iter().for_each(|peer| peer.send_new_block(&message));
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
