//! The namespace `niwaki`: methods that no other client has.

use crate::json::{self, Object};
use crate::methods::{Lane, Method, row};
use crate::params::{BlockRef, Params};
use crate::{Backend, RpcResult, lock};
use niwaki_chain::{ImportStatus, Imported};
use niwaki_primitives::B256;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("niwaki_getBlockFigures", "block", Lane::Inline, block_stats),
];

/// Blocks whose statistics are kept.
const MAX_BLOCKS: usize = 1024;

/// The statistics of the last blocks that the consensus client sent, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentBlockStats(Mutex<VecDeque<Imported>>);

impl RecentBlockStats {
    pub(crate) fn put(&self, imported: Imported) {
        // A known block was not executed again.
        if imported.status == ImportStatus::AlreadyStored {
            return;
        }
        let mut blocks = lock(&self.0);
        if blocks.len() == MAX_BLOCKS {
            blocks.pop_front();
        }
        blocks.push_back(imported);
    }

    fn get(&self, hash: &B256) -> Option<Imported> {
        let blocks = lock(&self.0);
        let found = blocks.iter().rev().find(|block| block.id.hash == *hash);
        found.cloned()
    }
}

/// The statistics of a block, times in microseconds; null if it is not among the last blocks.
fn block_stats(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let header = backend.header_by_ref(params.required::<BlockRef>(0)?)?;
    let stats = header.and_then(|header| backend.block_stats.get(&header.id.hash));
    match stats {
        Some(stats) => write(&stats, Object::new(out)),
        None => json::null(out),
    }
    Ok(())
}

fn write(block: &Imported, mut object: Object<'_>) {
    let microseconds = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    object.number("number", block.id.number);
    object.data("hash", block.id.hash.as_slice());
    object.number("gasUsed", block.gas_used);
    let stats = &block.tx_stats;
    for (name, transactions) in [
        ("transactions", block.transactions),
        ("ahead", stats.validated),
        ("again", stats.reexecuted),
        ("inTurn", stats.sequential),
    ] {
        object.decimal(name, transactions as u64);
    }
    let timings = &block.timings;
    let mut phases = object.object("microseconds");
    for (name, took) in [
        ("check", timings.check),
        ("recover", timings.recover),
        ("execute", timings.execute),
        ("root", timings.root),
        ("compare", timings.compare),
        ("commit", timings.commit),
        ("total", timings.total()),
    ] {
        phases.decimal(name, microseconds(took));
    }
    drop(phases);
    object.decimal("hits", block.reads.hits);
    object.decimal("misses", block.reads.misses);
    object.decimal("waiting", block.waiting_batches as u64);
    object.boolean("listed", block.has_bal);
    object.boolean("earlyRoot", block.has_bal_root);
    object.decimal("rootBegun", u64::from(block.root_flushes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_chain::{BlockId, HitRate, Timings};
    use niwaki_execution::TxStats;

    fn imported(number: u64) -> Imported {
        Imported {
            id: BlockId {
                number,
                hash: B256::with_last_byte(number.to_be_bytes()[7]),
            },
            status: ImportStatus::Side,
            gas_used: 30,
            transactions: 5,
            tx_stats: TxStats {
                validated: 2,
                reexecuted: 1,
                sequential: 2,
                ..TxStats::default()
            },
            has_bal_root: true,
            root_flushes: 3,
            has_bal: true,
            reads: HitRate::default(),
            waiting_batches: 3,
            timings: Timings {
                execute: Duration::from_nanos(1_500_999),
                root: Duration::from_millis(2),
                ..Timings::default()
            },
        }
    }

    #[test]
    fn the_last_1024_blocks_are_kept_and_the_newest_of_a_hash_is_found() {
        let stats = RecentBlockStats::default();
        for number in 0..2_000 {
            stats.put(imported(number));
        }
        stats.put(Imported {
            status: ImportStatus::AlreadyStored,
            ..imported(9)
        });
        let found = stats.get(&B256::with_last_byte(7)).map(|block| block.id);
        assert_eq!(found.map(|id| id.number), Some(7 * 256 + 7));
        assert_eq!(stats.0.lock().unwrap().len(), MAX_BLOCKS);
        assert!(stats.get(&B256::repeat_byte(1)).is_none());
    }

    #[test]
    fn phases_are_microseconds_and_add_up() {
        let mut out = Vec::new();
        write(&imported(9), Object::new(&mut out));
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let phases = &json["microseconds"];
        assert_eq!(
            [&phases["execute"], &phases["root"], &phases["total"]],
            [1_500, 2_000, 3_500]
        );
        assert_eq!([&json["ahead"], &json["again"], &json["inTurn"]], [2, 1, 2]);
        assert_eq!([&json["number"], &json["gasUsed"]], ["0x9", "0x1e"]);
        assert_eq!(json["earlyRoot"], true);
    }
}
