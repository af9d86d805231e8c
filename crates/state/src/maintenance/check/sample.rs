//! A random sample of accounts and slots, each checked along its trie path.

use super::{Check, CheckSummary, Problem};
use crate::WorldState;
use crate::commit::flat::{decode_account, decode_value};
use crate::tries::disk_trie::{DiskTrie, RowSource};
use alloy_primitives::keccak256;
use niwaki_primitives::{B256, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault};
use niwaki_storage::{Row, Segment};
use niwaki_trie::{Owner, Path, TrieAccount, encode_slot, find};
use std::hash::{BuildHasher, RandomState};

impl WorldState {
    /// Checks `count` accounts, a new random sample at each call, against the head's state root: every node on the
    /// path to an account is hashed, its code, and the path to one of its slots. An account may be drawn twice.
    /// O(count).
    ///
    /// # Errors
    /// A [`Fault`] if the storage can't be read; wrong contents are problems, not faults.
    pub fn check_sample(
        &self,
        count: u64,
        report: &mut dyn FnMut(Problem),
    ) -> Result<CheckSummary, Fault> {
        let view = self.view_at_head()?;
        let mut check = Check {
            snapshot: &view.snapshot,
            report,
            summary: CheckSummary::default(),
        };
        let seed = RandomState::new();
        for at in 0..count {
            let drawn = keccak256(seed.hash_one(at).to_be_bytes());
            check.drawn_account(&view.head.root, &drawn)?;
        }
        Ok(check.summary)
    }
}

impl Check<'_> {
    /// Checks the first account from `drawn` on.
    fn drawn_account(&mut self, root: &B256, drawn: &B256) -> Result<(), Fault> {
        let Some((key, slim)) = self.drawn_row(Segment::Accounts, &[], drawn)? else {
            return Ok(());
        };
        self.summary.accounts += 1;
        let (Ok(owner), Ok(account)) = (B256::try_from(&key[..]), decode_account(&slim)) else {
            self.problem(Segment::Accounts, &key, "not a key and an account");
            return Ok(());
        };
        self.check_path(None, *root, &owner, account.to_leaf())?;
        if account.code_hash != EMPTY_CODE_HASH {
            self.code(&key, &account)?;
        }
        self.drawn_slot(&owner, &account, drawn)
    }

    /// Checks the first slot of an account from `drawn` on.
    fn drawn_slot(
        &mut self,
        owner: &B256,
        account: &TrieAccount,
        drawn: &B256,
    ) -> Result<(), Fault> {
        let row = self.drawn_row(Segment::Slots, owner.as_slice(), drawn)?;
        let Some((key, bytes)) = row else {
            if account.storage_root != EMPTY_ROOT_HASH {
                let what = "the account has a storage root and no slot";
                self.problem(Segment::Accounts, owner.as_slice(), what);
            }
            return Ok(());
        };
        self.summary.slots += 1;
        let slot = key.get(32..).and_then(|slot| B256::try_from(slot).ok());
        let (Some(slot), Ok(value)) = (slot, decode_value(&bytes)) else {
            self.problem(Segment::Slots, &key, "not a key and a value");
            return Ok(());
        };
        let root = account.storage_root;
        self.check_path(Some(*owner), root, &slot, encode_slot(&value))
    }

    /// Goes from `root` to `key`, where the trie of `owner` must have `leaf`, which follows from the flat row.
    fn check_path(
        &mut self,
        owner: Owner,
        root: B256,
        key: &B256,
        leaf: Vec<u8>,
    ) -> Result<(), Fault> {
        let (segment, row) = match owner {
            None => (Segment::Accounts, key.to_vec()),
            Some(owner) => (Segment::Slots, [owner, *key].concat()),
        };
        let trie = DiskTrie::new(RowSource::Snapshot(self.snapshot), &[]);
        let mut nodes = 0;
        let found = find(&trie, owner, root, &Path::of_hash(key), &mut |_| nodes += 1);
        self.summary.trie_rows += nodes;
        match found {
            Ok(Some(found)) if found == leaf => {}
            Ok(Some(_)) => self.problem(segment, &row, "the trie has another value"),
            Ok(None) => self.problem(segment, &row, "the trie does not have it"),
            Err(fault @ (Fault::Corrupt { .. } | Fault::Missing { .. })) => {
                self.problem(segment, &row, &format!("on the way to it: {fault}"));
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// The first row of `prefix` whose key continues with `drawn` or more, or the very first one.
    fn drawn_row(
        &self,
        segment: Segment,
        prefix: &[u8],
        drawn: &B256,
    ) -> Result<Option<Row>, Fault> {
        let from = [prefix, drawn.as_slice()].concat();
        let mut rows = self.snapshot.range(segment, &from, None);
        let next = rows.next().transpose()?;
        match next.filter(|(key, _)| key.starts_with(prefix)) {
            Some(row) => Ok(Some(row)),
            None => self.snapshot.prefix(segment, prefix).next().transpose(),
        }
    }
}
