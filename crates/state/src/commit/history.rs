//! The history of an archive: for each change of a row, what the row was before.
//!
//! The key of a history row is the key of the changed row and the number of the block, its value the row before
//! that block. The row after block `n` is the value of the first history row above `n`, or the present row:
//!
//! ```text
//! account set in blocks 3 and 8 to X and Y     history:  key ++ 3 -> none,  key ++ 8 -> X     present: Y
//! account after block 5:  first history row above 5 is that of block 8  ->  X
//! ```

use crate::commit::flat::{encode_account, encode_value};
use crate::commit::hashed_diff::HashedDiff;
use niwaki_primitives::Fault;
use niwaki_storage::{Batch, Database, Segment};
use std::collections::HashMap;

/// The row of `meta` with the block from whose state on the history is complete: a number, 8 B.
pub(crate) const HISTORY_START: &[u8] = b"history";

/// Ends the path of a trie row, whose nibbles are below 16, before the block number.
pub(crate) const PATH_TERMINATOR: u8 = 0xff;

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
pub(crate) enum HistoryStep {
    /// The block of this number is applied.
    Apply(u64),
    /// The block of this number is undone.
    Undo(u64),
}

/// Adds the history of one or more steps to one batch.
#[derive(Debug)]
pub(crate) struct HistoryRecorder<'a> {
    database: &'a Database,
    /// Trie rows of earlier steps, which the database does not have yet.
    earlier: HashMap<(Segment, Vec<u8>), Option<Vec<u8>>>,
}

impl<'a> HistoryRecorder<'a> {
    /// For steps that begin at the state in `database`.
    pub(crate) fn new(database: &'a Database) -> Self {
        Self {
            database,
            earlier: HashMap::new(),
        }
    }

    /// Adds the history of the next step to `batch`: `diff` is from the state before the step to the one after
    /// it, `rows` are the trie rows that it sets and removes.
    pub(crate) fn add(
        &mut self,
        step: HistoryStep,
        diff: &HashedDiff,
        rows: &Batch,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        for account in &diff.accounts {
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
        // Of two changes of a row the last one counts.
        let rows: HashMap<(Segment, &[u8]), Option<&[u8]>> = rows
            .changes()
            .map(|(segment, key, row)| ((segment, key), row))
            .collect();
        for ((segment, key), row) in rows {
            let before = self.row(segment, key)?;
            // The tries may have moved back and forth before, so a row may be listed that ends as it began.
            if before.as_deref() != row {
                let key = [key, &[PATH_TERMINATOR]];
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

fn record(
    step: HistoryStep,
    segment: Segment,
    key: &[&[u8]],
    before: Option<Vec<u8>>,
    batch: &mut Batch,
) {
    let (HistoryStep::Apply(number) | HistoryStep::Undo(number)) = step;
    let number = number.to_be_bytes();
    let key = [key, &[&number[..]]].concat();
    match step {
        HistoryStep::Apply(_) => batch.put_parts(segment, &key, &[&before.unwrap_or_default()]),
        HistoryStep::Undo(_) => batch.delete_parts(segment, &key),
    }
}
