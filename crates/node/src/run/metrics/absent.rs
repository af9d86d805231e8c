//! Names of Besu's for what this node does not have: they are always zero, so that a dashboard or an alert of Besu's finds them.
//!
//! Besu's executors are pools of threads of its own; Netty reads its sockets; Guava holds trie nodes beside the tries. A request by `snap`
//! is never refused here because there are too many: the connection is read no further.

use metrics::{counter, gauge};

/// Besu's executors.
const EXECUTORS: [&str; 9] = [
    "bfttimerexecutor_ibft",
    "bfttimerexecutor_qbft",
    "ethscheduler_blockcreation",
    "ethscheduler_chaindatapruner",
    "ethscheduler_computation",
    "ethscheduler_services",
    "ethscheduler_timer",
    "ethscheduler_transactions",
    "ethscheduler_workers",
];
const EXECUTOR_GAUGES: [&str; 3] = [
    "active_threads_current",
    "pool_size_current",
    "queue_length_current",
];
const EXECUTOR_COUNTERS: [&str; 4] = [
    "completed_tasks_total",
    "dropped_tasks_total",
    "rejected_tasks_total",
    "submitted_tasks_total",
];

const GAUGES: [&str; 3] = [
    "besu_network_discovery_inflight_inbound_packets_current",
    "besu_network_netty_boss_pending_tasks",
    "besu_network_netty_workers_pending_tasks",
];
const COUNTERS: [&str; 1] = ["besu_peers_snap_service_requests_rejected_total"];

const GUAVA_CACHES: [&str; 2] = ["accountsNodes", "storageNodes"];
const GUAVA_COUNTERS: [&str; 4] = [
    "guava_cache_eviction_total",
    "guava_cache_hit_total",
    "guava_cache_miss_total",
    "guava_cache_requests_total",
];

/// Registers them.
pub(super) fn register() {
    for executor in EXECUTORS {
        let name = |figure: &str| format!("besu_executors_{executor}_{figure}");
        for figure in EXECUTOR_GAUGES {
            gauge!(name(figure)).set(0.0);
        }
        for figure in EXECUTOR_COUNTERS {
            counter!(name(figure)).absolute(0);
        }
    }
    for name in GAUGES {
        gauge!(name).set(0.0);
    }
    for name in COUNTERS {
        counter!(name).absolute(0);
    }
    for cache in GUAVA_CACHES {
        for name in GUAVA_COUNTERS {
            counter!(name, "cache" => cache).absolute(0);
        }
        gauge!("guava_cache_size", "cache" => cache).set(0.0);
    }
}
