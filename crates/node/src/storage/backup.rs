//! `niwaki storage backup` and `niwaki storage restore`.

use super::check_head_of;
use crate::Ending;
use crate::loading::LoadingProgress;
use crate::open::{data_path, open_existing};
use crate::options::{BackupOptions, Options, RestoreOptions};
use crate::run::OPERATOR_SOCKET;
use crate::stop::Stop;
use eyre::{Result, WrapErr, eyre};
use niwaki_chain::{BackupError, Loading};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// Adds a backup to a folder. Where a node has the data path, that node makes it.
pub(crate) fn backup(options: &Options, backup: &BackupOptions) -> Result<Ending> {
    let socket = data_path(options)?.join(OPERATOR_SOCKET);
    if let Ok(node) = UnixStream::connect(&socket) {
        return ask(node, backup);
    }
    let stop = Stop::listen()?;
    let Some(chain) = open_existing(options, &stop)? else {
        return Ok(Ending::Interrupted);
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
            eprintln!("stopped as asked; the backup that was begun does not count");
            return Ok(Ending::Interrupted);
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
    let kept: Vec<_> = made.kept.iter().map(|one| one.id.to_string()).collect();
    println!("the folder has {}", kept.join(", "));
    Ok(Ending::Done)
}

/// Has the node at the other end of `node` make the backup.
fn ask(mut node: UnixStream, backup: &BackupOptions) -> Result<Ending> {
    let folder = std::path::absolute(&backup.to)?;
    let params = json!([folder, backup.keep]);
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "admin_backup", "params": params});
    eprintln!("the node that has the data path makes the backup");
    node.write_all(request.to_string().as_bytes())?;
    let mut answer = String::new();
    BufReader::new(node).read_line(&mut answer)?;
    let answer: Value = serde_json::from_str(&answer)
        .wrap_err("the node went away before the backup was whole; run the command again")?;
    if let Some(error) = answer.get("error") {
        return Err(eyre!(
            "{}",
            error["message"].as_str().unwrap_or("no reason given")
        ));
    }
    let made = &answer["result"];
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
    Ok(Ending::Done)
}

/// Makes a data path of a backup, opens it and compares what its head says of itself.
pub(crate) fn restore(options: &Options, restore: &RestoreOptions) -> Result<Ending> {
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
            eprintln!("stopped as asked; there is no database, the same command begins anew");
            return Ok(Ending::Interrupted);
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
        return Ok(Ending::Interrupted);
    };
    check_head_of(&chain)
}
