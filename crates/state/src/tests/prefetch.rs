//! Values and trie nodes that are read before they are needed.

use super::*;
use crate::CacheStats;
use crate::tries::disk_trie::{DiskTrie, RowSource};
use niwaki_primitives::Fault;

/// Accounts of the diff, each before its slots.
fn values_of(diff: &StateDiff) -> Vec<(Address, Option<U256>)> {
    let accounts = diff.accounts.iter();
    let each = accounts.flat_map(|(address, change)| {
        let slots = change.slots.iter().map(|(slot, _)| Some(*slot));
        let both = std::iter::once(None).chain(slots);
        both.map(|slot| (*address, slot))
    });
    each.collect()
}

/// Misses of accounts, slots and codes.
fn misses(stats: &CacheStats) -> [u64; 3] {
    [stats.reads.accounts, stats.reads.slots, stats.reads.codes].map(|rate| rate.misses)
}

/// A state of 80 accounts with 20 slots each of which nothing was read yet, and a diff that changes all of them.
fn cold() -> (WorldState, StateDiff, tempfile::TempDir) {
    let mut state = MemoryState::default();
    let mut diff = StateDiff::default();
    for at in 0..80 {
        let mut account = MemoryAccount {
            nonce: 1,
            code: Bytes::from(vec![0x5f, u8::try_from(at).unwrap()]).into(),
            ..MemoryAccount::default()
        };
        let slots = (0..20_u64).map(|slot| (U256::from(slot), U256::from(slot + 1)));
        account.storage.extend(slots.clone());
        state.insert(address(at), account);
        let prior = state.account(&address(at)).unwrap();
        let set = |(slot, prior)| {
            let new = U256::from(1000);
            (slot, SlotDiff { prior, new })
        };
        let change = AccountDiff {
            prior,
            new: prior,
            storage_wiped: false,
            slots: slots.map(set).collect(),
        };
        diff.accounts.push((address(at), change));
    }
    diff.accounts.sort_by_key(|(address, _)| *address);
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let database = Database::open(dir.path(), &Options::default()).unwrap();
        WorldState::open(database, &StateOptions::default()).unwrap()
    };
    let world = open();
    genesis(&world, &state);
    drop(world);
    (open(), diff, dir)
}

#[test]
fn prefetched_values_are_cache_hits() {
    let (world, diff, _dir) = cold();
    let view = world.view_at_head().unwrap();
    let values = values_of(&diff);
    view.prefetch_values(values.iter().copied(), &AtomicBool::new(true));
    assert_eq!(
        misses(&world.cache_stats()),
        [0; 3],
        "it was to end at once"
    );

    view.prefetch_values(values.iter().copied(), &AtomicBool::new(false));
    let before = misses(&world.cache_stats());
    assert_eq!(before, [80, 80 * 20, 80]);
    for (address, slot) in values.iter().copied() {
        match slot {
            Some(slot) => assert_ne!(view.storage(&address, &slot).unwrap(), U256::ZERO),
            None => {
                let account = view.account(&address).unwrap().unwrap();
                assert!(!view.code(&account.code_hash).unwrap().is_empty());
            }
        }
    }
    assert_eq!(misses(&world.cache_stats()), before);
}

#[test]
fn value_prefetch_ends_where_most_values_are_cached() {
    let (world, diff, _dir) = cold();
    let view = world.view_at_head().unwrap();
    let values = values_of(&diff);
    view.prefetch_values(values[..400].iter().copied(), &AtomicBool::new(false));
    let before = misses(&world.cache_stats());
    view.prefetch_values(values.iter().copied(), &AtomicBool::new(false));
    assert_eq!(misses(&world.cache_stats()), before);
    view.prefetch_values(values[400..].iter().copied(), &AtomicBool::new(false));
    assert_eq!(misses(&world.cache_stats()), [80, 80 * 20, 80]);
}

