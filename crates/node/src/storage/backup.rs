//! `niwaki storage backup` and `niwaki storage restore`.

use super::check_head_of;
use crate::Ending;
use crate::open::{data_path, open_existing};
use crate::options::{BackupOptions, Options, RestoreOptions};
use crate::stop::Stop;
use eyre::Result;

/// Adds a backup to a folder.
pub(crate) fn backup(options: &Options, backup: &BackupOptions) -> Result<Ending> {
    // One Ctrl-C ends the process: a backup that is not whole does not count.
    let Some(chain) = open_existing(options, &Stop::default())? else {
        return Ok(Ending::Interrupted);
    };
    let head = chain.head();
    eprintln!("making a backup of the chain up to block {}", head.id);
    let keep = backup.keep.map(|keep| keep as usize);
    let made = chain.backup(&backup.to, keep)?;
    println!(
        "backup {} in {}: {} bytes, of which {} are new",
        made.backup.id,
        backup.to.display(),
        made.backup.bytes,
        made.added_bytes
    );
    println!("head {}, state root {}", head.id, head.header.state_root);
    let kept: Vec<_> = made.kept.iter().map(|one| one.id.to_string()).collect();
    println!("the folder has {}", kept.join(", "));
    Ok(Ending::Done)
}

/// Makes a data path of a backup, opens it and compares what its head says of itself.
pub(crate) fn restore(options: &Options, restore: &RestoreOptions) -> Result<Ending> {
    let data_path = data_path(options)?;
    eprintln!("restoring into {}", data_path.display());
    // One Ctrl-C ends the process: there is no database before all of it is there.
    let backup = niwaki_storage::restore(&restore.from, &data_path, restore.backup)?;
    println!(
        "restored backup {} of {}: {} bytes",
        backup.id,
        restore.from.display(),
        backup.bytes
    );
    let Some(chain) = open_existing(options, &Stop::default())? else {
        return Ok(Ending::Interrupted);
    };
    check_head_of(&chain)
}
