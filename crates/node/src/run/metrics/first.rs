//! What the first scrape has before anything has happened: each metric without labels, and the known values of labels, at zero. So a panel
//! shows nought, not nothing, and a rate counts the first event.

use super::table::{Kind, METRICS};
use metrics::{counter, gauge, histogram};

/// Metrics whose label has few values: metric, label, values.
const KNOWN: &[(&str, &str, &[&str])] = &[
    (
        "besu_synchronizer_sync_duration",
        "name",
        &["CHAIN_DOWNLOAD_DURATION", "TOTAL_SYNC_DURATION"],
    ),
    (
        "besu_synchronizer_task",
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
    ),
    (
        "besu_transaction_pool_rejected_total",
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
    (
        "besu_transaction_pool_removed_total",
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
    (
        "niwaki_bft_execution_seconds",
        "why",
        &["judged", "built", "imported"],
    ),
    (
        "niwaki_bft_messages_received_total",
        "fate",
        &["taken", "seen", "stranger", "malformed", "full"],
    ),
    (
        "niwaki_bft_messages_sent_total",
        "kind",
        &["proposal", "prepare", "commit", "round_change"],
    ),
    (
        "niwaki_rpc_tokens_refused_total",
        "reason",
        &[
            "algorithm",
            "malformed",
            "missing",
            "signature",
            "stale",
            "token",
        ],
    ),
];

/// Registers them.
pub(super) fn register() {
    for row in METRICS.iter().filter(|row| row.labels.is_empty()) {
        match row.kind {
            Kind::Gauge => gauge!(row.name).set(0.0),
            Kind::Counter => counter!(row.name).absolute(0),
            Kind::Summary => drop(histogram!(row.name)),
        }
    }
    for (name, label, values) in KNOWN {
        let kind = METRICS.iter().find(|row| row.name == *name);
        let kind = kind.map(|row| row.kind);
        for value in *values {
            match kind {
                Some(Kind::Counter) => counter!(*name, *label => *value).absolute(0),
                Some(Kind::Summary) => drop(histogram!(*name, *label => *value)),
                Some(Kind::Gauge) | None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_label_is_that_of_a_row_of_the_table() {
        for (name, label, _) in KNOWN {
            let row = METRICS.iter().find(|row| row.name == *name);
            let row = row.unwrap_or_else(|| panic!("{name} is no metric"));
            assert_eq!(row.labels, *label, "{name}");
            assert_ne!(row.kind, Kind::Gauge, "{name}");
        }
    }
}
