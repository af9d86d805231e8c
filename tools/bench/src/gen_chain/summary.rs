//! The summary of a generated chain, by kind of transaction.

use super::genesis::Size;
use super::mix::{GROWTH, KindRow, MIX};
use crate::chain_file::Head;
use crate::stats::Spread;
use niwaki_primitives::{B256, Header, Receipt};
use serde::Serialize;

/// The counts of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct KindSummary {
    pub(super) name: &'static str,
    pub(super) count: u64,
    pub(super) failed: u64,
    pub(super) gas: u64,
}

/// The whole chain.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    fork: String,
    seed: u64,
    gas_limit: u64,
    blocks: u64,
    /// Blocks that are empty so that the base fee falls.
    quiet_blocks: u64,
    pub(super) transactions: u64,
    pub(super) gas: u64,
    bytes: usize,
    head: Option<Head>,
    pub(super) kinds: Vec<KindSummary>,
    /// Percentage of the gas limit that each block with transactions uses.
    #[serde(skip)]
    fills: Vec<f64>,
    fill_percent: Option<Spread>,
}

impl Summary {
    pub(super) fn new(size: &Size) -> Self {
        let Size {
            fork,
            seed,
            gas_limit,
            has_growth,
            ..
        } = *size;
        let kind = |row: &KindRow| KindSummary {
            name: row.name,
            ..KindSummary::default()
        };
        let kinds = MIX.iter().chain(has_growth.then_some(&GROWTH));
        Self {
            fork: format!("{fork:?}").to_lowercase(),
            seed,
            gas_limit,
            blocks: 0,
            quiet_blocks: 0,
            transactions: 0,
            gas: 0,
            bytes: 0,
            head: None,
            kinds: kinds.map(kind).collect(),
            fills: Vec::new(),
            fill_percent: None,
        }
    }

    /// Adds a block whose transactions are of `kinds`.
    pub(super) fn add(
        &mut self,
        header: &Header,
        hash: B256,
        bytes: usize,
        kinds: &[&'static KindRow],
        receipts: &[Receipt],
    ) {
        self.blocks += 1;
        self.quiet_blocks += u64::from(kinds.is_empty());
        self.transactions += kinds.len() as u64;
        self.gas = self.gas.saturating_add(header.gas_used);
        self.bytes += bytes;
        self.head = Some(Head {
            number: header.number,
            hash,
        });
        if !kinds.is_empty() {
            let fill = header.gas_used as f64 * 100.0 / header.gas_limit as f64;
            self.fills.push(fill);
            self.fill_percent = Some(Spread::of(self.fills.iter().copied()));
        }
        let mut before = 0;
        for (row, receipt) in kinds.iter().zip(receipts) {
            let gas = receipt.cumulative_gas_used - before;
            before = receipt.cumulative_gas_used;
            let Some(kind) = self.kinds.iter_mut().find(|kind| kind.name == row.name) else {
                continue;
            };
            kind.count += 1;
            kind.failed += u64::from(receipt.status == Some(false));
            kind.gas += gas;
        }
    }

    pub(super) fn print(&self) {
        let per_cent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        let all_gas: u64 = self.kinds.iter().map(|kind| kind.gas).sum();
        println!("kind                    txs     txs %   gas %    gas each   failed");
        for kind in &self.kinds {
            println!(
                "{:<20} {:>7} {:>8.2}% {:>6.2}% {:>11} {:>8}",
                kind.name,
                kind.count,
                per_cent(kind.count, self.transactions),
                per_cent(kind.gas, all_gas),
                kind.gas / kind.count.max(1),
                kind.failed
            );
        }
        let failed: u64 = self.kinds.iter().map(|kind| kind.failed).sum();
        println!(
            "chain        {} blocks ({} empty), {} transactions ({:.1} % failed), {:.1} Mgas, {:.1} MB",
            self.blocks,
            self.quiet_blocks,
            self.transactions,
            per_cent(failed, self.transactions),
            self.gas as f64 / 1e6,
            self.bytes as f64 / 1e6
        );
        if let Some(fill) = self.fill_percent {
            let (median, range) = (fill.median, fill.range(1));
            println!("filled       {median:.1} % of the gas limit ({range})");
        }
        if let Some(Head { number, hash }) = self.head {
            println!("head         {number} {hash}");
        }
    }
}
