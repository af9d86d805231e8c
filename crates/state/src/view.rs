//! A state to read from: the head, or the head with a branch's changes laid over it.

use crate::branch::Overlay;
use crate::cache::Caches;
use crate::disk_trie::{DiskTrie, Rows, corrupt};
use crate::flat::{decode_account, decode_value};
use crate::prefetch::{Tell, Touched};
use crate::{BlockId, StateHead};
use alloy_primitives::{hex, keccak256};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{
    Account, Address, B256, Bytes, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault, StateView, U256,
    map::B256Map,
};
use niwaki_storage::{Segment, Snapshot};
use niwaki_trie::{Path, TrieAccount, prove};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// The state after one block. It never changes, whatever is committed meanwhile, and it may go to
/// other threads and outlive the [`WorldState`](crate::WorldState). A clone costs three reference
/// counts.
///
/// It holds a storage [`Snapshot`], which keeps what is overwritten on the disk and a bounded part of
/// it in memory; the caches, which are within their budget; and beside the head what differs from
/// the head. So it is not kept longer than needed.
pub struct View {
    caches: Arc<Caches>,
    snapshot: Snapshot,
    /// The head at the moment of the snapshot.
    head: StateHead,
    /// Count of commits at that moment: the caches speak of this view's head only while it stands.
    version: u64,
    overlay: Option<Arc<Overlay>>,
    /// Is told what is read past the caches.
    pub(crate) tell: Option<Tell>,
}

impl Clone for View {
    /// The clone tells nobody what it reads: it may outlive who listens.
    fn clone(&self) -> Self {
        Self {
            caches: Arc::clone(&self.caches),
            snapshot: self.snapshot.clone(),
            head: self.head,
            version: self.version,
            overlay: self.overlay.clone(),
            tell: None,
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("block", &self.block())
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

impl View {
    pub(crate) fn new(
        caches: Arc<Caches>,
        snapshot: Snapshot,
        head: StateHead,
        version: u64,
    ) -> Self {
        Self {
            caches,
            snapshot,
            head,
            version,
            overlay: None,
            tell: None,
        }
    }

    pub(crate) fn with_overlay(self, overlay: Arc<Overlay>) -> Self {
        let overlay = Some(overlay);
        Self { overlay, ..self }
    }

    /// The block whose state this is.
    pub fn block(&self) -> BlockId {
        match &self.overlay {
            None => self.head.block,
            Some(overlay) => overlay.block,
        }
    }

    /// The account at `address`, with its storage root.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn trie_account(&self, address: &Address) -> Result<Option<TrieAccount>, Fault> {
        let over = self.overlay.as_ref();
        match over.and_then(|over| over.layers.account(&keccak256(address))) {
            Some(account) => Ok(account),
            None => self.head_account(address),
        }
    }

    /// Every slot of the account with hashed address `key` that is not zero, ascending by hashed
    /// slot. O(slots of the account).
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn slots_by_key(&self, key: &B256) -> Result<Vec<(B256, U256)>, Fault> {
        let over = self.overlay.as_ref();
        let mut over = over.map_or_else(B256Map::default, |over| over.layers.slots(key));
        let mut slots = Vec::new();
        for row in self.snapshot.prefix(Segment::Slots, key.as_slice()) {
            let (row, bytes) = row?;
            let value = decode_value(&bytes).map_err(|e| corrupt(Segment::Slots, &row, e))?;
            let slot = row.get(32..).and_then(|slot| B256::try_from(slot).ok());
            let slot = slot.ok_or_else(|| corrupt(Segment::Slots, &row, "key is not 64 bytes"))?;
            slots.push((slot, over.remove(&slot).unwrap_or(value)));
        }
        slots.extend(over);
        slots.retain(|(_, value)| !value.is_zero());
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        Ok(slots)
    }

    /// The nodes that prove the account at `address` in the state root of the head, from the root
    /// down; `None` for a view that is not of the head.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn prove_account(&self, address: &Address) -> Result<Option<Vec<Bytes>>, Fault> {
        if self.overlay.is_some() {
            return Ok(None);
        }
        let key = Path::of_hash(&keccak256(address));
        let trie = DiskTrie::new(Rows::At(&self.snapshot), &[]);
        prove(&trie, None, self.head.root, &key).map(Some)
    }

    /// The nodes that prove `slot` in the storage root of `address`, from the root down; `None`
    /// for a view that is not of the head.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn prove_slot(&self, address: &Address, slot: &U256) -> Result<Option<Vec<Bytes>>, Fault> {
        if self.overlay.is_some() {
            return Ok(None);
        }
        let owner = keccak256(address);
        let account = self.head_account(address)?;
        let root = account.map_or(EMPTY_ROOT_HASH, |account| account.storage_root);
        let key = Path::of_hash(&keccak256(B256::from(*slot)));
        let trie = DiskTrie::new(Rows::At(&self.snapshot), &[]);
        prove(&trie, Some(owner), root, &key).map(Some)
    }

    pub(crate) fn head(&self) -> StateHead {
        self.head
    }

    pub(crate) fn overlay(&self) -> Option<&Arc<Overlay>> {
        self.overlay.as_ref()
    }

