//! What is read and loaded before somebody needs it.

use super::*;
use crate::CacheFigures;
use crate::disk_trie::{DiskTrie, Rows};
use niwaki_primitives::Fault;

/// Accounts of the diff, each before its slots.
fn wanted(diff: &StateDiff) -> Vec<(Address, Option<U256>)> {
    let accounts = diff.accounts.iter();
    let each = accounts.flat_map(|(address, change)| {
        let slots = change.slots.iter().map(|(slot, _)| Some(*slot));
        let both = std::iter::once(None).chain(slots);
        both.map(|slot| (*address, slot))
    });
    each.collect()
}

/// How often accounts, slots and codes were not held.
fn misses(figures: &CacheFigures) -> [u64; 3] {
    [figures.accounts, figures.slots, figures.codes].map(|rate| rate.misses)
}

/// A state of many accounts with slots in which nothing was read yet, and what changes all of them.
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
fn what_is_read_ahead_is_held() {
    let (world, diff, _dir) = cold();
    let view = world.view_at_head().unwrap();
    let wanted = wanted(&diff);
    view.read_ahead(wanted.iter().copied(), &AtomicBool::new(true));
    assert_eq!(
        misses(&world.cache_figures()),
        [0; 3],
        "it was to end at once"
    );

    view.read_ahead(wanted.iter().copied(), &AtomicBool::new(false));
    let before = misses(&world.cache_figures());
    assert_eq!(before, [80, 80 * 20, 80]);
    for (address, slot) in wanted.iter().copied() {
        match slot {
            Some(slot) => assert_ne!(view.storage(&address, &slot).unwrap(), U256::ZERO),
            None => {
                let account = view.account(&address).unwrap().unwrap();
                assert!(!view.code(&account.code_hash).unwrap().is_empty());
            }
        }
    }
    assert_eq!(misses(&world.cache_figures()), before);
}

#[test]
fn reading_ends_where_most_is_held() {
    let (world, diff, _dir) = cold();
    let view = world.view_at_head().unwrap();
    let wanted = wanted(&diff);
    view.read_ahead(wanted[..400].iter().copied(), &AtomicBool::new(false));
    let before = misses(&world.cache_figures());
    view.read_ahead(wanted.iter().copied(), &AtomicBool::new(false));
    assert_eq!(misses(&world.cache_figures()), before);
    view.read_ahead(wanted[400..].iter().copied(), &AtomicBool::new(false));
    assert_eq!(misses(&world.cache_figures()), [80, 80 * 20, 80]);
}

#[test]
fn a_root_reads_no_node_whose_way_was_loaded() {
    let roots = [false, true].map(|ended| {
        let (world, diff, _dir) = cold();
        let view = world.view_at_head().unwrap();
        let changed = wanted(&diff).into_iter();
        world.load_ways(&view, changed, &AtomicBool::new(ended));
        let before = world.cache_figures().trie_nodes_read;
        assert_eq!(before == 0, ended);
        let root = world.prepare(&view, &diff).unwrap().root();
        let read = world.cache_figures().trie_nodes_read - before;
        assert_eq!(read == 0, !ended, "{read}");
        root
    });
    assert_eq!(roots[0], roots[1]);
}

/// What puts a second leaf beside most of those that are there, in storage and among the accounts.
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
fn a_root_reads_no_leaf_that_was_found_to_be_in_the_way() {
    let roots = [false, true].map(|is_absent| {
        let (world, diff, _dir) = cold();
        let diff = inserting(&diff);
        let view = world.view_at_head().unwrap();
        let mut touched = view.places_of(&wanted(&diff));
        touched
            .iter_mut()
            .for_each(|touched| touched.is_absent = is_absent);
        let source = DiskTrie::new(Rows::Now(world.database()), &[]);
        world.tries().load(&source, &touched).unwrap();
        let before = world.cache_figures().trie_nodes_read;
        let root = world.prepare(&view, &diff).unwrap().root();
        let read = world.cache_figures().trie_nodes_read - before;
        match is_absent {
            true => assert_eq!(read, 0),
            false => assert!(read > 200, "{read} leaves"),
        }
        root
    });
    assert_eq!(roots[0], roots[1]);
}

#[test]
fn a_row_that_is_not_its_node_is_not_taken_with_others() {
    let (world, diff, _dir) = cold();
    let view = world.view_at_head().unwrap();
    let touched = view.places_of(&wanted(&diff));
    let mut batch = Batch::new();
    batch.put(Segment::AccountTrie, &[], &[0, 0, 0xc0]);
    world.database().write(batch, false).unwrap();
    let source = DiskTrie::new(Rows::Now(world.database()), &[]);
    let mut tries = world.tries();
    let loaded = tries.load(&source, &touched);
    assert!(matches!(loaded, Err(Fault::Corrupt { .. })), "{loaded:?}");
    assert_eq!(tries.accounts.bytes(), 0);
}

#[test]
fn what_is_absent_is_told() {
    let (world, diff, _dir) = cold();
    let mut view = world.view_at_head().unwrap();
    let (tell, told) = std::sync::mpsc::sync_channel(8);
    view.tell = Some(tell);
    let there = diff.accounts[0].0;
    view.account(&there).unwrap();
    view.account(&address(5000)).unwrap();
    view.storage(&there, &U256::from(3)).unwrap();
    view.storage(&there, &U256::from(5000)).unwrap();
    let told: Vec<_> = told.try_iter().collect();
    let absent = told.iter().map(|touched| touched.is_absent);
    assert_eq!(absent.collect::<Vec<_>>(), [false, true, false, true]);
    let slots = told.iter().map(|touched| touched.slot.is_some());
    assert_eq!(slots.collect::<Vec<_>>(), [false, false, true, true]);
}
