//! The world state on random blocks, compared with a state in maps whose roots `alloy-trie` computes.

use crate::{
    BlockId, CheckSummary, ComputedRoot, GenesisAccount, Problem, StateOptions, TrieLog, View,
    WorldState, decode_account,
};
use alloy_primitives::keccak256;
use alloy_trie::{HashBuilder, Nibbles};
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Bytes, SlotDiff, StateDiff, StateView, U256,
};
use niwaki_storage::{Batch, Database, Options, Segment};
use niwaki_testkit::{MemoryAccount, MemoryState};
use niwaki_trie::{Path, TrieAccount, encode_slot, verify_proof};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

mod archive;
mod branches;
mod checking;
mod download;
mod heal;
mod listed;
mod pivot;
mod prefetch;
mod provable;
mod tries;
mod views;

const STATE_SEGMENTS: [Segment; 4] = [
    Segment::Accounts,
    Segment::Slots,
    Segment::AccountTrie,
    Segment::StorageTrie,
];

fn oracle(leaves: BTreeMap<B256, Vec<u8>>) -> B256 {
    let mut builder = HashBuilder::default();
    for (key, value) in leaves {
        builder.add_leaf(Nibbles::unpack(key), &value);
    }
    builder.root()
}

fn oracle_root(state: &MemoryState) -> B256 {
    let leaf = |(address, held): (&Address, &MemoryAccount)| {
        let slot =
            |(slot, value): (&U256, &U256)| (keccak256(B256::from(*slot)), encode_slot(value));
        let storage_root = oracle(held.storage.iter().map(slot).collect());
        let account = state.account(address).unwrap().unwrap();
        (
            keccak256(address),
            TrieAccount::new(&account, storage_root).to_leaf(),
        )
    };
    oracle(state.accounts.iter().map(leaf).collect())
}

fn address(at: u64) -> Address {
    Address::from_word(B256::from(U256::from(at + 1)))
}

/// A random block on top of `state`: transfers, writes, code, destruction, re-creation.
fn random_diff(rng: &mut StdRng, state: &MemoryState) -> StateDiff {
    let mut accounts = BTreeMap::new();
    let mut codes = BTreeMap::new();
    for _ in 0..rng.random_range(1..10) {
        let address = address(rng.random_range(0..60));
        let held = state.accounts.get(&address).cloned().unwrap_or_default();
        let prior = state.account(&address).unwrap();
        let kind = rng.random_range(0..10);
        let storage_wiped = prior.is_some() && kind < 3;
        let mut slots = BTreeMap::new();
        for _ in 0..rng.random_range(0..8) {
            let slot = U256::from(rng.random_range(0..40_u64));
            let prior = held.storage.get(&slot).copied().unwrap_or_default();
            let new = match rng.random_range(0..3) {
                0 => U256::ZERO,
                1 => U256::from(rng.random_range(1..200_u64)),
                _ => U256::from_be_bytes(rng.random::<[u8; 32]>()),
            };
            let is_listed = if storage_wiped {
                !new.is_zero()
            } else {
                prior != new
            };
            if is_listed {
                slots.insert(slot, SlotDiff { prior, new });
            }
        }
        let mut new = prior.unwrap_or(Account::EMPTY);
        new.nonce += 1;
        new.balance = U256::from(rng.random::<u64>());
        if rng.random_range(0..4) == 0 {
            let code = Bytes::from(vec![rng.random::<u8>(); rng.random_range(1..50)]);
            new.code_hash = keccak256(&code);
            codes.insert(new.code_hash, code);
        }
        let is_removed = prior.is_some() && kind < 2;
        let slots = if is_removed {
            Vec::new()
        } else {
            slots.into_iter().collect()
        };
        let new = (!is_removed).then_some(new);
        accounts.insert(
            address,
            AccountDiff {
                prior,
                new,
                storage_wiped,
                slots,
            },
        );
    }
    StateDiff {
        accounts: accounts.into_iter().collect(),
        codes: codes.into_iter().collect(),
    }
}

fn block(number: u64, fork: u8) -> BlockId {
    let hash = keccak256([&number.to_be_bytes()[..], &[fork]].concat());
    BlockId { number, hash }
}

fn small_cache() -> StateOptions {
    // So small that nodes, slots and accounts are evicted all the time.
    StateOptions {
        cache_bytes: 20_000,
        ..StateOptions::default()
    }
}

