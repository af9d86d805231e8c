//! Figures for Prometheus, under Besu's names where Besu has them.

use crate::memory::peak_rss_bytes;
use crate::options::NodeOptions;
use eyre::{Result, WrapErr, eyre};
use metrics::{counter, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use niwaki_chain::{Chain, HitRate};
use niwaki_rpc::serve_text;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tracing::info;

/// The recorder of all figures.
pub(super) struct Metrics {
    recorder: PrometheusHandle,
    chain: Arc<Chain>,
}

/// Records from now on, if metrics are asked for.
pub(super) fn install(node: &NodeOptions, chain: &Arc<Chain>) -> Result<Option<Metrics>> {
    if node.operation.metrics_enabled != Some(true) {
        return Ok(None);
    }
    let recorder = PrometheusBuilder::new()
        .install_recorder()
        .map_err(|error| eyre!("can't record metrics: {error}"))?;
    let chain = Arc::clone(chain);
    Ok(Some(Metrics { recorder, chain }))
}

impl Metrics {
    pub(super) fn serve(
        self,
        runtime: &Runtime,
        address: SocketAddr,
        stopped: watch::Receiver<bool>,
    ) -> Result<()> {
        let render = move || {
            self.sample();
            self.recorder.run_upkeep();
            self.recorder.render()
        };
        let server = runtime.block_on(serve_text(address, "/metrics", Arc::new(render), stopped));
        let server = server.wrap_err_with(|| {
            format!("can't listen on {address} for metrics; choose another --metrics-port")
        })?;
        info!(%address, "metrics for Prometheus");
        runtime.spawn(server);
        Ok(())
    }

    /// What is looked up when it is asked for.
    fn sample(&self) {
        let head = self.chain.head();
        let marked = |block: Result<Option<niwaki_chain::StoredHeader>, _>| {
            block.ok().flatten().map_or(0, |block| block.id.number)
        };
        let header = &head.header;
        for (name, value) in [
            ("ethereum_blockchain_height", head.id.number),
            ("ethereum_best_known_block_number", head.id.number),
            (
                "ethereum_blockchain_finalized_block",
                marked(self.chain.finalized()),
            ),
            ("ethereum_blockchain_safe_block", marked(self.chain.safe())),
            ("ethereum_peer_count", 0),
            ("besu_blockchain_chain_head_timestamp", header.timestamp),
            ("besu_blockchain_chain_head_gas_used", header.gas_used),
            ("besu_blockchain_chain_head_gas_limit", header.gas_limit),
        ] {
            #[expect(clippy::cast_precision_loss, reason = "a gauge")]
            gauge!(name).set(value as f64);
        }
        let figures = self.chain.cache_figures();
        let rates = [
            ("accounts", figures.accounts),
            ("slots", figures.slots),
            ("codes", figures.codes),
        ];
        for (kind, HitRate { hits, misses }) in rates {
            counter!("niwaki_cache_hits_total", "cache" => kind).absolute(hits);
            counter!("niwaki_cache_misses_total", "cache" => kind).absolute(misses);
        }
        if let Some(bytes) = peak_rss_bytes() {
            #[expect(clippy::cast_precision_loss, reason = "a gauge")]
            gauge!("niwaki_process_peak_resident_bytes").set(bytes as f64);
        }
    }
}
