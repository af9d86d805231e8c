//! `niwaki storage prune-pre-merge-blocks`.

use crate::Outcome;
use crate::open::open_existing;
use crate::options::Options;
use crate::progress::{Done, Progress};
use crate::stop::Stop;
use eyre::{Result, ensure};

/// Removes the blocks before the Merge.
pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let stop = Stop::listen()?;
    let Some(chain) = open_existing(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    let head = chain.head();
    ensure!(
        chain.spec().is_proof_of_stake(&head.header),
        "the head, block {}, is not after the Merge, so all blocks are needed; nothing was removed",
        head.id.number
    );
    let first = chain.first_block()?;
    let mut progress = Progress::new(head.id.number.saturating_sub(first));
    let pruned = chain.prune_pre_merge_blocks(&mut |number| {
        let blocks = number - first;
        progress.show(Done {
            bytes: blocks,
            blocks,
            gas: 0,
            number,
        });
        !stop.is_requested()
    })?;
    progress.finish();
    chain.sync()?;
    println!(
        "removed {} blocks before the Merge; the lowest one above the genesis block is {} now (the \
         last 1,024 blocks always stay)",
        pruned.blocks, pruned.first
    );
    if pruned.is_stopped {
        eprintln!("stopped on request; the same command goes on");
        return Ok(Outcome::Interrupted);
    }
    Ok(Outcome::Done)
}
