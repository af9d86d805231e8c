//! Answers what peers ask by `snap`: ranges of accounts and slots with their proofs, codes, trie nodes, block access lists.
//!
//! The limits are those that the other side asks for, up to 2 MiB. A state that this node does not have gets an answer without items and
//! without a proof.
//!
//! Spec: devp2p `caps/snap.md`; EIP-8189.

use super::RecentStates;
use niwaki_chain::Chain;
use niwaki_network::wire::limits::{MAX_SERVED, SOFT_ANSWER_BYTES};
use niwaki_network::wire::{SnapItems, SnapKind, SnapRequest, TriePaths};
use niwaki_primitives::rlp::encode;
use niwaki_primitives::{B256, Bytes, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault};
use niwaki_state::{ProvableView, encode_account};
use std::time::{Duration, Instant};

/// A list of slots may pass the bytes asked for by this part, so that fewer are cut and need a proof.
const SLACK: usize = 10;
/// How long nodes are looked up for one request.
const NODES_TIME: Duration = Duration::from_secs(5);

/// The message that answers a request.
pub(super) fn answer(
    chain: &Chain,
    states: &RecentStates,
    request: &SnapRequest,
    id: u64,
) -> Result<Vec<u8>, Fault> {
    match request {
        SnapRequest::AccountRange {
            root,
            origin,
            limit,
            bytes,
        } => {
            let state = states.find(chain, root)?;
            accounts(state.as_deref(), (origin, limit), *bytes, id)
        }
        SnapRequest::StorageRanges {
            root,
            accounts,
            origin,
            limit,
            bytes,
        } => {
            let state = states.find(chain, root)?;
            let first = (*origin, *limit);
            storage(state.as_deref(), accounts, first, *bytes, id)
        }
        SnapRequest::ByteCodes { hashes, bytes } => codes(chain, hashes, *bytes, id),
        SnapRequest::TrieNodes { root, paths, bytes } => {
            let state = states.find(chain, root)?;
            nodes(state.as_deref(), paths, *bytes, id)
        }
        SnapRequest::AccessLists { blocks, bytes } => {
            let mut items = items(*bytes);
            for hash in blocks.iter().take(MAX_SERVED) {
                match chain.block_access_list(hash)? {
                    Some(list) => items.push_raw(&list),
                    None => items.push_string(&[]),
                }
                if items.is_full() {
                    break;
                }
            }
            Ok(items.answer(id))
        }
    }
}

/// The message that answers a request with nothing.
pub(super) fn nothing(request: &SnapRequest, id: u64) -> Vec<u8> {
    let items = SnapItems::new(0);
    match request.kind() {
        SnapKind::AccountRange | SnapKind::StorageRanges => items.range_answer(id, &[]),
        SnapKind::ByteCodes | SnapKind::TrieNodes | SnapKind::AccessLists => items.answer(id),
    }
}

fn items(bytes: u64) -> SnapItems {
    SnapItems::new(most(bytes))
}

fn most(bytes: u64) -> usize {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    bytes.min(SOFT_ANSWER_BYTES)
}

/// Accounts from `range.0` on, up to the first at or above `range.1`.
fn accounts(
    state: Option<&ProvableView>,
    range: (&B256, &B256),
    bytes: u64,
    id: u64,
) -> Result<Vec<u8>, Fault> {
    let (mut items, mut last) = (items(bytes), None);
    let Some(state) = state else {
        return Ok(items.range_answer(id, &[]));
    };
    let (origin, limit) = range;
    state.view().accounts_from(origin, &mut |key, account| {
        let Some(account) = account else {
            return true;
        };
        items.push_account(key, &encode_account(&account));
        last = Some(*key);
        key < limit && !items.is_full()
    })?;
    let mut proof = state.prove_account_by_key(origin)?;
    if let Some(last) = last {
        add_nodes(&mut proof, state.prove_account_by_key(&last)?);
    }
    Ok(items.range_answer(id, &proof))
}

