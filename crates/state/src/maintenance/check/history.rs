//! The history of an archive, each row by itself. Whether the rows give the states of past blocks is checked by the
//! caller, which knows their roots, through a [`HistoricalView`](crate::HistoricalView).

use super::{Check, PARTS_OF_PATH};
use crate::commit::flat::{decode_account, decode_value};
use crate::commit::history::{HISTORY_START, PATH_TERMINATOR, history_of};
use niwaki_primitives::Fault;
use niwaki_storage::Segment;
use niwaki_trie::Node;

/// The segments whose rows have a history.
const SEGMENTS: [Segment; 4] = [
    Segment::Accounts,
    Segment::Slots,
    Segment::AccountTrie,
    Segment::StorageTrie,
];

impl Check<'_> {
    /// Checks all rows of the history, if there is one. Rows of blocks at or below the first state, or above `head`,
    /// must not exist.
    pub(super) fn history(&mut self, head: u64) -> Result<(), Fault> {
        let Some(first) = self.snapshot.get(Segment::Meta, HISTORY_START)? else {
            return Ok(());
        };
        let Ok(first) = first.try_into().map(u64::from_be_bytes) else {
            self.problem(Segment::Meta, HISTORY_START, "a number has 8 bytes");
            return Ok(());
        };
        for segment in SEGMENTS {
            let history = history_of(segment);
            for row in self.snapshot.prefix(history, &[]) {
                let (key, before) = row?;
                self.summary.history_rows += 1;
                let what = match key.split_last_chunk::<8>() {
                    None => Some("it has no block number"),
                    Some((key, number)) => {
                        let number = u64::from_be_bytes(*number);
                        match number <= first || number > head {
                            true => Some("it is of a block that has no history"),
                            false => flaw(segment, key, &before),
                        }
                    }
                };
                if let Some(what) = what {
                    self.problem(history, &key, what);
                }
            }
        }
        Ok(())
    }
}

/// What is wrong with a history row of `segment`, whose key is given without the block number.
fn flaw(segment: Segment, key: &[u8], before: &[u8]) -> Option<&'static str> {
    let is_path = |key: &[u8]| {
        let path = key.strip_suffix(&[PATH_TERMINATOR]);
        path.is_some_and(|path| path.len() < PARTS_OF_PATH && path.iter().all(|part| *part < 16))
    };
    let is_key = match segment {
        Segment::Accounts => key.len() == 32,
        Segment::Slots => key.len() == 64,
        Segment::StorageTrie => key.get(32..).is_some_and(is_path),
        _ => is_path(key),
    };
    if !is_key {
        return Some("its key is not that of a row and a block");
    }
    let is_value = match segment {
        _ if before.is_empty() => true,
        Segment::Accounts => decode_account(before).is_ok(),
        Segment::Slots => decode_value(before).is_ok(),
        _ => Node::from_row(before).is_ok(),
    };
    (!is_value).then_some("what stood there before can't be read")
}
