//! The chain that the command line names, opened.

use crate::loading::LoadingProgress;
use crate::memory::MemoryBudget;
use crate::notice;
use crate::options::{DataFormat, Options};
use crate::stop::Stop;
use eyre::{Report, Result, eyre};
use niwaki_chain::{
    Chain, ChainConfig, GenesisBlock, GenesisFileConfig, GenesisSource, OpenError, StateOptions,
    StorageOptions,
};
use niwaki_rules::Network;
use niwaki_storage::is_data_path;
use std::path::PathBuf;
use std::sync::Arc;
use tracing::warn;

/// Titles of the progress of a large genesis.
const TITLES: [&str; 2] = ["genesis, 1 of 2: reading", "genesis, 2 of 2: writing"];

/// Opens the chain, creating the database if the data path is empty; `None` if the operator stopped that.
pub(crate) fn open_chain(options: &Options, stop: &Stop) -> Result<Option<Arc<Chain>>> {
    let data_path = data_path(options)?;
    open_at(options, data_path, stop)
}

/// Opens a chain that must exist; `None` if the operator stopped that.
pub(crate) fn open_existing(options: &Options, stop: &Stop) -> Result<Option<Arc<Chain>>> {
    let data_path = data_path(options)?;
    if !is_data_path(&data_path)? {
        return Err(eyre!(
            "there is no database in {}; name another --data-path, or begin one with \
             'niwaki blocks import'",
            data_path.display()
        ));
    }
    open_whole(options, data_path, stop)
}

/// Opens the chain for a command that needs its state, as [`open_chain`].
pub(crate) fn open_chain_with_state(options: &Options, stop: &Stop) -> Result<Option<Arc<Chain>>> {
    let data_path = data_path(options)?;
    open_whole(options, data_path, stop)
}

fn open_whole(options: &Options, data_path: PathBuf, stop: &Stop) -> Result<Option<Arc<Chain>>> {
    let chain = open_at(options, data_path, stop)?;
    match chain {
        Some(chain) if !chain.has_state() => Err(eyre!(
            "the state of this chain is being downloaded (--sync-mode=SNAP) and not whole: start the node, which goes on with it, or begin again with an empty --data-path"
        )),
        chain => Ok(chain),
    }
}

/// The memory budget of the command line, or its default.
pub(crate) fn memory_budget(options: &Options) -> MemoryBudget {
    MemoryBudget::new(options.memory_budget, options.high_spec == Some(true))
}

/// The options of storage and state within the memory budget; also sizes the process-wide code and
/// precompile caches.
pub(crate) fn storage_options(options: &Options) -> (StorageOptions, StateOptions) {
    let budget = memory_budget(options);
    if !notice::is_logging() {
        eprintln!("memory budget {budget}");
    }
    niwaki_evm::set_code_cache_bytes(budget.prepared_code_bytes());
    niwaki_crypto::set_precompile_result_bytes(precompile_result_bytes(options, budget));
    let state = StateOptions {
        archive: options.data_storage_format == Some(DataFormat::Archive),
        ..budget.state()
    };
    let storage = StorageOptions {
        // Calls on private chains write new slots more often than known ones; their states are small beside a public one.
        has_whole_filters: options.genesis_file.is_some(),
        ..budget.storage()
    };
    (storage, state)
}

/// Bytes of the cache of precompile results.
fn precompile_result_bytes(options: &Options, budget: MemoryBudget) -> usize {
    match options.cache_precompiles {
        Some(false) => 0,
        _ => budget.precompile_result_bytes(),
    }
}

/// Threads that execute the transactions of a block.
pub(crate) fn transaction_threads(options: &Options) -> usize {
    if options.parallel_transactions == Some(false) {
        return 1;
    }
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.transaction_threads.map(usize::from);
    threads.unwrap_or_else(|| default_threads(processors()))
}

/// Half of the processors, because sender recovery, prefetching and the state root need some too; but both of two.
fn default_threads(processors: usize) -> usize {
    (processors / 2).max(2).min(processors)
}

