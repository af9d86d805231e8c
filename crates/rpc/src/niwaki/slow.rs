//! Slow blocks: one line of JSON in the log for each, and `niwaki_getSlowBlocks`.
//!
//! Fields of the line that go-ethereum, Besu and Erigon have too are called as there, so that one reader reads all.

use super::recent::RecordedBlock;
use super::write;
use crate::json::Array;
use crate::metrics::mgas_per_second;
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult};
use metrics::counter;
use niwaki_chain::HitRate;
use niwaki_primitives::{B256, Transaction};
use serde_json::{Value, json};
use std::time::Duration;
use tracing::warn;

/// How many blocks `niwaki_getSlowBlocks` gives if nothing is said.
const DEFAULT_BLOCKS: usize = 10;

/// How many transactions the line of a slow block names.
const DEAREST: usize = 5;

/// The slowest of the last blocks, slowest first.
pub(super) fn slow_blocks(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let most: usize = params.optional(0)?.unwrap_or(DEFAULT_BLOCKS);
    let mut list = Array::new(out);
    for block in backend.block_stats.slowest(most) {
        write(&block, list.object());
    }
    Ok(())
}

/// Logs and counts a block that took at least as long as the operator's threshold.
pub(crate) fn log_if_slow(backend: &Backend, block: &RecordedBlock) {
    let took = block.imported.timings.total();
    let threshold = backend.options.slow_block;
    if threshold.is_none_or(|threshold| took < threshold) {
        return;
    }
    counter!("niwaki_block_slow_total").increment(1);
    // The block is logged also where its receipts can't be read.
    let dearest = dearest(backend, &block.imported.id.hash).unwrap_or_default();
    warn!("{}", line(block, &dearest));
}

/// The transactions of a block that used most gas: hash, target, gas.
fn dearest(backend: &Backend, hash: &B256) -> Result<Vec<Value>, RpcError> {
    let Some(block) = backend.block(hash)? else {
        return Ok(Vec::new());
    };
    let mut before = 0;
    let receipts = block.receipts(backend.chain())?.iter();
    let used = receipts.map(|receipt| {
        let sum = receipt.cumulative_gas_used;
        sum.saturating_sub(std::mem::replace(&mut before, sum))
    });
    let mut all: Vec<_> = used.zip(&block.body.transactions).collect();
    all.sort_by_key(|(gas, _)| std::cmp::Reverse(*gas));
    let largest = all.into_iter().take(DEAREST);
    let values =
        largest.map(|(gas, tx)| json!({ "hash": tx.tx_hash(), "to": tx.to(), "gas_used": gas }));
    Ok(values.collect())
}

/// Milliseconds with three decimals.
fn ms(took: Duration) -> f64 {
    took.as_micros() as f64 / 1e3
}

fn cache(rate: HitRate) -> Value {
    let all = rate.hits + rate.misses;
    let share = rate.hits as f64 / all.max(1) as f64;
    json!({ "hits": rate.hits, "misses": rate.misses, "hit_rate": (share * 1e4).round() / 1e4 })
}

/// The line of a slow block.
fn line(recorded: &RecordedBlock, dearest: &[Value]) -> Value {
    let block = &recorded.imported;
    let (timings, reads, writes) = (&block.timings, &block.reads, &block.writes);
    let look_ups = |rate: HitRate| rate.hits + rate.misses;
    let disk = recorded
        .disk
        .map(|disk| json!({ "read_bytes": disk.read, "written_bytes": disk.written }));
    json!({
        "level": "warn",
        "msg": "Slow block",
        "block": {
            "number": block.id.number,
            "hash": block.id.hash,
            "gas_used": block.gas_used,
            "tx_count": block.transactions,
        },
        "timing": {
            "check_ms": ms(timings.check),
            "recover_ms": ms(timings.recover),
            "execution_ms": ms(timings.execute),
            "state_hash_ms": ms(timings.root),
            "compare_ms": ms(timings.compare),
            "commit_ms": ms(timings.commit),
            "total_ms": ms(timings.total()),
        },
        "throughput": { "mgas_per_sec": (mgas_per_second(block) * 100.0).round() / 100.0 },
        "transactions": {
            "ahead": block.tx_stats.validated,
            "again": block.tx_stats.reexecuted,
            "in_turn": block.tx_stats.sequential,
            "dearest": dearest,
        },
        "state_reads": {
            "accounts": look_ups(reads.accounts),
            "storage_slots": look_ups(reads.slots),
            "code": look_ups(reads.codes),
        },
        "state_writes": {
            "accounts": writes.accounts,
            "accounts_deleted": writes.deleted_accounts,
            "storage_slots": writes.slots,
            "storage_slots_deleted": writes.deleted_slots,
            "code": writes.codes,
            "code_bytes": writes.code_bytes,
        },
        "cache": {
            "account": cache(reads.accounts),
            "storage": cache(reads.slots),
            "code": cache(reads.codes),
        },
        "disk": disk,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::niwaki::test_block::imported;
    use niwaki_chain::{Imported, ReadStats, Timings};

    #[test]
    fn the_line_has_the_names_that_other_clients_use_and_times_in_milliseconds() {
        let block = Imported {
            reads: ReadStats {
                slots: HitRate {
                    hits: 2,
                    misses: 1,
                    ..HitRate::default()
                },
                ..ReadStats::default()
            },
            timings: Timings {
                execute: Duration::from_micros(1_500),
                root: Duration::from_micros(500),
                ..Timings::default()
            },
            gas_used: 4_000,
            ..imported(7)
        };
        let line = line(&RecordedBlock::new(block, 1, None), &[]);
        assert_eq!(line["msg"], "Slow block");
        assert_eq!(line["block"]["number"], 7);
        let timing = &line["timing"];
        assert_eq!(
            [
                &timing["execution_ms"],
                &timing["state_hash_ms"],
                &timing["total_ms"]
            ],
            [1.5, 0.5, 2.0]
        );
        assert_eq!(line["throughput"]["mgas_per_sec"], 2.0);
        assert_eq!(line["state_reads"]["storage_slots"], 3);
        assert_eq!(line["state_writes"]["storage_slots"], 6);
        assert_eq!(line["cache"]["storage"]["hit_rate"], 0.6667);
        assert_eq!(line["cache"]["account"]["hit_rate"], 0.0);
        assert_eq!(line["disk"], Value::Null);
        // One line.
        assert!(!line.to_string().contains('\n'));
    }
}
