//! `niwaki storage repair`.

use super::{check_all, print_problems};
use crate::Outcome;
use crate::loading::LoadingProgress;
use crate::open::open_existing;
use crate::options::Options;
use crate::stop::Stop;
use eyre::{Result, WrapErr, eyre};
use niwaki_chain::{Chain, Loading, Repairing};
use std::sync::Arc;

const TITLES: [&str; 2] = ["repair, 1 of 2: state", "repair, 2 of 2: blocks"];

const NEXT_STEP: &str = "the database can't be repaired; restore a backup with 'niwaki storage \
                         restore', or import the chain into an empty data path";

/// Rebuilds derived data from accounts, slots, headers and bodies, then checks everything.
pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let stop = Stop::listen()?;
    let Some(chain) = open_existing(options, &stop).wrap_err(NEXT_STEP)? else {
        return Ok(Outcome::Interrupted);
    };
    let chain = Arc::try_unwrap(chain)
        .map_err(|_| eyre!("the chain is in use elsewhere in this process"))?;
    eprintln!(
        "repairing the chain and its state, up to block {}",
        chain.head().id
    );
    let mut refusals = Vec::new();
    let mut progress = LoadingProgress::new(TITLES, stop.clone());
    let repaired = Chain::repair(
        chain,
        &mut |repairing| {
            progress.report(match repairing {
                Repairing::State(done, of) => Loading::Reading(done, of),
                Repairing::Blocks(done, of) => Loading::Writing(done, of),
            })
        },
        &mut |refusal| refusals.push(refusal),
    );
    progress.finish();
    let Some(repair) = repaired.wrap_err(NEXT_STEP)? else {
        eprintln!("stopped on request; what was rebuilt is right, the same command continues");
        return Ok(Outcome::Interrupted);
    };
    // The check writes nothing, so one Ctrl-C may end the process.
    stop.exit_on_next();
    if let Some(state) = repair.state {
        println!(
            "state: {} trie rows, {} storage roots of accounts, {} slots of no account",
            state.trie_rows, state.accounts, state.slots
        );
    }
    println!(
        "blocks: {} canonical numbers, {} numbers, {} places of transactions, {} total \
         difficulties",
        repair.canonical, repair.numbers, repair.transactions, repair.difficulties
    );
    print_problems("can't be rebuilt", &refusals);

    let Some(chain) = open_existing(options, &stop).wrap_err(NEXT_STEP)? else {
        return Ok(Outcome::Interrupted);
    };
    check_all(&chain)
}
