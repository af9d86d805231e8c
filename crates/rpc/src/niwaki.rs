//! The namespace `niwaki`: methods that no other client has, about what blocks have cost.
//!
//! | file | what it is |
//! |---|---|
//! | `recent` | what the last blocks have cost |
//! | `slow` | the slowest of them, and a log line for each that was too slow |
//!
//! `niwaki_explainBlock` executes a block again, so it is in `trace`.

mod recent;
mod slow;
#[cfg(test)]
mod test_block;

use crate::json::{self, Object};
use crate::methods::{Lane, Method, row};
use crate::params::{BlockRef, Params};
use crate::{Backend, RpcResult};
pub(crate) use recent::{RecentBlockStats, RecordedBlock};
pub(crate) use slow::log_if_slow;
use std::time::Duration;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("niwaki_explainBlock", "block most?", Lane::Heavy, crate::trace::explain_block),
    row("niwaki_getBlockFigures", "block", Lane::Inline, block_stats),
    row("niwaki_getSlowBlocks", "most?", Lane::Inline, slow::slow_blocks),
];

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

pub(crate) fn microseconds(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// Writes what a block has cost.
pub(crate) fn write(recorded: &RecordedBlock, mut object: Object<'_>) {
    let block = &recorded.imported;
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
    let reads = block.reads.values();
    object.decimal("hits", reads.hits);
    object.decimal("misses", reads.misses);
    object.decimal("waiting", block.waiting_batches as u64);
    object.boolean("listed", block.has_bal);
    object.boolean("earlyRoot", block.has_bal_root);
    object.decimal("rootBegun", u64::from(block.root_flushes));
    let writes = &block.writes;
    object.decimal("changedAccounts", writes.accounts as u64);
    object.decimal("changedSlots", writes.slots as u64);
    if let Some(disk) = recorded.disk {
        object.decimal("diskReadBytes", disk.read);
        object.decimal("diskWrittenBytes", disk.written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_chain::{Imported, Timings};

    #[test]
    fn phases_are_microseconds_and_add_up() {
        let imported = Imported {
            timings: Timings {
                execute: Duration::from_nanos(1_500_999),
                root: Duration::from_millis(2),
                ..Timings::default()
            },
            ..test_block::imported(9)
        };
        let mut out = Vec::new();
        write(
            &RecordedBlock::new(imported, 1, None),
            Object::new(&mut out),
        );
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let phases = &json["microseconds"];
        assert_eq!(
            [&phases["execute"], &phases["root"], &phases["total"]],
            [1_500, 2_000, 3_500]
        );
        assert_eq!([&json["ahead"], &json["again"], &json["inTurn"]], [2, 1, 2]);
        assert_eq!([&json["number"], &json["gasUsed"]], ["0x9", "0x1e"]);
        assert_eq!([&json["changedAccounts"], &json["changedSlots"]], [4, 6]);
        assert_eq!(json["earlyRoot"], true);
        assert!(json["diskReadBytes"].is_null());
    }
}
