//! Fills blocks with transactions up to the requested share of the gas limit. Gas used is estimated from the gas
//! limits, by their ratio in the blocks before.

use super::draw::Drawn;
use super::mix::KindRow;
use eyre::{Report, Result, WrapErr, eyre};
use niwaki_chain::Candidate;
use niwaki_primitives::{Header, TxEnvelope};
use niwaki_rules::InvalidTransaction;

/// Fills blocks.
#[derive(Debug)]
pub(super) struct Filler {
    gas_limit: u64,
    fill_percent: u64,
    /// Gas used, and gas limits, of all transactions so far.
    used: u64,
    limits: u64,
    /// Gas limits of the current block's transactions.
    block_limits: u64,
    blobs_left: u64,
    is_quiet: bool,
    included: Vec<Drawn>,
    /// Drawn for the previous block, which had no room.
    waiting: Option<Drawn>,
    error: Option<Report>,
}

impl Filler {
    pub(super) fn new(gas_limit: u64, fill_percent: u64) -> Self {
        Self {
            gas_limit,
            fill_percent,
            // A low initial estimate, so that the first block is filled until a transaction does not fit.
            used: 1,
            limits: 100,
            block_limits: 0,
            blobs_left: 0,
            is_quiet: false,
            included: Vec::new(),
            waiting: None,
            error: None,
        }
    }

    /// Begins a block; a quiet one stays empty.
    pub(super) fn begin(&mut self, max_blobs: u64, is_quiet: bool) {
        self.block_limits = 0;
        self.blobs_left = max_blobs;
        self.is_quiet = is_quiet;
        self.included.clear();
    }

    /// The next transaction, which `draw` makes with at most so many blobs; `None` if it has no more or the block is full.
    pub(super) fn next(
        &mut self,
        draw: &mut dyn FnMut(u64) -> Result<Option<Drawn>>,
        refused: Option<&InvalidTransaction>,
    ) -> Option<Candidate> {
        match refused {
            Some(InvalidTransaction::GasAllowanceExceeded { .. }) => {
                self.waiting = self.included.pop();
                return None;
            }
            Some(reason) => {
                let name = self.included.pop().map_or("?", |drawn| drawn.row.name);
                self.error = Some(eyre!("a {name} was refused: {reason}; this is a bug"));
                return None;
            }
            None => {}
        }
        if self.is_quiet || self.is_full() {
            return None;
        }
        let drawn = match self.waiting.take() {
            Some(drawn) => drawn,
            None => match draw(self.blobs_left) {
                Ok(drawn) => drawn?,
                Err(error) => {
                    self.error = Some(error);
                    return None;
                }
            },
        };
        self.block_limits += drawn.gas_limit;
        self.blobs_left = self.blobs_left.saturating_sub(blobs(&drawn.tx));
        let candidate = Candidate {
            tx: drawn.tx.clone(),
            sender: drawn.sender,
        };
        self.included.push(drawn);
        Some(candidate)
    }

    /// Whether the transactions so far use enough gas, by the estimate.
    fn is_full(&self) -> bool {
        let target = u128::from(self.gas_limit) * u128::from(self.fill_percent) / 100;
        u128::from(self.block_limits) * u128::from(self.used) >= target * u128::from(self.limits)
    }

    /// Whether a transaction waits for the next block.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Ends the block.
    ///
    /// # Errors
    /// The error that ended it before it was full.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.error.take() {
            Some(error) => Err(error).wrap_err("a transaction that was drawn"),
            None => Ok(()),
        }
    }

    /// The kinds of the block's transactions.
    pub(super) fn included(&self) -> Vec<&'static KindRow> {
        self.included.iter().map(|drawn| drawn.row).collect()
    }

    /// Updates the estimate with the block's gas used.
    pub(super) fn update_estimate(&mut self, header: &Header) {
        self.used = self.used.saturating_add(header.gas_used);
        let limits = self.included.iter().map(|drawn| drawn.gas_limit);
        self.limits = self.limits.saturating_add(limits.sum());
    }
}

fn blobs(tx: &TxEnvelope) -> u64 {
    match tx {
        TxEnvelope::Eip4844(tx) => tx.tx().blob_versioned_hashes.len() as u64,
        _ => 0,
    }
}
