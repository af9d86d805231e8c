//! Runs the import of each client and reads the head afterwards.
//!
//! Both clients run with their default flags. geth's compaction of the whole database after an import is left out.

use super::Case;
use crate::chain_file::Head;
use crate::process::{Cost, run};
use eyre::{Context, Result, eyre};
use niwaki_chain::{BlockId, Chain, ChainConfig, GenesisBlock, StateOptions, StorageOptions};
use niwaki_rules::Genesis;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The cost of one import by Niwaki, genesis included.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct NiwakiRun {
    pub(crate) import: Cost,
}

/// The cost of one import by geth: two processes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct GethRun {
    /// Writes the genesis.
    pub(crate) init: Cost,
    /// Imports the blocks.
    pub(crate) import: Cost,
}

/// Bytes of memory for reading the head of a finished database.
const HEAD_CACHE_BYTES: usize = 16 << 20;

/// Imports with `program`, our binary, into the new folder `data`.
pub(crate) fn niwaki(program: &Path, case: &Case, data: &Path) -> Result<(NiwakiRun, Head)> {
    let mut command = Command::new(program);
    command.arg("--data-path").arg(data);
    command.arg("--genesis-file").arg(&case.genesis);
    command
        .args(["blocks", "import", "--from"])
        .arg(&case.chain);
    let (_, import) = run(command)?;
    // In another process: a child inherits our peak memory as the floor of its own.
    let this_program = std::env::current_exe().wrap_err("can't tell where this program is")?;
    let mut head = Command::new(this_program);
    head.arg("head").arg(data).arg(&case.genesis);
    let (text, _) = run(head)?;
    let head = serde_json::from_str(&text).wrap_err_with(|| {
        let program = program.display();
        format!("{program} imported, but its database can't be read back")
    })?;
    Ok((NiwakiRun { import }, head))
}

/// Options of `niwaki-bench head`, which prints the head of a database of ours as JSON.
#[derive(Debug, clap::Args)]
pub(crate) struct HeadOptions {
    /// Data path of the chain.
    data: PathBuf,
    /// Its genesis file.
    genesis: PathBuf,
}

/// Prints the head.
pub(crate) fn print_head(options: &HeadOptions) -> Result<()> {
    let genesis = Genesis::from_json(&std::fs::read_to_string(&options.genesis)?)?;
    let block = GenesisBlock::from(&genesis);
    let storage = StorageOptions {
        memory_budget_bytes: HEAD_CACHE_BYTES,
        ..StorageOptions::default()
    };
    let chain = Chain::open(ChainConfig {
        data_path: Some(options.data.clone()),
        spec: Arc::new(genesis.spec),
        genesis: block,
        storage,
        state: StateOptions {
            cache_bytes: HEAD_CACHE_BYTES,
            ..StateOptions::default()
        },
    })?;
    let BlockId { number, hash } = chain.head().id;
    println!("{}", serde_json::to_string(&Head { number, hash })?);
    Ok(())
}

/// Imports with `program`, geth, into the new folder `data`. None of these commands starts geth's networking.
pub(crate) fn geth(program: &Path, case: &Case, data: &Path) -> Result<(GethRun, Head)> {
    let command = |words: &[&str]| {
        let mut command = Command::new(program);
        command.arg("--datadir").arg(data).args(words);
        command
    };
    let mut with_genesis = command(&["init"]);
    with_genesis.arg(&case.genesis);
    let (_, init) = run(with_genesis)?;
    let mut with_chain = command(&["import", "--nocompaction"]);
    with_chain.arg(&case.chain);
    let (_, import) = run(with_chain)?;
    let (text, _) = run(command(&["db", "metadata"]))?;
    let head = geth_head(&text).ok_or_else(|| {
        let program = program.display();
        eyre!(
            "`{program} db metadata` does not tell the head; use geth 1.17.8 (`cargo xtask peers`)"
        )
    })?;
    Ok((GethRun { init, import }, head))
}

/// The head in the output of `geth db metadata`, a table.
fn geth_head(text: &str) -> Option<Head> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let mut cells = line.split('|').map(str::trim);
            cells.find(|cell| *cell == name)?;
            cells.next()?.split_whitespace().next()
        })
    };
    Some(Head {
        number: value("headBlock.Number")?.parse().ok()?,
        hash: value("headBlock.Hash")?.parse().ok()?,
    })
}

/// The version that a program prints: the first line with a digit, without its label.
pub(crate) fn version(program: &Path, argument: &str) -> Result<String> {
    let mut command = Command::new(program);
    command.arg(argument);
    let (text, _) = run(command)?;
    let line = text
        .lines()
        .find(|line| line.contains(|c: char| c.is_ascii_digit()));
    let line = line.ok_or_else(|| {
        let program = program.display();
        eyre!("{program} {argument}: no version in what it printed; check that it is the right program")
    })?;
    Ok(line.trim_start_matches("Version:").trim().to_owned())
}

/// Our binary: the one given, or the one in the folder of this program.
pub(crate) fn niwaki_program(given: Option<&Path>) -> Result<PathBuf> {
    let default = std::env::current_exe()
        .wrap_err("can't tell where this program is; give --niwaki")?
        .with_file_name("niwaki");
    let path = given.map_or(default, Path::to_owned);
    path.is_file().then_some(()).ok_or_else(|| {
        let path = path.display();
        eyre!(
            "there is no {path}; `cargo build --release -p niwaki-node` makes it, or give --niwaki"
        )
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
|      headBlockHash      | 0xd226371d0b1551adb03fb52b71f08e3e11247fe9b1af994768af8cdaa8e7dcd7 |
|     headBlock.Hash      | 0xd226371d0b1551adb03fb52b71f08e3e11247fe9b1af994768af8cdaa8e7dcd7 |
|    headBlock.Number     |                             54 (0x36)                              |
|    headHeader.Number    |                             55 (0x37)                              |
";

    #[test]
    fn the_head_of_geth_is_its_head_block_not_its_head_header() {
        let head = geth_head(TABLE).unwrap();
        assert_eq!(head.number, 54);
        assert_eq!(head.hash.0[..2], [0xd2, 0x26]);
    }

    #[test]
    fn a_table_without_a_head_is_refused() {
        assert_eq!(geth_head(""), None);
        assert_eq!(geth_head("| headBlock.Number | <nil> |"), None);
        assert_eq!(geth_head(&TABLE.replace("0xd226", "0x")), None);
    }

    #[test]
    fn a_missing_binary_is_named_with_the_flag() {
        let error = niwaki_program(Some(Path::new("/nonexistent/niwaki"))).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("/nonexistent/niwaki") && text.contains("--niwaki"),
            "{text}"
        );
    }
}
