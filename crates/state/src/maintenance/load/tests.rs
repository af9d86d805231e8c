//! A state loaded through runs on disk has the rows of one loaded from a list.

use super::*;
use crate::{BlockId, GenesisAccount, StateOptions};
use niwaki_storage::Options;
use proptest::prelude::*;
use std::path::Path as FilePath;

fn world(path: Option<&FilePath>) -> WorldState {
    let database = match path {
        Some(path) => Database::open(path, &Options::default()),
        None => Ok(Database::in_memory().unwrap()),
    };
    WorldState::open(database.unwrap(), &StateOptions::default()).unwrap()
}

fn rows(world: &WorldState) -> Vec<Vec<niwaki_storage::Row>> {
    let all = |segment| {
        let rows = world.database().prefix(segment, &[]);
        rows.map(Result::unwrap).collect()
    };
    Segment::ALL.map(all).to_vec()
}

fn add(load: &mut GenesisLoad<'_>, account: &GenesisAccount) {
    for (slot, value) in &account.storage {
        load.add_slot(&account.address, slot, value).unwrap();
    }
    let (nonce, balance) = (account.nonce, account.balance);
    load.add_account(&account.address, nonce, balance, &account.code)
        .unwrap();
}

/// Loads `accounts` through runs of at most `run_bytes`.
fn load(
    world: &WorldState,
    accounts: &[GenesisAccount],
    run_bytes: usize,
    is_written: bool,
) -> Result<B256, LoadError> {
    if is_written {
        drop(world.begin_genesis().unwrap());
    }
    let mut load = GenesisLoad::new(world.database(), is_written, run_bytes).unwrap();
    accounts.iter().for_each(|account| add(&mut load, account));
    load.finish(&mut |_, _| true)
}

fn finish(world: &WorldState, root: B256) {
    let hash = B256::repeat_byte(1);
    let block = BlockId { number: 0, hash };
    world.finish_genesis(block, root, Batch::new()).unwrap();
}

prop_compose! {
    fn account()(
        address in any::<[u8; 20]>(),
        nonce in 0_u64..3,
        balance in any::<u64>(),
        code in prop::collection::vec(0_u8..2, 0..4),
        storage in prop::collection::btree_map(0_u64..200, 0_u64..4, 0..30),
    ) -> GenesisAccount {
        GenesisAccount {
            address: address.into(),
            nonce,
            balance: U256::from(balance),
            code: code.into(),
            storage: storage
                .into_iter()
                .map(|(slot, value)| (U256::from(slot), U256::from(value)))
                .collect(),
        }
    }
}

fn many(count: u64, slots_each: u64, slots_of_one: u64) -> Vec<GenesisAccount> {
    let account = |at: u64| {
        let slots = if at == 3 { slots_of_one } else { slots_each };
        GenesisAccount {
            address: Address::from_slice(&keccak256(at.to_be_bytes())[..20]),
            nonce: at,
            balance: U256::from(at),
            code: vec![7; usize::try_from(at % 40).unwrap()].into(),
            storage: (0..slots)
                .map(|slot| (U256::from(slot), U256::MAX - U256::from(slot)))
                .collect(),
        }
    };
    (0..count).map(account).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_accounts_give_the_rows_and_root_of_load_genesis(
        accounts in prop::collection::vec(account(), 0..30),
        run_bytes in 100_usize..20_000,
    ) {
        let mut accounts = accounts;
        accounts.sort_by_key(|account| account.address);
        accounts.dedup_by_key(|account| account.address);
        let plain = world(None);
        let root = plain.load_genesis(accounts.iter().cloned().map(Ok)).unwrap();
        finish(&plain, root);

        let dir = tempfile::tempdir().unwrap();
        for path in [None, Some(dir.path())] {
            let world = world(path);
            let only_root = load(&world, &accounts, run_bytes, false).unwrap();
            prop_assert_eq!(only_root, root);
            let empty = rows(&world);
            prop_assert!(empty.iter().all(Vec::is_empty));
            prop_assert_eq!(load(&world, &accounts, run_bytes, true).unwrap(), root);
            finish(&world, root);
            prop_assert_eq!(rows(&world), rows(&plain));
        }
        prop_assert!(!dir.path().join("loading").exists());
    }
}