fn genesis_accounts(state: &MemoryState) -> Vec<GenesisAccount> {
    let account = |(address, held): (&Address, &MemoryAccount)| GenesisAccount {
        address: *address,
        nonce: held.nonce,
        balance: held.balance,
        code: (*held.code).clone(),
        storage: held
            .storage
            .iter()
            .map(|(slot, value)| (*slot, *value))
            .collect(),
    };
    state.accounts.iter().map(account).collect()
}

fn genesis(world: &WorldState, state: &MemoryState) -> B256 {
    let root = world
        .load_genesis(genesis_accounts(state).into_iter().map(Ok))
        .unwrap();
    world
        .finish_genesis(block(0, 0), root, Batch::new())
        .unwrap();
    root
}

fn random_state(rng: &mut StdRng) -> MemoryState {
    let mut state = MemoryState::default();
    for _ in 0..20 {
        state.apply(&random_diff(rng, &state));
    }
    state
}

/// A world state in memory with a random genesis, and the same state in maps.
fn world(rng: &mut StdRng, options: &StateOptions) -> (WorldState, MemoryState) {
    let world = WorldState::open(Database::in_memory().unwrap(), options).unwrap();
    let state = random_state(rng);
    assert_eq!(genesis(&world, &state), oracle_root(&state));
    assert_eq!(
        crate::genesis_root(genesis_accounts(&state)),
        oracle_root(&state)
    );
    (world, state)
}

/// The caller's batch for a block: the canonical hash.
fn canonical(block: &BlockId) -> Batch {
    let mut batch = Batch::new();
    batch.put(
        Segment::Canonical,
        &block.number.to_be_bytes(),
        block.hash.as_slice(),
    );
    batch
}

fn computed(
    world: &WorldState,
    view: &View,
    diff: &StateDiff,
    state: &MemoryState,
) -> ComputedRoot {
    let computed = world.compute_root(view, diff).unwrap();
    assert_eq!(computed.root(), oracle_root(state));
    computed
}

/// Commits a random block on top of the head.
fn advance(rng: &mut StdRng, world: &WorldState, state: &mut MemoryState, fork: u8) {
    let diff = random_diff(rng, state);
    commit(world, state, &diff, fork);
}

fn commit(world: &WorldState, state: &mut MemoryState, diff: &StateDiff, fork: u8) {
    let head = world.head().unwrap();
    state.apply(diff);
    let computed = {
        let view = world.view_at_head().unwrap();
        computed(world, &view, diff, state)
    };
    let next = block(head.block.number + 1, fork);
    world
        .commit(computed, next, head.block.hash, canonical(&next), false)
        .unwrap();
}

fn dump(world: &WorldState) -> Vec<Vec<niwaki_storage::Row>> {
    let rows = |segment| {
        world
            .database()
            .prefix(segment, &[])
            .map(Result::unwrap)
            .collect()
    };
    STATE_SEGMENTS.map(rows).to_vec()
}

fn assert_same(view: &View, state: &MemoryState) {
    for at in 0..61 {
        let address = address(at);
        assert_eq!(
            view.account(&address).unwrap(),
            state.account(&address).unwrap()
        );
        let has_storage = state.has_storage(&address).unwrap();
        assert_eq!(
            view.has_storage(&address).unwrap(),
            has_storage,
            "{address}"
        );
        for slot in (0..41).map(U256::from) {
            let held = state.storage(&address, &slot).unwrap();
            assert_eq!(
                view.storage(&address, &slot).unwrap(),
                held,
                "{address} {slot}"
            );
        }
        if let Some(account) = view.account(&address).unwrap() {
            let code = view.code(&account.code_hash).unwrap();
            assert_eq!(keccak256(code), account.code_hash);
        }
    }
}

fn assert_clean(world: &WorldState) -> CheckSummary {
    let mut problems: Vec<Problem> = Vec::new();
    let summary = world.check(&mut |problem| problems.push(problem)).unwrap();
    assert_eq!(problems, []);
    summary
}

#[test]
fn random_blocks_have_the_roots_of_the_oracle_and_pass_the_check() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let options = if seed % 2 == 0 {
            small_cache()
        } else {
            StateOptions::default()
        };
        let (world, mut state) = world(&mut rng, &options);
        for _ in 0..80 {
            advance(&mut rng, &world, &mut state, 0);
        }
        assert_same(&world.view_at_head().unwrap(), &state);
        let summary = assert_clean(&world);
        assert_eq!(summary.accounts, state.accounts.len() as u64);
    }
}

#[test]
fn the_state_is_the_same_as_one_loaded_at_once() {
    let mut rng = StdRng::seed_from_u64(77);
    let (grown, mut state) = world(&mut rng, &small_cache());
    for _ in 0..60 {
        advance(&mut rng, &grown, &mut state, 0);
    }
    let loaded = WorldState::open(Database::in_memory().unwrap(), &small_cache()).unwrap();
    genesis(&loaded, &state);
    assert_eq!(dump(&grown), dump(&loaded));
}

