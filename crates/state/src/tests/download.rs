//! States that come in ranges: the rows must be those of the state that was downloaded, whatever comes in between.

use super::*;
use crate::tries::disk_trie::{DiskTrie, RowSource};
use crate::{
    KeyRange, LargeStorage, Remaining, StateDownload, StateHead, StatePart, TrieRows,
    verify_accounts, verify_slots,
};
use niwaki_trie::{Owner, Path, prove};
use rand::seq::SliceRandom;
use std::collections::BTreeSet;

/// A state with its accounts and slots, as a peer has it.
pub(super) struct Source {
    pub(super) world: WorldState,
    pub(super) state: MemoryState,
    pub(super) head: StateHead,
    pub(super) accounts: Vec<(B256, TrieAccount)>,
}

impl Source {
    pub(super) fn new(rng: &mut StdRng) -> Self {
        let (world, mut state) = world(rng, &small_cache());
        for _ in 0..5 {
            advance(rng, &world, &mut state, 0);
        }
        let mut source = Self {
            head: world.head().unwrap(),
            world,
            state,
            accounts: Vec::new(),
        };
        source.read();
        source
    }

    /// Reads the state of the head.
    pub(super) fn read(&mut self) {
        let mut accounts = Vec::new();
        let view = self.world.view_at_head().unwrap();
        let visit = &mut |key: &B256, account: Option<TrieAccount>| {
            accounts.extend(account.map(|account| (*key, account)));
            true
        };
        view.accounts_from(&B256::ZERO, visit).unwrap();
        (self.head, self.accounts) = (self.world.head().unwrap(), accounts);
    }

    fn slots(&self, account: &B256) -> Vec<(B256, U256)> {
        let view = self.world.view_at_head().unwrap();
        view.slots_by_key(account).unwrap().into_iter().collect()
    }

    /// The nodes on the paths to two keys.
    fn proof(&self, owner: Owner, root: B256, ends: [B256; 2]) -> Vec<Bytes> {
        let trie = DiskTrie::new(RowSource::Latest(self.world.database()), &[]);
        let of = |key: &B256| prove(&trie, owner, root, &Path::of_hash(key)).unwrap();
        let nodes: BTreeSet<Bytes> = ends.iter().flat_map(of).collect();
        nodes.into_iter().collect()
    }

    /// The trie rows that come with all accounts of a range, a few in each answer.
    fn account_rows(&self, range: KeyRange, rng: &mut StdRng) -> TrieRows {
        let mut rows = TrieRows::default();
        let root = self.head.root;
        in_answers(&self.accounts, range, rng, &mut |range, items| {
            let last = items.last().map_or(range.first, |(key, _)| *key);
            let proof = self.proof(None, root, [range.first, last]);
            verify_accounts(root, range, items, &proof, &mut rows).unwrap()
        });
        rows
    }

    /// The slots of an account in a range, and the trie rows that come with them.
    fn slots_in(
        &self,
        key: &B256,
        range: KeyRange,
        rng: &mut StdRng,
    ) -> (Vec<(B256, U256)>, TrieRows) {
        let (mut slots, mut rows) = (self.slots(key), TrieRows::default());
        let mut own = self.accounts.iter().filter(|(own, _)| own == key);
        let root = own.next().map(|(_, account)| account.storage_root);
        // It may be another pivot's.
        if let Some(root) = root.filter(|root| *root != alloy_trie::EMPTY_ROOT_HASH) {
            in_answers(&slots, range, rng, &mut |range, items| {
                let last = items.last().map_or(range.first, |(key, _)| *key);
                let proof = self.proof(Some(*key), root, [range.first, last]);
                verify_slots(*key, root, range, items, &proof, &mut rows).unwrap()
            });
        }
        slots.retain(|(slot, _)| range.contains(slot));
        (slots, rows)
    }

    fn code(&self, hash: &B256) -> Option<Vec<u8>> {
        let database = self.world.database();
        database.get(Segment::Code, hash.as_slice()).unwrap()
    }