fn open_at(options: &Options, data_path: PathBuf, stop: &Stop) -> Result<Option<Arc<Chain>>> {
    if options.genesis_state_hash_cache_enabled.is_some() {
        notice::write(format_args!(
            "--genesis-state-hash-cache-enabled changes nothing: a genesis file that is known is \
             never read again"
        ));
    }
    let (storage, state) = storage_options(options);
    let opened = match &options.genesis_file {
        Some(file) => {
            let config = GenesisFileConfig {
                data_path,
                file: file.clone(),
                fixed_base_fee: u64::try_from(options.node.pool.tx_pool_min_gas_price)
                    .unwrap_or(u64::MAX),
                storage,
                state,
            };
            let mut progress = LoadingProgress::new(TITLES, stop.clone());
            let opened = Chain::open_genesis_file(&config, &mut |loading| progress.report(loading));
            progress.finish();
            opened
        }
        None => {
            let genesis = options.network.unwrap_or(Network::Mainnet).genesis();
            Chain::open(ChainConfig {
                data_path: Some(data_path),
                genesis: GenesisBlock::from(&genesis),
                spec: Arc::new(genesis.spec),
                storage,
                state,
            })
        }
    };
    match opened {
        Ok(chain) => {
            check_format(options, chain.is_archive())?;
            for change in chain.rule_changes() {
                warn!(
                    "{change} in the genesis: blocks up to the head were validated with the old value"
                );
            }
            let threads = transaction_threads(options);
            match options.transaction_threads {
                Some(_) => chain.set_transaction_threads(threads),
                None => chain.set_max_transaction_threads(threads),
            }
            Ok(Some(Arc::new(chain)))
        }
        Err(OpenError::Stopped) => {
            notice::write(format_args!(
                "stopped on request; the same command reads the genesis from the start"
            ));
            Ok(None)
        }
        Err(error) => Err(explain(options, error)),
    }
}

/// The source of the chain's parameters: a genesis file or a built-in network.
pub(crate) fn genesis_source(options: &Options) -> GenesisSource {
    match &options.genesis_file {
        Some(file) => GenesisSource::File(file.clone()),
        None => {
            let genesis = options.network.unwrap_or(Network::Mainnet).genesis();
            let block = Box::new(GenesisBlock::from(&genesis));
            GenesisSource::Known(block, Arc::new(genesis.spec))
        }
    }
}

/// Refuses a `--data-storage-format` other than the one the database was created with.
fn check_format(options: &Options, is_archive: bool) -> Result<()> {
    let existing = match is_archive {
        true => DataFormat::Archive,
        false => DataFormat::Bonsai,
    };
    match options.data_storage_format {
        Some(requested) if requested != existing => Err(eyre!(
            "the chain was created with --data-storage-format={}; leave the flag out, or start a \
             new chain in another --data-path",
            if is_archive {
                "X_BONSAI_ARCHIVE"
            } else {
                "BONSAI"
            }
        )),
        _ => Ok(()),
    }
}

fn explain(options: &Options, error: OpenError) -> Report {
    match (error, &options.genesis_file) {
        (error @ (OpenError::OtherGenesis { .. } | OpenError::OtherRules { .. }), _) => {
            eyre!(error)
        }
        (OpenError::Genesis(error), Some(file)) => {
            let message = format!("the genesis file {} can't be used; mend it", file.display());
            Report::new(error).wrap_err(message)
        }
        (error, _) => Report::new(error).wrap_err("the chain can't be opened"),
    }
}

/// The data path given, or `niwaki` in the user's data folder.
pub(crate) fn data_path(options: &Options) -> Result<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn options(arguments: &[&str]) -> Options {
        Options::try_parse_from([&["niwaki"], arguments].concat()).unwrap()
    }

    #[test]
    fn transactions_run_on_half_of_the_processors_but_at_least_two_by_default() {
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 8, 64].map(default_threads),
            [1, 2, 2, 2, 2, 3, 4, 32]
        );
        let threads = |arguments: &[&str]| transaction_threads(&options(arguments));
        let half = default_threads(std::thread::available_parallelism().map_or(1, usize::from));
        let enabled = "--bonsai-parallel-tx-processing-enabled";
        let disabled = "--bonsai-parallel-tx-processing-enabled=false";
        assert_eq!(threads(&[]), half);
        assert_eq!(threads(&["--transaction-threads=7"]), 7);
        assert_eq!(threads(&[disabled]), 1);
        assert_eq!(threads(&[disabled, "--transaction-threads=7"]), 1);
        assert_eq!(threads(&[enabled]), half);
        assert_eq!(threads(&[enabled, "--transaction-threads=7"]), 7);
        let besus = "--Xbonsai-parallel-tx-processing-enabled=true";
        assert_eq!(threads(&[besus, "--transaction-threads=3"]), 3);
    }

    #[test]
    fn precompile_results_are_cached_unless_disabled() {
        let bytes = |arguments: &[&str]| {
            let options = options(&[arguments, &["--memory-budget=1000M"]].concat());
            let budget = options.memory_budget.expect("just given");
            precompile_result_bytes(&options, budget)
        };
        assert_eq!(bytes(&["--cache-precompiles=false"]), 0);
        let default = bytes(&[]);
        assert!(default > 1 << 20, "{default}");
        assert_eq!(bytes(&["--cache-precompiles"]), default);
        assert_eq!(bytes(&["--cache-precompiles=true"]), default);
    }
}
