//! `niwaki storage repair`.

use super::{check_all, print_problems};
use crate::Ending;
use crate::open::open_existing;
use crate::options::Options;
use crate::stop::Stop;
use eyre::{Result, WrapErr, eyre};
use niwaki_chain::Chain;
use std::sync::Arc;

const NEXT_STEP: &str = "the database can't be repaired; restore a backup with 'niwaki storage \
                         restore', or import the chain into an empty data path";

/// Makes anew what follows from something that is right, then checks everything.
pub(crate) fn run(options: &Options) -> Result<Ending> {
    // One Ctrl-C ends the process: what is written is right by itself.
    let stop = Stop::default();
    let Some(chain) = open_existing(options, &stop).wrap_err(NEXT_STEP)? else {
        return Ok(Ending::Interrupted);
    };
    let chain = Arc::try_unwrap(chain).map_err(|_| eyre!("nobody else has the chain yet"))?;
    eprintln!(
        "repairing the chain and its state, up to block {}",
        chain.head().id
    );
    let mut refusals = Vec::new();
    let repair = Chain::repair(chain, &mut |refusal| refusals.push(refusal)).wrap_err(NEXT_STEP)?;
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
    print_problems("can't be made anew", &refusals);

    let Some(chain) = open_existing(options, &stop).wrap_err(NEXT_STEP)? else {
        return Ok(Ending::Interrupted);
    };
    check_all(&chain)
}
