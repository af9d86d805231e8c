//! `niwaki storage export` and `niwaki storage import`.

use super::print_peak_memory;
use crate::Outcome;
use crate::loading::LoadingProgress;
use crate::open::{data_path, genesis_source, open_existing, storage_options};
use crate::options::{Options, StateExportOptions, StateImportOptions};
use crate::stop::Stop;
use eyre::Result;
use niwaki_chain::{Chain, Exporting, Loading, StateImport, TransferError};
use niwaki_primitives::Fault;
use std::time::Instant;

/// Titles of the progress of an import.
const TITLES: [&str; 2] = ["state, 1 of 2: reading", "state, 2 of 2: writing"];

/// Writes the state of the head to a file.
pub(crate) fn export(options: &Options, export: &StateExportOptions) -> Result<Outcome> {
    let stop = Stop::listen()?;
    let Some(chain) = open_existing(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    if chain.is_archive() {
        eprintln!("note: the history of the archive is not in the file; a backup has it");
    }
    let began = Instant::now();
    let mut progress = LoadingProgress::new(["exporting the state"; 2], stop);
    let part = export.to.with_added_extension("part");
    let name = part.display();
    let exported = chain.export_state(&export.to, &mut |exporting| match exporting {
        Exporting::Resuming(bytes) => {
            eprintln!("{name} has {bytes} bytes of the same state; continues after what is whole");
            true
        }
        Exporting::Overwriting(reason) => {
            eprintln!("{name} is written from the start: {reason}");
            true
        }
        Exporting::Writing(done, of) => progress.report(Loading::Writing(done, of)),
    });
    progress.finish();
    let exported = match exported {
        Err(TransferError::Stopped) => {
            eprintln!("stopped on request; {name} stays, the same command continues it");
            return Ok(Outcome::Interrupted);
        }
        Err(error @ TransferError::Fault(Fault::Io { .. })) if part.exists() => {
            eprintln!("{name} stays; the same command continues it");
            return Err(error.into());
        }
        other => other?,
    };
    if exported.resumed_bytes > 0 {
        println!("{} bytes were there already", exported.resumed_bytes);
    }
    println!(
        "exported {} accounts, {} slots, {} codes to {}: {} bytes in {:.2} s",
        exported.accounts,
        exported.slots,
        exported.codes,
        export.to.display(),
        exported.bytes,
        began.elapsed().as_secs_f64()
    );
    print_peak_memory();
    println!(
        "head {}, state root {}",
        exported.head,
        chain.head().header.state_root
    );
    Ok(Outcome::Done)
}

/// Imports a state from a file.
pub(crate) fn import(options: &Options, import: &StateImportOptions) -> Result<Outcome> {
    let stop = Stop::listen()?;
    let (storage, state) = storage_options(options);
    let config = StateImport {
        data_path: data_path(options)?,
        from: import.from.clone(),
        genesis: genesis_source(options),
        storage,
        state,
    };
    let began = Instant::now();
    let mut progress = LoadingProgress::new(TITLES, stop);
    let imported = Chain::import_state(&config, &mut |loading| progress.report(loading));
    progress.finish();
    let chain = match imported {
        Err(TransferError::Stopped) => {
            eprintln!("stopped on request; the same command continues with what it has read");
            return Ok(Outcome::Interrupted);
        }
        other => other?,
    };
    let head = chain.head();
    println!(
        "imported the state from {} in {:.2} s; its root is the one the head's header gives",
        import.from.display(),
        began.elapsed().as_secs_f64()
    );
    print_peak_memory();
    println!("head {}, state root {}", head.id, head.header.state_root);
    Ok(Outcome::Done)
}
