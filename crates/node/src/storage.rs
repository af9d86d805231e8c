//! `niwaki storage`.

use crate::Ending;
use crate::memory::peak_rss_bytes;
use crate::open::open_existing;
use crate::options::Options;
use eyre::Result;
use niwaki_chain::Problem;
use std::time::Instant;

/// The most problems that are printed one by one.
const SHOWN: u64 = 100;

/// Reads the whole database and compares values, trie and head; says what does not fit.
pub(crate) fn check(options: &Options) -> Result<Ending> {
    let chain = open_existing(options)?;
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
    if let Some(bytes) = peak_rss_bytes() {
        println!("peak memory {:.0} MiB", bytes as f64 / 1048576.0);
    }
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