#[test]
fn a_root_reads_0_nodes_after_its_paths_were_prefetched() {
    let roots = [false, true].map(|ended| {
        let (world, diff, _dir) = cold();
        let view = world.view_at_head().unwrap();
        let changed = values_of(&diff).into_iter();
        world.prefetch_trie_paths(&view, changed, &AtomicBool::new(ended));
        let before = world.cache_stats().trie_nodes_read;
        assert_eq!(before == 0, ended);
        let root = world.compute_root(&view, &diff).unwrap().root();
        let read = world.cache_stats().trie_nodes_read - before;
        assert_eq!(read == 0, !ended, "{read}");
        root
    });
    assert_eq!(roots[0], roots[1]);
}

/// A diff that inserts a leaf next to most of the present ones, in storage tries and the account trie.
fn inserting(diff: &StateDiff) -> StateDiff {
    let mut diff = diff.clone();
    for (at, (_, change)) in (0_u64..).zip(&mut diff.accounts) {
        let slot = |slot| {
            let [prior, new] = [U256::ZERO, U256::from(7)];
            (U256::from(100 + at + slot), SlotDiff { prior, new })
        };
        change.slots = (0..20).map(slot).collect();
    }
    for at in 1000..1200 {
        let new = Some(Account {
            nonce: 1,
            ..Account::default()
        });
        let change = AccountDiff {
            prior: None,
            new,
            storage_wiped: false,
            slots: Vec::new(),
        };
        diff.accounts.push((address(at), change));
    }
    diff.accounts.sort_by_key(|(address, _)| *address);
    diff
}

#[test]
fn a_root_reads_0_leaves_after_absent_keys_were_prefetched() {
    let roots = [false, true].map(|is_absent| {
        let (world, diff, _dir) = cold();
        let diff = inserting(&diff);
        let view = world.view_at_head().unwrap();
        let mut targets = view.prefetch_targets(&values_of(&diff));
        targets
            .iter_mut()
            .for_each(|targets| targets.is_absent = is_absent);
        let source = DiskTrie::new(RowSource::Latest(world.database()), &[]);
        world.tries().load_paths(&source, &targets).unwrap();
        let before = world.cache_stats().trie_nodes_read;
        let root = world.compute_root(&view, &diff).unwrap().root();
        let read = world.cache_stats().trie_nodes_read - before;
        match is_absent {
            true => assert_eq!(read, 0),
            false => assert!(read > 200, "{read} leaves"),
        }
        root
    });
    assert_eq!(roots[0], roots[1]);
}

#[test]
fn a_row_with_a_wrong_hash_is_refused_by_a_prefetch() {
    let (world, diff, _dir) = cold();
    let view = world.view_at_head().unwrap();
    let targets = view.prefetch_targets(&values_of(&diff));
    let mut batch = Batch::new();
    batch.put(Segment::AccountTrie, &[], &[0, 0, 0xc0]);
    world.database().write(batch, false).unwrap();
    let source = DiskTrie::new(RowSource::Latest(world.database()), &[]);
    let mut tries = world.tries();
    let loaded = tries.load_paths(&source, &targets);
    assert!(matches!(loaded, Err(Fault::Corrupt { .. })), "{loaded:?}");
    assert_eq!(tries.accounts.bytes(), 0);
}

#[test]
fn a_view_sends_whether_a_value_is_absent() {
    let (world, diff, _dir) = cold();
    let mut view = world.view_at_head().unwrap();
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    view.prefetch_sender = Some(sender);
    let there = diff.accounts[0].0;
    view.account(&there).unwrap();
    view.account(&address(5000)).unwrap();
    view.storage(&there, &U256::from(3)).unwrap();
    view.storage(&there, &U256::from(5000)).unwrap();
    let targets: Vec<_> = receiver.try_iter().collect();
    let absent = targets.iter().map(|targets| targets.is_absent);
    assert_eq!(absent.collect::<Vec<_>>(), [false, true, false, true]);
    let slots = targets.iter().map(|targets| targets.slot.is_some());
    assert_eq!(slots.collect::<Vec<_>>(), [false, false, true, true]);
}
