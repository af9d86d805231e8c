//! `niwaki public-key`: the node's public key and its address, to standard output or to a file, as Besu writes them.

use crate::Outcome;
use crate::open::data_path;
use crate::options::{Options, PublicKeyCommand, PublicKeyOptions};
use crate::run::key_file;
use eyre::{Result, WrapErr};
use niwaki_network::{NodeId, NodeKey};

/// Runs one of the commands. A key file that does not exist is made, so that the node that starts later has this key.
pub(crate) fn run(options: &Options, command: &PublicKeyCommand) -> Result<Outcome> {
    let (to, text): (&PublicKeyOptions, fn(NodeId) -> String) = match command {
        PublicKeyCommand::Export(to) => (to, |id| format!("0x{id}")),
        PublicKeyCommand::ExportAddress(to) => {
            (to, |id| id.address().to_string().to_ascii_lowercase())
        }
    };
    let data_path = data_path(options)?;
    std::fs::create_dir_all(&data_path)
        .wrap_err_with(|| format!("can't make the folder {}", data_path.display()))?;
    let named = to.node_private_key_file.clone();
    let file = named.unwrap_or_else(|| key_file(&options.node.peers, &data_path));
    let key = NodeKey::load_or_create(&file)?;
    let text = text(key.id());
    match &to.to {
        Some(file) => std::fs::write(file, &text)
            .wrap_err_with(|| format!("can't write {}", file.display()))?,
        None => println!("{text}"),
    }
    Ok(Outcome::Done)
}
