//! Prometheus metrics, under Besu's names where Besu has them.
//!
//! `table` lists every metric; counters and gauges of other crates are recorded where they happen, those here are
//! sampled from the chain, the pool, the network and the allocator whenever the metrics are rendered.

mod absent;
mod first;
mod peers;
mod pool;
mod push;
mod table;

pub(crate) use peers::{PeerMetrics, PeerMetricsSlot};
pub(crate) use push::Gateway;

use super::config::MetricsConfig;
use eyre::{Result, WrapErr, eyre};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use niwaki_chain::{CacheStats, Chain, HitRate, StoredHeader};
use niwaki_primitives::{Fault, U256};
use niwaki_rpc::{Backend, SyncStatus, serve_text};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use table::{Kind, METRICS};
use tikv_jemalloc_ctl::{epoch, stats};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tracing::info;

/// Upper bounds of histograms, seconds: those of syncs.
const BOUNDS: [f64; 6] = [1.0, 60.0, 600.0, 3600.0, 21_600.0, 86_400.0];

/// The recorder of all metrics.
pub(super) struct Metrics {
    recorder: PrometheusHandle,
    process: metrics_process::Collector,
    listen: Option<SocketAddr>,
    push: Option<Gateway>,
    peers: PeerMetricsSlot,
}

/// Starts recording, if metrics are enabled.
pub(super) fn install(config: &MetricsConfig) -> Result<Option<Metrics>> {
    if config.listen.is_none() && config.push.is_none() {
        return Ok(None);
    }
    let can_not = |error| eyre!("can't record metrics: {error}");
    let mut builder = PrometheusBuilder::new();
    for row in METRICS.iter().filter(|row| row.kind == Kind::Histogram) {
        let name = Matcher::Full(row.name.to_owned());
        builder = builder
            .set_buckets_for_metric(name, &BOUNDS)
            .map_err(can_not)?;
    }
    let recorder = builder.install_recorder().map_err(can_not)?;
    for row in METRICS {
        match row.kind {
            Kind::Gauge => describe_gauge!(row.name, row.help),
            Kind::Counter => describe_counter!(row.name, row.help),
            Kind::Summary | Kind::Histogram => describe_histogram!(row.name, row.help),
        }
    }
    absent::register();
    first::register();
    gauge!("process_release", "version" => super::identity(None).client_version).set(1.0);
    Ok(Some(Metrics {
        recorder,
        process: metrics_process::Collector::default(),
        listen: config.listen,
        push: config.push.clone(),
        peers: PeerMetricsSlot::default(),
    }))
}

impl Metrics {
    /// Where the network puts its sources once it has started.
    pub(super) fn peers(&self) -> PeerMetricsSlot {
        Arc::clone(&self.peers)
    }

