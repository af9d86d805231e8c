//! Metrics of the network and of the sync, read from what they count whenever the metrics are rendered.

use super::{set, set_for};
use metrics::{Histogram, counter, gauge, histogram};
use niwaki_network::wire::RequestKind;
use niwaki_network::{Direction, DiscoveryFigures, Network, Peer, Stats, Timed};
use niwaki_sync::{STALLS, SyncState, SyncStatus, SyncTime};
use std::sync::{Arc, OnceLock};

/// The sources, once there is a network.
pub(crate) type PeerMetricsSlot = Arc<OnceLock<PeerMetrics>>;

/// How far the sync is.
pub(crate) type StatusSource = Box<dyn Fn() -> SyncStatus + Send + Sync>;
/// The times that the sync has measured since the last call.
pub(crate) type TimeSource = Box<dyn Fn() -> Vec<SyncTime> + Send + Sync>;

/// Names that clients give themselves, before the first slash, and what Besu calls them. All others are one.
const CLIENTS: [(&str, &str); 8] = [
    ("besu", "Besu"),
    ("erigon", "Erigon"),
    ("ethrex", "Ethrex"),
    ("geth", "Geth"),
    ("nethermind", "Nethermind"),
    ("nimbus-eth1", "Nimbus"),
    ("niwaki", "Niwaki"),
    ("reth", "Reth"),
];
const OTHER_CLIENT: &str = "Unknown";

/// The packets of discovery v4 that begin an exchange.
const INTERACTIONS: [&str; 3] = ["PING", "FIND_NEIGHBORS", "ENR_REQUEST"];

/// Where the metrics come from.
pub(crate) struct PeerMetrics {
    network: Arc<Network>,
    sync_status: StatusSource,
    sync_times: TimeSource,
}

impl PeerMetrics {
    /// From now on times are recorded; all else is read by `sample`.
    pub(crate) fn new(
        network: &Arc<Network>,
        sync_status: StatusSource,
        sync_times: TimeSource,
    ) -> Self {
        let name = "besu_peers_request_time";
        let of_kind = |kind: RequestKind| histogram!(name, "taskName" => kind.task_name());
        let requests: [(RequestKind, Histogram); _] =
            RequestKind::ALL.map(|kind| (kind, of_kind(kind)));
        let lookups = histogram!("besu_network_discv5_discovery_round_duration_seconds");
        network.stats().set_timer(move |what, took| match what {
            Timed::Request(kind) => {
                let mut all = requests.iter();
                if let Some((_, times)) = all.find(|(of, _)| *of == kind) {
                    times.record(took);
                }
            }
            Timed::Lookup => lookups.record(took),
        });
        Self {
            network: Arc::clone(network),
            sync_status,
            sync_times,
        }
    }

    pub(super) fn sample(&self) {
        sample_peers(&self.network.peers().borrow());
        sample_connections(self.network.stats());
        sample_requests(self.network.stats());
        sample_messages(self.network.stats());
        sample_gossip(self.network.stats());
        sample_discovery(&self.network.discovery());
        sample_sync(&(self.sync_status)());
        (self.sync_times)().into_iter().for_each(record);
    }
}

fn client_of(name: &str) -> &'static str {
    let own = name.split('/').next().unwrap_or_default();
    let mut known = CLIENTS.iter();
    let known = known.find(|(client, _)| own.eq_ignore_ascii_case(client));
    known.map_or(OTHER_CLIENT, |(_, shown)| shown)
}

fn sample_peers(peers: &[Arc<Peer>]) {
    let shown = CLIENTS.iter().map(|(_, shown)| *shown);
    for client in shown.chain([OTHER_CLIENT]) {
        let of_client = |peer: &&Arc<Peer>| client_of(&peer.info.client) == client;
        let count = peers.iter().filter(of_client).count();
        set_for("besu_peers_peer_count_by_client", "client", client, count);
    }
    let has_snap = |peer: &&Arc<Peer>| {
        let mut capabilities = peer.info.capabilities.iter();
        capabilities.any(|one| one.name == "snap")
    };
    let snap = peers.iter().filter(has_snap).count();
    set("ethereum_peer_count_snap_server", snap as u64);
}

