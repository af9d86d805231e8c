//! `niwaki storage backup` and `niwaki storage restore`.

use super::check_head_of;
use crate::Outcome;
use crate::loading::LoadingProgress;
use crate::node_socket;
use crate::open::{data_path, open_existing};
use crate::options::{BackupOptions, Options, RestoreOptions};
use crate::stop::Stop;
use eyre::Result;
use niwaki_chain::{BackupError, Loading};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;

/// Adds a backup to a folder. If a node runs on the data path, the node makes it.
pub(crate) fn backup(options: &Options, backup: &BackupOptions) -> Result<Outcome> {
    if let Some(node) = node_socket::connect(options)? {
        return request_from_node(node, backup);
    }
    let stop = Stop::listen()?;
    let Some(chain) = open_existing(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    let head = chain.head();
    eprintln!("making a backup of the chain up to block {}", head.id);
    let keep = backup.keep.map(|keep| keep as usize);
    let mut progress = LoadingProgress::new(["making the backup"; 2], stop);
    let made = chain.backup(&backup.to, keep, &mut |done, of| {
        progress.report(Loading::Writing(done, of))
    });
    progress.finish();
    let made = match made {
        Err(BackupError::Stopped) => {
            eprintln!("stopped on request; the unfinished backup does not count");
            return Ok(Outcome::Interrupted);
        }
        other => other?,
    };
    println!(
        "backup {} in {}: {} bytes, of which {} are new",
        made.backup.id,
        backup.to.display(),
        made.backup.bytes,
        made.added_bytes
    );
    println!("head {}, state root {}", head.id, head.header.state_root);
    let kept: Vec<_> = made.backups.iter().map(|one| one.id.to_string()).collect();
    println!("the folder has {}", kept.join(", "));
    Ok(Outcome::Done)
}

/// Has the running node, connected by its operator socket, make the backup.
fn request_from_node(node: UnixStream, backup: &BackupOptions) -> Result<Outcome> {
    let folder = std::path::absolute(&backup.to)?;
    let params = json!([folder, backup.keep]);
    eprintln!("the node that has the data path makes the backup");
    let made = node_socket::call(node, "admin_backup", &params)?;
    println!(
        "backup {} in {}: {} bytes, of which {} are new",
        made["id"],
        folder.display(),
        made["bytes"],
        made["addedBytes"]
    );
    let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
    println!(
        "head {} {}, state root {}",
        made["number"],
        text("hash"),
        text("stateRoot")
    );
    let kept = made["kept"].as_array().into_iter().flatten();
    let kept: Vec<_> = kept.map(Value::to_string).collect();
    println!("the folder has {}", kept.join(", "));
    Ok(Outcome::Done)
}

/// Restores a backup into the data path, opens it and checks the head.
pub(crate) fn restore(options: &Options, restore: &RestoreOptions) -> Result<Outcome> {
    let data_path = data_path(options)?;
    eprintln!("restoring into {}", data_path.display());
    let stop = Stop::listen()?;
    let mut progress = LoadingProgress::new(["restoring the backup"; 2], stop.clone());
    let (from, id) = (&restore.from, restore.backup);
    let restored = niwaki_storage::restore(from, &data_path, id, &mut |done, of| {
        progress.report(Loading::Writing(done, of))
    });
    progress.finish();
    let backup = match restored {
        Err(BackupError::Stopped) => {
            eprintln!("stopped on request; there is no database, the same command starts over");
            return Ok(Outcome::Interrupted);
        }
        other => other?,
    };
    println!(
        "restored backup {} of {}: {} bytes",
        backup.id,
        restore.from.display(),
        backup.bytes
    );
    let Some(chain) = open_existing(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    check_head_of(&chain)
}
