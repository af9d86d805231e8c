//! `niwaki storage trie-log`.

use crate::Outcome;
use crate::open::open_existing;
use crate::options::{Options, TrieLogCommand, TrieLogExportOptions, TrieLogImportOptions};
use crate::stop::Stop;
use eyre::Result;
use niwaki_chain::{Chain, TransferError, TrieLogChoice};

/// Opens the chain and runs one of the four commands.
pub(crate) fn run(options: &Options, command: &TrieLogCommand) -> Result<Outcome> {
    let stop = Stop::listen()?;
    let Some(chain) = open_existing(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    let done = match command {
        TrieLogCommand::Count => count(&chain, &stop),
        TrieLogCommand::Prune => prune(&chain, &stop),
        TrieLogCommand::Export(export) => self::export(&chain, export, &stop),
        TrieLogCommand::Import(import) => self::import(&chain, import, &stop),
    };
    match done {
        Ok(()) => Ok(Outcome::Done),
        Err(TransferError::Stopped) => {
            eprintln!("stopped on request; the same command starts over");
            Ok(Outcome::Interrupted)
        }
        Err(error) => Err(error.into()),
    }
}

fn count(chain: &Chain, stop: &Stop) -> Result<(), TransferError> {
    let count = chain.count_trie_logs(&mut |_| !stop.is_requested())?;
    println!("trie logs     {}", count.total);
    println!("canonical     {}", count.canonical);
    println!("of forks      {}", count.fork);
    println!("orphaned      {}", count.orphaned);
    Ok(())
}

fn prune(chain: &Chain, stop: &Stop) -> Result<(), TransferError> {
    let pruned = chain.prune_trie_logs(&mut |_| !stop.is_requested())?;
    println!(
        "removed {} trie logs below the window, {} of blocks that are not canonical",
        pruned.old, pruned.non_canonical
    );
    Ok(())
}

fn export(chain: &Chain, export: &TrieLogExportOptions, stop: &Stop) -> Result<(), TransferError> {
    let choice = if export.trie_log_block_hash.is_empty() {
        let after_head = chain.head().id.number.saturating_add(1);
        let (start, end) = (export.start_block, export.end_block);
        TrieLogChoice::Numbers(start.unwrap_or(0)..end.unwrap_or(after_head))
    } else {
        TrieLogChoice::Blocks(export.trie_log_block_hash.clone())
    };
    let count = chain.export_trie_logs(&choice, &export.to, &mut |_| !stop.is_requested())?;
    println!("exported {count} trie logs to {}", export.to.display());
    Ok(())
}

fn import(chain: &Chain, import: &TrieLogImportOptions, stop: &Stop) -> Result<(), TransferError> {
    let added = chain.import_trie_logs(&import.from, &mut |_| !stop.is_requested())?;
    println!(
        "imported {added} trie logs from {}; those that were there already are the same",
        import.from.display()
    );
    Ok(())
}
