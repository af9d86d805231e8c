//! What the first scrape has before anything has happened: each metric without labels, and the known values of labels, at zero. So a panel
//! shows nought, not nothing, and a rate counts the first event.

use super::table::{Kind, METRICS};
use metrics::{Label, counter, gauge, histogram};

/// Labels and the values that they have.
type Labels = &'static [(&'static str, &'static [&'static str])];

const TRACED: &[&str] = &["added", "removed", "aborted"];
const OF_PEERS: Labels = &[(
    "message",
    &["new_pooled_transaction_hashes", "transactions"],
)];
const WORKERS: Labels = &[
    ("poolType", &["worker"]),
    (
        "poolName",
        &["vert.x-worker-thread", "vert.x-internal-blocking"],
    ),
];

/// The first message of a connection; the others have their rows with the first of them.
const HELLO: Labels = &[
    ("protocol", &["Wire"]),
    ("name", &["Hello"]),
    ("code", &["0"]),
];

/// Metrics whose labels have few values, or of whose values a few are named.
const KNOWN: &[(&str, Labels)] = &[
    (
        "besu_blockchain_transactions_traceblock_pipeline_processed_total",
        &[
            ("action", TRACED),
            (
                "step",
                &[
                    "getTransactions_outputPipe",
                    "executeTransaction_outputPipe",
                    "traceFlatTransaction_outputPipe",
                ],
            ),
        ],
    ),
    (
        "besu_blockchain_transactions_tracereplayblock_pipeline_processed_total",
        &[
            ("action", TRACED),
            (
                "step",
                &[
                    "getTransactions_outputPipe",
                    "executeTransaction_outputPipe",
                    "traceReplayTransaction_outputPipe",
                ],
            ),
        ],
    ),
    (
        "besu_network_discovery_demux_packets_total",
        &[("protocol", &["dropped", "v4"])],
    ),
    ("besu_network_p2p_bytes_inbound_total", HELLO),
    ("besu_network_p2p_bytes_outbound_total", HELLO),
    ("besu_network_p2p_messages_inbound_total", HELLO),
    ("besu_network_p2p_messages_outbound_total", HELLO),
    ("besu_network_vertx_worker_pool_completed_total", WORKERS),
    ("besu_network_vertx_worker_pool_rejected_total", WORKERS),
    ("besu_network_vertx_worker_pool_submitted_total", WORKERS),
    (
        "besu_rpc_errors_count_total",
        &[("rpcMethod", &["eth_call"]), ("errorType", &["-32000"])],
    ),
    (
        "besu_rpc_request_time",
        &[("methodName", &["eth_blockNumber", "eth_call"])],
    ),
    (
        "besu_rpc_eth_call_gas_used_total",
        &[("status", &["success", "error"])],
    ),
    (
        "besu_synchronizer_sync_duration",
        &[("name", &["CHAIN_DOWNLOAD_DURATION", "TOTAL_SYNC_DURATION"])],
    ),
    (
        "besu_synchronizer_task",
        &[(
            "taskName",
            &[
                "locate",
                "headers",
                "ranges",
                "move_pivot",
                "build",
                "heal",
                "blocks",
            ],
        )],
    ),
    (
        "besu_transaction_pool_added_total",
        &[
            ("layer", &["prioritized", "sparse"]),
            ("priority", &["no", "yes"]),
            ("reason", &["new"]),
            ("source", &["local", "remote"]),
        ],
    ),
    ("besu_transaction_pool_messages_expired_total", OF_PEERS),
    (
        "besu_transaction_pool_rejected_total",
        &[
            ("layer", &["txpool"]),
            ("priority", &["no"]),
            (
                "reason",
                &[
                    "GAS_PRICE_TOO_LOW",
                    "INVALID_BLOBS",
                    "NONCE_TOO_FAR_IN_FUTURE_FOR_SENDER",
                    "NONCE_TOO_LOW",
                    "TRANSACTION_ALREADY_KNOWN",
                    "TRANSACTION_REPLACEMENT_UNDERPRICED",
                    "TRANSACTION_UNDERPRICED",
                    "TX_POOL_FULL",
                    "TX_SENDER_NOT_AUTHORIZED",
                    "UPFRONT_COST_EXCEEDS_BALANCE",
                ],
            ),
            ("source", &["remote"]),
        ],
    ),
    (
        "besu_transaction_pool_remote_transactions_already_seen_total",
        OF_PEERS,
    ),
    (
        "besu_transaction_pool_removed_total",
        &[
            ("layer", &["prioritized"]),
            (
                "operation",
                &[
                    "below_min_score",
                    "confirmed",
                    "dropped",
                    "expired",
                    "invalidated",
                    "replaced",
                    "stale",
                ],
            ),
            ("priority", &["no"]),
            ("source", &["remote"]),
        ],
    ),
    (
        "niwaki_bft_execution_seconds",
        &[("why", &["judged", "built", "imported"])],
    ),
    (
        "niwaki_bft_messages_received_total",
        &[("fate", &["taken", "seen", "stranger", "malformed", "full"])],
    ),
    (
        "niwaki_bft_messages_sent_total",
        &[("kind", &["proposal", "prepare", "commit", "round_change"])],
    ),
    (
        "niwaki_rpc_tokens_refused_total",
        &[(
            "reason",
            &[
                "algorithm",
                "malformed",
                "missing",
                "signature",
                "stale",
                "token",
            ],
        )],
    ),
];

/// Registers them.
pub(super) fn register() {
    for row in METRICS.iter().filter(|row| row.labels.is_empty()) {
        register_one(row.name, row.kind, Vec::new());
    }
    for (name, labels) in KNOWN {
        if let Some(row) = METRICS.iter().find(|row| row.name == *name) {
            each(labels, &mut Vec::new(), &mut |values| {
                register_one(row.name, row.kind, values.to_vec());
            });
        }
    }
}

fn register_one(name: &'static str, kind: Kind, labels: Vec<Label>) {
    match kind {
        Kind::Gauge => gauge!(name, labels).set(0.0),
        Kind::Counter => counter!(name, labels).absolute(0),
        Kind::Summary | Kind::Histogram => drop(histogram!(name, labels)),
    }
}

/// Every combination of values.
fn each(labels: Labels, chosen: &mut Vec<Label>, then: &mut dyn FnMut(&[Label])) {
    let Some(((name, values), rest)) = labels.split_first() else {
        return then(chosen);
    };
    for value in *values {
        chosen.push(Label::new(*name, *value));
        each(rest, chosen, then);
        chosen.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_label_is_that_of_a_row_of_the_table() {
        for (name, labels) in KNOWN {
            let row = METRICS.iter().find(|row| row.name == *name);
            let row = row.unwrap_or_else(|| panic!("{name} is no metric"));
            let mut known: Vec<_> = labels.iter().map(|(label, _)| *label).collect();
            let mut said: Vec<_> = row.labels.split(',').collect();
            known.sort_unstable();
            said.sort_unstable();
            assert_eq!(said, known, "{name}");
        }
    }

    #[test]
    fn every_combination_of_values_is_registered() {
        let mut all = Vec::new();
        let labels: Labels = &[("a", &["1", "2"]), ("b", &["3", "4"])];
        each(labels, &mut Vec::new(), &mut |values| {
            all.push(values.iter().map(Label::value).collect::<String>());
        });
        assert_eq!(all, ["13", "14", "23", "24"]);
    }
}