#[test]
fn a_view_does_not_change_when_the_head_moves_on() {
    let mut rng = StdRng::seed_from_u64(5);
    let (world, mut state) = world(&mut rng, &StateOptions::default());
    for _ in 0..10 {
        let before = state.clone();
        let view = world.view_at_head().unwrap();
        let number = view.block().number;
        advance(&mut rng, &world, &mut state, 0);
        assert_same(&view, &before);
        assert_same(&world.view_at_head().unwrap(), &state);
        assert_eq!(view.block().number, number);
    }
}

#[test]
fn a_state_closed_without_a_sync_reopens_at_its_head() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let database = Database::open(dir.path(), &Options::default()).unwrap();
        WorldState::open(database, &small_cache()).unwrap()
    };
    let mut rng = StdRng::seed_from_u64(8);
    let mut state = random_state(&mut rng);
    genesis(&open(), &state);
    for _ in 0..8 {
        let world = open();
        assert_same(&world.view_at_head().unwrap(), &state);
        for _ in 0..5 {
            advance(&mut rng, &world, &mut state, 0);
        }
    }
    let world = open();
    assert_eq!(world.head().unwrap().block, block(40, 0));
    assert_eq!(world.head().unwrap().root, oracle_root(&state));
    assert_same(&world.view_at_head().unwrap(), &state);
    assert_clean(&world);
}

#[test]
fn an_interrupted_genesis_load_is_removed_by_the_next() {
    let mut rng = StdRng::seed_from_u64(9);
    let world = WorldState::open(Database::in_memory().unwrap(), &small_cache()).unwrap();
    let abandoned = random_state(&mut rng);
    world
        .load_genesis(genesis_accounts(&abandoned).into_iter().map(Ok))
        .unwrap();
    assert!(world.view_at_head().is_err());
    let world = WorldState::open(world.into_database(), &small_cache()).unwrap();
    let state = random_state(&mut rng);
    assert_eq!(genesis(&world, &state), oracle_root(&state));
    assert_same(&world.view_at_head().unwrap(), &state);
    assert_clean(&world);
}

#[test]
fn proofs_of_the_head_prove_accounts_and_slots() {
    let mut rng = StdRng::seed_from_u64(10);
    let (world, state) = world(&mut rng, &small_cache());
    let view = world.view_at_head().unwrap().with_tries(1).unwrap();
    let root = world.head().unwrap().root;
    for at in 0..61 {
        let address = address(at);
        let owner = keccak256(address);
        let proof = view.prove_account_by_key(&owner).unwrap();
        let leaf = verify_proof(root, &Path::of_hash(&keccak256(address)), &proof).unwrap();
        let proved = leaf.map(|leaf| TrieAccount::from_leaf(&leaf).unwrap());
        let account = proved.map(|account| account.account());
        assert_eq!(account, state.account(&address).unwrap());
        let storage_root = proved.map_or(alloy_trie::EMPTY_ROOT_HASH, |a| a.storage_root);
        for slot in (0..40).map(U256::from) {
            let slot_key = keccak256(B256::from(slot));
            let proof = view
                .prove_slot_by_key(&owner, storage_root, &slot_key)
                .unwrap();
            let key = Path::of_hash(&slot_key);
            let leaf = verify_proof(storage_root, &key, &proof).unwrap();
            let value = leaf.map(|leaf| niwaki_trie::decode_slot(&leaf).unwrap());
            assert_eq!(
                value.unwrap_or_default(),
                state.storage(&address, &slot).unwrap()
            );
        }
    }
}

#[test]
fn a_trie_log_decodes_to_itself_and_bad_bytes_are_refused() {
    let mut rng = StdRng::seed_from_u64(11);
    let (world, state) = world(&mut rng, &small_cache());
    let view = world.view_at_head().unwrap();
    for _ in 0..20 {
        let diff = random_diff(&mut rng, &state);
        let diff = world.compute_root(&view, &diff).unwrap().diff().clone();
        let parent = B256::from(rng.random::<[u8; 32]>());
        let bytes = TrieLog::encode(parent, &diff);
        assert_eq!(TrieLog::decode(&bytes), Ok(TrieLog { parent, diff }));
        for end in 0..bytes.len() {
            assert!(TrieLog::decode(&bytes[..end]).is_err());
        }
        let mut other = bytes.clone();
        other[0] += 1;
        assert!(TrieLog::decode(&other).is_err());
    }
}
