//! The rows of a commit other than trie rows: flat values, the trie log, code.

use crate::commit::flat::{encode_account, encode_value};
use crate::commit::hashed_diff::HashedDiff;
use crate::{BlockId, ComputedRoot, TrieLog};
use niwaki_primitives::{B256, Bytes};
use niwaki_storage::{Batch, Segment};
use std::sync::Arc;

/// About the bytes that an account or a slot takes in the flat segments and in the trie log together.
pub(crate) const BYTES_PER_VALUE: usize = 200;

/// The trie log and the codes of a block, to be encoded later.
pub(crate) struct TrieLogRows {
    block: BlockId,
    parent: B256,
    diff: Arc<HashedDiff>,
    pub(crate) codes: Vec<(B256, Bytes)>,
}

impl TrieLogRows {
    pub(crate) fn of(computed: ComputedRoot, block: BlockId, parent: B256) -> Self {
        Self {
            block,
            parent,
            diff: computed.own,
            codes: computed.codes,
        }
    }

    pub(crate) fn add_to(&self, batch: &mut Batch) {
        let log = TrieLog::encode(self.parent, &self.diff);
        batch.put(Segment::TrieLogs, &self.block.to_key(), &log);
        for (hash, code) in &self.codes {
            batch.put(Segment::Code, hash.as_slice(), code);
        }
    }
}

/// Adds the flat accounts and slots of the second state of `diff`.
pub(crate) fn add_flat(diff: &HashedDiff, batch: &mut Batch) {
    for account in &diff.accounts {
        let key = account.key.as_slice();
        match &account.new {
            Some(new) => batch.put(Segment::Accounts, key, &encode_account(new)),
            None => batch.delete(Segment::Accounts, key),
        }
        for slot in &account.slots {
            let key = [key, slot.key.as_slice()];
            if slot.new.is_zero() {
                batch.delete_parts(Segment::Slots, &key);
            } else {
                batch.put_parts(Segment::Slots, &key, &[&encode_value(&slot.new)]);
            }
        }
    }
}