    /// The accounts of a range with their storage; of some of them a part of it only.
    fn part(&self, range: KeyRange, rng: &mut StdRng) -> StatePart {
        let mut part = StatePart::default();
        let own = self.accounts.iter().filter(|(key, _)| range.contains(key));
        for (key, account) in own {
            part.add_accounts(&[(*key, *account)]);
            if let Some(code) = self.code(&account.code_hash) {
                part.add_code(&account.code_hash, &code);
            }
            let slots = self.slots(key);
            match slots.len() {
                0 => continue,
                2.. if rng.random() => {
                    self.add_some(&mut part, *key, account.storage_root, &slots, rng);
                }
                _ => {
                    let (root, mut rows) = (account.storage_root, TrieRows::default());
                    verify_slots(*key, root, KeyRange::WHOLE, &slots, &[], &mut rows).unwrap();
                    part.add_slots(key, &slots);
                    part.add_trie_rows(&rows);
                }
            }
        }
        part.add_trie_rows(&self.account_rows(range, rng));
        part.accounts_came(range);
        part
    }

    /// Adds a part of a storage, or all of it, in ranges.
    fn add_some(
        &self,
        part: &mut StatePart,
        key: B256,
        root: B256,
        slots: &[(B256, U256)],
        rng: &mut StdRng,
    ) {
        let last = slots[rng.random_range(0..slots.len())].0;
        let rest = KeyRange::WHOLE.after(&last);
        let came = KeyRange {
            last,
            ..KeyRange::WHOLE
        };
        let (came, rest) = match rng.random_ratio(1, 4) {
            true => (KeyRange::WHOLE, None),
            false => (came, rest),
        };
        let (slots, rows) = self.slots_in(&key, came, rng);
        part.add_slots(&key, &slots);
        part.add_trie_rows(&rows);
        part.came_in_ranges(key);
        if let Some(rest) = rest {
            part.add_large(LargeStorage {
                account: key,
                root,
                ranges: rest.split(3),
            });
        }
    }

    /// All that a download needs, in any order.
    pub(super) fn parts(&self, remaining: &Remaining, rng: &mut StdRng) -> Vec<StatePart> {
        let mut parts = Vec::new();
        for range in &remaining.accounts {
            let pieces = range.split(rng.random_range(1..9));
            parts.extend(pieces.into_iter().map(|piece| self.part(piece, rng)));
        }
        for storage in &remaining.storages {
            for range in &storage.ranges {
                let mut part = StatePart::default();
                let (slots, rows) = self.slots_in(&storage.account, *range, rng);
                part.add_slots(&storage.account, &slots);
                part.add_trie_rows(&rows);
                part.slots_came(storage.account, *range);
                parts.push(part);
            }
        }
        parts.shuffle(rng);
        parts
    }
}

/// Verifies what came of a range; returns whether there is more.
type Verify<'v, V> = dyn FnMut(KeyRange, &[(B256, V)]) -> bool + 'v;

/// Calls `verify` with what answers have of a range, a few items in each, and each but the last with one beyond the range if there is
/// one.
fn in_answers<V: Copy>(
    all: &[(B256, V)],
    range: KeyRange,
    rng: &mut StdRng,
    verify: &mut Verify<'_, V>,
) {
    let mut rest = Some(range);
    while let Some(range) = rest {
        let from = all.partition_point(|(key, _)| *key < range.first);
        let inside = all[from..].partition_point(|(key, _)| *key <= range.last);
        let count = (inside + 1).min(rng.random_range(1..9));
        let items = &all[from..(from + count).min(all.len())];
        let has_more = verify(range, items);
        let last = items.last().map(|(key, _)| *key).filter(|_| has_more);
        rest = last.and_then(|last| range.after(&last));
    }
}

/// A node with another state, on the disk.
pub(super) fn open(folder: &std::path::Path) -> WorldState {
    let database = Database::open(folder, &Options::default()).unwrap();
    WorldState::open(database, &small_cache()).unwrap()
}

