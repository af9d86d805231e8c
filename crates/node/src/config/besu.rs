//! Options of Besu that this node accepts without effect, each with the reason.
//!
//! A configuration that starts Besu starts this node: every option of Besu 26.8, hidden ones included, is
//! either a flag of ours or a row here. The node logs each such option once: as a warning if the operator
//! may rely on what the option does, otherwise as information.

use Arity::{Flag, List, Spaced, Value};

/// What Besu's command line reads after an option's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arity {
    /// A Boolean: `--x` or `--x=false`, never a word after a space.
    Flag,
    /// A Boolean that may stand after a space too: `--x false`.
    Spaced,
    /// One value, after `=` or a space.
    Value,
    /// Values, after `=` with commas or after spaces, up to the next flag or command.
    List,
}

/// An option of Besu that has no effect here.
pub(super) struct BesuOption {
    pub(super) name: &'static str,
    pub(super) arity: Arity,
    /// Why it has no effect: the rest of a sentence.
    pub(super) why: &'static str,
    /// Values, in lower case, that need no warning; `None` if no value needs one.
    pub(super) harmless: Option<&'static [&'static str]>,
}

impl BesuOption {
    /// Whether an operator who gives `value` must be warned.
    pub(super) fn is_risky(&self, value: &str) -> bool {
        let value = value.trim().to_ascii_lowercase();
        self.harmless
            .is_some_and(|harmless| !harmless.contains(&value.as_str()))
    }
}

/// The row of this name.
pub(super) fn find(name: &str) -> Option<&'static BesuOption> {
    let index = ROWS.binary_search_by(|row| row.name.cmp(name));
    ROWS.get(index.ok()?)
}

const fn row(name: &'static str, arity: Arity, why: &'static str) -> BesuOption {
    BesuOption {
        name,
        arity,
        why,
        harmless: None,
    }
}

const fn risk(
    name: &'static str,
    arity: Arity,
    why: &'static str,
    harmless: &'static [&'static str],
) -> BesuOption {
    BesuOption {
        harmless: Some(harmless),
        ..row(name, arity, why)
    }
}

const ACCESS_LISTS: &str =
    "a block's access list is always used, always compared, and the state root always computed";
const BFT: &str = "blocks of validators take at most 40 % of their period";
const BUILDING: &str = "a payload is rebuilt twice a second until it is asked for";
const CACHES: &str = "--memory-budget sizes all caches";
const ENGINE: &str = "the storage is RocksDB, and nothing else";
const ERA1: &str = "`niwaki blocks import --format ERA1` imports such files";
const ETHSTATS: &str = "this version reports to no ethstats server";
const EVM: &str = "there is one interpreter, with no variants to choose";
const FEE_BOUNDS: &str = "the price oracle has no bounds that follow the base fee";
const FORMAT: &str = "the format on the disk is fixed";
const KEYS: &str = "this version has no security modules";
const KZG: &str =
    "the trusted setup of the KZG ceremony is built in, and the only one that is used";
const METRICS: &str = "all metrics are served; docs/metrics.md lists them";
const NATIVE: &str = "there is no slower implementation to fall back to";
const NONCE_INDEX: &str = "there is no index of transactions by sender and nonce";
const OCCUPANCY: &str = "a block takes all that fits";
const OVERRIDE: &str = "the genesis file counts as it is; change it there, or this node follows other rules than meant";
const PATHS: &str = "this version prints no paths, and starts";
const PEERS: &str = "this version has limits and times of its own for peers";
const PLUGINS: &str = "this version loads no plugins";
const PROTOCOL: &str = "metrics are served to Prometheus only";
const PRUNING: &str = "only `niwaki storage prune-pre-merge-blocks` removes blocks";
const REVERTS: &str = "receipts carry no revert reason; debug_traceTransaction shows it";
const ROOT: &str = "the state root is always computed on several threads";
const ROUNDS: &str =
    "a validator always follows to a later round when more are there than can be faulty";
const SAVING: &str = "the pool waits for the disk as long as it takes";
const STORAGE: &str = "--memory-budget sizes every buffer of the storage";
const SYNC: &str = "a sync has its own sizes and times, and begins with one peer";
const TIMEOUT: &str = "--Xhttp-timeout-seconds holds for answers of every length";
const TRACES: &str = "a trace is bounded by its bytes and its time, and sent as it is made";
const TRIE_LOGS: &str = "trie logs of the last 512 blocks are kept, and older ones removed";
const VERSIONS: &str = "the data path names its format, and another one is always refused";

