//! The log and the counters of the consensus client's calls.
//!
//! One line for each block, payload and change of finality or sync; repeated refusals and errors are
//! held back ([`LogLimit`]). docs/node.md has the text of every line.

use crate::human::{Age, Gas, Percent, ShortHash, Wei};
use crate::log_limit::LogLimit;
use crate::metrics::mgas_per_second;
use crate::node::now_ms;
use crate::payloads::Payload;
use crate::server::JwtError;
use crate::{Backend, RpcError, lock};
use metrics::counter;
use niwaki_chain::{ForkChoice, ImportStatus, Imported, RejectedBlock, Verdict};
use niwaki_primitives::{B256, Header, U256};
use niwaki_rules::GAS_PER_BLOB;
use std::sync::Mutex;
use std::time::Instant;
use tracing::{info, warn};

/// What was logged last, so that it is not logged again.
#[derive(Debug, Default)]
struct LastLogged {
    in_sync: Option<bool>,
    finalized: B256,
    safe: B256,
    built: B256,
}

/// The log of the Engine API.
#[derive(Debug, Default)]
pub(crate) struct EngineLog {
    refused: LogLimit,
    failed: LogLimit,
    invalid: LogLimit,
    last: Mutex<LastLogged>,
}

/// Counts a status by method.
pub(super) fn count_status(method: String, verdict: &Verdict) {
    let status = match verdict {
        Verdict::Valid(_) => "VALID",
        Verdict::Invalid(_) => "INVALID",
        Verdict::Syncing => "SYNCING",
        Verdict::Accepted => "ACCEPTED",
    };
    counter!("niwaki_engine_status_total", "method" => method, "status" => status).increment(1);
}

impl EngineLog {
    /// A request without a valid token was refused.
    pub(crate) fn token_refused(&self, error: &JwtError) {
        let reason = match error {
            JwtError::Missing => "missing",
            JwtError::Malformed(_) => "malformed",
            JwtError::Algorithm => "algorithm",
            JwtError::Signature => "signature",
            JwtError::Stale { .. } => "stale",
        };
        counter!("niwaki_rpc_tokens_refused_total", "reason" => reason).increment(1);
        if let Some(held_back) = self.refused.admit(Instant::now()) {
            warn!(
                reason = %error,
                held_back,
                "Engine API request refused: both clients must use the same --engine-jwt-secret"
            );
        }
    }

    /// A call ended in an error.
    pub(crate) fn failed(&self, method: &str, error: &RpcError) {
        if let Some(held_back) = self.failed.admit(Instant::now()) {
            let (code, error) = (error.code, error.message.as_str());
            warn!(%method, code, %error, held_back, "Engine API call failed");
        }
    }

    /// A payload breaks the protocol.
    pub(super) fn invalid(&self, number: u64, hash: B256, refused: &RejectedBlock) {
        if let Some(held_back) = self.invalid.admit(Instant::now()) {
            let latest_valid = refused.latest_valid.unwrap_or_default();
            warn!(
                number,
                hash = %hash,
                reason = %refused.reason,
                latest_valid = %ShortHash(latest_valid),
                held_back,
                "Invalid payload"
            );
        }
    }

    /// A fork choice was answered.
    pub(super) fn fork_choice(&self, backend: &Backend, choice: &ForkChoice, verdict: &Verdict) {
        match verdict {
            Verdict::Valid(_) => self.followed(backend),
            Verdict::Syncing | Verdict::Accepted => self.behind(backend),
            Verdict::Invalid(refused) => self.invalid_head(choice, refused),
        }
    }

    fn invalid_head(&self, choice: &ForkChoice, refused: &RejectedBlock) {
        if let Some(held_back) = self.invalid.admit(Instant::now()) {
            warn!(
                hash = %choice.head,
                reason = %refused.reason,
                held_back,
                "The consensus client chose an invalid head"
            );
        }
    }