pub(super) fn rows(world: &WorldState) -> Vec<(Segment, niwaki_storage::Row)> {
    let segments = STATE_SEGMENTS.into_iter();
    let rows = segments.flat_map(|segment| {
        let rows: Vec<_> = world.database().prefix(segment, &[]).collect();
        rows.into_iter().map(move |row| (segment, row))
    });
    rows.map(|(segment, row)| (segment, row.unwrap())).collect()
}

#[test]
fn what_comes_in_ranges_in_any_order_and_with_kills_between_is_the_state_row_by_row() {
    for seed in 0..12 {
        let mut rng = StdRng::seed_from_u64(900 + seed);
        let source = Source::new(&mut rng);
        let folder = tempfile::tempdir().unwrap();
        let mut sink = open(folder.path());
        genesis(&sink, &random_state(&mut rng));
        sink.begin_download(source.head).unwrap();
        assert_eq!(sink.head(), None);
        assert!(sink.view_at_head().is_err());
        let mut is_whole = false;
        while !is_whole {
            // The process is killed after some parts: a part that is not marked may have rows on the disk.
            drop(sink);
            sink = open(folder.path());
            let download = sink.resume_download().unwrap().unwrap();
            assert_eq!(download.pivot(), source.head);
            let parts = source.parts(&download.remaining(), &mut rng);
            is_whole = parts.is_empty();
            let written = rng.random_range(1..=parts.len().max(1));
            let mut parts = parts.into_iter();
            for part in parts.by_ref().take(written) {
                download.write(part).unwrap();
            }
            for part in parts {
                sink.database().ingest(part.into_tables().0).unwrap();
            }
        }
        let download = sink.resume_download().unwrap().unwrap();
        let threads = 1 + usize::try_from(seed).unwrap() % 3;
        assert_eq!(download.own_root(), None);
        let mut last = (0, 1);
        let is_done = download.complete(threads, &mut |done, of| {
            last = (done, of);
            true
        });
        assert!(is_done.unwrap());
        assert_eq!(last.0, last.1);
        assert_eq!(download.own_root(), Some(source.head.root));
        assert!(download.begin_heal().is_none());
        let accounts = source.accounts.len() as u64;
        assert!(download.progress().accounts >= accounts);
        download.finish(Batch::new()).unwrap();
        assert_eq!(sink.head(), Some(source.head));
        assert!(!sink.has_download().unwrap());
        assert_eq!(rows(&sink), rows(&source.world));
        let (sink_view, view) = (
            sink.view_at_head().unwrap(),
            source.world.view_at_head().unwrap(),
        );
        for at in 0..61 {
            let address = address(at);
            let account = sink_view.trie_account(&address).unwrap();
            assert_eq!(account, view.trie_account(&address).unwrap());
        }
        assert_clean(&sink);
    }
}

/// Downloads all of a source that has not come.
pub(super) fn download_all(download: &StateDownload<'_>, source: &Source, rng: &mut StdRng) {
    while !download.remaining().is_empty() {
        for part in source.parts(&download.remaining(), rng) {
            download.write(part).unwrap();
        }
    }
}

#[test]
fn what_is_interrupted_when_the_tries_are_made_whole_makes_the_same_rows() {
    for seed in 0..8 {
        let mut rng = StdRng::seed_from_u64(970 + seed);
        let source = Source::new(&mut rng);
        let folder = tempfile::tempdir().unwrap();
        let mut sink = open(folder.path());
        let download = sink.begin_download(source.head).unwrap();
        download_all(&download, &source, &mut rng);
        drop(download);
        loop {
            // The process is killed after some parts.
            drop(sink);
            sink = open(folder.path());
            let download = sink.resume_download().unwrap().unwrap();
            let mut left = rng.random_range(1..400);
            let is_done = download.complete(2, &mut |_, _| {
                left -= 1;
                left > 0
            });
            if is_done.unwrap() {
                assert_eq!(download.own_root(), Some(source.head.root));
                download.finish(Batch::new()).unwrap();
                break;
            }
            assert_eq!(download.own_root(), None);
        }
        assert_eq!(rows(&sink), rows(&source.world));
        assert_clean(&sink);
    }
}
