//! The trie log of a block as bytes: its parent and its [`Changes`], good for both directions.

use crate::changes::{AccountChange, Changes, SlotChange};
use crate::{decode_account, encode_account};
use alloy_primitives::keccak256;
use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::{Address, B256, Bytes, U256};
use niwaki_trie::TrieAccount;

/// The first byte of every trie log.
const VERSION: u8 = 1;

/// The bytes are not a trie log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrieLogError {
    /// It was written by another version.
    #[error("trie log of version {found:?}, this program knows {VERSION}")]
    OtherVersion {
        /// The first byte, if there is any.
        found: Option<u8>,
    },
    /// It is not RLP of the right form.
    #[error("malformed trie log: {0}")]
    Malformed(#[from] alloy_rlp::Error),
    /// An account or slot comes twice.
    #[error("the trie log lists {0} twice")]
    Repeated(B256),
}

/// A trie log: what the block changed, and upon which parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRow {
    /// Hash of the parent block.
    pub parent: B256,
    /// From the parent's state to the block's.
    pub changes: Changes,
}

#[derive(RlpEncodable, RlpDecodable)]
struct RlpLog {
    parent: B256,
    accounts: Vec<RlpAccount>,
}

#[derive(RlpEncodable, RlpDecodable)]
struct RlpAccount {
    address: Address,
    prior: Bytes,
    new: Bytes,
    slots: Vec<RlpSlot>,
    hashed_slots: Vec<RlpHashedSlot>,
}

#[derive(RlpEncodable, RlpDecodable)]
struct RlpSlot {
    slot: U256,
    prior: U256,
    new: U256,
}

#[derive(RlpEncodable, RlpDecodable)]
struct RlpHashedSlot {
    key: B256,
    prior: U256,
    new: U256,
}

impl LogRow {
    /// The bytes of the log of a block with this parent that made these changes.
    pub fn encode(parent: B256, changes: &Changes) -> Vec<u8> {
        let accounts = changes.accounts.iter().map(RlpAccount::of).collect();
        let mut out = vec![VERSION];
        alloy_rlp::Encodable::encode(&RlpLog { parent, accounts }, &mut out);
        out
    }

    /// Reads a log.
    ///
    /// # Errors
    /// [`TrieLogError`] if the bytes are anything but one log.
    pub fn decode(bytes: &[u8]) -> Result<Self, TrieLogError> {
        let rlp = match bytes.split_first() {
            Some((&VERSION, rlp)) => rlp,
            other => {
                let found = other.map(|(version, _)| *version);
                return Err(TrieLogError::OtherVersion { found });
            }
        };
        let log: RlpLog = alloy_rlp::decode_exact(rlp)?;
        let accounts = log.accounts.into_iter().map(RlpAccount::change);
        let mut accounts = accounts.collect::<Result<Vec<_>, _>>()?;
        accounts.sort_unstable_by_key(|account| account.key);
        if let Some(two) = accounts.windows(2).find(|two| two[0].key == two[1].key) {
            return Err(TrieLogError::Repeated(two[0].key));
        }
        Ok(Self {
            parent: log.parent,
            changes: Changes { accounts },
        })
    }
}

impl RlpAccount {
    fn of(change: &AccountChange) -> Self {
        let slim = |account: &Option<TrieAccount>| {
            account
                .as_ref()
                .map(encode_account)
                .unwrap_or_default()
                .into()
        };
        let mut slots = Vec::with_capacity(change.slots.len());
        let mut hashed_slots = Vec::new();
        for &SlotChange {
            key,
            slot,
            prior,
            new,
        } in &change.slots
        {
            match slot {
                Some(slot) => slots.push(RlpSlot { slot, prior, new }),
                None => hashed_slots.push(RlpHashedSlot { key, prior, new }),
            }
        }
        Self {
            address: change.address,
            prior: slim(&change.prior),
            new: slim(&change.new),
            slots,
            hashed_slots,
        }
    }

    fn change(self) -> Result<AccountChange, TrieLogError> {
        let account = |slim: Bytes| match slim.is_empty() {
            true => Ok(None),
            false => decode_account(&slim).map(Some),
        };
        let known = self.slots.into_iter();
        let known = known.map(|s| SlotChange::of_slot(s.slot, s.prior, s.new));
        let hashed = self.hashed_slots.into_iter();
        let hashed = hashed.map(|RlpHashedSlot { key, prior, new }| SlotChange {
            key,
            slot: None,
            prior,
            new,
        });
        let mut slots: Vec<_> = known.chain(hashed).collect();
        slots.sort_unstable_by_key(|slot| slot.key);
        if let Some(two) = slots.windows(2).find(|two| two[0].key == two[1].key) {
            return Err(TrieLogError::Repeated(two[0].key));
        }
        Ok(AccountChange {
            key: keccak256(self.address),
            address: self.address,
            prior: account(self.prior)?,
            new: account(self.new)?,
            slots,
        })
    }
}
