//! `niwaki storage import-besu`.

use super::print_peak_memory;
use crate::Outcome;
use crate::loading::LoadingProgress;
use crate::open::{data_path, genesis_source, storage_options, transaction_threads};
use crate::options::{BesuImportOptions, Options};
use crate::progress::{Done, Progress};
use crate::stop::Stop;
use eyre::{Report, Result};
use niwaki_chain::{BesuError, BesuFolder, BesuImport, Chain, ImportError, recover_stream};
use std::sync::Arc;
use std::time::Instant;

/// Titles of the progress of the state.
const TITLES: [&str; 2] = ["state, 1 of 2: reading", "state, 2 of 2: writing"];

/// Takes a folder of Besu over: a state, the blocks below it, then those above it.
pub(crate) fn run(options: &Options, import: &BesuImportOptions) -> Result<Outcome> {
    let stop = Stop::listen()?;
    let folder = Arc::new(BesuFolder::open(&import.from)?);
    eprintln!(
        "Besu's {} database, head {}",
        folder.layout(),
        folder.head()
    );
    let taken = load_state(options, import, &folder, &stop).and_then(|chain| {
        copy_blocks(&folder, &chain, &stop)?;
        execute_blocks(&folder, &chain, &stop)?;
        Ok(chain)
    });
    let chain = match taken {
        Err(error) if matches!(error.downcast_ref(), Some(BesuError::Stopped)) => {
            eprintln!("stopped on request; the same command continues from here");
            return Ok(Outcome::Interrupted);
        }
        taken => taken?,
    };
    print_peak_memory();
    let head = chain.head();
    println!("head {}, state root {}", head.id, head.header.state_root);
    println!(
        "the node key stays with Besu: copy {} once it is stopped for good",
        import.from.join("key").display()
    );
    Ok(Outcome::Done)
}

/// Loads a state, or opens the chain whose state was loaded before.
fn load_state(
    options: &Options,
    import: &BesuImportOptions,
    folder: &BesuFolder,
    stop: &Stop,
) -> Result<Chain> {
    let (storage, state) = storage_options(options);
    let config = BesuImport {
        data_path: data_path(options)?,
        genesis: genesis_source(options),
        storage,
        state,
        executed: import.execute_last,
    };
    let began = Instant::now();
    let mut progress = LoadingProgress::new(TITLES, stop.clone());
    let loaded = Chain::import_besu_state(folder, &config, &mut |loading| progress.report(loading));
    progress.finish();
    let chain = loaded?;
    chain.set_max_transaction_threads(transaction_threads(options));
    println!(
        "state of block {}: its root is the one of the header; {:.2} s",
        chain.head().id,
        began.elapsed().as_secs_f64()
    );
    Ok(chain)
}

/// Copies the blocks below those that came with the state.
fn copy_blocks(folder: &BesuFolder, chain: &Chain, stop: &Stop) -> Result<()> {
    let began = Instant::now();
    let first = chain.first_block()?;
    let mut progress = Progress::new(first.saturating_sub(1));
    let copied = folder.copy_history(chain, &mut |done, _| {
        progress.show(Done {
            bytes: done,
            blocks: done,
            gas: 0,
            number: first.saturating_sub(done),
        });
        !stop.is_requested()
    });
    progress.finish();
    let copied = copied?;
    println!(
        "{} more blocks copied, each verified; {:.2} s",
        copied.blocks,
        began.elapsed().as_secs_f64()
    );
    if !copied.is_whole {
        println!("Besu has no blocks between 0 and {}", copied.first);
    }
    Ok(())
}

/// Executes the blocks above the state, up to Besu's head.
fn execute_blocks(folder: &Arc<BesuFolder>, chain: &Chain, stop: &Stop) -> Result<()> {
    let (began, from) = (Instant::now(), chain.head().id.number);
    let total = folder.head().number.saturating_sub(from);
    let blocks = folder.blocks_above(from, chain.spec());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut progress = Progress::new(total);
    let mut done = Done::default();
    let mut executed = Ok(());
    for block in recover_stream(chain.spec(), blocks, workers) {
        let imported = block
            .map_err(Report::from)
            .and_then(|block| chain.import(block).map_err(explain));
        match imported {
            Ok(imported) => done.number = imported.id.number,
            Err(error) => executed = Err(error),
        }
        if executed.is_ok() && stop.is_requested() {
            executed = Err(BesuError::Stopped.into());
        }
        if executed.is_err() {
            break;
        }
        done.blocks += 1;
        done.bytes += 1;
        progress.show(done);
    }
    progress.finish();
    // Even if the last block failed, those before it must reach the disk.
    chain.sync()?;
    executed?;
    println!(
        "{} blocks executed; {:.2} s",
        done.blocks,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

fn explain(error: ImportError) -> Report {
    let invalid = matches!(error, ImportError::Invalid { .. });
    let report = Report::new(error);
    match invalid {
        true => report.wrap_err(
            "a block that Besu has executed is invalid by these rules; name the genesis file that Besu ran with, or report it",
        ),
        false => report,
    }
}
