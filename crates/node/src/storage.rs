//! `niwaki storage`: the check, and the other commands.
//!
//! | file | what it is |
//! |---|---|
//! | `backup` | backup and restore, by the running node if there is one |
//! | `import_besu` | the data folder of a stopped Besu, taken over |
//! | `prune` | removes the blocks before the Merge |
//! | `repair` | rebuilds derived data, then checks |
//! | `state_file` | export and import of the head's state |
//! | `trie_log` | count, prune, export and import of trie logs |

pub(crate) mod backup;
pub(crate) mod import_besu;
pub(crate) mod prune;
pub(crate) mod repair;
pub(crate) mod rocksdb;
pub(crate) mod state_file;
pub(crate) mod trie_log;

use crate::Outcome;
use crate::memory::peak_rss_bytes;
use crate::open::{open_chain_with_state, open_existing};
use crate::options::{CheckOptions, Options};
use crate::stop::Stop;
use eyre::Result;
use niwaki_chain::{Chain, Problem};
use std::time::Instant;

/// The most problems that are printed one by one.
const SHOWN: u64 = 100;

/// Checks the whole database, a sample, or the head, and prints the problems.
pub(crate) fn check(options: &Options, check: &CheckOptions) -> Result<Outcome> {
    if check.head_only {
        return check_head(options, &Stop::listen()?);
    }
    // Nothing is written, so one Ctrl-C may end the process.
    let Some(chain) = open_existing(options, &Stop::default())? else {
        return Ok(Outcome::Interrupted);
    };
    match check.sample {
        Some(count) => check_sample(&chain, count),
        None => check_all(&chain),
    }
}

/// Checks the head and `count` random accounts.
fn check_sample(chain: &Chain, count: u64) -> Result<Outcome> {
    let (head, began) = (chain.head(), Instant::now());
    let mut problems = Vec::new();
    let found = chain.check_sample(count, &mut |problem| problems.push(problem))?;
    print_problems("problem", &problems);
    println!(
        "checked {} accounts, {} slots, {} nodes on the paths to them in {:.3} s",
        found.accounts,
        found.slots,
        found.trie_rows,
        began.elapsed().as_secs_f64()
    );
    print_peak_memory();
    println!("head {}, state root {}", head.id, head.header.state_root);
    if problems.is_empty() {
        println!("no problems found in the sample");
        return Ok(Outcome::Done);
    }
    println!("run 'niwaki storage check' to learn of all problems");
    Ok(Outcome::ProblemsFound)
}

/// Checks everything.
fn check_all(chain: &Chain) -> Result<Outcome> {
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
    if chain.is_archive() {
        println!(
            "checked {} rows of the history, and the root of each state that they lead to",
            found.state.history_rows
        );
    }
    print_peak_memory();
    println!("head {}, state root {}", head.id, head.header.state_root);
    if found.problems == 0 {
        println!("no problems found");
        return Ok(Outcome::Done);
    }
    println!(
        "{} problems found; run 'niwaki storage repair', or restore a backup with 'niwaki storage \
         restore', or import the chain into an empty data path",
        found.problems
    );
    Ok(Outcome::ProblemsFound)
}

/// Opens the chain, creating the database if there is none, and checks its head.
fn check_head(options: &Options, stop: &Stop) -> Result<Outcome> {
    let began = Instant::now();
    let Some(chain) = open_chain_with_state(options, stop)? else {
        return Ok(Outcome::Interrupted);
    };
    println!("opened in {:.3} s", began.elapsed().as_secs_f64());
    check_head_of(&chain)
}

/// Checks that the head's header, its state root and the root of the trie agree.
fn check_head_of(chain: &Chain) -> Result<Outcome> {
    let began = Instant::now();
    let problem = chain.check_head()?;
    let head = chain.head();
    println!("head {}, state root {}", head.id, head.header.state_root);
    println!("checked in {:.3} s", began.elapsed().as_secs_f64());
    print_peak_memory();
    let Some(problem) = problem else {
        println!("the head's header, its state root and the root of the trie agree");
        return Ok(Outcome::Done);
    };
    println!("problem: {problem}");
    Ok(Outcome::ProblemsFound)
}

/// Prints the first problems, each after `title`, and how many more there are.
fn print_problems(title: &str, problems: &[Problem]) {
    let shown = usize::try_from(SHOWN).unwrap_or(usize::MAX);
    for problem in problems.iter().take(shown) {
        println!("{title}: {problem}");
    }
    if problems.len() > shown {
        println!("and {} more", problems.len() - shown);
    }
}

fn print_peak_memory() {
    if let Some(bytes) = peak_rss_bytes() {
        println!("peak memory {:.0} MiB", bytes as f64 / 1048576.0);
    }
}