    pub(crate) fn caches(&self) -> &Caches {
        &self.caches
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Where the head's tries have accounts, and slots of those that there are. What can't be read is left out.
    pub(crate) fn places_of(&self, wanted: &[(Address, Option<U256>)]) -> Vec<Touched> {
        let slots = wanted.iter().filter_map(|(_, slot)| *slot);
        let words: Vec<[u8; 32]> = slots.map(|slot| slot.to_be_bytes()).collect();
        let words: Vec<&[u8]> = words.iter().map(<[u8; 32]>::as_slice).collect();
        let mut slot_keys = keccak256_batch(&words).into_iter();
        let place = |(address, slot): &(Address, Option<U256>)| {
            let slot = match slot {
                None => None,
                Some(_) => {
                    let key = slot_keys.next()?;
                    let held = self.head_account(address).ok()?;
                    Some((key, held?.storage_root))
                }
            };
            Some(Touched {
                account: hash_of(address),
                slot,
                is_absent: false,
            })
        };
        wanted.iter().filter_map(place).collect()
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The account at `address` in the head's state.
    pub(crate) fn head_account(&self, address: &Address) -> Result<Option<TrieAccount>, Fault> {
        let held = self.caches.of(address, self.version);
        if let Some(account) = held.and_then(|mut shard| shard.accounts.get(address)) {
            return Ok(account);
        }
        let key = keccak256(address);
        let slim = self.snapshot.get(Segment::Accounts, key.as_slice())?;
        let account = slim.map(|slim| {
            decode_account(&slim)
                .map_err(|error| corrupt(Segment::Accounts, key.as_slice(), &error.to_string()))
        });
        let account = account.transpose()?;
        self.touched(key, None, account.is_none());
        if let Some(mut shard) = self.caches.of(address, self.version) {
            shard.accounts.insert(*address, account, 0);
        }
        Ok(account)
    }

    /// Tells that an account or a slot was not in the caches.
    fn touched(&self, account: B256, slot: Option<(B256, B256)>, is_absent: bool) {
        if let Some(tell) = &self.tell {
            // Nobody waits for a thread that reads ahead: with its queue full it is of no use.
            let _ = tell.try_send(Touched {
                account,
                slot,
                is_absent,
            });
        }
    }

    /// The value of a slot in the head's state.
    fn head_slot(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let held = self.caches.of(address, self.version);
        if let Some(value) = held.and_then(|mut shard| shard.slots.get(&(*address, *slot))) {
            return Ok(value);
        }
        let (account, slot_key) = (hash_of(address), keccak256(B256::from(*slot)));
        let key = [account, slot_key].concat();
        let value = match self.snapshot.get(Segment::Slots, &key)? {
            None => U256::ZERO,
            Some(bytes) => decode_value(&bytes).map_err(|e| corrupt(Segment::Slots, &key, e))?,
        };
        if self.tell.is_some()
            && let Some(held) = self.head_account(address)?
        {
            let slot = Some((slot_key, held.storage_root));
            self.touched(account, slot, value.is_zero());
        }
        if let Some(mut shard) = self.caches.of(address, self.version) {
            shard.slots.insert((*address, *slot), value, 0);
        }
        Ok(value)
    }
}

thread_local! {
    /// Slots that are read one after the other are often of one contract.
    static LAST_HASHED: Cell<(Address, B256)> = Cell::new((Address::ZERO, keccak256(Address::ZERO)));
}

/// The hash of an address whose slot is read.
fn hash_of(address: &Address) -> B256 {
    let (last, hash) = LAST_HASHED.get();
    if last == *address {
        return hash;
    }
    let hash = keccak256(address);
    LAST_HASHED.set((*address, hash));
    hash
}

impl StateView for View {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        let account = self.trie_account(address)?;
        Ok(account.map(|account| account.account()))
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let over = self.overlay.as_ref().and_then(|over| {
            let key = keccak256(B256::from(*slot));
            over.layers.slot(&keccak256(address), &key)
        });
        match over {
            Some(value) => Ok(value),
            None => self.head_slot(address, slot),
        }
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        let account = self.trie_account(address)?;
        Ok(account.is_some_and(|account| account.storage_root != EMPTY_ROOT_HASH))
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        if *code_hash == EMPTY_CODE_HASH {
            return Ok(Bytes::new());
        }
        let mut codes = self.caches.codes();
        let held = codes.with(code_hash, |code| code.len(), Bytes::clone);
        drop(codes);
        if let Some(code) = held {
            return Ok(code);
        }
        let code = self.snapshot.get(Segment::Code, code_hash.as_slice())?;
        let code: Bytes = code
            .ok_or_else(|| Fault::Missing {
                segment: Segment::Code.name(),
                key: hex::encode(code_hash),
            })?
            .into();
        let bytes = code.len();
        self.caches.codes().insert(*code_hash, code.clone(), bytes);
        Ok(code)
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        if let Some(hash) = self.overlay.as_ref().and_then(|o| o.ancestor(number)) {
            return Ok(hash);
        }
        if number == self.head.block.number && self.overlay.is_none() {
            return Ok(self.head.block.hash);
        }
        let key = number.to_be_bytes();
        let hash = self.snapshot.get(Segment::Canonical, &key)?;
        let hash = hash.ok_or_else(|| Fault::Missing {
            segment: Segment::Canonical.name(),
            key: hex::encode(key),
        })?;
        B256::try_from(&hash[..])
            .map_err(|_| corrupt(Segment::Canonical, &key, "a block hash has 32 bytes"))
    }
}
