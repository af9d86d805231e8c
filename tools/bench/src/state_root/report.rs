//! The results of a comparison, as JSON and as a table.

use super::{Options, Outcome, geth};
use crate::{disk, machine::Machine, stats::Spread};
use eyre::Result;
use niwaki_state::WorldState;
use niwaki_storage::Segment;
use serde::Serialize;
use std::collections::BTreeMap;

/// One round: an outcome for each contender, in the order of [`Report::contenders`], and how long the sync took after
/// our commit.
pub(super) struct Round {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) sync_ms: f64,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    accounts: u64,
    slots: u64,
    changed_accounts: u64,
    changed_slots: u64,
    hot_slots: Option<u64>,
    threads: usize,
    cache_bytes: usize,
    storage_bytes: usize,
    warm_rounds: usize,
    rounds: usize,
    geth_version: Option<String>,
    geth_prefetches: bool,
    contenders: Vec<ContenderTimes>,
    /// From the end of our commit until everything was on disk.
    sync_ms: Spread,
    pub(super) disk: Option<Disk>,
    pub(super) written: Option<Written>,
}

#[derive(Debug, Serialize)]
struct ContenderTimes {
    name: &'static str,
    root_ms: Spread,
    commit_ms: Option<Spread>,
    /// Its time over ours in the same round; `None` for ours.
    root_ratio: Option<Spread>,
    commit_ratio: Option<Spread>,
}

/// Bytes of the states on disk after all rounds.
#[derive(Debug, Serialize)]
pub(super) struct Disk {
    /// Of each segment, with unwritten buffers.
    niwaki_segments: BTreeMap<&'static str, u64>,
    /// Of all files in our folder, the engine's logs included.
    niwaki_folder: u64,
    /// Account values and the account trie, per account.
    niwaki_per_account: f64,
    /// Slot values and storage tries, per slot.
    niwaki_per_slot: f64,
    geth: Option<GethDisk>,
}

#[derive(Debug, Serialize)]
struct GethDisk {
    /// Values and tries, flushed and compacted.
    database: u64,
    /// The history of the last blocks.
    history: u64,
    /// The database per slot: geth does not separate accounts and slots.
    per_slot: f64,
    finished: geth::Finished,
}

/// Bytes written by us in the measured rounds.
#[derive(Debug, Serialize)]
pub(super) struct Written {
    /// Keys and values of the batches.
    batched_bytes: u64,
    /// Bytes that the process wrote to files, by `/proc`: log, tables, compaction.
    file_bytes: u64,
    amplification: f64,
}

