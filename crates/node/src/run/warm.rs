//! Pool warming: executes the pooled transactions that the next block is likely to hold, before it arrives.
//!
//! Most transactions of a block have been in the pool for a while. Executing the best of them on top of the head
//! caches the state they read, so that the block does not wait for the disk. A thread of low priority does it; a
//! block that arrives stops it after the current transaction. Nothing that it computes is kept but the caches.

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

/// How often the thread looks for new transactions.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Pause after a fault of the disk.
const FAULT_PAUSE: Duration = Duration::from_secs(60);

/// Seconds from a block to the next; the next block's fork follows from its timestamp.
const SLOT_S: u64 = 12;

/// How many blocks' worth of gas is executed per head: the builder of the block may choose other transactions.
const MAX_BLOCKS_OF_GAS: u64 = 2;

/// The thread that executes transactions; dropping this ends it.
pub(super) struct PoolWarmer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PoolWarmer {
    pub(super) fn start(chain: &Arc<Chain>, pool: &Arc<Pool>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let mut state = WarmingState::new(Arc::clone(chain), Arc::clone(pool));
        let thread = std::thread::Builder::new()
            .name("pool-warming".to_owned())
            .spawn(move || {
                yield_to_blocks();
                // `drop` sets the flag, then unparks this thread.
                while !is_stopped.load(Ordering::Relaxed) {
                    let pause = match state.warm(&is_stopped) {
                        Ok(warmed) => count(warmed),
                        Err(error) => log_error(&error),
                    };
                    std::thread::park_timeout(pause);
                }
            })
            .wrap_err("can't start the thread that runs the pool's transactions")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for PoolWarmer {
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
    POLL_INTERVAL
}

fn log_error(error: &BuildError) -> Duration {
    error!(%error, "the pool's transactions can't be run before a block");
    FAULT_PAUSE
}

/// What has been executed on top of the current head.
struct WarmingState {
    chain: Arc<Chain>,
    pool: Arc<Pool>,
    head: B256,
    /// Transactions that were executed.
    executed: HashSet<B256>,
    gas: u64,
    /// The pool's count of added transactions when everything it offered had been executed.
    added: Option<u64>,
}

impl WarmingState {
    fn new(chain: Arc<Chain>, pool: Arc<Pool>) -> Self {
        Self {
            chain,
            pool,
            head: B256::ZERO,
            executed: HashSet::new(),
            gas: 0,
            added: None,
        }
    }

    /// Executes the transactions that the pool has got since the last call, or all of them if the head is new,
    /// until `stop` is set.
    fn warm(&mut self, stop: &AtomicBool) -> Result<Prewarmed, BuildError> {
        let head = self.chain.head();
        if head.id.hash != self.head {
            self.head = head.id.hash;
            self.executed.clear();
            self.gas = 0;
            self.added = None;
        }
        let added = Some(self.pool.added());
        let max_gas = head.header.gas_limit.saturating_mul(MAX_BLOCKS_OF_GAS);
        let left = max_gas.saturating_sub(self.gas);
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
            // The pool has not processed this head yet: it would offer transactions that the block included.
            return Ok(Prewarmed::default());
        }
        let executed = &mut self.executed;
        let mut candidates = self
            .pool
            .best(base_fee, blob_base_fee)
            .take_while(|_| !stop.load(Ordering::Relaxed))
            .filter(|pooled| executed.insert(pooled.hash))
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
