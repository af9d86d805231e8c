//! Every metric, one row each, sorted by name. Prometheus shows its help text; tests compare docs/metrics.md
//! and the Grafana dashboard with it.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Up and down.
    Gauge,
    /// Only up.
    Counter,
    /// Quantiles, sum and count, in seconds.
    Summary,
    /// Counts by upper bound, sum and count, in seconds.
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Its labels, joined by commas, for docs/metrics.md.
    pub(crate) labels: &'static str,
    pub(crate) help: &'static str,
}

const fn row(name: &'static str, kind: Kind, labels: &'static str, help: &'static str) -> Metric {
    Metric {
        name,
        kind,
        labels,
        help,
    }
}

use Kind::{Counter, Gauge, Histogram, Summary};

/// All metrics. `besu_` and `ethereum_` are Besu's names, `process_` are those of every Prometheus exporter.
#[rustfmt::skip]
pub(crate) const METRICS: &[Metric] = &[
    row("besu_bal_accounts_count", Gauge, "", "Accounts in the last access list of a block"),
    row("besu_bal_accounts_updated", Gauge, "", "Accounts with changes in the last access list of a block"),
    row("besu_bal_blocks_total", Counter, "", "Blocks that arrived with their access list"),
    row("besu_bal_code_count", Gauge, "", "Accounts with new code in the last access list of a block"),
    row("besu_bal_storage_slots_count", Gauge, "", "Slots in the last access list of a block"),
    row("besu_bal_storage_slots_updated", Gauge, "", "Slots that were written in the last access list of a block"),
    row("besu_block_processing_conflicted_transactions_counter_total", Counter, "", "Transactions executed speculatively, then re-executed"),
    row("besu_block_processing_execution_time_head", Gauge, "", "Time of the last block, all phases, ms"),
    row("besu_block_processing_parallelized_transactions_counter_total", Counter, "", "Transactions whose speculative execution was validated"),
    row("besu_block_processing_state_root_calculation_duration_seconds", Summary, "", "Time of the state root of a block"),
    row("besu_blockchain_chain_head_gas_limit", Gauge, "", "Gas limit of the head"),
    row("besu_blockchain_chain_head_gas_used", Gauge, "", "Gas used by the head"),
    row("besu_blockchain_chain_head_gas_used_counter_total", Counter, "", "Gas used by all heads so far"),
    row("besu_blockchain_chain_head_ommer_count", Gauge, "", "Ommers of the head"),
    row("besu_blockchain_chain_head_timestamp", Gauge, "", "Timestamp of the head, seconds"),
    row("besu_blockchain_chain_head_transaction_count", Gauge, "", "Transactions of the head"),
    row("besu_blockchain_chain_head_transaction_count_counter_total", Counter, "", "Transactions of all heads so far"),
    row("besu_blockchain_difficulty", Gauge, "", "Total difficulty of the head"),
    row("besu_blockchain_difficulty_total", Gauge, "", "Total difficulty of the head"),
    row("besu_blockchain_get_account_flat_database_total", Counter, "", "Accounts that were read from the storage and exist"),
    row("besu_blockchain_get_account_missing_flat_database_total", Counter, "", "Accounts that were looked for in the storage and do not exist"),
    row("besu_blockchain_get_account_total", Counter, "", "Accounts that were looked up, in caches or the storage"),
    row("besu_blockchain_get_storagevalue_flat_database_total", Counter, "", "Slots that were read from the storage and are not zero"),
    row("besu_blockchain_get_storagevalue_missing_flat_database_total", Counter, "", "Slots that were looked for in the storage and are zero"),
    row("besu_blockchain_get_storagevalue_total", Counter, "", "Slots that were looked up, in caches or the storage"),
    row("besu_blockchain_transactions_traceblock_pipeline_processed_total", Counter, "action,step", "Transactions traced by trace_block"),
    row("besu_blockchain_transactions_tracereplayblock_pipeline_processed_total", Counter, "action,step", "Transactions traced by trace_replayBlockTransactions"),
    row("besu_bonsai_cache_code_cache_eviction_weight", Gauge, "", "Bytes of codes that their cache has forgotten"),
    row("besu_bonsai_cache_code_cache_evictions", Gauge, "", "Codes that their cache has forgotten"),
    row("besu_bonsai_cache_code_cache_hit_rate", Gauge, "", "Share of look-ups of code that its cache answered"),
    row("besu_bonsai_cache_code_cache_lookups_per_second", Gauge, "", "Look-ups of code a second, since the last reading"),
    row("besu_bonsai_cache_code_cache_size", Gauge, "", "Codes in their cache"),
    row("besu_network_discovery_demux_packets_total", Counter, "protocol", "Packets that discovery received: v4, and those that could not be read"),
    row("besu_network_discovery_inflight_interactions_current", Gauge, "", "Requests of discovery v4 whose answers are awaited"),
    row("besu_network_discovery_interaction_count_total", Counter, "type", "Requests that discovery v4 has made"),
    row("besu_network_discovery_messages_inbound_total", Counter, "name", "Packets that discovery v4 received and could read"),
    row("besu_network_discovery_messages_outbound_total", Counter, "name", "Packets that discovery v4 sent"),
    row("besu_network_discovery_packets_dropped_total", Counter, "reason", "Packets that discovery v4 received and dropped"),
    row("besu_network_discv4_known_peers_current", Gauge, "", "Nodes in the table of discovery v4"),
    row("besu_network_discv5_discovery_round_duration_seconds", Summary, "", "Time of a look-up of discovery v5"),
    row("besu_network_discv5_discovery_round_total", Counter, "outcome", "Look-ups of discovery v5: success, failure"),
    row("besu_network_discv5_live_nodes_current", Gauge, "", "Connected nodes in the table of discovery v5"),
    row("besu_network_discv5_total_nodes_current", Gauge, "", "Nodes in the table of discovery v5"),
    row("besu_network_p2p_bytes_inbound_total", Counter, "protocol,name,code", "Bytes of messages from peers, not compressed"),
    row("besu_network_p2p_bytes_outbound_total", Counter, "protocol,name,code", "Bytes of messages to peers, not compressed"),
    row("besu_network_p2p_messages_inbound_total", Counter, "protocol,name,code", "Messages from peers"),
    row("besu_network_p2p_messages_outbound_total", Counter, "protocol,name,code", "Messages to peers"),
    row("besu_network_rlpx_connect_outcome_total", Counter, "result", "How dials ended: connected, failed, too_many_peers, other_chain, other"),
    row("besu_network_rlpx_outbound_connect_attempts_total", Counter, "source", "Dials, by where the node was found"),
    row("besu_network_vertx_worker_pool_completed_total", Counter, "poolName,poolType", "Calls that workers have run"),
    row("besu_network_vertx_worker_pool_rejected_total", Counter, "poolName,poolType", "Calls that were refused because their queue was full"),
    row("besu_network_vertx_worker_pool_submitted_total", Counter, "poolName,poolType", "Calls that were given to workers"),
    row("besu_peers_connected_total", Counter, "", "Connections that became peers"),
    row("besu_peers_disconnected_total", Counter, "initiator,disconnectReason", "Connections that ended, refused ones among them"),
    row("besu_peers_inflight_request_gauge", Gauge, "taskName", "Requests to peers whose answers are awaited"),
    row("besu_peers_internal_exception_total", Counter, "", "Tasks of connections that panicked"),
    row("besu_peers_invalid_response_total", Counter, "taskName", "Answers of peers that were proved wrong"),
    row("besu_peers_peer_count_by_client", Gauge, "client", "Peers, by what they call themselves"),
    row("besu_peers_pending_peer_requests_current", Gauge, "", "Requests that wait for a peer"),
    row("besu_peers_request_time", Summary, "taskName", "Time from a request to its answer"),
    row("besu_peers_snap_service_requests_in_flight_current", Gauge, "", "Requests by snap of peers that have no answer yet"),
    row("besu_peers_timeout_total", Counter, "taskName", "Requests that were not answered in time"),
    row("besu_permissioning_account_local_check_count_permitted_total", Counter, "", "Senders that the list in the file allows"),
    row("besu_permissioning_account_local_check_count_total", Counter, "", "Senders that were looked for in the list in the file"),
    row("besu_permissioning_account_local_check_count_unpermitted_total", Counter, "", "Senders that the list in the file does not allow"),
    row("besu_permissioning_node_local_check_count_permitted_total", Counter, "", "Nodes that the list in the file allows"),
    row("besu_permissioning_node_local_check_count_total", Counter, "", "Nodes that were looked for in the list in the file"),
    row("besu_permissioning_node_local_check_count_unpermitted_total", Counter, "", "Nodes that the list in the file does not allow"),
    row("besu_permissioning_node_smart_contract_check_count_permitted_total", Counter, "", "Connections that the contract allows"),
    row("besu_permissioning_node_smart_contract_check_count_total", Counter, "", "Connections that the contract was asked about"),
    row("besu_permissioning_node_smart_contract_check_count_unpermitted_total", Counter, "", "Connections that the contract does not allow"),
    row("besu_permissioning_transaction_smart_contract_check_count_permitted_total", Counter, "", "Transactions that the contract allows"),
    row("besu_permissioning_transaction_smart_contract_check_count_total", Counter, "", "Transactions that the contract was asked about"),
    row("besu_permissioning_transaction_smart_contract_check_count_unpermitted_total", Counter, "", "Transactions that the contract does not allow"),
    row("besu_rpc_active_http_connection_count", Gauge, "", "Open connections over HTTP"),
    row("besu_rpc_active_ws_connection_count", Gauge, "", "Open WebSockets"),
    row("besu_rpc_errors_count_total", Counter, "rpcMethod,errorType", "Calls that were refused, by code"),
    row("besu_rpc_eth_call_gas_used_total", Counter, "status", "Gas used by eth_call"),
    row("besu_rpc_request_time", Summary, "methodName", "Time of a call, without queueing"),
    row("besu_synchronizer_chain_download_pipeline_processed_total", Counter, "action,step", "Headers and bodies that came, blocks that were imported, older blocks"),
    row("besu_synchronizer_chain_download_pipeline_restarts_total", Counter, "reason", "Syncs that reached their targets (complete), and steps that failed (error)"),
    row("besu_synchronizer_fast_sync_pivot_block_current", Gauge, "", "The block whose state is downloaded, or was last"),
    row("besu_synchronizer_fast_sync_pivot_block_selected_count_total", Counter, "", "How often another block was chosen to download its state"),
    row("besu_synchronizer_in_sync", Gauge, "", "Whether the chosen head is imported"),
    row("besu_synchronizer_snap_world_state_accounts_total", Counter, "", "Accounts of a downloaded state that came"),
    row("besu_synchronizer_snap_world_state_codes_total", Counter, "", "Codes of a downloaded state that came"),
    row("besu_synchronizer_snap_world_state_completed_requests_total", Counter, "", "Requests by snap that were answered"),
    row("besu_synchronizer_snap_world_state_healed_nodes_total", Counter, "", "Nodes of tries that came to heal a downloaded state"),
    row("besu_synchronizer_snap_world_state_inflight_requests_current", Gauge, "", "Requests by snap whose answers are awaited"),
    row("besu_synchronizer_snap_world_state_pending_account_requests_current", Gauge, "", "Ranges of accounts that no peer is asked for yet"),
    row("besu_synchronizer_snap_world_state_pending_big_storage_requests_current", Gauge, "", "Ranges of large storages that no peer is asked for yet"),
    row("besu_synchronizer_snap_world_state_pending_trie_node_requests_current", Gauge, "", "Nodes of tries that are known to differ and have not come"),
    row("besu_synchronizer_snap_world_state_retried_requests_total", Counter, "", "Requests by snap that were not answered in time, or wrongly"),
    row("besu_synchronizer_snap_world_state_slots_total", Counter, "", "Slots of a downloaded state that came"),
    row("besu_synchronizer_sync_duration", Histogram, "name", "Time of a sync that reached its target"),
    row("besu_synchronizer_task", Summary, "taskName", "Time of each step of a sync: locate, headers, ranges, move_pivot, build, heal, blocks"),
    row("besu_transaction_pool_added_total", Counter, "layer,priority,reason,source", "Transactions added to the pool"),
    row("besu_transaction_pool_blob_cache_size", Gauge, "", "Sidecars of included blob transactions"),
    row("besu_transaction_pool_blob_map_size", Gauge, "", "Versioned hashes whose blobs the pool has"),
    row("besu_transaction_pool_messages_expired_total", Counter, "message", "Messages with transactions that were dropped because gossip was behind"),
    row("besu_transaction_pool_number_of_transactions", Gauge, "layer", "Transactions in the pool"),
    row("besu_transaction_pool_number_of_transactions_by_type", Gauge, "layer,type", "Transactions in the pool, by type"),
    row("besu_transaction_pool_rejected_total", Counter, "layer,priority,reason,source", "Transactions that the pool refused"),
    row("besu_transaction_pool_remote_transactions_already_seen_total", Counter, "message", "Transactions of peers that this node had already"),
    row("besu_transaction_pool_removed_total", Counter, "layer,operation,priority,source", "Transactions that left the pool"),
    row("besu_transaction_pool_space_used", Gauge, "layer", "Bytes of the pool"),
    row("besu_transaction_pool_transactions", Gauge, "", "Transactions in the pool"),
    row("besu_transaction_pool_transactions_added_total", Counter, "", "Transactions added to the pool"),
    row("besu_transaction_pool_unique_senders", Gauge, "layer", "Senders in the pool"),
    row("ethereum_best_known_block_number", Gauge, "", "Highest known block"),
    row("ethereum_blockchain_finalized_block", Gauge, "", "Number of the finalized block"),
    row("ethereum_blockchain_height", Gauge, "", "Number of the head"),
    row("ethereum_blockchain_safe_block", Gauge, "", "Number of the safe block"),
    row("ethereum_min_gas_price", Gauge, "", "Lowest gas price that the pool accepts, wei"),
    row("ethereum_min_priority_fee", Gauge, "", "Lowest priority fee of transactions in own blocks, wei"),
    row("ethereum_peer_count", Gauge, "", "Peers"),
    row("ethereum_peer_count_incomplete", Gauge, "", "Connections between Hello and Status"),
    row("ethereum_peer_count_snap_server", Gauge, "", "Peers that offer snap"),
    row("ethereum_peer_limit", Gauge, "", "Most peers"),
    row("niwaki_allocator_allocated_bytes", Gauge, "", "Bytes allocated by the program"),
    row("niwaki_allocator_resident_bytes", Gauge, "", "Bytes that the allocator keeps resident"),
    row("niwaki_bft_agreement_seconds", Summary, "", "From the first proposal of a block, received or built, to the quorum that commits it"),
    row("niwaki_bft_block_gas_bound", Gauge, "", "Gas that own blocks may use while full ones take too long to be agreed on; 0: the gas limit"),
    row("niwaki_bft_evidence_total", Counter, "", "Pairs of messages by which a validator contradicts itself"),
    row("niwaki_bft_execution_seconds", Summary, "why", "Executions of blocks: judged (a proposal), built, imported (finished without either)"),
    row("niwaki_bft_height", Gauge, "", "The block that the validators agree on"),
    row("niwaki_bft_journal_sync_seconds", Summary, "", "Time until what the validator signs is on the disk"),
    row("niwaki_bft_messages_received_total", Counter, "fate", "Messages that came: taken, seen (before), stranger (no validator's), malformed, full (too many wait)"),
    row("niwaki_bft_messages_refused_total", Counter, "", "Messages of validators that break a rule"),
    row("niwaki_bft_messages_sent_total", Counter, "kind", "Messages that the validator signed: proposal, prepare, commit, round_change"),
    row("niwaki_bft_messages_waiting", Gauge, "", "Messages of validators that wait"),
    row("niwaki_bft_phase", Gauge, "", "0 idle, 1 waiting, 2 await-proposal, 3 validating, 4 accepted, 5 prepared, 6 committed"),
    row("niwaki_bft_round", Gauge, "", "The attempt at this block, from 0 on"),
    row("niwaki_bft_rounds_total", Counter, "", "Rounds above 0 that have begun"),
    row("niwaki_bft_validators", Gauge, "", "Validators of this block"),
    row("niwaki_bft_validators_connected", Gauge, "", "Those to which this node is connected"),
    row("niwaki_block_ahead_failures_total", Counter, "", "Speculative executions that panicked; their transactions were executed again"),
    row("niwaki_block_check_seconds", Summary, "", "Validation of header and body against the parent"),
    row("niwaki_block_commit_seconds", Summary, "", "The part of the commit that the response waits for"),
    row("niwaki_block_compare_seconds", Summary, "", "Comparison of the results with the header"),
    row("niwaki_block_early_roots_total", Counter, "", "State roots computed from block access lists, in parallel with execution"),
    row("niwaki_block_execute_seconds", Summary, "", "Execution of the transactions"),
    row("niwaki_block_mgas_per_second", Summary, "", "Million gas a second of a whole block"),
    row("niwaki_block_reads_missed", Summary, "", "Accounts and slots read from the database during execution"),
    row("niwaki_block_recover_seconds", Summary, "", "Sender recovery by the commit thread itself"),
    row("niwaki_block_root_seconds", Summary, "", "From the last transaction on: withdrawals, requests, state root, receipts root"),
    row("niwaki_block_roots_begun_total", Counter, "", "Blocks whose state root was begun during execution"),
    row("niwaki_block_slow_total", Counter, "", "Blocks that took at least --slow-block-threshold"),
    row("niwaki_block_total_seconds", Summary, "", "All phases of a block"),
    row("niwaki_block_transactions_in_turn_total", Counter, "", "Transactions executed sequentially, without speculation"),
    row("niwaki_cache_hits_total", Counter, "cache", "Cache hits: accounts, slots, codes, precompiled"),
    row("niwaki_cache_misses_total", Counter, "cache", "Cache misses"),
    row("niwaki_discovery_dns_queries_total", Counter, "outcome", "Queries for DNS lists: answered, refused (the answer was of no use), failed (there was none)"),
    row("niwaki_discovery_found_total", Counter, "verdict", "Nodes found: dialled, dialled_last (they do not say their chain), other_chain"),
    row("niwaki_engine_status_total", Counter, "method,status", "Payload statuses returned by newPayload and forkchoiceUpdated"),
    row("niwaki_pool_warming_gas_total", Counter, "", "Gas of pooled transactions executed before a block arrived"),
    row("niwaki_pool_warming_transactions_total", Counter, "", "Pooled transactions executed before a block arrived"),
    row("niwaki_rpc_connections_refused_total", Counter, "", "Connections refused because there were too many"),
    row("niwaki_rpc_tokens_refused_total", Counter, "reason", "Requests without a valid token"),
    row("niwaki_storage_buffer_bytes", Gauge, "", "Bytes in buffers of the storage engine that are not written yet"),
    row("niwaki_storage_cache_bytes", Gauge, "", "Bytes of blocks of files that the storage engine has cached"),
    row("niwaki_storage_pinned_bytes", Gauge, "", "Bytes that views of older blocks keep in memory"),
    row("niwaki_storage_size_bytes", Gauge, "segment", "Size of a segment on disk"),
    row("niwaki_storage_waiting_batches", Gauge, "", "Batches that wait to be written"),
    row("niwaki_storage_waiting_bytes", Gauge, "", "Bytes that wait to be written"),
    row("niwaki_sync_first_block", Gauge, "", "The lowest block that is stored with all after it"),
    row("niwaki_sync_stalled", Gauge, "reason", "Whether the sync waits, for: no_peers, no_target, failure, other_chain, no_snap_peers, no_space"),
    row("niwaki_trie_bytes", Gauge, "", "Bytes of trie nodes in memory"),
    row("niwaki_trie_nodes_read_total", Counter, "", "Trie nodes read from the storage"),
    row("niwaki_value_bytes", Gauge, "", "Bytes of accounts, slots and code in memory"),
    row("process_cpu_seconds_total", Counter, "", "Processor time"),
    row("process_max_fds", Gauge, "", "Most open files"),
    row("process_open_fds", Gauge, "", "Open files"),
    row("process_release", Gauge, "version", "The version of the program, as a label"),
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
    fn rows_are_sorted_and_counters_end_in_total() {
        assert!(METRICS.is_sorted_by(|a, b| a.name < b.name));
        for row in METRICS {
            // Besu has one gauge with the ending of a counter.
            let is_named_as_counter =
                row.name.ends_with("_total") && row.name != "besu_blockchain_difficulty_total";
            assert_eq!(row.kind == Counter, is_named_as_counter, "{}", row.name);
        }
    }

    #[test]
    fn docs_metrics_md_has_exactly_the_rows() {
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
    fn the_dashboard_queries_only_metrics_of_the_table() {
        let dashboard = include_str!("../../../../../packaging/grafana/niwaki.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let mut queried = 0;
        for target in panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap())
        {
            let expression = target["expr"].as_str().unwrap();
            // A name is followed by its labels in braces.
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
                queried += 1;
            }
        }
        assert!(queried >= 30, "{queried}");
    }
}
