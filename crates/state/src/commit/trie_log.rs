//! The trie log of a block: its parent and its [`HashedDiff`], with values before and after, so that it rolls
//! both ways. FORMAT.md has the bytes.

use crate::commit::hashed_diff::{HashedAccountDiff, HashedDiff, HashedSlotDiff};
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
    /// It is not the RLP of a trie log.
    #[error("malformed trie log: {0}")]
    Malformed(#[from] alloy_rlp::Error),
    /// An account or slot is listed twice.
    #[error("the trie log lists {0} twice")]
    Repeated(B256),
}

/// A trie log: what a block changed, and on top of which parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrieLog {
    /// Hash of the parent block.
    pub parent: B256,
    /// From the parent's state to the block's.
    pub diff: HashedDiff,
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

impl TrieLog {
    /// The bytes of the log of a block with this parent and this diff.
    pub fn encode(parent: B256, diff: &HashedDiff) -> Vec<u8> {
        let accounts = diff.accounts.iter().map(RlpAccount::of).collect();
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
            diff: HashedDiff { accounts },
        })
    }
}

impl RlpAccount {
    fn of(change: &HashedAccountDiff) -> Self {
        let slim = |account: &Option<TrieAccount>| {
            account
                .as_ref()
                .map(encode_account)
                .unwrap_or_default()
                .into()
        };
        let mut slots = Vec::with_capacity(change.slots.len());
        let mut hashed_slots = Vec::new();
        for &HashedSlotDiff {
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

    fn change(self) -> Result<HashedAccountDiff, TrieLogError> {
        let account = |slim: Bytes| match slim.is_empty() {
            true => Ok(None),
            false => decode_account(&slim).map(Some),
        };
        let known = self.slots.into_iter();
        let known = known.map(|s| HashedSlotDiff::of_slot(s.slot, s.prior, s.new));
        let hashed = self.hashed_slots.into_iter();
        let hashed = hashed.map(|RlpHashedSlot { key, prior, new }| HashedSlotDiff {
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
        Ok(HashedAccountDiff {
            key: keccak256(self.address),
            address: self.address,
            prior: account(self.prior)?,
            new: account(self.new)?,
            slots,
        })
    }
}