    fn followed(&self, backend: &Backend) {
        let chain = backend.chain();
        let head = chain.head();
        if lock(&self.last).in_sync.replace(true) != Some(true) {
            let (number, hash) = (head.id.number, ShortHash(head.id.hash));
            info!(number, %hash, age = %Age::since(head.header.timestamp, now_ms()), "In sync");
        }
        let (Ok(finalized), Ok(safe)) = (chain.finalized(), chain.safe()) else {
            return; // The storage logs its own faults.
        };
        let (Some(finalized), Some(safe)) = (finalized, safe) else {
            return;
        };
        let mut last = lock(&self.last);
        if (last.finalized, last.safe) == (finalized.id.hash, safe.id.hash) {
            return;
        }
        (last.finalized, last.safe) = (finalized.id.hash, safe.id.hash);
        info!(
            finalized = finalized.id.number,
            hash = %ShortHash(finalized.id.hash),
            safe = safe.id.number,
            head = head.id.number,
            "Finalized"
        );
    }

    fn behind(&self, backend: &Backend) {
        if lock(&self.last).in_sync.replace(false) != Some(false) {
            write_syncing(backend);
        }
    }

    /// A payload was fetched.
    pub(super) fn built(&self, payload: &Payload) {
        let built = &payload.built;
        if std::mem::replace(&mut lock(&self.last).built, built.hash) == built.hash {
            return;
        }
        let header = &built.block.header;
        info!(
            number = header.number,
            hash = %ShortHash(built.hash),
            txs = built.block.body.transactions.len(),
            blobs = header.blob_gas_used.unwrap_or(0) / GAS_PER_BLOB,
            gas = %Gas(header.gas_used),
            full = %Percent(header.gas_used, header.gas_limit),
            value = %Wei(built.value),
            ms = format_args!("{:.1}", payload.took.as_secs_f64() * 1e3),
            "Built payload"
        );
    }
}

/// Logs what is missing while the chosen head can't be followed.
pub(crate) fn write_syncing(backend: &Backend) {
    let Some(missing) = backend.consensus.missing_head() else {
        return;
    };
    let number = missing.number.map(|number| number.to_string());
    info!(
        head = backend.chain().head().id.number,
        chosen = %ShortHash(missing.hash),
        number = %number.as_deref().unwrap_or("unknown"),
        waiting = backend.consensus.waiting_blocks(),
        "Syncing: blocks between the head and the one that the consensus client chose are missing"
    );
}

/// Logs a block that was executed and is valid, at DEBUG with the duration of its phases.
pub(crate) fn write_imported(backend: &Backend, header: &Header, imported: &Imported) {
    if imported.status == ImportStatus::AlreadyStored {
        return;
    }
    let ms = |took: std::time::Duration| took.as_secs_f64() * 1e3;
    let params = backend.chain().spec().blob_params_at(header.timestamp);
    let blobs = header.blob_gas_used.unwrap_or(0) / GAS_PER_BLOB;
    info!(
        number = imported.id.number,
        hash = %ShortHash(imported.id.hash),
        age = %Age::since(header.timestamp, now_ms()),
        txs = imported.transactions,
        blobs = format_args!("{blobs}/{}", params.map_or(0, |params| params.max)),
        gas = %Gas(imported.gas_used),
        full = %Percent(imported.gas_used, header.gas_limit),
        base_fee = %Wei(U256::from(header.base_fee_per_gas.unwrap_or(0))),
        ms = format_args!("{:.1}", ms(imported.timings.total())),
        mgas_s = format_args!("{:.0}", mgas_per_second(imported)),
        peers = backend.peer_count(),
        "Imported block"
    );
    let (timings, stats) = (&imported.timings, &imported.tx_stats);
    let reads = imported.reads.values();
    tracing::debug!(
        number = imported.id.number,
        hash = %imported.id.hash,
        ahead = stats.validated,
        again = stats.reexecuted,
        in_turn = stats.sequential,
        check = format_args!("{:.2}", ms(timings.check)),
        recover = format_args!("{:.2}", ms(timings.recover)),
        execute = format_args!("{:.2}", ms(timings.execute)),
        root = format_args!("{:.2}", ms(timings.root)),
        compare = format_args!("{:.2}", ms(timings.compare)),
        commit = format_args!("{:.2}", ms(timings.commit)),
        hits = reads.hits,
        misses = reads.misses,
        waiting = imported.waiting_batches,
        listed = imported.has_bal,
        early_root = imported.has_bal_root,
        root_begun = imported.root_flushes,
        "Block phases"
    );
}
