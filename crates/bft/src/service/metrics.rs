//! What a validator measures, for Prometheus.

use crate::machine::Phase;
use crate::wire::{Kind, View};
use metrics::{counter, gauge, histogram};
use std::time::Duration;

/// What became of a message that came.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// The machine gets it.
    Taken,
    /// The same bytes came before.
    Seen,
    /// Its author is no validator.
    Stranger,
    /// It can't be read.
    Malformed,
    /// Too many wait.
    Full,
}

/// Why a block was executed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Executed {
    /// It was proposed by another validator.
    Judged,
    /// This validator built it.
    Built,
    /// It was finished without that.
    Imported,
}

pub(super) fn received(fate: Fate) {
    let fate = match fate {
        Fate::Taken => "taken",
        Fate::Seen => "seen",
        Fate::Stranger => "stranger",
        Fate::Malformed => "malformed",
        Fate::Full => "full",
    };
    counter!("niwaki_bft_messages_received_total", "fate" => fate).increment(1);
}

pub(super) fn sent(kind: Kind) {
    let kind = match kind {
        Kind::Proposal => "proposal",
        Kind::Prepare => "prepare",
        Kind::Commit => "commit",
        Kind::RoundChange => "round_change",
    };
    counter!("niwaki_bft_messages_sent_total", "kind" => kind).increment(1);
}

pub(super) fn executed(why: Executed, took: Duration) {
    let why = match why {
        Executed::Judged => "judged",
        Executed::Built => "built",
        Executed::Imported => "imported",
    };
    histogram!("niwaki_bft_execution_seconds", "why" => why).record(took);
}

pub(super) fn synced(took: Duration) {
    histogram!("niwaki_bft_journal_sync_seconds").record(took);
}

pub(super) fn agreed(took: Duration) {
    histogram!("niwaki_bft_agreement_seconds").record(took);
}

/// Messages that others broke rules with: refused ones, and pairs that contradict each other.
pub(super) fn refused() {
    counter!("niwaki_bft_messages_refused_total").increment(1);
}

pub(super) fn evidence() {
    counter!("niwaki_bft_evidence_total").increment(1);
}

/// What own blocks may use, besides the gas limit; 0: there is no other bound.
#[expect(clippy::cast_precision_loss, reason = "a gauge")]
pub(super) fn gas_bound(max_gas: u64) {
    gauge!("niwaki_bft_block_gas_bound").set(max_gas as f64);
}

/// A round above the first one of its height has begun.
pub(super) fn round_changed() {
    counter!("niwaki_bft_rounds_total").increment(1);
}

/// Where the machine is, and what waits for it.
#[expect(clippy::cast_precision_loss, reason = "gauges")]
pub(super) fn place(view: View, phase: Phase, validators: usize, connected: usize, waiting: usize) {
    gauge!("niwaki_bft_height").set(view.height as f64);
    gauge!("niwaki_bft_round").set(f64::from(view.round));
    gauge!("niwaki_bft_phase").set(f64::from(phase as u8));
    gauge!("niwaki_bft_validators").set(validators as f64);
    gauge!("niwaki_bft_validators_connected").set(connected as f64);
    gauge!("niwaki_bft_messages_waiting").set(waiting as f64);
}