/// All options without effect, ascending by name.
#[rustfmt::skip]
pub(super) const ROWS: &[BesuOption] = &[
    row("Xaltbn128-native-enabled", Spaced, NATIVE),
    row("Xbal-lenient-on-state-root-mismatch", Flag, ACCESS_LISTS),
    row("Xbal-log-bals-on-mismatch", Flag, ACCESS_LISTS),
    row("Xbal-perfect-parallelization-enabled", Flag, ACCESS_LISTS),
    row("Xbal-processing-timeout", Value, ACCESS_LISTS),
    row("Xbal-state-root-enabled", Flag, ACCESS_LISTS),
    row("Xbal-state-root-timeout", Value, ACCESS_LISTS),
    risk("Xbal-trust-state-root", Flag, ACCESS_LISTS, &["false"]),
    row("Xblake2bf-native-enabled", Spaced, NATIVE),
    row("Xbonsai-archive-state-proofs-enabled", Flag, FORMAT),
    row("Xbonsai-code-using-code-hash-enabled", Spaced, FORMAT),
    row("Xbonsai-cross-block-cache-account-max-size", Value, CACHES),
    row("Xbonsai-cross-block-cache-enabled", Flag, CACHES),
    row("Xbonsai-cross-block-cache-storage-max-size", Value, CACHES),
    row("Xbonsai-full-flat-db-enabled", Spaced, FORMAT),
    row("Xchain-pruning-bals-retained", Value, PRUNING),
    row("Xchain-pruning-blocks-retained", Value, PRUNING),
    risk("Xchain-pruning-enabled", Value, PRUNING, &["none", "bal"]),
    row("Xchain-pruning-frequency", Value, PRUNING),
    row("Xchain-pruning-retained-minimum", Value, PRUNING),
    row("Xcheckpoint-post-merge-enabled", Spaced, SYNC),
    row("Xdns-enabled", Spaced, PEERS),
    row("Xdns-update-enabled", Spaced, PEERS),
    row("Xeth-max-message-size", Value, PEERS),
    row("Xeth-max-transactions-message-size", Value, PEERS),
    row("Xeth65-tx-announced-buffering-period-milliseconds", Value, PEERS),
    row("Xevm-go-fast", Spaced, EVM),
    row("Xevm-jumpdest-cache-weight-kb", Value, CACHES),
    row("Xevm-optimized-opcodes", Spaced, EVM),
    row("Xevm-v2", Spaced, EVM),
    row("Xevm-worldstate-update-mode", Value, EVM),
    row("Xewp-max-get-bodies", Value, PEERS),
    row("Xewp-max-get-headers", Value, PEERS),
    row("Xewp-max-get-node-data", Value, PEERS),
    row("Xewp-max-get-pooled-transactions", Value, PEERS),
    row("Xewp-max-get-receipts", Value, PEERS),
    row("Xhttp-streaming-timeout-seconds", Value, TIMEOUT),
    row("Xin-process-rpc-api", List, PLUGINS),
    row("Xin-process-rpc-apis", List, PLUGINS),
    row("Xin-process-rpc-enabled", Flag, PLUGINS),
    row("Xincoming-tx-messages-keep-alive-seconds", Value, PEERS),
    row("Xmax-send-queue-size-per-peer", Value, PEERS),
    row("Xmax-tracked-seen-txs", Value, PEERS),
    row("Xmax-tracked-seen-txs-per-peer", Value, PEERS),
    row("Xmetrics-idle-timeout", Value, METRICS),
    row("Xmetrics-timers-enabled", Flag, METRICS),
    row("Xmodexp-native-enabled", Spaced, NATIVE),
    row("Xnat-method-fallback-enabled", Spaced, PEERS),
    row("Xp256verify-native-enabled", Spaced, NATIVE),
    row("Xp2p-check-maintained-connections-frequency", Value, PEERS),
    row("Xp2p-initiate-connections-frequency", Value, PEERS),
    row("Xp2p-peer-task-timeout", Value, PEERS),
    row("Xpeer-tracker-forget-evicted-txs", Spaced, PEERS),
    row("Xpeertask-system-enabled", Flag, PEERS),
    row("Xplugin-rocksdb-background-thread-count", Value, STORAGE),
    row("Xplugin-rocksdb-blob-garbage-collection-age-cutoff", Value, STORAGE),
    row("Xplugin-rocksdb-blob-garbage-collection-force-threshold", Value, STORAGE),
    row("Xplugin-rocksdb-blockchain-blob-garbage-collection-enabled", Flag, STORAGE),
    row("Xplugin-rocksdb-cache-capacity", Value, STORAGE),
    row("Xplugin-rocksdb-max-open-files", Value, STORAGE),
    row("Xplugin-rocksdb-read-cache-snapshots-enabled", Flag, STORAGE),
    row("Xplugins-external-enabled", Flag, PLUGINS),
    row("Xpos-block-creation-max-time", Value, BUILDING),
    row("Xpos-block-creation-repetition-min-duration", Value, BUILDING),
    row("Xpos-block-finalization-timeout-ms", Value, BUILDING),
    row("Xpos-slot-duration", Value, BUILDING),
    row("Xpre-merge-pruning-quantity", Value, PRUNING),
    row("Xqbft-enable-early-round-change", Flag, ROUNDS),
    row("Xsecp-native-enabled", Spaced, NATIVE),
    row("Xsecp256k1-native-enabled", Spaced, NATIVE),
    row("Xsnapsync-server-max-concurrent-requests", Value, PEERS),
    row("Xsnapsync-server-max-concurrent-requests-per-peer", Value, PEERS),
    row("Xsnapsync-synchronizer-bytecode-count-per-request", Value, SYNC),
    row("Xsnapsync-synchronizer-flat-account-healed-count-per-request", Value, SYNC),
    row("Xsnapsync-synchronizer-flat-slot-healed-count-per-request", Value, SYNC),
    row("Xsnapsync-synchronizer-pivot-block-check-interval-millis", Value, SYNC),
    row("Xsnapsync-synchronizer-pivot-block-distance-before-caching", Value, SYNC),
    row("Xsnapsync-synchronizer-pivot-block-window-validity", Value, SYNC),
    row("Xsnapsync-synchronizer-storage-count-per-request", Value, SYNC),
    row("Xsnapsync-synchronizer-trienode-count-per-request", Value, SYNC),
    row("Xsynchronizer-backward-headers-download-step-timeout-millis", Value, SYNC),
    row("Xsynchronizer-block-propagation-range", Value, SYNC),
    row("Xsynchronizer-bodies-download-step-timeout-millis", Value, SYNC),
    row("Xsynchronizer-computation-parallelism", Value, SYNC),
    row("Xsynchronizer-downloader-bodies-request-size", Value, SYNC),
    row("Xsynchronizer-downloader-chain-segment-size", Value, SYNC),
    row("Xsynchronizer-downloader-change-target-threshold-by-height", Value, SYNC),
    row("Xsynchronizer-downloader-change-target-threshold-by-td", Value, SYNC),
    row("Xsynchronizer-downloader-checkpoint-RETRIES", Value, SYNC),
    row("Xsynchronizer-downloader-checkpoint-timeouts-permitted", Value, SYNC),
    row("Xsynchronizer-downloader-header-request-size", Value, SYNC),
    row("Xsynchronizer-downloader-parallelism", Value, SYNC),
    row("Xsynchronizer-header-download-parallelism-factor", Value, SYNC),
    row("Xsynchronizer-pivot-distance", Value, SYNC),
    row("Xsynchronizer-receipts-download-step-timeout-millis", Value, SYNC),
    row("Xsynchronizer-transactions-parallelism", Value, SYNC),
    row("Xsynchronizer-world-state-hash-count-per-request", Value, SYNC),
    row("Xsynchronizer-world-state-max-requests-without-progress", Value, SYNC),
    row("Xsynchronizer-world-state-min-millis-before-stalling", Value, SYNC),
    row("Xsynchronizer-world-state-request-parallelism", Value, SYNC),
    row("Xsynchronizer-world-state-task-cache-size", Value, SYNC),
    row("Xtx-pool-save-restore-timeout", Value, SAVING),
    row("Xv5-discovery-enabled", Flag, PEERS),
    row("Xv5-discovery-interval-seconds", Value, PEERS),
    row("Xv5-discovery-timeout-seconds", Value, PEERS),
    row("Xv5-minimum-peer-ratio", Value, PEERS),
    risk("api-gas-and-priority-fee-limiting-enabled", Flag, FEE_BOUNDS, &["false"]),
    row("api-gas-and-priority-fee-lower-bound-coefficient", Value, FEE_BOUNDS),
    row("api-gas-and-priority-fee-upper-bound-coefficient", Value, FEE_BOUNDS),
    row("bonsai-historical-block-limit", Value, TRIE_LOGS),
    row("bonsai-limit-trie-logs-enabled", Flag, TRIE_LOGS),
    row("bonsai-parallel-state-root-computation-enabled", Spaced, ROOT),
    row("bonsai-trie-logs-pruning-window-size", Value, TRIE_LOGS),
    row("cache-last-block-headers", Value, CACHES),
    row("cache-last-block-headers-preload-enabled", Flag, CACHES),
    row("cache-last-blocks", Value, CACHES),
    row("checkpoint", Value, SYNC),
    row("era1-import-prepipeline-concurrency", Value, ERA1),
    row("era1-import-prepipeline-enabled", Spaced, ERA1),
    risk("ethstats", Value, ETHSTATS, &[""]),
    row("ethstats-cacert-file", Value, ETHSTATS),
    row("ethstats-contact", Value, ETHSTATS),
    row("ethstats-report-interval", Value, ETHSTATS),
    row("filter-on-enr-fork-id", Flag, PEERS),
    risk("history-expiry-prune", Flag, PRUNING, &["false"]),
    risk("key-value-storage", Value, ENGINE, &["rocksdb"]),
    risk("kzg-trusted-setup", Value, KZG, &[]),
    row("metrics-categories", List, METRICS),
    row("metrics-category", List, METRICS),
    risk("metrics-protocol", Value, PROTOCOL, &["prometheus"]),
    row("min-block-occupancy-ratio", Value, OCCUPANCY),
    risk("override-genesis-config", List, OVERRIDE, &[]),
    row("p2p-tx-feecap", Value, PEERS),
    row("plugin-block-txs-selection-max-time", Value, PLUGINS),
    row("plugin-continue-on-error", Flag, PLUGINS),
    risk("plugins", Value, PLUGINS, &["", "none"]),
    row("plugins-verification-mode", Value, PLUGINS),
    row("poa-block-txs-selection-max-time", Value, BFT),
    row("poa-discovery-retry-bootnodes", Spaced, PEERS),
    risk("print-paths-and-exit", Value, PATHS, &["false"]),
    row("random-peer-priority-enabled", Flag, PEERS),
    row("receipt-compaction-enabled", Flag, FORMAT),
    risk("revert-reason-enabled", Flag, REVERTS, &["false"]),
    row("rpc-max-trace-steps", Value, TRACES),
    risk("security-module", Value, KEYS, &["localfile"]),
    row("snapsync-synchronizer-pre-checkpoint-headers-only-enabled", Spaced, SYNC),
    row("snapsync-synchronizer-transaction-indexing-enabled", Spaced, SYNC),
    row("sync-min-peers", Value, SYNC),
    row("tx-sender-nonce-index-enabled", Flag, NONCE_INDEX),
    row("version-compatibility-protection", Flag, VERSIONS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_unique() {
        for pair in ROWS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{}", pair[1].name);
        }
        for row in ROWS {
            assert_eq!(find(row.name).map(|found| found.name), Some(row.name));
        }
        assert!(find("rpc-http-enabled").is_none());
    }

    #[test]
    fn no_row_is_a_flag_of_this_node() {
        use crate::config::flags;
        use clap::CommandFactory;
        let command = crate::options::Options::command();
        for arg in flags::flags(&command) {
            for name in flags::names(arg) {
                assert!(find(name).is_none(), "{name}");
            }
        }
    }

    #[test]
    fn only_values_that_change_what_an_operator_gets_are_warnings() {
        let risky = |name: &str, value: &str| find(name).unwrap().is_risky(value);
        assert!(risky("history-expiry-prune", "TRUE"));
        assert!(!risky("history-expiry-prune", "False"));
        assert!(risky("override-genesis-config", "londonBlock=0"));
        assert!(!risky("sync-min-peers", "5"));
    }
}