fn sample_connections(stats: &Stats) {
    set("ethereum_peer_count_incomplete", stats.incomplete());
    counter!("besu_peers_connected_total").absolute(stats.connected());
    counter!("besu_peers_internal_exception_total").absolute(stats.panics());
    for (initiator, reason, count) in stats.ends() {
        let (initiator, reason) = (initiator.name(), reason.name());
        let name = "besu_peers_disconnected_total";
        counter!(name, "initiator" => initiator, "disconnectReason" => reason).absolute(count);
    }
    for (source, count) in stats.dials() {
        let name = "besu_network_rlpx_outbound_connect_attempts_total";
        counter!(name, "source" => source.name()).absolute(count);
    }
    for (result, count) in stats.dial_results() {
        let name = "besu_network_rlpx_connect_outcome_total";
        counter!(name, "result" => result).absolute(count);
    }
}

fn sample_requests(stats: &Stats) {
    let waiting = stats.waiting_requests();
    set("besu_peers_pending_peer_requests_current", waiting);
    for kind in RequestKind::ALL {
        let requests = stats.requests(kind);
        let task = kind.task_name();
        let in_flight = usize::try_from(requests.in_flight).unwrap_or(usize::MAX);
        let name = "besu_peers_inflight_request_gauge";
        set_for(name, "taskName", task, in_flight);
        let timeouts = requests.timeouts;
        counter!("besu_peers_timeout_total", "taskName" => task).absolute(timeouts);
        let wrong = requests.wrong;
        counter!("besu_peers_invalid_response_total", "taskName" => task).absolute(wrong);
    }
    sample_snap_requests(stats);
    let name = "besu_peers_snap_service_requests_in_flight_current";
    set(name, stats.serving_snap());
}

fn sample_gossip(stats: &Stats) {
    for of_message in stats.gossip() {
        let message = of_message.message;
        let name = "besu_transaction_pool_messages_expired_total";
        counter!(name, "message" => message).absolute(of_message.dropped);
        let name = "besu_transaction_pool_remote_transactions_already_seen_total";
        counter!(name, "message" => message).absolute(of_message.already_seen);
    }
}

fn sample_snap_requests(stats: &Stats) {
    let mut kinds = RequestKind::ALL.to_vec();
    kinds.retain(|kind| matches!(kind, RequestKind::Snap(_)));
    let all: Vec<_> = kinds.iter().map(|kind| stats.requests(*kind)).collect();
    let in_flight = all.iter().map(|of_kind| of_kind.in_flight).sum();
    set(
        "besu_synchronizer_snap_world_state_inflight_requests_current",
        in_flight,
    );
    let answered = all.iter().map(|of_kind| of_kind.answered).sum();
    counter!("besu_synchronizer_snap_world_state_completed_requests_total").absolute(answered);
    let failed = all.iter().map(|of_kind| of_kind.timeouts + of_kind.wrong);
    counter!("besu_synchronizer_snap_world_state_retried_requests_total").absolute(failed.sum());
}

fn sample_messages(stats: &Stats) {
    for count in stats.messages() {
        let (messages, bytes) = match count.direction {
            Direction::Inbound => (
                "besu_network_p2p_messages_inbound_total",
                "besu_network_p2p_bytes_inbound_total",
            ),
            Direction::Outbound => (
                "besu_network_p2p_messages_outbound_total",
                "besu_network_p2p_bytes_outbound_total",
            ),
        };
        for (metric, value) in [(messages, count.messages), (bytes, count.bytes)] {
            let protocol = count.protocol.to_owned();
            let code = count.code.to_string();
            counter!(metric, "protocol" => protocol, "name" => count.name, "code" => code)
                .absolute(value);
        }
    }
}

