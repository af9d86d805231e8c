//! Metrics of the transaction pool. Besu's layers: `prioritized` are the pending transactions, `sparse` the queued ones; there is no `ready`.

use super::{set, set_for};
use crate::options::TYPES;
use metrics::{counter, gauge};
use niwaki_rpc::Backend;
use niwaki_txpool::{Flows, Origin, Pool, PoolStats, TxClass};

/// What a pending transaction is, and what a queued one is.
const LAYERS: [&str; 2] = ["prioritized", "sparse"];
/// The layer that this pool does not have.
const NO_LAYER: &str = "ready";

fn layer(is_pending: bool) -> &'static str {
    let [pending, queued] = LAYERS;
    if is_pending { pending } else { queued }
}

fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

pub(super) fn sample(backend: &Backend) {
    let pool = backend.pool();
    let stats = pool.stats();
    let all = stats.pending + stats.queued;
    set("besu_transaction_pool_transactions", all as u64);
    let price = pool.min_gas_price();
    set(
        "ethereum_min_gas_price",
        u64::try_from(price).unwrap_or(u64::MAX),
    );
    let tip = backend.min_priority_fee();
    set(
        "ethereum_min_priority_fee",
        u64::try_from(tip).unwrap_or(u64::MAX),
    );
    let blobs = &stats.blobs;
    set(
        "besu_transaction_pool_blob_map_size",
        blobs.versioned_hashes as u64,
    );
    set(
        "besu_transaction_pool_blob_cache_size",
        blobs.included_sidecars as u64,
    );
    sample_layers(pool, &stats);
    sample_flows(&stats.flows);
    for ((reason, origin), count) in stats.rejected {
        let priority = yes_or_no(origin == Origin::Local && pool.has_local_priority());
        let name = "besu_transaction_pool_rejected_total";
        counter!(name, "layer" => "txpool", "priority" => priority, "reason" => reason, "source" => origin.label())
            .absolute(count);
    }
}

fn sample_layers(pool: &Pool, stats: &PoolStats) {
    let senders = pool.senders_by_layer();
    let queued = stats.queued_bytes;
    for (name, [pending, queued]) in [
        (
            "besu_transaction_pool_number_of_transactions",
            [stats.pending, stats.queued],
        ),
        (
            "besu_transaction_pool_space_used",
            [stats.bytes.saturating_sub(queued), queued],
        ),
        ("besu_transaction_pool_unique_senders", senders),
    ] {
        let [above, below] = LAYERS;
        for (layer, value) in [(above, pending), (NO_LAYER, 0), (below, queued)] {
            set_for(name, "layer", layer, value);
        }
    }
    set_for(
        "besu_transaction_pool_space_used",
        "layer",
        "blobs",
        stats.blob_bytes,
    );
    for (index, kind) in TYPES.into_iter().enumerate() {
        let (all, queued) = (stats.by_type[index], stats.queued_by_type[index]);
        let [above, below] = LAYERS;
        for (layer, count) in [
            (above, all.saturating_sub(queued)),
            (NO_LAYER, 0),
            (below, queued),
        ] {
            let name = "besu_transaction_pool_number_of_transactions_by_type";
            gauge!(name, "layer" => layer, "type" => kind).set(count as f64);
        }
    }
}

fn sample_flows(flows: &Flows) {
    counter!("besu_transaction_pool_transactions_added_total").absolute(flows.added());
    for (class, count) in &flows.added {
        added(class, "new", *count);
    }
    for (class, count) in &flows.promoted {
        removed(class, "promoted", *count);
        let above = TxClass {
            pending: true,
            ..*class
        };
        added(&above, "promoted", *count);
    }
    for (class, count) in &flows.demoted {
        removed(class, "demoted", *count);
        let below = TxClass {
            pending: false,
            ..*class
        };
        added(&below, "demoted", *count);
    }
    for ((reason, class), count) in &flows.removed {
        removed(class, reason.label(), *count);
    }
}

fn added(class: &TxClass, reason: &'static str, count: u64) {
    let (layer, priority) = (layer(class.pending), yes_or_no(class.priority));
    let name = "besu_transaction_pool_added_total";
    counter!(name, "layer" => layer, "priority" => priority, "reason" => reason, "source" => class.origin.label())
        .absolute(count);
}

fn removed(class: &TxClass, operation: &'static str, count: u64) {
    let (layer, priority) = (layer(class.pending), yes_or_no(class.priority));
    let name = "besu_transaction_pool_removed_total";
    counter!(name, "layer" => layer, "operation" => operation, "priority" => priority, "source" => class.origin.label())
        .absolute(count);
}
