//! A pivot that moves by block access lists while its state comes.

use super::download::{Source, download_all, open, rows};
use super::*;
use crate::download::UNKNOWN_STORAGE_ROOT;
use niwaki_primitives::{
    AccountChanges, BalanceChange, BlockAccessIndex, BlockAccessList, CodeChange, NonceChange,
    SlotChanges, StorageChange,
};

/// A random block of Amsterdam: no account that has storage is destroyed.
pub(super) fn amsterdam_diff(rng: &mut StdRng, state: &MemoryState) -> StateDiff {
    let mut diff = random_diff(rng, state);
    for (address, account) in &mut diff.accounts {
        let has_storage = state
            .accounts
            .get(address)
            .is_some_and(|held| !held.storage.is_empty());
        account.storage_wiped = false;
        account.slots.retain(|(_, slot)| slot.prior != slot.new);
        if account.new.is_none() && has_storage {
            account.new = account.prior.map(|prior| Account {
                nonce: prior.nonce + 1,
                ..prior
            });
        }
    }
    diff
}

/// The access list of a block with this diff; some values change several times.
pub(super) fn access_list(
    rng: &mut StdRng,
    diff: &StateDiff,
    state: &MemoryState,
) -> BlockAccessList {
    let mut list = Vec::new();
    for (address, account) in &diff.accounts {
        let prior = account.prior.unwrap_or(Account::EMPTY);
        let new = account.new.unwrap_or(Account::EMPTY);
        let mut changes = AccountChanges::new(*address);
        let (first, last) = (BlockAccessIndex(1), BlockAccessIndex(4));
        if rng.random() {
            let change = BalanceChange::new(first, U256::from(rng.random::<u32>()));
            changes.balance_changes.push(change);
        }
        if prior.balance != new.balance || !changes.balance_changes.is_empty() {
            let change = BalanceChange::new(last, new.balance);
            changes.balance_changes.push(change);
        }
        if prior.nonce != new.nonce {
            changes
                .nonce_changes
                .push(NonceChange::new(last, new.nonce));
        }
        if prior.code_hash != new.code_hash {
            let code = diff.codes.iter().find(|(hash, _)| *hash == new.code_hash);
            let code = match (code, new.has_code()) {
                (Some((_, code)), _) => code.clone(),
                (None, true) => state.code(&new.code_hash).unwrap(),
                (None, false) => Bytes::new(),
            };
            changes.code_changes.push(CodeChange::new(last, code));
        }
        for (slot, value) in &account.slots {
            let mut writes = Vec::new();
            if rng.random() {
                writes.push(StorageChange::new(first, U256::from(rng.random::<u8>())));
            }
            writes.push(StorageChange::new(last, value.new));
            changes
                .storage_changes
                .push(SlotChanges::new(*slot, writes));
        }
        list.push(changes);
    }
    // One that was read alone.
    list.push(AccountChanges::new(Address::repeat_byte(0xee)));
    list
}

/// Adds a block to a source; returns its list.
fn grow(rng: &mut StdRng, source: &mut Source) -> BlockAccessList {
    let diff = amsterdam_diff(rng, &source.state);
    let list = access_list(rng, &diff, &source.state);
    commit(&source.world, &mut source.state, &diff, 0);
    source.read();
    list
}

#[test]
fn lists_lead_to_the_later_state_whatever_has_come() {
    for seed in 0..12 {
        let mut rng = StdRng::seed_from_u64(700 + seed);
        let mut source = Source::new(&mut rng);
        let folder = tempfile::tempdir().unwrap();
        let mut sink = open(folder.path());
        sink.begin_download(source.head).unwrap();
        let threads = 1 + usize::try_from(seed).unwrap() % 3;
        for round in 0..8 {
            if rng.random() {
                drop(sink);
                sink = open(folder.path());
            }
            let download = sink.resume_download().unwrap().unwrap();
            assert_eq!(download.pivot(), source.head);
            let parts = source.parts(&download.remaining(), &mut rng);
            let written = parts.len() / 2;
            let mut parts = parts.into_iter();
            for part in parts.by_ref().take(written) {
                download.write(part).unwrap();
            }
            // Rows that were not marked are of the old state.
            for part in parts {
                sink.database().ingest(part.into_tables().0).unwrap();
            }
            // Unmarked rows are removed when the next attempt begins.
            let download = sink.resume_download().unwrap().unwrap();
            if round == 5 {
                // The last two times all has come, and some of what lists have said is written.
                download_all(&download, &source, &mut rng);
                assert!(download.complete(threads, &mut |_, _| true).unwrap());
            }
            if round == 6 {
                assert!(download.write_changes(threads, &mut || true).unwrap());
                assert_eq!(download.own_root(), Some(source.head.root));
            }
            let blocks = rng.random_range(1..5);
            let lists: Vec<_> = (0..blocks).map(|_| grow(&mut rng, &mut source)).collect();
            download.move_pivot(source.head, &lists).unwrap();
        }
        let download = sink.resume_download().unwrap().unwrap();
        assert!(download.has_changes().unwrap());
        assert!(!download.write_changes(threads, &mut || false).unwrap());
        assert!(download.write_changes(threads, &mut || true).unwrap());
        assert!(!download.has_changes().unwrap());
        assert_eq!(download.own_root(), Some(source.head.root));
        download.finish(Batch::new()).unwrap();
        assert_eq!(sink.head(), Some(source.head));
        assert_eq!(rows(&sink), rows(&source.world));
        let left = sink.database().prefix(Segment::Meta, b"download").count();
        assert_eq!(left, 0);
        assert_clean(&sink);
    }
}

#[test]
fn a_storage_that_comes_while_its_slots_change_has_no_known_root() {
    let mut rng = StdRng::seed_from_u64(750);
    let mut source = Source::new(&mut rng);
    let folder = tempfile::tempdir().unwrap();
    let sink = open(folder.path());
    let download = sink.begin_download(source.head).unwrap();
    for part in source.parts(&download.remaining(), &mut rng) {
        download.write(part).unwrap();
    }
    let before = download.remaining();
    assert!(!before.storages.is_empty(), "the seed has a large storage");
    let lists: Vec<_> = (0..40).map(|_| grow(&mut rng, &mut source)).collect();
    let changed = lists.iter().flatten();
    let changed = changed.filter(|changes| !changes.storage_changes.is_empty());
    let changed: Vec<B256> = changed.map(|changes| keccak256(changes.address)).collect();
    download.move_pivot(source.head, &lists).unwrap();
    for (storage, old) in download.remaining().storages.iter().zip(&before.storages) {
        assert_eq!(
            (storage.account, &storage.ranges),
            (old.account, &old.ranges)
        );
        let root = match changed.contains(&storage.account) {
            true => UNKNOWN_STORAGE_ROOT,
            false => old.root,
        };
        assert_eq!(storage.root, root);
    }
}
