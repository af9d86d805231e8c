//! The log lines of a start: program, data path, chain, head, peers.

use super::config::NodeConfig;
use eyre::Result;
use niwaki_chain::Chain;
use niwaki_primitives::{Fork, StateView};
use niwaki_rpc::human::{Age, ShortHash, Utc, Wei};
use niwaki_rpc::{Backend, Identity};
use niwaki_rules::{Activation, ChainSpec, DEV_ACCOUNTS};
use niwaki_storage::SCHEMA_VERSION;
use tracing::{info, warn};

/// Program, version, commit.
pub(super) fn write_program(identity: &Identity) {
    info!(
        version = %identity.version,
        commit = %niwaki_primitives::hex::encode(identity.commit),
        platform = format_args!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        rustc = %env!("CARGO_PKG_RUST_VERSION"),
        "Niwaki"
    );
}

/// Data path, chain, forks, head.
pub(super) fn write_chain(config: &NodeConfig, chain: &Chain) -> Result<()> {
    let storage = match chain.is_archive() {
        true => "X_BONSAI_ARCHIVE",
        false => "BONSAI",
    };
    info!(
        path = %config.data_path.display(),
        profile = %config.profile.as_deref().unwrap_or("none"),
        storage = %storage,
        format = SCHEMA_VERSION,
        memory = %config.memory,
        transaction_threads = config.transaction_threads,
        "Data path"
    );
    let (spec, head) = (chain.spec(), chain.head());
    let now = super::now().max(head.header.timestamp);
    let merged = spec.terminal_total_difficulty.is_some();
    info!(
        name = %config.chain_name,
        id = spec.chain_id,
        network_id = config.network_id,
        genesis = %ShortHash(chain.genesis_hash()),
        fork = %spec.fork_at(head.id.number, now, merged),
        "Chain"
    );
    match next_fork(spec, head.id.number, now) {
        Some((fork, Activation::Time(time))) => {
            let left = time.saturating_sub(now).saturating_mul(1_000);
            info!(%fork, at = %Utc(time), within = %Age(left), "Next fork");
        }
        Some((fork, Activation::Block(block))) => info!(%fork, block, "Next fork"),
        _ => info!("No fork is scheduled after this one"),
    }
    let age = match head.header.timestamp {
        0 => "unknown".to_owned(), // A genesis block without a time.
        timestamp => Age::since(timestamp, now.saturating_mul(1_000)).to_string(),
    };
    let number = |block: Option<niwaki_chain::StoredHeader>| {
        block.map_or_else(|| "none".to_owned(), |block| block.id.number.to_string())
    };
    info!(
        number = head.id.number,
        hash = %ShortHash(head.id.hash),
        age = %age,
        safe = %number(chain.safe()?),
        finalized = %number(chain.finalized()?),
        "Head"
    );
    Ok(())
}

/// The accounts of `--network=dev`, or that there are no peers; then that the node is ready.
pub(super) fn write_ready(config: &NodeConfig, backend: &Backend) -> Result<()> {
    if config.dev_period_s.is_some() {
        let view = backend.chain().view_at_head()?;
        for (address, key) in DEV_ACCOUNTS {
            let balance = view.account(&address)?.unwrap_or_default().balance;
            info!(%address, %key, balance = %Wei(balance), "Development account");
        }
        info!("The keys above are known to all: never use them on another chain");
    } else if backend.operator().peers().is_none() {
        warn!(
            "No peers: --p2p-enabled is false; blocks come from the consensus client or from files"
        );
    }
    info!("Ready");
    Ok(())
}

/// The next fork of a chain whose head has this number, at `now` (seconds since 1970).
fn next_fork(spec: &ChainSpec, number: u64, now: u64) -> Option<(Fork, Activation)> {
    let scheduled = Fork::ALL
        .into_iter()
        .map(|fork| (fork, spec.activation(fork)));
    let by_time = scheduled
        .clone()
        .filter_map(|(fork, activation)| match activation {
            Activation::Time(time) if time > now => Some((time, fork, activation)),
            _ => None,
        });
    let by_block = scheduled.filter_map(|(fork, activation)| match activation {
        Activation::Block(block) if block > number => Some((block, fork, activation)),
        _ => None,
    });
    // After the Merge, all forks by block number are in the past, even if the head is still low.
    let by_block = by_block.filter(|_| spec.terminal_total_difficulty.is_none());
    let next = by_block.min_by_key(|(at, ..)| *at);
    let next = next.or_else(|| by_time.min_by_key(|(at, ..)| *at));
    next.map(|(_, fork, activation)| (fork, activation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_fork_is_the_first_by_time_after_now_or_by_block_after_the_head() {
        let mut spec = ChainSpec::single(1, Fork::Shanghai);
        assert_eq!(next_fork(&spec, 0, 100), None);
        spec.set(Fork::Cancun, Activation::Time(100));
        spec.set(Fork::Prague, Activation::Time(200));
        let at = |now| next_fork(&spec, 0, now).map(|(fork, _)| fork);
        assert_eq!(
            [at(99), at(100), at(200)],
            [Some(Fork::Cancun), Some(Fork::Prague), None]
        );
        let mut spec = ChainSpec::single(1, Fork::Berlin);
        spec.set(Fork::London, Activation::Block(10));
        let next = (Fork::London, Activation::Block(10));
        assert_eq!(next_fork(&spec, 9, 100), Some(next));
        assert_eq!(next_fork(&spec, 10, 100), None);
    }
}
