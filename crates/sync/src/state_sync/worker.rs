//! A worker: takes a range, asks for it answer by answer, and writes what came.

use super::fetch::{FetchError, Fetcher, Storage};
use super::plan::{Plan, Task};
use niwaki_primitives::{B256, EMPTY_CODE_HASH, EMPTY_ROOT_HASH};
use niwaki_state::{
    KeyRange, LargeStorage, StateDownload, StatePart, TrieAccount, UNKNOWN_STORAGE_ROOT,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What came is written after this time, however little it is.
const PART_TIME: Duration = Duration::from_secs(10);
/// What an answer leaves of a storage is asked for in so many parts at most,
const LARGE_PARTS: usize = 16;
/// each of about so many slots: a few answers.
const PART_SLOTS: u64 = 32_768;
/// What would be one part comes with its account, if so many answers have it: a peer may give little in each.
const SMALL_ANSWERS: usize = 8;

/// What the workers share.
pub(super) struct Worker<'w> {
    pub(super) fetcher: Fetcher<'w>,
    pub(super) download: &'w StateDownload<'w>,
    pub(super) plan: &'w Plan,
    /// Rows of so many bytes are written.
    pub(super) part_bytes: usize,
    /// Answers that were of use.
    pub(super) answers: &'w AtomicU64,
}

/// What a worker has not written yet.
struct Unwritten {
    part: StatePart,
    since: Instant,
    /// Tasks that may only be taken once the part is written.
    tasks: Vec<Task>,
}

