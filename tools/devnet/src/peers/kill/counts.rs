//! What was counted, and which state is to be hit next.

use super::{KillOptions, MOST_BYTES_PERCENT, Strike};
use crate::peers::chain::Chain;
use crate::peers::findings::Findings;
use crate::process::Process;
use eyre::Result;
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) kills: usize,
    /// Kills before the node had the head and all blocks below it.
    during_sync: u64,
    /// Kills while a state was being downloaded.
    without_state: u64,
    /// Kills by what the sync was doing; of the states that every sync of this kind is in, also those without.
    states: BTreeMap<String, u64>,
    syncs: u64,
    /// Blocks that were gone after a kill: they are asked for again.
    pub(super) gone: Vec<u64>,
    problems: u64,
    wrong_heads: u64,
    pub(super) other_states: u64,
    /// How often a node had all blocks before its disk was full.
    pub(super) not_full: u64,
    /// How often one did not say that its disk is full, or panicked.
    pub(super) without_words: u64,
    /// Bytes that the source sent to the sync that was not disturbed, and to all others.
    bytes_undisturbed: u64,
    bytes: u64,
}

impl Counts {
    pub(super) fn new(options: &KillOptions, chain: &Chain) -> Self {
        let has_lists = chain
            .blocks
            .iter()
            .all(|block| block.method == "engine_newPayloadV5");
        let mut states = match options.snap {
            true => vec!["headers", "ranges", "build", "blocks", "history"],
            false => vec!["headers", "blocks"],
        };
        if options.snap && options.late > 0 {
            states.push(if has_lists { "move_pivot" } else { "heal" });
        }
        let states = states.into_iter().map(|state| (state.to_owned(), 0));
        Self {
            states: states.collect(),
            ..Self::default()
        }
    }

    /// Whether there were enough kills.
    pub(super) fn is_enough(&self, options: &KillOptions) -> bool {
        self.kills >= options.runs && self.aim(options.each).is_none()
    }

    /// The state with the fewest kills, if it has fewer than `each`.
    pub(super) fn aim(&self, each: u64) -> Option<&str> {
        let least = self.states.iter().min_by_key(|(_, kills)| **kills);
        least
            .filter(|(_, kills)| **kills < each)
            .map(|(state, _)| state.as_str())
    }

    /// A kill came in this state.
    pub(super) fn kill(&mut self, state: &str) {
        self.kills += 1;
        self.during_sync += 1;
        *self.states.entry(state.to_owned()).or_default() += 1;
    }

    /// A sync has ended, for which the source sent so many bytes.
    pub(super) fn sync_ends(&mut self, is_disturbed: bool, is_same: bool, bytes: u64) {
        self.wrong_heads += u64::from(!is_same);
        match is_disturbed {
            true => {
                self.syncs += 1;
                self.bytes += bytes;
            }
            false => self.bytes_undisturbed = bytes,
        }
    }

    /// Counts what `storage check` finds.
    pub(super) fn check(&mut self, sink: &Process) -> Result<()> {
        let (is_clean, printed) = sink.check_storage()?;
        if printed.contains("is being downloaded") {
            self.without_state += 1;
        } else if !is_clean {
            self.problems += 1;
            eprintln!("{printed}");
        }
        Ok(())
    }

    pub(super) fn report(&self, options: &KillOptions, findings: &mut Findings) {
        findings.count("kills", self.kills as u64);
        findings.count("kills before the node had all blocks", self.during_sync);
        if options.snap && options.have == 0 {
            findings.count("kills before it had a whole state", self.without_state);
            findings.claim(
                "some kills come before it has a whole state",
                self.without_state > 0,
            );
        }
        for (state, kills) in &self.states {
            findings.count(format!("kills in state {state}"), *kills);
        }
        findings.count("syncs to the end", self.syncs);
        findings.count("blocks asked for again, in all", self.gone.iter().sum());
        findings.count(
            "blocks asked for again, after one kill at most",
            self.gone.iter().max().copied().unwrap_or(0),
        );
        self.report_bytes(options, findings);
        findings.claim(
            "the database is without problems after each kill",
            self.problems == 0,
        );
        findings.claim("each sync ends at the head", self.wrong_heads == 0);
        findings.claim(
            "each ends with the state and blocks of the one that was not disturbed, byte by byte",
            self.other_states == 0,
        );
        findings.claim(
            "some kills come before the node has all blocks",
            self.during_sync > 0,
        );
        if options.each > 0 {
            findings.claim(
                format!("each state is hit {} times at least", options.each),
                self.aim(options.each).is_none(),
            );
        }
        if options.by == Strike::FullDisk {
            findings.count(
                "kills of a node that had room for all blocks",
                self.not_full,
            );
            findings.claim(
                "most disks were full",
                self.not_full * 2 < self.kills as u64,
            );
            findings.claim(
                "each time the node says that no space is left, and does not panic",
                self.without_words == 0,
            );
        }
    }

    fn report_bytes(&self, options: &KillOptions, findings: &mut Findings) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let each = self.bytes / self.syncs.max(1);
        findings.figure(
            "came to the sync that was not disturbed",
            mib(self.bytes_undisturbed),
            "MiB",
        );
        findings.figure("came to each of the others", mib(each), "MiB");
        if options.snap && options.by != Strike::FullDisk {
            findings.claim(
                format!("that is at most {MOST_BYTES_PERCENT} %"),
                each * 100 <= self.bytes_undisturbed * MOST_BYTES_PERCENT,
            );
        }
    }
}
