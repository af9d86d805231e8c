//! The write-ahead hook of a block, in parallel with its roots.

use niwaki_primitives::Block;
use niwaki_threads::WorkerPool;

/// What must be done with a block before it is written: the consensus client's journal. It runs in parallel with the roots if a
/// processor is free, before it is known whether the block is valid, and otherwise just before the commit. It may run
/// twice, so it must be idempotent.
pub type WriteAhead<'w> = &'w (dyn Fn(&Block) + Sync);

/// Does `work`, and meanwhile runs the hook on another thread.
pub(crate) fn write_ahead_while<T>(
    block: &Block,
    write_ahead: Option<WriteAhead<'_>>,
    work: impl FnOnce() -> T,
) -> T {
    let hook = write_ahead.and_then(|hook| Some((hook, WorkerPool::named("journal", 1)?)));
    match hook {
        Some((hook, pool)) => pool.join(|| hook(block), work).1,
        None => work(),
    }
}