impl Worker<'_> {
    /// Works until nothing is left, or the attempt is over. What came is written in any case.
    pub(super) fn run(&self) -> Result<(), FetchError> {
        let mut unwritten = Unwritten {
            part: StatePart::default(),
            since: Instant::now(),
            tasks: Vec::new(),
        };
        let mut worked = Ok(());
        while worked.is_ok()
            && let Some(task) = self.plan.take()
        {
            worked = self.work(task, &mut unwritten);
            // Tasks that wait for the part must be in the plan before this worker waits: the others end when it seems to be empty.
            if !unwritten.tasks.is_empty() {
                worked = worked.and(self.write(&mut unwritten));
            }
            self.plan.finish();
        }
        if worked.is_err() {
            self.plan.end();
        }
        worked.and(self.write(&mut unwritten))
    }

    fn work(&self, task: Task, unwritten: &mut Unwritten) -> Result<(), FetchError> {
        let mut next = Some(task);
        while let Some(task) = next {
            let rest = match task {
                Task::Accounts(range) => self.accounts(range, unwritten)?,
                Task::Storage {
                    account,
                    root,
                    range,
                } if root == UNKNOWN_STORAGE_ROOT => {
                    let root = self.fetcher.storage_root(account)?;
                    next = Some(Task::Storage {
                        account,
                        root,
                        range,
                    });
                    continue;
                }
                Task::Storage {
                    account,
                    root,
                    range,
                } => {
                    let got = self.fetcher.slots(account, root, range)?;
                    unwritten.part.add_slots(&account, &got.items);
                    unwritten.part.add_trie_rows(&got.rows);
                    unwritten.part.slots_came(account, got.came);
                    got.rest
                }
            };
            self.answers.fetch_add(1, Ordering::Relaxed);
            next = rest.map(|rest| self.plan.share(task.with(rest)));
            let is_due = unwritten.part.bytes() >= self.part_bytes
                || unwritten.since.elapsed() >= PART_TIME
                || !unwritten.tasks.is_empty() && self.plan.has_idle();
            if is_due {
                self.write(unwritten)?;
            }
        }
        Ok(())
    }

    /// One answer of accounts, with their storage and codes; nothing of it if some of that does not come: rows that are not marked would
    /// have to be removed again.
    fn accounts(
        &self,
        range: KeyRange,
        unwritten: &mut Unwritten,
    ) -> Result<Option<KeyRange>, FetchError> {
        let got = self.fetcher.accounts(range)?;
        let mut part = StatePart::default();
        let large = self.storages(&got.items, &mut part)?;
        self.codes(&got.items, &mut part)?;
        part.add_accounts(&got.items);
        part.add_trie_rows(&got.rows);
        part.accounts_came(got.came);
        unwritten.part.append(part);
        self.plan.cover(&got.came);
        for storage in large {
            let (account, root) = (storage.account, storage.root);
            let task = |range: &KeyRange| Task::Storage {
                account,
                root,
                range: *range,
            };
            unwritten.tasks.extend(storage.ranges.iter().map(task));
            unwritten.part.add_large(storage);
        }
        Ok(got.rest)
    }

    /// The storage of accounts. Returns what of it did not fit into the answers.
    fn storages(
        &self,
        accounts: &[(B256, TrieAccount)],
        part: &mut StatePart,
    ) -> Result<Vec<LargeStorage>, FetchError> {
        let with_storage = accounts.iter().map(|(key, a)| (*key, a.storage_root));
        let with_storage: Vec<(B256, B256)> = with_storage
            .filter(|(_, root)| *root != EMPTY_ROOT_HASH)
            .collect();
        let (mut large, mut small) = (Vec::new(), Vec::new());
        let mut take = |index: usize, storage: Storage| {
            let Some((account, root)) = with_storage.get(index).copied() else {
                return;
            };
            part.add_slots(&account, &storage.slots);
            part.add_trie_rows(&storage.rows);
            if !storage.has_all_rows {
                part.came_in_ranges(account);
            }
            if let Some(rest) = storage.rest {
                match parts(storage.slots.len(), &rest) {
                    1 => small.push((account, root, rest)),
                    parts => large.push(LargeStorage {
                        account,
                        root,
                        ranges: rest.split(parts),
                    }),
                }
            }
            self.answers.fetch_add(1, Ordering::Relaxed);
        };
        self.fetcher.storages(&with_storage, &mut take)?;
        for (account, root, rest) in small {
            let rest = self.rest_of_small(account, root, rest, part)?;
            large.extend(rest.map(|rest| LargeStorage {
                account,
                root,
                ranges: vec![rest],
            }));
        }
        Ok(large)
    }

    /// What an answer left of a storage, if that is a few answers more: as a part of its own it would be a table of its own. Returns what
    /// is left after these.
    fn rest_of_small(
        &self,
        account: B256,
        root: B256,
        rest: KeyRange,
        part: &mut StatePart,
    ) -> Result<Option<KeyRange>, FetchError> {
        let mut rest = Some(rest);
        for _ in 0..SMALL_ANSWERS {
            let Some(range) = rest else { break };
            let got = self.fetcher.slots(account, root, range)?;
            part.add_slots(&account, &got.items);
            part.add_trie_rows(&got.rows);
            self.answers.fetch_add(1, Ordering::Relaxed);
            rest = got.rest;
        }
        Ok(rest)
    }

    fn codes(
        &self,
        accounts: &[(B256, TrieAccount)],
        part: &mut StatePart,
    ) -> Result<(), FetchError> {
        let hashes = accounts.iter().map(|(_, account)| account.code_hash);
        let hashes: BTreeSet<B256> = hashes.filter(|hash| *hash != EMPTY_CODE_HASH).collect();
        let hashes: Vec<B256> = hashes.into_iter().collect();
        let missing = self.download.missing_codes(&hashes)?;
        self.fetcher
            .codes(&missing, &mut |hash, code| part.add_code(hash, code))
    }

    fn write(&self, unwritten: &mut Unwritten) -> Result<(), FetchError> {
        unwritten.since = Instant::now();
        let part = std::mem::take(&mut unwritten.part);
        if !part.is_empty() {
            self.download.write(part)?;
        }
        self.plan.add(std::mem::take(&mut unwritten.tasks));
        Ok(())
    }
}

/// In how many parts the rest of a storage is asked for of which so many slots came.
fn parts(slots: usize, rest: &KeyRange) -> usize {
    let (came, left) = (65_536_u64.saturating_sub(rest.share().into()), rest.share());
    // Keys are hashes, so as many slots are in one range as in another.
    let left = slots as u64 * u64::from(left) / came.max(1);
    usize::try_from(left / PART_SLOTS).map_or(LARGE_PARTS, |parts| parts.clamp(1, LARGE_PARTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_cut_by_what_is_left_of_it() {
        let [_, rest] = KeyRange::WHOLE.split(2)[..] else {
            panic!("two parts");
        };
        // As many as came are left.
        assert_eq!(parts(1_000, &rest), 1);
        assert_eq!(parts(100_000, &rest), 3);
        assert_eq!(parts(10_000_000, &rest), 16);
        let nearly_whole = KeyRange::WHOLE.split(1 << 20)[1];
        assert_eq!(parts(8_000, &nearly_whole), 1);
        let almost_nothing_came = KeyRange::WHOLE.after(&B256::ZERO).unwrap();
        assert_eq!(parts(8_000, &almost_nothing_came), 16);
    }
}
