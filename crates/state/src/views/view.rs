//! A state to read from: the head's, or the head's with the diffs of other blocks laid over it.

use crate::commit::flat::{account_of_row, value_of_row};
use crate::tries::prefetcher::{PrefetchSender, PrefetchTarget};
use crate::views::cache::Caches;
use crate::views::layers::DiffLayers;
use crate::views::overlay::Overlay;
use crate::{BlockId, StateHead};
use alloy_primitives::keccak256;
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{
    Account, Address, B256, Bytes, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault, StateView, U256,
    map::B256Map,
};
use niwaki_storage::{Segment, Snapshot, corrupt, missing};
use niwaki_trie::TrieAccount;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// The state after one block. It never changes, whatever is committed later; it may be sent to other threads and may
/// outlive the [`WorldState`](crate::WorldState). A clone costs three reference counts.
///
/// A read looks into the overlay if there is one, then into the value caches, then into the storage
/// [`Snapshot`]. The snapshot keeps rows that are overwritten later on disk, and a bounded part of them in
/// memory, so a view should not be kept longer than needed.
pub struct View {
    pub(crate) caches: Arc<Caches>,
    pub(crate) snapshot: Snapshot,
    /// The head when the snapshot was taken.
    pub(crate) head: StateHead,
    /// The number of commits at that time: the version of the cache shards that this view may use.
    pub(crate) version: u64,
    pub(crate) overlay: Option<Arc<Overlay>>,
    /// Gets what is not found in the caches.
    pub(crate) prefetch_sender: Option<PrefetchSender>,
}

impl Clone for View {
    /// The clone has no prefetch sender: it may outlive the prefetcher.
    fn clone(&self) -> Self {
        Self {
            caches: Arc::clone(&self.caches),
            snapshot: self.snapshot.clone(),
            head: self.head,
            version: self.version,
            overlay: self.overlay.clone(),
            prefetch_sender: None,
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
            let value = value_of_row(&row, &bytes)?;
            let slot = row.get(32..).and_then(|slot| B256::try_from(slot).ok());
            let slot = slot.ok_or_else(|| corrupt(Segment::Slots, &row, "key is not 64 bytes"))?;
            slots.push((slot, over.remove(&slot).unwrap_or(value)));
        }
        slots.extend(over);
        slots.retain(|(_, value)| !value.is_zero());
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        Ok(slots)
    }

    /// How many accounts and slots differ from the head's.
    pub fn differing_values(&self) -> usize {
        let over = self.overlay.as_ref();
        over.map_or(0, |over| over.layers.total().len())
    }

    /// From the head's state to this one.
    pub(crate) fn layers(&self) -> DiffLayers {
        let overlay = self.overlay.as_ref();
        overlay.map_or_else(DiffLayers::default, |overlay| overlay.layers.clone())
    }

    /// Accounts, and slots of existing accounts, by hashed key. What can't be read is left out.
    pub(crate) fn prefetch_targets(
        &self,
        values: &[(Address, Option<U256>)],
    ) -> Vec<PrefetchTarget> {
        let slots = values.iter().filter_map(|(_, slot)| *slot);
        let words: Vec<[u8; 32]> = slots.map(|slot| slot.to_be_bytes()).collect();
        let words: Vec<&[u8]> = words.iter().map(<[u8; 32]>::as_slice).collect();
        let mut slot_keys = keccak256_batch(&words).into_iter();
        let target = |(address, slot): &(Address, Option<U256>)| {
            let slot = match slot {
                None => None,
                Some(_) => {
                    let key = slot_keys.next()?;
                    let account = self.head_account(address).ok()?;
                    Some((key, account?.storage_root))
                }
            };
            Some(PrefetchTarget {
                account: hash_of(address),
                slot,
                is_absent: false,
            })
        };
        values.iter().filter_map(target).collect()
    }

    /// The account at `address` in the head's state.
    pub(crate) fn head_account(&self, address: &Address) -> Result<Option<TrieAccount>, Fault> {
        let shard = self.caches.of(address, self.version);
        if let Some(account) = shard.and_then(|mut shard| shard.accounts.get(address)) {
            return Ok(account);
        }
        let key = keccak256(address);
        let slim = self.snapshot.get(Segment::Accounts, key.as_slice())?;
        let account = slim.map(|slim| account_of_row(key.as_slice(), &slim));
        let account = account.transpose()?;
        self.notify_prefetcher(key, None, account.is_none());
        if let Some(mut shard) = self.caches.of(address, self.version) {
            if account.is_none() {
                shard.accounts.note_absent();
            }
            shard.accounts.insert(*address, account, 0);
        }
        Ok(account)
    }

    /// Sends an account or a slot that was not in the caches to the prefetcher.
    fn notify_prefetcher(&self, account: B256, slot: Option<(B256, B256)>, is_absent: bool) {
        if let Some(sender) = &self.prefetch_sender {
            // With a full queue the prefetcher is too far behind to be of use.
            let _ = sender.try_send(PrefetchTarget {
                account,
                slot,
                is_absent,
            });
        }
    }

    /// The value of a slot in the head's state.
    fn head_slot(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let shard = self.caches.of(address, self.version);
        if let Some(value) = shard.and_then(|mut shard| shard.slots.get(&(*address, *slot))) {
            return Ok(value);
        }
        let (account, slot_key) = (hash_of(address), keccak256(B256::from(*slot)));
        let key = [account, slot_key].concat();
        let value = self.snapshot.get(Segment::Slots, &key)?;
        let value = value.map_or(Ok(U256::ZERO), |bytes| value_of_row(&key, &bytes))?;
        if self.prefetch_sender.is_some()
            && let Some(owner) = self.head_account(address)?
        {
            let slot = Some((slot_key, owner.storage_root));
            self.notify_prefetcher(account, slot, value.is_zero());
        }
        if let Some(mut shard) = self.caches.of(address, self.version) {
            if value.is_zero() {
                shard.slots.note_absent();
            }
            shard.slots.insert((*address, *slot), value, 0);
        }
        Ok(value)
    }
}

thread_local! {
    /// The address hashed last: consecutive slot reads are often of one contract.
    static LAST_HASHED: Cell<(Address, B256)> = Cell::new((Address::ZERO, keccak256(Address::ZERO)));
}

/// Keccak-256 of an address.
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
        let cached = codes.with(code_hash, |code| code.len(), Bytes::clone);
        drop(codes);
        if let Some(code) = cached {
            return Ok(code);
        }
        let code = self.snapshot.get(Segment::Code, code_hash.as_slice())?;
        let code = code.ok_or_else(|| missing(Segment::Code, code_hash.as_slice()))?;
        let code = Bytes::from(code);
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
        let hash = hash.ok_or_else(|| missing(Segment::Canonical, &key))?;
        B256::try_from(&hash[..])
            .map_err(|_| corrupt(Segment::Canonical, &key, "a block hash has 32 bytes"))
    }
}