impl Report {
    pub(super) fn new(
        options: &Options,
        names: &[&'static str],
        rounds: &[Round],
        geth_version: Option<String>,
    ) -> Self {
        let column = |at: usize, of: fn(&Outcome) -> Option<f64>| -> Option<Vec<f64>> {
            rounds.iter().map(|round| of(&round.outcomes[at])).collect()
        };
        let ratios = |at: usize, of: fn(&Outcome) -> Option<f64>| {
            let (peer, ours) = (column(at, of)?, column(0, of)?);
            (at > 0).then(|| Spread::of(peer.iter().zip(ours).map(|(peer, ours)| peer / ours)))
        };
        let contender = |(at, name): (usize, &&'static str)| {
            let root = |outcome: &Outcome| Some(outcome.root_ms);
            let commit = |outcome: &Outcome| outcome.commit_ms;
            ContenderTimes {
                name,
                root_ms: Spread::of(column(at, root).unwrap_or_default()),
                commit_ms: column(at, commit).map(Spread::of),
                root_ratio: ratios(at, root),
                commit_ratio: ratios(at, commit),
            }
        };
        Self {
            machine: Machine::here(),
            accounts: options.state.accounts,
            slots: options.state.slots,
            changed_accounts: options.block.changed_accounts,
            changed_slots: options.block.changed_slots,
            hot_slots: options.block.hot_slots,
            threads: options.budget.threads(),
            cache_bytes: options.budget.cache_bytes,
            storage_bytes: options.budget.storage_bytes,
            warm_rounds: options.warm_rounds,
            rounds: rounds.len(),
            geth_version,
            geth_prefetches: options.geth_prefetch,
            contenders: names.iter().enumerate().map(contender).collect(),
            sync_ms: Spread::of(rounds.iter().map(|round| round.sync_ms)),
            disk: None,
            written: None,
        }
    }

    /// Prints the table.
    pub(super) fn print(&self) {
        println!(
            "{:<11} {:>9} {:>19} {:>8} {:>15} {:>10} {:>19}",
            "contender", "root ms", "min..max", "ratio", "min..max", "commit ms", "min..max"
        );
        for one in &self.contenders {
            let shown = |spread: Option<Spread>| match spread {
                Some(spread) => (format!("{:.2}", spread.median), spread.range(2)),
                None => ("-".to_owned(), String::new()),
            };
            let (ratio, ratios) = shown(one.root_ratio);
            let (commit, commits) = shown(one.commit_ms);
            println!(
                "{:<11} {:>9.2} {:>19} {ratio:>8} {ratios:>15} {commit:>10} {commits:>19}",
                one.name,
                one.root_ms.median,
                one.root_ms.range(2)
            );
        }
        println!(
            "{} rounds after {}, {} threads; niwaki's disk took {:.2} ms ({}) more",
            self.rounds,
            self.warm_rounds,
            self.threads,
            self.sync_ms.median,
            self.sync_ms.range(2)
        );
        if let Some(disk) = &self.disk {
            disk.print();
        }
        if let Some(written) = &self.written {
            println!(
                "niwaki wrote {} bytes to files for {} bytes in batches: {:.2} times",
                written.file_bytes, written.batched_bytes, written.amplification
            );
        }
    }
}

impl Disk {
    /// Measures our folder, and geth's once it is finished.
    pub(super) fn measure(
        options: &Options,
        world: &WorldState,
        geth: Option<geth::Finished>,
    ) -> Result<Self> {
        let database = world.database();
        let mut segments = BTreeMap::new();
        for segment in Segment::ALL {
            segments.insert(segment.name(), database.size_bytes(segment)?);
        }
        let sum = |names: [Segment; 2]| -> f64 {
            let bytes = names.map(|segment| segments.get(segment.name()).copied());
            bytes.into_iter().flatten().sum::<u64>() as f64
        };
        let state = &options.state;
        let all_slots = (state.accounts * state.slots_each()) as f64;
        let geth = geth.map(|finished| {
            let folder = options.geth_folder();
            let history = disk::folder_bytes(&folder.join("chaindata/ancient"))?;
            let database = disk::folder_bytes(&folder)? - history;
            Ok::<_, eyre::Report>(GethDisk {
                database,
                history,
                per_slot: database as f64 / all_slots,
                finished,
            })
        });
        Ok(Self {
            niwaki_per_account: sum([Segment::Accounts, Segment::AccountTrie])
                / state.accounts as f64,
            niwaki_per_slot: sum([Segment::Slots, Segment::StorageTrie]) / all_slots,
            niwaki_folder: disk::folder_bytes(&state.data_path)?,
            niwaki_segments: segments,
            geth: geth.transpose()?,
        })
    }

    fn print(&self) {
        let all: u64 = self.niwaki_segments.values().sum();
        println!(
            "niwaki on disk: {all} bytes in segments, {} in files; {:.1} per account, {:.1} per slot",
            self.niwaki_folder, self.niwaki_per_account, self.niwaki_per_slot
        );
        for (segment, bytes) in self.niwaki_segments.iter().filter(|(_, bytes)| **bytes > 0) {
            println!("  {segment:<14} {bytes:>14}");
        }
        if let Some(geth) = &self.geth {
            println!(
                "geth on disk: {} bytes, {:.1} per slot; {} more bytes of history",
                geth.database, geth.per_slot, geth.history
            );
        }
    }
}

impl Written {
    pub(super) fn new(batched_bytes: u64, file_bytes: u64) -> Self {
        Self {
            batched_bytes,
            file_bytes,
            amplification: file_bytes as f64 / (batched_bytes as f64).max(1.0),
        }
    }
}
