//! The state at a block, from wherever it is kept, and proofs of it.

use crate::lock;
use niwaki_chain::{BlockId, ChainView, HistoricalView, ProvableView, RangeVisitor};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Account, Address, B256, Bytes, EMPTY_ROOT_HASH, Fault, StateView, U256};
use niwaki_trie::TrieAccount;
use std::sync::{Arc, Mutex};

/// The state after a block.
#[derive(Debug)]
pub enum State {
    /// A block near the head, or on a side branch.
    Recent(ChainView),
    /// An older canonical block, from the archive.
    Past(HistoricalView),
}

impl State {
    /// Calls `visit` for the accounts from a hashed address on; see [`ChainView::accounts_from`].
    pub(crate) fn accounts_from(
        &self,
        from: &B256,
        visit: &mut RangeVisitor<'_, TrieAccount>,
    ) -> Result<(), Fault> {
        match self {
            Self::Recent(view) => view.accounts_from(from, visit),
            Self::Past(view) => view.accounts_from(from, visit),
        }
    }

    /// Calls `visit` for the slots of an account from a hashed slot on; see [`ChainView::slots_from`].
    pub(crate) fn slots_from(
        &self,
        key: &B256,
        from: &B256,
        visit: &mut RangeVisitor<'_, U256>,
    ) -> Result<(), Fault> {
        match self {
            Self::Recent(view) => view.slots_from(key, from, visit),
            Self::Past(view) => view.slots_from(key, from, visit),
        }
    }

    /// The account at `address` with its storage root; an empty one if there is none.
    ///
    /// # Errors
    /// A fault of the storage.
    pub fn trie_account(&self, address: &Address) -> Result<TrieAccount, Fault> {
        let account = match self {
            Self::Recent(view) => view.trie_account(address)?,
            Self::Past(view) => view.trie_account(address)?,
        };
        let empty = || TrieAccount::new(&Account::default(), EMPTY_ROOT_HASH);
        Ok(account.unwrap_or_else(empty))
    }

    /// Proofs of what this state has, whose root is `root`; `None` if it differs from the head's in too many values and there is no archive.
    ///
    /// # Errors
    /// A fault of the storage, also if the tries that were computed have another root.
    pub fn proofs(&self, root: B256) -> Result<Option<Proofs<'_>>, Fault> {
        let view = match self {
            Self::Past(view) => return Ok(Some(Proofs::Past(view))),
            Self::Recent(view) if view.differing_values() > MAX_PROOF_CHANGES => return Ok(None),
            Self::Recent(view) => view.clone().with_tries(1)?,
        };
        let got = view.head().root;
        match got == root {
            true => Ok(Some(Proofs::Recent(Arc::new(view)))),
            false => Err(Fault::Corrupt {
                segment: "trie logs",
                key: view.head().block.to_string(),
                reason: format!("they lead to the root {got}, the header says {root}"),
            }),
        }
    }

    fn view(&self) -> &dyn StateView {
        match self {
            Self::Recent(view) => view,
            Self::Past(view) => view,
        }
    }
}

/// What a proof below the head may have to undo, in accounts and slots: about half a second of work.
const MAX_PROOF_CHANGES: usize = 50_000;
/// States below the head whose tries are kept for more proofs,
const KEPT: usize = 2;
/// or one, if they have more bytes.
const KEPT_BYTES: usize = 64 << 20;

/// States below the head whose tries were computed since the head moved; one is computed at a time.
#[derive(Debug, Default)]
pub(crate) struct ProvableStates(Mutex<Vec<Arc<ProvableView>>>);

impl ProvableStates {
    /// As [`State::proofs`].
    pub(crate) fn proofs<'s>(
        &self,
        block: BlockId,
        root: B256,
        state: &'s State,
    ) -> Result<Option<Proofs<'s>>, Fault> {
        match state {
            State::Recent(view) if view.differing_values() > 0 => {}
            _ => return state.proofs(root),
        }
        let mut kept = lock(&self.0);
        if let Some(known) = kept.iter().find(|known| known.head().block == block) {
            return Ok(Some(Proofs::Recent(Arc::clone(known))));
        }
        let proofs = state.proofs(root)?;
        if let Some(Proofs::Recent(view)) = &proofs {
            kept.push(Arc::clone(view));
            let bytes =
                |all: &[Arc<ProvableView>]| all.iter().map(|one| one.bytes()).sum::<usize>();
            while kept.len() > KEPT || kept.len() > 1 && bytes(&kept) > KEPT_BYTES {
                kept.remove(0);
            }
        }
        Ok(proofs)
    }

    /// The head has moved: what is kept pins rows of the former one.
    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }
}

/// Proofs of one state.
#[derive(Debug)]
pub enum Proofs<'s> {
    /// Of the head's, or of one near it, whose tries were computed.
    Recent(Arc<ProvableView>),
    /// Of an older one.
    Past(&'s HistoricalView),
}

impl Proofs<'_> {
    /// The trie nodes that prove an account, or one of its slots, from the root down.
    ///
    /// # Errors
    /// A fault of the storage.
    pub fn prove(&self, address: &Address, slot: Option<&U256>) -> Result<Vec<Bytes>, Fault> {
        match (self, slot) {
            (Self::Past(view), None) => view.prove_account(address),
            (Self::Past(view), Some(slot)) => view.prove_slot(address, slot),
            (Self::Recent(view), None) => view.prove_account_by_key(&keccak256(address)),
            (Self::Recent(view), Some(slot)) => {
                let owner = keccak256(address);
                let account = view.view().trie_account(address)?;
                let root = account.map_or(EMPTY_ROOT_HASH, |account| account.storage_root);
                view.prove_slot_by_key(&owner, root, &keccak256(B256::from(*slot)))
            }
        }
    }
}

impl StateView for State {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        self.view().account(address)
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        self.view().storage(address, slot)
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.view().has_storage(address)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        self.view().code(code_hash)
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.view().block_hash(number)
    }
}
