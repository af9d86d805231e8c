//! `niwaki-bench payloads`: a chain as the Engine API requests of its blocks, in the form of go-ethereum's test chains.

use super::requests::ChainFolder;
use eyre::{Result, WrapErr};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Options of `niwaki-bench payloads`.
#[derive(Debug, clap::Args)]
pub(crate) struct PayloadsOptions {
    /// Folder with genesis.json, chain.rlp and, from Amsterdam on, access-lists.rlp, as written by `gen-chain`; newpayload.json
    /// is written there.
    chain: PathBuf,
}

/// Writes the requests, block by block.
pub(crate) fn run(options: &PayloadsOptions) -> Result<()> {
    let chain = ChainFolder::find(&options.chain)?;
    let path = chain.blocks.with_file_name("newpayload.json");
    let at = || format!("can't write {}", path.display());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&path).wrap_err_with(at)?);
    let (mut blocks, mut before) = (chain.read()?, "[\n");
    while let Some(requests) = blocks.next_block()? {
        write!(out, "{before}{}", requests.new_payload).wrap_err_with(at)?;
        before = ",\n";
    }
    let end = if before == "[\n" { "[]" } else { "\n]" };
    writeln!(out, "{end}")
        .and_then(|()| out.flush())
        .wrap_err_with(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_chain_without_blocks_is_an_empty_list() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["genesis.json", "chain.rlp"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        let chain = folder.path().to_owned();
        run(&PayloadsOptions { chain }).unwrap();
        let text = std::fs::read_to_string(folder.path().join("newpayload.json")).unwrap();
        let list: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert!(list.is_empty());
    }
}