fn sample_discovery(figures: &DiscoveryFigures) {
    for (verdict, count) in [
        ("dialled", figures.found),
        ("dialled_last", figures.unchecked),
        ("other_chain", figures.other_chain),
    ] {
        counter!("niwaki_discovery_found_total", "verdict" => verdict).absolute(count);
    }
    if let Some(queries) = figures.dns_queries {
        for (outcome, count) in [
            ("answered", queries.answered),
            ("refused", queries.refused),
            ("failed", queries.failed),
        ] {
            let name = "niwaki_discovery_dns_queries_total";
            counter!(name, "outcome" => outcome).absolute(count);
        }
    }
    if let Some(table) = figures.v4_table {
        set("besu_network_discv4_known_peers_current", table as u64);
        let name = "besu_network_discovery_inflight_interactions_current";
        set(name, figures.v4_in_flight as u64);
    }
    for (reason, count) in &figures.v4_dropped {
        let name = "besu_network_discovery_packets_dropped_total";
        counter!(name, "reason" => reason.name()).absolute(*count);
    }
    let dropped = figures.v4_dropped.iter().map(|(_, count)| *count).sum();
    let read = figures.v4_packets.iter().map(|[(_, inbound), _]| *inbound);
    for (protocol, count) in [("dropped", dropped), ("v4", read.sum())] {
        let name = "besu_network_discovery_demux_packets_total";
        counter!(name, "protocol" => protocol).absolute(count);
    }
    for [(name, inbound), (_, outbound)] in figures.v4_packets.iter().copied() {
        let metric = "besu_network_discovery_messages_inbound_total";
        counter!(metric, "name" => name).absolute(inbound);
        let metric = "besu_network_discovery_messages_outbound_total";
        counter!(metric, "name" => name).absolute(outbound);
        if INTERACTIONS.contains(&name) {
            let metric = "besu_network_discovery_interaction_count_total";
            counter!(metric, "type" => name).absolute(outbound);
        }
    }
    for (name, nodes) in [
        ("besu_network_discv5_total_nodes_current", figures.v5_table),
        ("besu_network_discv5_live_nodes_current", figures.v5_live),
    ] {
        if let Some(nodes) = nodes {
            set(name, nodes as u64);
        }
    }
    if let Some(lookups) = figures.v5_lookups {
        for (outcome, count) in ["success", "failure"].into_iter().zip(lookups) {
            let name = "besu_network_discv5_discovery_round_total";
            counter!(name, "outcome" => outcome).absolute(count);
        }
    }
}

fn sample_sync(status: &SyncStatus) {
    for (step, count) in [
        ("downloadHeaders_outputPipe", status.all_headers),
        ("downloadBodies_outputPipe", status.all_bodies),
        ("importBlock", status.imported),
        ("importHistoricalBlock", status.history_blocks),
    ] {
        let name = "besu_synchronizer_chain_download_pipeline_processed_total";
        counter!(name, "action" => "added", "step" => step).absolute(count);
    }
    for (reason, count) in [("complete", status.reached), ("error", status.all_failures)] {
        let name = "besu_synchronizer_chain_download_pipeline_restarts_total";
        counter!(name, "reason" => reason).absolute(count);
    }
    let pivot = status.pivot.unwrap_or_default();
    gauge!("besu_synchronizer_fast_sync_pivot_block_current").set(pivot as f64);
    counter!("besu_synchronizer_fast_sync_pivot_block_selected_count_total")
        .absolute(status.pivots);
    set("niwaki_sync_first_block", status.first_block);
    let share = status.state_share;
    for (name, count) in [
        (
            "besu_synchronizer_snap_world_state_accounts_total",
            share.accounts,
        ),
        (
            "besu_synchronizer_snap_world_state_slots_total",
            share.slots,
        ),
        (
            "besu_synchronizer_snap_world_state_codes_total",
            share.codes,
        ),
        (
            "besu_synchronizer_snap_world_state_healed_nodes_total",
            status.healed_nodes,
        ),
    ] {
        counter!(name).absolute(count);
    }
    let is_healing = status.state == SyncState::Heal;
    let nodes = if is_healing { status.open_items } else { 0 };
    for (name, waiting) in [
        (
            "besu_synchronizer_snap_world_state_pending_account_requests_current",
            share.waiting_accounts,
        ),
        (
            "besu_synchronizer_snap_world_state_pending_big_storage_requests_current",
            share.waiting_storages,
        ),
        (
            "besu_synchronizer_snap_world_state_pending_trie_node_requests_current",
            nodes,
        ),
    ] {
        set(name, waiting);
    }
    for reason in STALLS {
        let is_stalled = status.stall == Some(reason);
        gauge!("niwaki_sync_stalled", "reason" => reason).set(f64::from(u8::from(is_stalled)));
    }
}

fn record(time: SyncTime) {
    let duration = "besu_synchronizer_sync_duration";
    match time {
        SyncTime::Task(state, took) => {
            histogram!("besu_synchronizer_task", "taskName" => state.name()).record(took);
        }
        SyncTime::Download(took) => {
            histogram!(duration, "name" => "CHAIN_DOWNLOAD_DURATION").record(took);
        }
        SyncTime::Total(took) => {
            histogram!(duration, "name" => "TOTAL_SYNC_DURATION").record(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_that_a_peer_gives_itself_makes_a_label() {
        assert_eq!(client_of("Geth/v1.17.8-stable/linux-amd64/go1.25"), "Geth");
        assert_eq!(client_of("besu"), "Besu");
        for other in ["", "gethx/1", "/Geth", "x".repeat(300).as_str()] {
            assert_eq!(client_of(other), OTHER_CLIENT);
        }
    }
}
