//! Metrics of calls, connections and imported blocks, under Besu's names where Besu has them.

use crate::RpcResult;
use metrics::{counter, gauge, histogram};
use niwaki_chain::Imported;
use std::time::Duration;

/// Counts a connection as long as it exists.
#[derive(Debug)]
pub(crate) struct ConnectionGauge(&'static str);

impl ConnectionGauge {
    fn new(name: &'static str) -> Self {
        gauge!(name).increment(1);
        Self(name)
    }
}

impl Drop for ConnectionGauge {
    fn drop(&mut self) {
        gauge!(self.0).decrement(1);
    }
}

/// A call was answered.
pub(crate) fn record_call(method: &'static str, took: Duration, result: &RpcResult) {
    histogram!("besu_rpc_request_time", "methodName" => method).record(took);
    if let Err(error) = result {
        let code = error.code.to_string();
        counter!("besu_rpc_errors_count_total", "rpcMethod" => method, "errorType" => code)
            .increment(1);
    }
}

/// A block was imported.
pub(crate) fn record_block(imported: &Imported) {
    let timings = &imported.timings;
    for (name, took) in [
        ("niwaki_block_check_seconds", timings.check),
        ("niwaki_block_recover_seconds", timings.recover),
        ("niwaki_block_execute_seconds", timings.execute),
        ("niwaki_block_root_seconds", timings.root),
        ("niwaki_block_compare_seconds", timings.compare),
        ("niwaki_block_commit_seconds", timings.commit),
        ("niwaki_block_total_seconds", timings.total()),
    ] {
        histogram!(name).record(took);
    }
    histogram!("besu_block_processing_state_root_calculation_duration_seconds")
        .record(timings.root);
    let per_second = mgas_per_second(imported);
    histogram!("niwaki_block_mgas_per_second").record(per_second);
    let transactions = imported.transactions as u64;
    counter!("besu_blockchain_chain_head_gas_used_counter_total").increment(imported.gas_used);
    counter!("besu_blockchain_chain_head_transaction_count_counter_total").increment(transactions);
    let stats = &imported.tx_stats;
    counter!("besu_block_processing_parallelized_transactions_counter_total")
        .increment(stats.validated as u64);
    counter!("besu_block_processing_conflicted_transactions_counter_total")
        .increment(stats.reexecuted as u64);
    counter!("niwaki_block_transactions_in_turn_total").increment(stats.sequential as u64);
    counter!("niwaki_block_ahead_failures_total").increment(stats.panicked as u64);
    counter!("besu_bal_blocks_total").increment(u64::from(imported.has_bal));
    if let Some(bal) = imported.bal {
        for (name, count) in [
            ("besu_bal_accounts_count", bal.accounts),
            ("besu_bal_accounts_updated", bal.changed_accounts),
            ("besu_bal_code_count", bal.codes),
            ("besu_bal_storage_slots_count", bal.slots),
            ("besu_bal_storage_slots_updated", bal.changed_slots),
        ] {
            gauge!(name).set(as_float(count as u64));
        }
    }
    counter!("niwaki_block_early_roots_total").increment(u64::from(imported.has_bal_root));
    counter!("niwaki_block_roots_begun_total").increment(u64::from(imported.root_flushes > 0));
    histogram!("niwaki_block_reads_missed").record(as_float(imported.reads.values().misses));
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    gauge!("besu_block_processing_execution_time_head").set(ms(timings.total()).floor());
}

/// An `eth_call` was executed.
pub(crate) fn record_eth_call(succeeded: bool, gas_used: u64) {
    let status = if succeeded { "success" } else { "error" };
    counter!("besu_rpc_eth_call_gas_used_total", "status" => status).increment(gas_used);
}

/// A transaction of a block was traced: Besu's name for the way, and for what it does last.
pub(crate) fn record_traced(metric: &'static str, last_step: &'static str) {
    for step in [
        "getTransactions_outputPipe",
        "executeTransaction_outputPipe",
        last_step,
    ] {
        for action in ["added", "removed"] {
            counter!(metric, "action" => action, "step" => step).increment(1);
        }
    }
}

/// What became of a call for which there are workers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// A worker will run it.
    Submitted,
    /// It has run.
    Completed,
    /// Its queue was full.
    Rejected,
}

impl Work {
    /// Counts it, as of the workers of Besu that do the same.
    pub(crate) fn record(self) {
        let name = match self {
            Self::Submitted => "besu_network_vertx_worker_pool_submitted_total",
            Self::Completed => "besu_network_vertx_worker_pool_completed_total",
            Self::Rejected => "besu_network_vertx_worker_pool_rejected_total",
        };
        counter!(name, "poolType" => "worker", "poolName" => "vert.x-worker-thread").increment(1);
    }
}

/// A connection over HTTP was opened.
pub(crate) fn http_connection() -> ConnectionGauge {
    ConnectionGauge::new("besu_rpc_active_http_connection_count")
}

/// A connection became a WebSocket.
pub(crate) fn ws_connection() -> ConnectionGauge {
    ConnectionGauge::new("besu_rpc_active_ws_connection_count")
}

/// A connection was closed because there were too many.
pub(crate) fn connection_refused() {
    counter!("niwaki_rpc_connections_refused_total").increment(1);
}

/// A request without a valid token was refused, by a server whose tokens name users.
pub(crate) fn token_refused() {
    counter!("niwaki_rpc_tokens_refused_total", "reason" => "token").increment(1);
}

#[expect(clippy::cast_precision_loss, reason = "a count")]
fn as_float(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
pub(crate) fn mgas_per_second(imported: &Imported) -> f64 {
    let seconds = imported.timings.total().as_secs_f64();
    match seconds > 0.0 {
        true => imported.gas_used as f64 / 1e6 / seconds,
        false => 0.0,
    }
}
