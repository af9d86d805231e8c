//! The rows that a commit adds beside those of the tries: flat values, the trie log, code.

use crate::branch::block_key;
use crate::changes::Changes;
use crate::flat::{encode_account, encode_value};
use crate::{BlockId, LogRow, Prepared};
use niwaki_primitives::{B256, Bytes};
use niwaki_storage::{Batch, Segment};
use std::sync::Arc;

/// About what an account or a slot takes in the flat segments and in the trie log together.
pub(crate) const BYTES_PER_VALUE: usize = 200;

/// What keeps a block's state reachable from its parent's, and back.
pub(crate) struct Log {
    block: BlockId,
    parent: B256,
    changes: Arc<Changes>,
    pub(crate) codes: Vec<(B256, Bytes)>,
}

impl Log {
    pub(crate) fn of(prepared: Prepared, (block, parent): (BlockId, B256)) -> Self {
        Self {
            block,
            parent,
            changes: prepared.own,
            codes: prepared.codes,
        }
    }

    pub(crate) fn add_to(&self, batch: &mut Batch) {
        let log = LogRow::encode(self.parent, &self.changes);
        batch.put(Segment::TrieLogs, &block_key(&self.block), &log);
        for (hash, code) in &self.codes {
            batch.put(Segment::Code, hash.as_slice(), code);
        }
    }
}

/// Adds the flat accounts and slots of `changes`' second state.
pub(crate) fn add_flat(changes: &Changes, batch: &mut Batch) {
    for account in &changes.accounts {
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
