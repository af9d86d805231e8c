//! The chain that the command line names, opened.

use crate::options::Options;
use eyre::{Context, Result, eyre};
use niwaki_chain::{Chain, ChainConfig, GenesisBlock, OpenError, StateOptions, StorageOptions};
use niwaki_rules::{Genesis, Network};
use niwaki_storage::is_data_path;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens the chain, beginning it if the data path is empty.
pub(crate) fn open_chain(options: &Options) -> Result<Arc<Chain>> {
    let data_path = data_path(options)?;
    open_at(options, data_path)
}

/// Opens a chain that must be there already.
pub(crate) fn open_existing(options: &Options) -> Result<Arc<Chain>> {
    let data_path = data_path(options)?;
    if !is_data_path(&data_path)? {
        return Err(eyre!(
            "there is no database in {}; name another --data-path, or begin one with \
             'niwaki blocks import'",
            data_path.display()
        ));
    }
    open_at(options, data_path)
}

fn open_at(options: &Options, data_path: PathBuf) -> Result<Arc<Chain>> {
    let genesis = match &options.genesis_file {
        Some(path) => read_genesis(path)?,
        None => options.network.unwrap_or(Network::Mainnet).genesis(),
    };
    let config = ChainConfig {
        data_path: Some(data_path),
        genesis: GenesisBlock::from(&genesis),
        spec: Arc::new(genesis.spec),
        storage: StorageOptions::default(),
        state: StateOptions::default(),
    };
    match Chain::open(config) {
        Ok(chain) => Ok(Arc::new(chain)),
        Err(error @ OpenError::OtherGenesis { .. }) => Err(eyre!(error)),
        Err(error) => Err(error).wrap_err("the chain can't be opened"),
    }
}

fn read_genesis(path: &Path) -> Result<Genesis> {
    let text = std::fs::read_to_string(path)
        .wrap_err_with(|| format!("can't read the genesis file {}", path.display()))?;
    Genesis::from_json(&text)
        .wrap_err_with(|| format!("the genesis file {} can't be used; mend it", path.display()))
}

/// The data path given, or `niwaki` in the user's data folder.
fn data_path(options: &Options) -> Result<PathBuf> {
    if let Some(path) = &options.data_path {
        return Ok(path.clone());
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let data_home = set("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    data_home
        .map(|folder| folder.join("niwaki"))
        .ok_or_else(|| eyre!("there is no home folder for the database; give --data-path DIR"))
}
