//! `niwaki storage`.

use crate::Ending;
use crate::memory::peak_rss_bytes;
use crate::open::{open_chain, open_existing};
use crate::options::{CheckOptions, Options};
use crate::stop::Stop;
use eyre::Result;
use niwaki_chain::Problem;
use std::time::Instant;

/// The most problems that are printed one by one.
const SHOWN: u64 = 100;

/// Reads the whole database and compares values, trie and head; says what does not fit.
pub(crate) fn check(options: &Options, check: &CheckOptions) -> Result<Ending> {
    if check.head_only {
        return check_head(options, &Stop::listen()?);
    }
    // One Ctrl-C ends the process: nothing is written, nothing is asked to stop.
    let Some(chain) = open_existing(options, &Stop::default())? else {
        return Ok(Ending::Interrupted);
    };
    let head = chain.head();
    eprintln!("checking the chain and its state, up to block {}", head.id);
    let began = Instant::now();
    let mut shown = 0;
    let found = chain.check(&mut |problem: Problem| {
        shown += 1;
        if shown <= SHOWN {
            println!("problem: {problem}");
        }
    })?;
    if shown > SHOWN {
        println!("and {} more", shown - SHOWN);
    }
    println!(
        "checked {} blocks with {} transactions, {} accounts, {} slots, {} trie rows in {:.2} s",
        found.blocks,
        found.transactions,
        found.state.accounts,
        found.state.slots,
        found.state.trie_rows,
        began.elapsed().as_secs_f64()
    );
    print_peak_memory();
    println!("head {}, state root {}", head.id, head.header.state_root);
    if found.problems == 0 {
        println!("no problems found");
        return Ok(Ending::Done);
    }
    println!(
        "{} problems found; import the chain into an empty data path",
        found.problems
    );
    Ok(Ending::Bad)
}

/// Opens the chain, beginning it if there is none, and compares what its head says of itself.
fn check_head(options: &Options, stop: &Stop) -> Result<Ending> {
    let began = Instant::now();
    let Some(chain) = open_chain(options, stop)? else {
        return Ok(Ending::Interrupted);
    };
    let opened_s = began.elapsed().as_secs_f64();
    let problem = chain.check_head()?;
    let head = chain.head();
    println!("head {}, state root {}", head.id, head.header.state_root);
    println!(
        "opened in {opened_s:.3} s, checked after {:.3} s",
        began.elapsed().as_secs_f64()
    );
    print_peak_memory();
    let Some(problem) = problem else {
        println!("the head's header, its state root and the root of the trie agree");
        return Ok(Ending::Done);
    };
    println!("problem: {problem}");
    Ok(Ending::Bad)
}

fn print_peak_memory() {
    if let Some(bytes) = peak_rss_bytes() {
        println!("peak memory {:.0} MiB", bytes as f64 / 1048576.0);
    }
}