/// Slots of accounts; of the first one from `first.0` on, up to the first at or above `first.1`. What is cut has a proof and is the end.
fn storage(
    state: Option<&ProvableView>,
    accounts: &[B256],
    first: (B256, B256),
    bytes: u64,
    id: u64,
) -> Result<Vec<u8>, Fault> {
    let mut items = items(bytes);
    let most = most(bytes) + most(bytes) / SLACK;
    let Some(state) = state else {
        return Ok(items.range_answer(id, &[]));
    };
    let all = (B256::ZERO, B256::repeat_byte(0xff));
    for (at, account) in accounts.iter().take(MAX_SERVED).enumerate() {
        if items.is_full() {
            break;
        }
        let (origin, limit) = if at == 0 { first } else { all };
        let (mut last, mut is_cut) = (None, false);
        let mut list = items.slots(most);
        state
            .view()
            .slots_from(account, &origin, &mut |key, value| {
                let Some(value) = value else {
                    return true;
                };
                // There is one slot at least, whatever bytes were asked for.
                is_cut = last.is_some_and(|last| last >= limit || list.is_full());
                if !is_cut {
                    list.push(key, &encode(value));
                    last = Some(*key);
                }
                !is_cut
            })?;
        list.finish();
        if is_cut || !origin.is_zero() {
            let root = state.account_by_key(account)?;
            let root = root.map_or(EMPTY_ROOT_HASH, |account| account.storage_root);
            let mut proof = state.prove_slot_by_key(account, root, &origin)?;
            if let Some(last) = last {
                add_nodes(&mut proof, state.prove_slot_by_key(account, root, &last)?);
            }
            return Ok(items.range_answer(id, &proof));
        }
    }
    Ok(items.range_answer(id, &[]))
}

/// Appends the nodes of a second path that are not on the first one. Both begin at the root, so what they share comes first.
fn add_nodes(proof: &mut Vec<Bytes>, second: Vec<Bytes>) {
    let pairs = proof.iter().zip(&second);
    let shared = pairs.take_while(|(a, b)| a == b).count();
    proof.extend(second.into_iter().skip(shared));
}

/// Codes by hash; those that this node does not have are left out.
fn codes(chain: &Chain, hashes: &[B256], bytes: u64, id: u64) -> Result<Vec<u8>, Fault> {
    let mut items = items(bytes);
    for hash in hashes.iter().take(MAX_SERVED) {
        if *hash == EMPTY_CODE_HASH {
            items.push_string(&[]);
        } else if let Some(code) = chain.code(hash)? {
            items.push_string(&code);
        }
        if items.is_full() {
            break;
        }
    }
    Ok(items.answer(id))
}

/// Nodes by path, position by position, empty where there is none. For paths in the storage of an account that the state does not have
/// there is no position, as with geth.
fn nodes(
    state: Option<&ProvableView>,
    paths: &[TriePaths],
    bytes: u64,
    id: u64,
) -> Result<Vec<u8>, Fault> {
    let mut items = items(bytes);
    let Some(state) = state else {
        return Ok(items.answer(id));
    };
    let (mut looked_up, begun) = (0, Instant::now());
    for TriePaths { account, slots } in paths {
        let of_account = slots.is_empty();
        let storage = match of_account {
            true => None,
            false => storage_of(state, account)?,
        };
        for path in slots.iter().chain(of_account.then_some(account)) {
            let node = match storage {
                None if of_account => state.account_node(path)?,
                None => break,
                Some((owner, root)) => state.storage_node(&owner, root, path)?,
            };
            items.push_string(&node.unwrap_or_default());
            looked_up += 1;
            if items.is_full() || looked_up == MAX_SERVED || begun.elapsed() > NODES_TIME {
                return Ok(items.answer(id));
            }
        }
    }
    Ok(items.answer(id))
}

/// The hashed address in these bytes, and the root of its storage; `None` if there is no such account.
fn storage_of(state: &ProvableView, account: &[u8]) -> Result<Option<(B256, B256)>, Fault> {
    let Ok(owner) = B256::try_from(account) else {
        return Ok(None);
    };
    let account = state.account_by_key(&owner)?;
    Ok(account.map(|account| (owner, account.storage_root)))
}
