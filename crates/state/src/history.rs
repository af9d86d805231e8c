//! Every past state: for each change of a value, what it was before.
//!
//! A row's key is that of the changed row and the number of the block, its value what stood there
//! before that block. The value after block `n` is that of the first row above `n`, or what stands
//! there now. Kept only where the operator asked for an archive.

use crate::changes::Changes;
use crate::flat::{encode_account, encode_value};
use niwaki_primitives::Fault;
use niwaki_storage::{Batch, Database, Segment};
use std::collections::HashMap;

/// The row of `meta` that says from which state on the history is whole: a block number, 8 B.
pub(crate) const HISTORY: &[u8] = b"history";

/// Stands between the path of a trie row, whose nibbles are below 16, and the block number.
pub(crate) const PATH_END: u8 = 0xff;

/// The segment that keeps what changed in another one.
pub(crate) fn history_of(segment: Segment) -> Segment {
    match segment {
        Segment::Accounts => Segment::AccountHistory,
        Segment::Slots => Segment::SlotHistory,
        Segment::AccountTrie => Segment::AccountTrieHistory,
        Segment::StorageTrie => Segment::StorageTrieHistory,
        other => unreachable!("{} has no history", other.name()),
    }
}

/// One block's step between two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The block of this number was applied.
    Up(u64),
    /// The block of this number was taken back.
    Down(u64),
}

/// Writes the history of one or more steps, which end up in one batch.
#[derive(Debug)]
pub(crate) struct Recorder<'a> {
    database: &'a Database,
    /// Trie rows of the steps before, which the database does not have yet.
    earlier: HashMap<(Segment, Vec<u8>), Option<Vec<u8>>>,
}

impl<'a> Recorder<'a> {
    /// For steps that begin at the state in `database`.
    pub(crate) fn new(database: &'a Database) -> Self {
        Self {
            database,
            earlier: HashMap::new(),
        }
    }

    /// Adds to `batch` what the next step means for the history: `changes` are from the state before
    /// the step to the one after it, `rows` the trie rows that it sets and removes.
    pub(crate) fn add(
        &mut self,
        step: Step,
        changes: &Changes,
        rows: &Batch,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        for account in &changes.accounts {
            let key = account.key.as_slice();
            if account.prior != account.new {
                let prior = account.prior.as_ref().map(encode_account);
                record(step, Segment::AccountHistory, &[key], prior, batch);
            }
            for slot in &account.slots {
                let prior = (!slot.prior.is_zero()).then(|| encode_value(&slot.prior));
                let key = [key, slot.key.as_slice()];
                record(step, Segment::SlotHistory, &key, prior, batch);
            }
        }
        // Of a row that is told twice the last one holds.
        let rows: HashMap<(Segment, &[u8]), Option<&[u8]>> = rows
            .changes()
            .map(|(segment, key, row)| ((segment, key), row))
            .collect();
        for ((segment, key), row) in rows {
            let before = self.row(segment, key)?;
            // On the way to a block, or to one that was not taken, rows may change and change back.
            if before.as_deref() != row {
                let key = [key, &[PATH_END]];
                record(step, history_of(segment), &key, before, batch);
            }
            let row = row.map(<[u8]>::to_vec);
            self.earlier.insert((segment, key.to_vec()), row);
        }
        Ok(())
    }

    fn row(&self, segment: Segment, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        match self.earlier.get(&(segment, key.to_vec())) {
            Some(row) => Ok(row.clone()),
            None => self.database.get(segment, key),
        }
    }
}

fn record(step: Step, segment: Segment, key: &[&[u8]], before: Option<Vec<u8>>, batch: &mut Batch) {
    let (Step::Up(number) | Step::Down(number)) = step;
    let number = number.to_be_bytes();
    let key = [key, &[&number[..]]].concat();
    match step {
        Step::Up(_) => batch.put_parts(segment, &key, &[&before.unwrap_or_default()]),
        Step::Down(_) => batch.delete_parts(segment, &key),
    }
}