#[test]
fn a_storage_of_several_batches_gives_the_rows_of_load_genesis() {
    // The slots alone, of 96 bytes each, are more than one account may have in a batch.
    let slots = 700_000;
    assert!(slots * 96 > MAX_BATCH_BYTES as u64);
    let accounts = many(3000, 3, slots);
    let plain = world(None);
    let root = plain
        .load_genesis(accounts.iter().cloned().map(Ok))
        .unwrap();
    finish(&plain, root);
    let dir = tempfile::tempdir().unwrap();
    let world = world(Some(dir.path()));
    assert_eq!(load(&world, &accounts, 8 << 20, true).unwrap(), root);
    finish(&world, root);
    assert!(rows(&world) == rows(&plain));
}

#[test]
fn the_last_account_of_an_address_and_the_last_value_of_a_slot_count() {
    let accounts = many(50, 2, 2);
    let word = |n: u64| U256::from(n);
    // Of account 7 only what is given last is left: one slot of three, and none of the first's.
    let mut last = accounts[7].clone();
    last.nonce = 99;
    last.storage = vec![(word(5), word(1)), (word(5), word(2)), (word(6), word(0))];
    last.storage.push((word(8), word(3)));
    last.storage.push((word(8), word(0)));
    let mut between = accounts[7].clone();
    between.storage = vec![(word(40), word(40))];
    // Account 9's slot is taken back, so that it has none of that number.
    let mut given = [&accounts[..7], &[between], &accounts[7..]].concat();
    given[10].storage.push((word(1), word(0)));
    given.push(last.clone());
    let mut right = accounts.clone();
    right[7] = GenesisAccount {
        storage: vec![(word(5), word(2))],
        ..last
    };
    right[9].storage.truncate(1);
    let plain = world(None);
    let root = plain.load_genesis(right.into_iter().map(Ok)).unwrap();
    finish(&plain, root);
    for run_bytes in [200, 500, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let world = world(Some(dir.path()));
        assert_eq!(load(&world, &given, run_bytes, false).unwrap(), root);
        assert_eq!(load(&world, &given, run_bytes, true).unwrap(), root);
        finish(&world, root);
        assert!(rows(&world) == rows(&plain), "{run_bytes}");
    }
}

#[test]
fn an_account_or_slot_added_twice_is_an_error_with_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(Some(dir.path()));
    let account = encode_account(&TrieAccount {
        nonce: 1,
        balance: U256::ZERO,
        storage_root: EMPTY_ROOT_HASH,
        code_hash: EMPTY_CODE_HASH,
    });
    let (owner, slot) = (B256::repeat_byte(7), B256::repeat_byte(8));
    let both = [owner.as_slice(), slot.as_slice()].concat();
    let load = |accounts: usize, slots: usize| {
        let mut load = GenesisLoad::new(world.database(), false, 100).unwrap();
        for _ in 0..accounts {
            load.add_flat_account(owner.as_slice(), &account).unwrap();
        }
        for _ in 0..slots {
            load.add_flat_slot(&both, &[1]).unwrap();
        }
        load.finish(&mut |_, _| true)
    };
    assert!(load(1, 1).is_ok());
    let error = load(2, 0).unwrap_err();
    assert!(matches!(error, LoadError::AccountTwice(key) if key == owner));
    let LoadError::SlotTwice {
        account,
        slot: found,
    } = load(1, 2).unwrap_err()
    else {
        panic!("a slot twice");
    };
    assert_eq!((account, found), (owner, slot));
}