    /// Serves them, pushes them, or both.
    pub(super) fn start(
        self,
        runtime: &Runtime,
        backend: &Arc<Backend>,
        stopped: &watch::Receiver<bool>,
    ) -> Result<()> {
        let Self {
            recorder,
            process,
            listen,
            push,
            peers,
        } = self;
        // The backend keeps the closure, so the closure must not keep the backend.
        let sampled = Arc::downgrade(backend);
        let render: Arc<dyn Fn() -> String + Send + Sync> = Arc::new(move || {
            let Some(backend) = sampled.upgrade() else {
                return String::new();
            };
            process.collect();
            sample_chain(&backend);
            sample_state(backend.chain());
            pool::sample(&backend);
            if let Some(peers) = peers.get() {
                peers.sample();
            }
            sample_allocator();
            recorder.run_upkeep();
            recorder.render()
        });
        let for_operator = Arc::clone(&render);
        backend
            .operator()
            .set_metrics(Box::new(move || for_operator()));
        if let Some(gateway) = push {
            runtime.spawn(gateway.push(Arc::clone(&render), stopped.clone()));
        }
        let Some(address) = listen else {
            return Ok(());
        };
        let serving = serve_text(address, "/metrics", render, stopped.clone());
        let server = runtime.block_on(serving);
        let (bound, server) = server.wrap_err_with(|| {
            format!("can't listen on {address} for metrics; choose another --metrics-port")
        })?;
        backend.operator().add_service("metrics", bound);
        info!(address = %bound, "Metrics for Prometheus");
        runtime.spawn(server);
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge")]
fn set(name: &'static str, value: u64) {
    gauge!(name).set(value as f64);
}

#[expect(clippy::cast_precision_loss, reason = "a gauge")]
fn set_for(name: &'static str, label: &'static str, of: &'static str, value: usize) {
    gauge!(name, label => of).set(value as f64);
}

fn sample_chain(backend: &Backend) {
    let chain = backend.chain();
    let head = chain.head();
    let number_of = |block: Result<Option<StoredHeader>, Fault>| {
        block.ok().flatten().map_or(0, |block| block.id.number)
    };
    let target = backend.target();
    let peers = backend.operator().peers();
    let peer_limit = peers.map_or(0, |hooks| hooks.limit as u64);
    for (name, value) in [
        ("ethereum_blockchain_height", head.id.number),
        (
            "ethereum_best_known_block_number",
            target.unwrap_or(0).max(head.id.number),
        ),
        (
            "ethereum_blockchain_finalized_block",
            number_of(chain.finalized()),
        ),
        ("ethereum_blockchain_safe_block", number_of(chain.safe())),
        ("ethereum_peer_count", backend.peer_count()),
        ("ethereum_peer_limit", peer_limit),
        (
            "besu_synchronizer_in_sync",
            u64::from(backend.sync_status() == SyncStatus::Current),
        ),
        (
            "besu_blockchain_chain_head_timestamp",
            head.header.timestamp,
        ),
        ("besu_blockchain_chain_head_gas_used", head.header.gas_used),
        (
            "besu_blockchain_chain_head_gas_limit",
            head.header.gas_limit,
        ),
    ] {
        set(name, value);
    }
    if let Ok(Some(block)) = backend.block(&head.id.hash) {
        let transactions = block.body.transactions.len() as u64;
        set("besu_blockchain_chain_head_transaction_count", transactions);
        let ommers = block.body.ommers.len() as u64;
        set("besu_blockchain_chain_head_ommer_count", ommers);
    }
    let difficulty = float(&head.total_difficulty);
    gauge!("besu_blockchain_difficulty").set(difficulty);
    gauge!("besu_blockchain_difficulty_total").set(difficulty);
}

/// A total difficulty has more than the 53 bits of a gauge.
fn float(value: &U256) -> f64 {
    value.to_string().parse().unwrap_or(f64::INFINITY)
}

fn sample_state(chain: &Chain) {
    let caches = chain.cache_stats();
    let (hits, misses) = niwaki_crypto::precompile_result_look_ups();
    for (cache, HitRate { hits, misses, .. }) in [
        ("accounts", caches.reads.accounts),
        ("slots", caches.reads.slots),
        ("codes", caches.reads.codes),
        (
            "precompiled",
            HitRate {
                hits,
                misses,
                absent: 0,
            },
        ),
    ] {
        counter!("niwaki_cache_hits_total", "cache" => cache).absolute(hits);
        counter!("niwaki_cache_misses_total", "cache" => cache).absolute(misses);
    }
    sample_codes(&caches);
    for (
        all,
        found,
        absent,
        HitRate {
            hits,
            misses,
            absent: not_there,
        },
    ) in [
        (
            "besu_blockchain_get_account_total",
            "besu_blockchain_get_account_flat_database_total",
            "besu_blockchain_get_account_missing_flat_database_total",
            caches.reads.accounts,
        ),
        (
            "besu_blockchain_get_storagevalue_total",
            "besu_blockchain_get_storagevalue_flat_database_total",
            "besu_blockchain_get_storagevalue_missing_flat_database_total",
            caches.reads.slots,
        ),
    ] {
        counter!(all).absolute(hits.saturating_add(misses));
        counter!(found).absolute(misses.saturating_sub(not_there));
        counter!(absent).absolute(not_there);
    }
    counter!("niwaki_trie_nodes_read_total").absolute(caches.trie_nodes_read);
    set("niwaki_trie_bytes", caches.trie_bytes as u64);
    set("niwaki_value_bytes", caches.value_bytes as u64);
    let storage = chain.storage_stats();
    set(
        "niwaki_storage_waiting_batches",
        storage.waiting_batches as u64,
    );
    set("niwaki_storage_waiting_bytes", storage.waiting_bytes as u64);
    set("niwaki_storage_pinned_bytes", storage.pinned_bytes as u64);
    set("niwaki_storage_cache_bytes", storage.cache_bytes);
    set("niwaki_storage_buffer_bytes", storage.buffer_bytes);
    for (segment, bytes) in storage.segments {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        set_for("niwaki_storage_size_bytes", "segment", segment, bytes);
    }
}

fn sample_codes(caches: &CacheStats) {
    let HitRate { hits, misses, .. } = caches.reads.codes;
    let lookups = hits.saturating_add(misses);
    gauge!("besu_bonsai_cache_code_cache_hit_rate").set(hits as f64 / lookups.max(1) as f64);
    set("besu_bonsai_cache_code_cache_size", caches.codes as u64);
    set(
        "besu_bonsai_cache_code_cache_evictions",
        caches.code_evictions.entries,
    );
    set(
        "besu_bonsai_cache_code_cache_eviction_weight",
        caches.code_evictions.bytes,
    );
    static LAST: Mutex<Option<(Instant, u64)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let (then, before) = *last.get_or_insert_with(|| (Instant::now(), lookups));
    let seconds = then.elapsed().as_secs_f64();
    // Several may read at once.
    if seconds < 1.0 {
        return;
    }
    *last = Some((Instant::now(), lookups));
    let rate = lookups.saturating_sub(before) as f64 / seconds;
    gauge!("besu_bonsai_cache_code_cache_lookups_per_second").set(rate);
}

fn sample_allocator() {
    // jemalloc updates its statistics at each epoch.
    if epoch::advance().is_err() {
        return;
    }
    for (name, bytes) in [
        ("niwaki_allocator_allocated_bytes", stats::allocated::read()),
        ("niwaki_allocator_resident_bytes", stats::resident::read()),
    ] {
        if let Ok(bytes) = bytes {
            set(name, bytes as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_metric_of_besu_is_served_from_the_first_scrape_or_with_its_first_event() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            absent::register();
            first::register();
        });
        let served = recorder.handle().render();
        let served: BTreeSet<&str> = served
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let text = include_str!("../../../../testdata/besu/metrics.txt");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut count = 0;
        for line in lines {
            let mut words = line.split(' ');
            let (name, kind) = (words.next().unwrap(), words.next().unwrap());
            let labels: BTreeSet<_> = words.flat_map(|labels| labels.split(',')).collect();
            count += 1;
            let Some(row) = METRICS.iter().find(|row| row.name == name) else {
                assert!(served.contains(name), "{name} is missing");
                continue;
            };
            assert_eq!(format!("{:?}", row.kind).to_lowercase(), kind, "{name}");
            let ours = row.labels.split(',').filter(|label| !label.is_empty());
            let ours: BTreeSet<_> = ours.collect();
            assert!(
                ours.is_superset(&labels),
                "{name}: {ours:?}, not {labels:?}"
            );
            let is_served = served.contains(name) || !ours.is_empty();
            assert!(is_served, "{name} is not there before its first event");
        }
        assert_eq!(count, 149);
    }
}
