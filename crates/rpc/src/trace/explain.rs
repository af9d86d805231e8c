//! `niwaki_explainBlock`: a stored block executed again, one transaction after the other, to see where its time goes.
//!
//! Each transaction runs twice: without a tracer, for its time, then with [`OpcodeTimes`], for the shares of opcodes and
//! contracts. What is read of the state before the block is counted in the first run, which finds nothing of the block in the
//! overlay yet; the second finds the same values in the caches.

mod counted_state;
mod opcode_times;

use super::subject::PastBlock;
use crate::json::Object;
use crate::params::Params;
use crate::simulation::NoopTracer;
use crate::{Backend, RpcResult};
use counted_state::{CountedState, Reads};
use niwaki_evm::Table;
use niwaki_primitives::{Address, B256, Transaction};
use niwaki_rules::blob_gas_of;
use opcode_times::{Cost, OpcodeTimes};
use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// How many transactions, contracts and opcodes are listed if nothing is said.
const DEFAULT_ROWS: usize = 10;

/// Opcodes that cost time in the same way. What no row has is `other`.
#[rustfmt::skip]
const CLASSES: [(&str, &[std::ops::RangeInclusive<u8>]); 10] = [
    ("stack", &[0x50..=0x50, 0x5f..=0x9f, 0xe6..=0xe8]),
    ("arithmetic", &[0x01..=0x1e]),
    ("keccak", &[0x20..=0x20]),
    ("control flow", &[0x00..=0x00, 0x56..=0x58, 0x5a..=0x5b, 0xf3..=0xf3, 0xfd..=0xfe]),
    ("memory", &[0x35..=0x39, 0x3d..=0x3e, 0x51..=0x53, 0x59..=0x59, 0x5e..=0x5e]),
    ("environment", &[0x30..=0x30, 0x32..=0x34, 0x3a..=0x3a, 0x40..=0x46, 0x48..=0x4b]),
    ("accounts", &[0x31..=0x31, 0x3b..=0x3c, 0x3f..=0x3f, 0x47..=0x47]),
    ("storage", &[0x54..=0x55, 0x5c..=0x5d]),
    ("logs", &[0xa0..=0xa4]),
    ("calls", &[0xf0..=0xf2, 0xf4..=0xf5, 0xfa..=0xfa, 0xff..=0xff]),
];

fn class_of(opcode: u8) -> &'static str {
    let found = CLASSES
        .iter()
        .find(|(_, ranges)| ranges.iter().any(|range| range.contains(&opcode)));
    found.map_or("other", |(name, _)| name)
}

/// One transaction.
struct RunTransaction {
    index: usize,
    hash: B256,
    to: Option<Address>,
    gas: u64,
    took: Duration,
}