#[test]
fn a_stopped_or_interrupted_load_is_removed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (abandoned, accounts) = (many(9000, 1, 1), many(60, 3, 3));
    {
        let world = world(Some(dir.path()));
        let mut load = world.begin_genesis().unwrap();
        abandoned.iter().for_each(|account| add(&mut load, account));
        let stopped = load.finish(&mut |done, _| done < 8000);
        assert!(matches!(stopped, Err(LoadError::Stopped)));
    }
    {
        // All rows are written, but there is no head; and there is a run that was not merged.
        let world = world(Some(dir.path()));
        load(&world, &abandoned, 10_000, true).unwrap();
        let aside = world.database().create_staging_dir().unwrap().unwrap();
        std::fs::write(aside.join("run-0"), "x").unwrap();
    }
    let world = world(Some(dir.path()));
    let root = load(&world, &accounts, 10_000, true).unwrap();
    finish(&world, root);
    let plain = self::world(None);
    let same = plain.load_genesis(accounts.into_iter().map(Ok)).unwrap();
    finish(&plain, same);
    assert_eq!(rows(&world), rows(&plain));
    assert!(!dir.path().join("loading").exists());
}

/// Adds `accounts` and keeps them, and adds more.
fn kept(world: &WorldState, accounts: &[GenesisAccount], more: &[GenesisAccount]) {
    let mut load = world.begin_genesis().unwrap().with_run_bytes(10_000);
    for (at, account) in accounts.iter().enumerate() {
        add(&mut load, account);
        if at == accounts.len() / 2 {
            load.checkpoint(b"half"[..].into()).unwrap();
        }
    }
    load.checkpoint(b"all"[..].into()).unwrap();
    more.iter().for_each(|account| add(&mut load, account));
}

#[test]
fn a_checkpointed_load_resumes_after_any_interruption() {
    let dir = tempfile::tempdir().unwrap();
    let mut accounts = many(9000, 1, 20);
    accounts[0].code = vec![1; 3 << 20].into();
    let (first, rest) = accounts.split_at(4000);
    let plain = world(None);
    let root = plain
        .load_genesis(accounts.iter().cloned().map(Ok))
        .unwrap();
    finish(&plain, root);
    assert_eq!(plain.resumable_load().unwrap(), None);
    let world = || world(Some(dir.path()));
    assert_eq!(world().resumable_load().unwrap(), None);
    // The process ends after runs that are in no manifest, then while it writes.
    kept(&world(), first, &rest[..900]);
    for stop_at in [0, 8000, 12_000] {
        let world = world();
        let found = world.resumable_load().unwrap().unwrap();
        assert_eq!(found.note[..], b"all"[..]);
        let mut load = world.resume_genesis(&found).unwrap().with_run_bytes(10_000);
        rest.iter().for_each(|account| add(&mut load, account));
        let stopped = load.finish(&mut |done, _| done < stop_at);
        assert!(matches!(stopped, Err(LoadError::Stopped)), "{stop_at}");
    }
    let world = world();
    // A load for the root alone, as of a genesis file that is compared, takes nothing away.
    assert!(load(&world, first, 10_000, false).is_ok());
    let found = world.resumable_load().unwrap().unwrap();
    let mut load = world.resume_genesis(&found).unwrap();
    rest.iter().for_each(|account| add(&mut load, account));
    assert_eq!(load.finish(&mut |_, _| true).unwrap(), root);
    assert_eq!(world.resumable_load().unwrap(), None);
    finish(&world, root);
    assert!(rows(&world) == rows(&plain));
    assert!(!dir.path().join("loading").exists());
}

#[test]
fn a_new_load_removes_a_checkpointed_one() {
    let dir = tempfile::tempdir().unwrap();
    let accounts = many(60, 3, 3);
    kept(&world(Some(dir.path())), &many(300, 1, 1), &[]);
    let world = world(Some(dir.path()));
    assert!(world.resumable_load().unwrap().is_some());
    let root = load(&world, &accounts, 10_000, true).unwrap();
    assert_eq!(world.resumable_load().unwrap(), None);
    finish(&world, root);
    let plain = self::world(None);
    plain.load_genesis(accounts.into_iter().map(Ok)).unwrap();
    finish(&plain, root);
    assert_eq!(rows(&world), rows(&plain));
}

#[test]
#[should_panic(expected = "the slots of an account are added before it")]
fn slots_without_their_account_panic() {
    let world = world(None);
    let mut load = world.begin_genesis().unwrap();
    let (one, other) = (Address::repeat_byte(1), Address::repeat_byte(2));
    load.add_slot(&one, &U256::ZERO, &U256::ONE).unwrap();
    load.add_account(&other, 0, U256::ZERO, &[]).unwrap();
}
