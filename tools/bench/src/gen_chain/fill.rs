//! How full a block gets: transactions until they use the share of the gas that was asked for, by
//! what gas limits have turned out to mean in the blocks before.

use super::draw::{Draw, Drawn};
use super::mix::Row;
use eyre::{Report, Result, WrapErr, eyre};
use niwaki_chain::Candidate;
use niwaki_primitives::{Header, TxEnvelope};
use niwaki_rules::InvalidTransaction;

/// Fills blocks.
#[derive(Debug)]
pub(super) struct Filler {
    gas_limit: u64,
    fill_percent: u64,
    /// Gas used and gas limits of all transactions so far.
    used: u64,
    limits: u64,
    /// Of the block in the works.
    block_limits: u64,
    blobs_left: u64,
    is_quiet: bool,
    taken: Vec<Drawn>,
    /// Drawn for the block before, where there was no room.
    waiting: Option<Drawn>,
    trouble: Option<Report>,
}

impl Filler {
    pub(super) fn new(gas_limit: u64, fill_percent: u64) -> Self {
        Self {
            gas_limit,
            fill_percent,
            // Before anything is known: little of it, so that the first block is filled until
            // something does not fit.
            used: 1,
            limits: 100,
            block_limits: 0,
            blobs_left: 0,
            is_quiet: false,
            taken: Vec::new(),
            waiting: None,
            trouble: None,
        }
    }

    /// A block begins; a quiet one stays empty.
    pub(super) fn begin(&mut self, most_blobs: u64, is_quiet: bool) {
        self.block_limits = 0;
        self.blobs_left = most_blobs;
        self.is_quiet = is_quiet;
        self.taken.clear();
    }

    /// The next transaction, or none where the block is full.
    pub(super) fn next(
        &mut self,
        draw: &mut Draw,
        refused: Option<&InvalidTransaction>,
    ) -> Option<Candidate> {
        match refused {
            Some(InvalidTransaction::GasAllowanceExceeded { .. }) => {
                self.waiting = self.taken.pop();
                return None;
            }
            Some(reason) => {
                let name = self.taken.pop().map_or("?", |drawn| drawn.row.name);
                self.trouble = Some(eyre!("a {name} was refused: {reason}; this is a bug"));
                return None;
            }
            None => {}
        }
        if self.is_quiet || self.is_full() {
            return None;
        }
        let drawn = match self.waiting.take() {
            Some(drawn) => drawn,
            None => match draw.next(self.blobs_left) {
                Ok(drawn) => drawn,
                Err(error) => {
                    self.trouble = Some(error);
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
        self.taken.push(drawn);
        Some(candidate)
    }

    /// Whether the limits so far will have used enough, if they mean what they meant before.
    fn is_full(&self) -> bool {
        let wanted = u128::from(self.gas_limit) * u128::from(self.fill_percent) / 100;
        u128::from(self.block_limits) * u128::from(self.used) >= wanted * u128::from(self.limits)
    }

    /// The block ends.
    ///
    /// # Errors
    /// Why it ended before it was full.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.trouble.take() {
            Some(error) => Err(error).wrap_err("a transaction that was drawn"),
            None => Ok(()),
        }
    }

    /// The kinds of the block's transactions.
    pub(super) fn taken(&self) -> Vec<&'static Row> {
        self.taken.iter().map(|drawn| drawn.row).collect()
    }

    /// Takes down what the limits of the block came to.
    pub(super) fn learn(&mut self, header: &Header) {
        self.used = self.used.saturating_add(header.gas_used);
        let limits = self.taken.iter().map(|drawn| drawn.gas_limit);
        self.limits = self.limits.saturating_add(limits.sum());
    }
}

fn blobs(tx: &TxEnvelope) -> u64 {
    match tx {
        TxEnvelope::Eip4844(tx) => tx.tx().blob_versioned_hashes.len() as u64,
        _ => 0,
    }
}
