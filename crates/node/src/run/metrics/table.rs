//! Every figure by its name: one row each, sorted. The help that Prometheus shows, docs/metrics.md
//! and the dashboard are held against it by tests.

/// How a figure moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Up and down.
    Gauge,
    /// Only up.
    Counter,
    /// Quantiles, sum and count, in seconds.
    Summary,
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Its labels, joined by commas: for the page of metrics.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test holds the page against it")
    )]
    pub(crate) labels: &'static str,
    pub(crate) help: &'static str,
}

const fn row(name: &'static str, kind: Kind, labels: &'static str, help: &'static str) -> Row {
    Row {
        name,
        kind,
        labels,
        help,
    }
}

use Kind::{Counter, Gauge, Summary};

/// All of them. `besu_` and `ethereum_` are Besu's names, `process_` those of every exporter.
#[rustfmt::skip]
pub(crate) const METRICS: &[Row] = &[
    row("besu_bal_blocks_total", Counter, "", "Blocks that came with their access list"),
    row("besu_block_processing_conflicted_transactions_counter_total", Counter, "", "Transactions run ahead of their turn, and again"),
    row("besu_block_processing_execution_time_head", Gauge, "", "Time that the last block took, all phases, ms"),
    row("besu_block_processing_parallelized_transactions_counter_total", Counter, "", "Transactions run ahead of their turn, and kept"),
    row("besu_blockchain_chain_head_gas_limit", Gauge, "", "Gas limit of the head"),
    row("besu_blockchain_chain_head_gas_used", Gauge, "", "Gas used by the head"),
    row("besu_blockchain_chain_head_gas_used_counter_total", Counter, "", "Gas used by all heads so far"),
    row("besu_blockchain_chain_head_ommer_count", Gauge, "", "Ommers of the head"),
    row("besu_blockchain_chain_head_timestamp", Gauge, "", "Timestamp of the head, seconds"),
    row("besu_blockchain_chain_head_transaction_count", Gauge, "", "Transactions of the head"),
    row("besu_blockchain_chain_head_transaction_count_counter_total", Counter, "", "Transactions of all heads so far"),
    row("besu_blockchain_difficulty", Gauge, "", "Total difficulty of the head"),
    row("besu_blockchain_difficulty_total", Gauge, "", "Total difficulty of the head"),
    row("besu_peers_pending_peer_requests_current", Gauge, "", "Requests that wait for a peer"),
    row("besu_rpc_active_http_connection_count", Gauge, "", "Open connections over HTTP"),
    row("besu_rpc_active_ws_connection_count", Gauge, "", "Open WebSockets"),
    row("besu_rpc_errors_count_total", Counter, "rpcMethod,errorType", "Calls that were refused, by code"),
    row("besu_rpc_request_time", Summary, "methodName", "Time that a call took, without its wait"),
    row("besu_synchronizer_in_sync", Gauge, "", "Whether the head that was chosen is here"),
    row("besu_transaction_pool_added_total", Counter, "source", "Transactions taken into the pool"),
    row("besu_transaction_pool_number_of_transactions", Gauge, "layer", "Transactions in the pool"),
    row("besu_transaction_pool_number_of_transactions_by_type", Gauge, "type", "Transactions in the pool, by type"),
    row("besu_transaction_pool_rejected_total", Counter, "reason", "Transactions that the pool refused"),
    row("besu_transaction_pool_removed_total", Counter, "operation", "Transactions that left the pool"),
    row("besu_transaction_pool_space_used", Gauge, "layer", "Bytes of the pool"),
    row("besu_transaction_pool_transactions", Gauge, "", "Transactions in the pool"),
    row("besu_transaction_pool_transactions_added_total", Counter, "", "Transactions taken into the pool"),
    row("besu_transaction_pool_unique_senders", Gauge, "layer", "Senders in the pool"),
    row("ethereum_best_known_block_number", Gauge, "", "Highest block known of"),
    row("ethereum_blockchain_finalized_block", Gauge, "", "Number of the finalized block"),
    row("ethereum_blockchain_height", Gauge, "", "Number of the head"),
    row("ethereum_blockchain_safe_block", Gauge, "", "Number of the safe block"),
    row("ethereum_min_gas_price", Gauge, "", "Least price that the pool takes, wei"),
    row("ethereum_peer_count", Gauge, "", "Peers"),
    row("ethereum_peer_limit", Gauge, "", "Most peers"),
    row("niwaki_allocator_allocated_bytes", Gauge, "", "Bytes that the program holds"),
    row("niwaki_allocator_resident_bytes", Gauge, "", "Bytes that the allocator holds for it"),
    row("niwaki_block_ahead_failures_total", Counter, "", "Runs ahead that panicked: their transactions were run again"),
    row("niwaki_block_check_seconds", Summary, "", "Header and body against the parent"),
    row("niwaki_block_commit_seconds", Summary, "", "The write, as far as the answer waits for it"),
    row("niwaki_block_compare_seconds", Summary, "", "The comparisons with the header"),
    row("niwaki_block_early_roots_total", Counter, "", "State roots made from access lists, beside the execution"),
    row("niwaki_block_execute_seconds", Summary, "", "Transactions of a block, up to the end of the last"),
    row("niwaki_block_mgas_per_second", Summary, "", "Million gas a second of a whole block"),
    row("niwaki_block_reads_missed", Summary, "", "Accounts and slots that caches did not hold while a block was executed"),
    row("niwaki_block_recover_seconds", Summary, "", "Senders that the executing thread recovered itself"),
    row("niwaki_block_root_seconds", Summary, "", "From the last transaction on: withdrawals, requests, state root, receipts root"),
    row("niwaki_block_roots_begun_total", Counter, "", "Blocks whose changes went into the tries while they were executed"),
    row("niwaki_block_total_seconds", Summary, "", "All phases of a block"),
    row("niwaki_block_transactions_in_turn_total", Counter, "", "Transactions run when it was their turn, and not before"),
    row("niwaki_cache_hits_total", Counter, "cache", "Look-ups that caches answered: accounts, slots, codes, precompiled"),
    row("niwaki_cache_misses_total", Counter, "cache", "Look-ups that they did not"),
    row("niwaki_engine_status_total", Counter, "method,status", "Statuses that payloads and fork choices were answered with"),
    row("niwaki_pool_warming_gas_total", Counter, "", "Gas of the pool's transactions that were run before a block came"),
    row("niwaki_pool_warming_transactions_total", Counter, "", "Transactions of the pool that were run before a block came"),
    row("niwaki_rpc_connections_refused_total", Counter, "", "Connections closed for being too many"),
    row("niwaki_rpc_tokens_refused_total", Counter, "reason", "Requests without a good token"),
    row("niwaki_storage_pinned_bytes", Gauge, "", "Bytes that views of older blocks keep in memory"),
    row("niwaki_storage_size_bytes", Gauge, "segment", "Bytes of a segment on the disk"),
    row("niwaki_storage_waiting_batches", Gauge, "", "Batches on their way to the disk"),
    row("niwaki_storage_waiting_bytes", Gauge, "", "Bytes on their way to the disk"),
    row("niwaki_trie_bytes", Gauge, "", "Bytes of trie nodes in memory"),
    row("niwaki_trie_nodes_read_total", Counter, "", "Trie nodes read from the storage"),
    row("process_cpu_seconds_total", Counter, "", "Processor time"),
    row("process_max_fds", Gauge, "", "Most open files"),
    row("process_open_fds", Gauge, "", "Open files"),
    row("process_resident_memory_bytes", Gauge, "", "Resident memory"),
    row("process_start_time_seconds", Gauge, "", "When it began, since 1970"),
    row("process_threads", Gauge, "", "Threads"),
    row("process_virtual_memory_bytes", Gauge, "", "Address space"),
    row("process_virtual_memory_max_bytes", Gauge, "", "Most address space"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_counters_end_as_prometheus_asks() {
        assert!(METRICS.is_sorted_by(|a, b| a.name < b.name));
        for row in METRICS {
            // Besu has one gauge with the ending of a counter.
            let is_named_so =
                row.name.ends_with("_total") && row.name != "besu_blockchain_difficulty_total";
            assert_eq!(row.kind == Counter, is_named_so, "{}", row.name);
        }
    }

    #[test]
    fn the_page_of_metrics_has_every_row() {
        let page = include_str!("../../../../../docs/metrics.md");
        for row in METRICS {
            let line = format!(
                "| `{}` | {} | {} | {} |",
                row.name,
                format!("{:?}", row.kind).to_lowercase(),
                row.labels,
                row.help
            );
            assert!(page.contains(&line), "docs/metrics.md lacks: {line}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, METRICS.len(), "no more than there are");
    }

    #[test]
    fn the_dashboard_asks_for_nothing_that_is_not_there() {
        let dashboard = include_str!("../../../../../packaging/grafana/niwaki.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let mut asked = 0;
        for target in panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap())
        {
            let expression = target["expr"].as_str().unwrap();
            // A name stands before the labels that it is asked for.
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            for (at, _) in expression.match_indices('{') {
                let before = &expression[..at];
                let start = before.rfind(|c| !is_name(c)).map_or(0, |end| end + 1);
                let word = &before[start..];
                let base = ["_sum", "_count"]
                    .iter()
                    .find_map(|end| word.strip_suffix(end));
                let known = |name: &str| METRICS.iter().any(|row| row.name == name);
                assert!(
                    known(word) || base.is_some_and(known),
                    "{word} in {expression}"
                );
                asked += 1;
            }
        }
        assert!(asked >= 30, "{asked}");
    }
}
