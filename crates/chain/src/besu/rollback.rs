//! Besu's trie logs read: what a state was before its last blocks.
//!
//! A log is `[block hash, [address, account, code, slots], ..]`, where an account or a code is null or `[before, after, cleared?]` and a
//! slot is `[its hash, before, after, cleared?]`; null (0x80) stands for what is not there.

use super::{BesuError, BesuFolder, TRIE_LOG};
use crate::BlockId;
use crate::genesis_file::{Loading, LoadingReport};
use alloy_rlp::{Decodable, Error, Header};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, B256, Bytes, U256};
use niwaki_trie::TrieAccount;
use std::collections::HashMap;

/// What differs between the state that Besu stores and an earlier one, by hashed keys; values are those of the earlier one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Earlier {
    /// `None` where there was no account.
    pub(super) accounts: HashMap<B256, Option<TrieAccount>>,
    /// Zero where there was no value.
    pub(super) slots: HashMap<B256, HashMap<B256, U256>>,
    pub(super) codes: Vec<Bytes>,
    /// Values that were read, those that were overwritten counted too.
    values: usize,
}

/// A state is rolled back until about so many values are in memory: 200 MiB.
const MAX_VALUES: usize = 1 << 20;

impl BesuFolder {
    /// Rolls the state of `from` back, to that of block `target` if there are logs and they do not have too much, but at least to a canonical
    /// block. Returns the block
    /// whose state it is, and what differs from the stored one.
    ///
    /// # Errors
    /// [`BesuError`], also if the logs end at a block that is not canonical.
    pub(super) fn roll_back(
        &self,
        from: BlockId,
        target: u64,
        report: &mut LoadingReport<'_>,
    ) -> Result<(BlockId, Earlier), BesuError> {
        let mut earlier = Earlier::default();
        let mut block = from;
        loop {
            let is_canonical = self.hash_at(block.number)? == Some(block.hash);
            let is_far = block.number <= target || earlier.values >= MAX_VALUES;
            if is_canonical && is_far {
                break;
            }
            if !report(Loading::Reading(0, 1)) {
                return Err(BesuError::Stopped);
            }
            let log = match block.number {
                0 => None,
                _ => self.database.get(TRIE_LOG, block.hash.as_slice())?,
            };
            match (log, is_canonical) {
                (Some(log), _) => earlier.add(&log, &block.hash).map_err(|error| {
                    self.damaged(format!("the trie log of block {block} is {error}"))
                })?,
                (None, true) => break,
                (None, false) => {
                    let what = format!("its state is of block {block}, which is not canonical");
                    return Err(self.damaged(what));
                }
            }
            block = BlockId {
                number: block.number - 1,
                hash: self.header(&block.hash)?.parent_hash,
            };
        }
        Ok((block, earlier))
    }
}

impl Earlier {
    /// Goes one block further back, by the log of that block.
    fn add(&mut self, log: &[u8], block: &B256) -> Result<(), Error> {
        let mut rest = log;
        let mut log = list(&mut rest)?;
        if B256::decode(&mut log)? != *block {
            return Err(Error::Custom("that of another block"));
        }
        while !log.is_empty() {
            let mut change = list(&mut log)?;
            let key = keccak256(Address::decode(&mut change)?);
            if let Some(mut account) = not_null(&mut change)? {
                let before = not_null(&mut account)?;
                let before = before.map(account_of).transpose()?;
                self.accounts.insert(key, before);
                self.values += 1;
            }
            if let Some(mut code) = not_null(&mut change)? {
                let before = Header::decode_bytes(&mut code, false)?;
                if !before.is_empty() {
                    self.codes.push(Bytes::copy_from_slice(before));
                }
            }
            let Some(mut slots) = not_null(&mut change)? else {
                continue;
            };
            let before = self.slots.entry(key).or_default();
            while !slots.is_empty() {
                let mut slot = list(&mut slots)?;
                let hash = B256::decode(&mut slot)?;
                before.insert(hash, U256::decode(&mut slot)?);
                self.values += 1;
            }
        }
        Ok(())
    }
}

fn list<'a>(rlp: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    Header::decode_bytes(rlp, true)
}

/// What is in the next list, or `None` if null stands there.
fn not_null<'a>(rlp: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Error> {
    match rlp.first() {
        Some(&0x80) => {
            *rlp = &rlp[1..];
            Ok(None)
        }
        _ => list(rlp).map(Some),
    }
}

/// Nonce, balance, storage root and hash of the code.
fn account_of(mut fields: &[u8]) -> Result<TrieAccount, Error> {
    let fields = &mut fields;
    Ok(TrieAccount {
        nonce: u64::decode(fields)?,
        balance: U256::decode(fields)?,
        storage_root: B256::decode(fields)?,
        code_hash: B256::decode(fields)?,
    })
}