/// A block and how many rows each list of it may have.
pub(crate) fn explain_block(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let rows: usize = params.optional(1)?.unwrap_or(DEFAULT_ROWS);
    let past = PastBlock::of_params(backend, params, 0)?;
    let state = CountedState::new(&past.parent);
    let mut times = OpcodeTimes::default();
    let mut transactions = Vec::new();
    let mut block = past.begin_on(backend, &state)?;
    let table = block.table();
    for (index, tx) in past.block.body.transactions.iter().enumerate() {
        params.check_deadline()?;
        let subject = past.subject(index)?;
        let began = Instant::now();
        let run = subject.run(&block, &mut NoopTracer, params.deadline)?;
        let took = began.elapsed();
        subject.run(&block, &mut times, params.deadline)?;
        transactions.push(RunTransaction {
            index,
            hash: *tx.tx_hash(),
            to: tx.to(),
            gas: run.result.gas_used,
            took,
        });
        block.commit(&run, blob_gas_of(tx));
    }
    let mut object = Object::new(out);
    object.number("number", past.block.id.number);
    object.data("hash", past.block.id.hash.as_slice());
    object.number("gasUsed", past.block.header.gas_used);
    let took: Duration = transactions.iter().map(|one| one.took).sum();
    object.decimal("microseconds", micros(took));
    write_reads(object.object("reads"), &state);
    write_transactions(&mut object, transactions, rows);
    write_costs(&mut object, &times, table, rows);
    Ok(())
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

fn write_reads(mut object: Object<'_>, state: &CountedState<'_>) {
    let mut write = |name: &str, reads: &Reads| {
        let mut object = object.object(name);
        object.decimal("count", reads.count());
        object.decimal("microseconds", micros(reads.took()));
    };
    write("accounts", &state.accounts);
    write("slots", &state.slots);
    write("codes", &state.codes);
}

/// The dearest transactions by time.
fn write_transactions(object: &mut Object<'_>, mut all: Vec<RunTransaction>, rows: usize) {
    all.sort_by_key(|one| Reverse(one.took));
    object.decimal("transactionCount", all.len() as u64);
    let mut list = object.array("transactions");
    for one in all.iter().take(rows) {
        let mut object = list.object();
        object.number("transactionIndex", one.index as u64);
        object.data("hash", one.hash.as_slice());
        object.data_or_null("to", one.to);
        object.number("gasUsed", one.gas);
        object.decimal("microseconds", micros(one.took));
    }
}

/// Contracts, classes of opcodes, and opcodes, dearest first, with their share of the time of all opcodes and precompiled contracts.
fn write_costs(object: &mut Object<'_>, times: &OpcodeTimes, table: &Table, rows: usize) {
    let sum = |costs: &mut dyn Iterator<Item = &Cost>| {
        let mut all = Cost::default();
        costs.for_each(|cost| all.add(*cost));
        all
    };
    let precompiled = sum(&mut times.precompiles.values());
    let all = sum(&mut times.opcodes.iter()).nanos + precompiled.nanos;
    let contracts = times.contracts.iter().chain(&times.precompiles);
    let contracts = contracts.map(|(address, cost)| (address.to_string(), *cost));
    write_list(
        object,
        "contracts",
        "address",
        contracts.collect(),
        (rows, all),
    );
    let mut classes: Vec<(String, Cost)> = CLASSES
        .iter()
        .map(|(name, _)| *name)
        .chain(["other"])
        .map(|name| (name.to_owned(), class_cost(times, name)))
        .collect();
    classes.push(("precompiled contracts".to_owned(), precompiled));
    write_list(object, "classes", "class", classes, (usize::MAX, all));
    let opcodes = (0..=u8::MAX).zip(times.opcodes.iter());
    let opcodes = opcodes.map(|(opcode, cost)| {
        let name = table.mnemonic(opcode);
        (
            name.map_or_else(|| format!("{opcode:#04x}"), str::to_owned),
            *cost,
        )
    });
    write_list(object, "opcodes", "opcode", opcodes.collect(), (rows, all));
}

fn class_cost(times: &OpcodeTimes, class: &str) -> Cost {
    let mut all = Cost::default();
    let opcodes = (0..=u8::MAX).zip(times.opcodes.iter());
    opcodes
        .filter(|(opcode, _)| class_of(*opcode) == class)
        .for_each(|(_, cost)| all.add(*cost));
    all
}

/// `limits` are the most rows, and the nanoseconds of which shares are taken.
fn write_list(
    object: &mut Object<'_>,
    list: &str,
    key: &str,
    mut costs: Vec<(String, Cost)>,
    limits: (usize, u64),
) {
    costs.retain(|(_, cost)| cost.count > 0);
    costs.sort_by(|(a, x), (b, y)| y.nanos.cmp(&x.nanos).then_with(|| a.cmp(b)));
    let mut list = object.array(list);
    for (name, cost) in costs.into_iter().take(limits.0) {
        let mut object = list.object();
        object.string(key, &name);
        object.decimal("count", cost.count);
        object.decimal("gas", cost.gas);
        let share = cost.nanos as f64 / limits.1.max(1) as f64;
        object.float("percent", share * 100.0, 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_of_the_newest_fork_has_a_class_and_no_two_classes_share_one() {
        let table = Table::of(niwaki_primitives::Fork::Amsterdam);
        for opcode in 0..=u8::MAX {
            let classes = CLASSES
                .iter()
                .filter(|(_, ranges)| ranges.iter().any(|range| range.contains(&opcode)));
            let count = classes.count();
            assert!(count <= 1, "{opcode:#x}");
            if let Some(name) = table.mnemonic(opcode) {
                assert_eq!(count, 1, "{name}");
            }
        }
        assert_eq!(class_of(0x54), "storage");
        assert_eq!(class_of(0xef), "other");
    }
}
