//! States that come in ranges: the rows must be those of the state that was downloaded, whatever comes in between.

use super::*;
use crate::{Built, KeyRange, LargeStorage, Remaining, StateDownload, StateHead, StatePart};
use rand::seq::SliceRandom;

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

    fn slots(&self, account: &B256, range: &KeyRange) -> Vec<(B256, U256)> {
        let view = self.world.view_at_head().unwrap();
        let slots = view.slots_by_key(account).unwrap();
        let slots = slots.into_iter();
        slots.filter(|(slot, _)| range.contains(slot)).collect()
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
            let slots = self.slots(key, &KeyRange::WHOLE);
            let is_large = slots.len() > 1 && rng.random();
            let last = if is_large {
                slots.len() / 2
            } else {
                slots.len()
            };
            part.add_slots(key, &slots[..last]);
            if is_large {
                let rest = KeyRange::WHOLE.after(&slots[last - 1].0).unwrap();
                part.add_large(LargeStorage {
                    account: *key,
                    root: account.storage_root,
                    ranges: rest.split(3),
                });
            }
        }
        part.accounts_came(range);
        part
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
                part.add_slots(&storage.account, &self.slots(&storage.account, range));
                part.slots_came(storage.account, *range);
                parts.push(part);
            }
        }
        parts.shuffle(rng);
        parts
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
        let mut calls = 0;
        let built = download.build(threads, &mut |_, _| {
            calls += 1;
            true
        });
        let whole = Built {
            root: source.head.root,
            missing_codes: Vec::new(),
        };
        assert_eq!((built.unwrap(), calls), (Some(whole), 4096));
        assert_eq!(download.own_root(), None);
        download.finish_build(source.head.root).unwrap();
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

/// Downloads all of a source, each part changed by `change`.
pub(super) fn download_all(
    download: &StateDownload<'_>,
    source: &Source,
    rng: &mut StdRng,
    change: impl Fn(&mut StatePart),
) {
    while !download.remaining().is_empty() {
        for mut part in source.parts(&download.remaining(), rng) {
            change(&mut part);
            download.write(part).unwrap();
        }
    }
}

#[test]
fn a_build_lists_codes_that_are_not_here() {
    let mut rng = StdRng::seed_from_u64(960);
    let source = Source::new(&mut rng);
    let folder = tempfile::tempdir().unwrap();
    let sink = open(folder.path());
    let download = sink.begin_download(source.head).unwrap();
    let mut part = StatePart::default();
    part.add_accounts(&source.accounts);
    for (key, _) in &source.accounts {
        part.add_slots(key, &source.slots(key, &KeyRange::WHOLE));
    }
    part.accounts_came(KeyRange::WHOLE);
    download.write(part).unwrap();
    let hashes = source.accounts.iter().map(|(_, account)| account.code_hash);
    let mut hashes: Vec<B256> = hashes.filter(|hash| source.code(hash).is_some()).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let built = download.build(2, &mut |_, _| true).unwrap().unwrap();
    assert_eq!(built.root, source.head.root);
    assert_eq!(built.missing_codes, hashes);
    assert_eq!(download.missing_codes(&hashes).unwrap(), hashes);
    let mut part = StatePart::default();
    for hash in &hashes {
        part.add_code(hash, &source.code(hash).unwrap());
    }
    download.write(part).unwrap();
    assert_eq!(download.build(1, &mut |_, _| false).unwrap(), None);
    let built = download.build(1, &mut |_, _| true).unwrap().unwrap();
    assert!(built.missing_codes.is_empty());
}

/// A download of all of a source, whose tries are not built.
fn whole_download<'w>(sink: &'w WorldState, source: &Source) -> StateDownload<'w> {
    let mut rng = StdRng::seed_from_u64(1);
    let download = sink.begin_download(source.head).unwrap();
    download_all(&download, source, &mut rng, |_| {});
    download
}

#[test]
fn a_build_that_is_interrupted_goes_on_where_it_was_and_makes_the_same_rows() {
    for seed in 0..8 {
        let mut rng = StdRng::seed_from_u64(970 + seed);
        let source = Source::new(&mut rng);
        let folder = tempfile::tempdir().unwrap();
        let mut sink = open(folder.path());
        drop(whole_download(&sink, &source));
        let mut marks = vec![0];
        let root = loop {
            // The process is killed after some parts.
            drop(sink);
            sink = open(folder.path());
            let download = sink.resume_download().unwrap().unwrap();
            let mark = download.built_parts();
            marks.extend((marks.last() != Some(&mark)).then_some(mark));
            let mut left = rng.random_range(1_000..3_000);
            let built = download.build_in_batches(2, 4 << 10, &mut |done, _| {
                // What is done is passed at once.
                left -= u64::from(done > u64::from(mark));
                left > 0
            });
            if let Some(built) = built.unwrap() {
                assert!(built.missing_codes.is_empty());
                download.finish_build(built.root).unwrap();
                download.finish(Batch::new()).unwrap();
                break built.root;
            }
        };
        assert!(marks.len() > 1 && marks.is_sorted(), "{marks:?}");
        assert_eq!(root, source.head.root);
        assert_eq!(rows(&sink), rows(&source.world));
        assert_clean(&sink);
    }
}
