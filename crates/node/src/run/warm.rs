//! The transactions of the pool that the next block is likely to take, run before it comes.
//!
//! Most of a block's transactions have been in the pool for a while. Running the best of them upon the
//! head brings what they read into memory: when the block comes it need not wait for the disk. On a
//! thread of its own, at a lower priority; a block that comes ends it after the transaction at hand.

use eyre::{Result, WrapErr};
use metrics::counter;
use niwaki_chain::{BlockTemplate, BuildError, Candidate, Chain, Prewarmed};
use niwaki_primitives::B256;
use niwaki_rpc::yield_to_blocks;
use niwaki_txpool::Pool;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::error;

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_millis(500);

/// After a fault of the disk.
const PAUSE: Duration = Duration::from_secs(60);

/// Seconds from a block to the next, by which alone its fork is known.
const SLOT_S: u64 = 12;

/// Upon each head so many times the gas of a block is run: who builds it has seen other transactions.
const MOST_BLOCKS: u64 = 2;

/// The thread that runs transactions; it ends when this is dropped.
pub(super) struct Warmer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Warmer {
    pub(super) fn start(chain: &Arc<Chain>, pool: &Arc<Pool>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let mut warming = Warming::new(Arc::clone(chain), Arc::clone(pool));
        let thread = std::thread::Builder::new()
            .name("pool-warming".to_owned())
            .spawn(move || {
                yield_to_blocks();
                // Whoever stops it wakes it too.
                while !asked.load(Ordering::Relaxed) {
                    let rest = warming.look(&asked).map_or_else(tell, count);
                    std::thread::park_timeout(rest);
                }
            })
            .wrap_err("can't start the thread that runs the pool's transactions")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Warmer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn count(warmed: Prewarmed) -> Duration {
    counter!("niwaki_pool_warming_transactions_total").increment(warmed.transactions);
    counter!("niwaki_pool_warming_gas_total").increment(warmed.gas);
    LOOK
}

fn tell(error: BuildError) -> Duration {
    error!(%error, "the pool's transactions can't be run before a block");
    PAUSE
}

/// What has been run upon the head.
struct Warming {
    chain: Arc<Chain>,
    pool: Arc<Pool>,
    head: B256,
    seen: HashSet<B256>,
    gas: u64,
    /// Transactions that the pool had taken in when all that it gave was run last.
    added: Option<u64>,
}

impl Warming {
    fn new(chain: Arc<Chain>, pool: Arc<Pool>) -> Self {
        Self {
            chain,
            pool,
            head: B256::ZERO,
            seen: HashSet::new(),
            gas: 0,
            added: None,
        }
    }

    /// Runs what the pool has got since the last look, or all of it if the head is a new one, until told
    /// to `stop`.
    fn look(&mut self, stop: &AtomicBool) -> Result<Prewarmed, BuildError> {
        let head = self.chain.head();
        if head.id.hash != self.head {
            self.head = head.id.hash;
            self.seen.clear();
            self.gas = 0;
            self.added = None;
        }
        let added = Some(self.pool.added());
        let most_gas = head.header.gas_limit.saturating_mul(MOST_BLOCKS);
        let left = most_gas.saturating_sub(self.gas);
        if added == self.added || left == 0 {
            return Ok(Prewarmed::default());
        }
        let header = self.chain.next_header(BlockTemplate {
            parent: self.head,
            timestamp: head.header.timestamp.saturating_add(SLOT_S),
            coinbase: head.header.beneficiary,
            ..BlockTemplate::default()
        })?;
        let (base_fee, blob_base_fee) = self.pool.next_fees();
        if header.base_fee_per_gas.is_some_and(|fee| fee != base_fee) {
            // The pool has not heard of this head yet: it would give what the last block has taken.
            return Ok(Prewarmed::default());
        }
        let seen = &mut self.seen;
        let mut candidates = self
            .pool
            .best(base_fee, blob_base_fee)
            .take_while(|_| !stop.load(Ordering::Relaxed))
            .filter(|pooled| seen.insert(pooled.hash))
            .map(|pooled| Candidate {
                tx: pooled.tx.clone(),
                sender: pooled.sender,
            });
        let warmed = self.chain.prewarm(&header, &mut candidates, left)?;
        self.gas = self.gas.saturating_add(warmed.gas);
        self.added = added.filter(|_| !warmed.is_cut);
        Ok(warmed)
    }
}
