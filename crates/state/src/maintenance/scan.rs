//! One pass over all accounts with their slots, in which the storage tries are built again. Check and repair share it.

use super::check::Problem;
use crate::commit::flat::{decode_account, decode_value};
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, Fault};
use niwaki_storage::{Row, RowIter, Segment, Snapshot};
use niwaki_trie::{Path, TrieAccount, TrieBuilder, encode_slot};
use std::cell::RefCell;
use std::iter::Peekable;

/// An account as it is stored, with the root that its slots have.
pub(super) struct ScannedAccount {
    pub(super) key: B256,
    pub(super) account: TrieAccount,
    pub(super) root: B256,
}

/// What a scan does with what it finds.
pub(super) trait ScanVisitor {
    /// The key of an account, or of a slot of one, before anything else of that row; `false` stops the scan.
    fn row(&mut self, segment: Segment, key: &[u8]) -> bool;
    /// A row of the storage trie that the slots of `owner` make.
    fn trie_row(&mut self, owner: &B256, path: &Path, row: &[u8]);
    /// A slot of no account.
    fn stray_slot(&mut self, key: &[u8]);
    /// A flat row that can't be read.
    fn damaged(&mut self, problem: Problem);
    /// An account, after its storage trie.
    fn account(&mut self, scanned: ScannedAccount) -> Result<(), Fault>;
}

/// Goes through all accounts with their slots; `false` if the visitor has stopped it.
pub(super) fn scan_accounts(
    snapshot: &Snapshot,
    visitor: &mut dyn ScanVisitor,
) -> Result<bool, Fault> {
    let mut slots = snapshot.prefix(Segment::Slots, &[]).peekable();
    for row in snapshot.prefix(Segment::Accounts, &[]) {
        let (key, slim) = row?;
        if !visitor.row(Segment::Accounts, &key) {
            return Ok(false);
        }
        let Ok(owner) = B256::try_from(&key[..]) else {
            visitor.damaged(Problem::new(
                Segment::Accounts,
                &key,
                "the key is not 32 bytes",
            ));
            continue;
        };
        skip_stray_slots(&mut slots, |slot| slot < owner.as_slice(), visitor)?;
        let Some(root) = scan_slots(&owner, &mut slots, visitor)? else {
            return Ok(false);
        };
        match decode_account(&slim) {
            Ok(account) => visitor.account(ScannedAccount {
                key: owner,
                account,
                root,
            })?,
            Err(error) => {
                let what = format!("not an account: {error}");
                visitor.damaged(Problem::new(Segment::Accounts, &key, what));
            }
        }
    }
    skip_stray_slots(&mut slots, |_| true, visitor)?;
    Ok(true)
}

fn skip_stray_slots(
    slots: &mut Peekable<RowIter<'_>>,
    is_stray: impl Fn(&[u8]) -> bool,
    visitor: &mut dyn ScanVisitor,
) -> Result<(), Fault> {
    let is_stray = |row: &Result<Row, Fault>| row.as_ref().map_or(true, |(key, _)| is_stray(key));
    while let Some(row) = slots.next_if(is_stray) {
        visitor.stray_slot(&row?.0);
    }
    Ok(())
}

/// Goes through the slots of `owner`; returns their root, or `None` if the visitor has stopped the scan.
fn scan_slots(
    owner: &B256,
    slots: &mut Peekable<RowIter<'_>>,
    visitor: &mut dyn ScanVisitor,
) -> Result<Option<B256>, Fault> {
    let is_own = |row: &Result<Row, Fault>| match row {
        Ok((key, _)) => key.starts_with(owner.as_slice()),
        Err(_) => true,
    };
    if slots.peek().is_none_or(|row| !is_own(row)) {
        return Ok(Some(EMPTY_ROOT_HASH));
    }
    let visitor = RefCell::new(visitor);
    let mut damaged = Vec::new();
    let mut sink = |path: &Path, row: &[u8]| visitor.borrow_mut().trie_row(owner, path, row);
    let mut builder = TrieBuilder::new(&mut sink);
    while let Some(row) = slots.next_if(is_own) {
        let (key, bytes) = row?;
        if !visitor.borrow_mut().row(Segment::Slots, &key) {
            return Ok(None);
        }
        let slot = key.get(32..).filter(|slot| slot.len() == 32);
        let reason = match (slot.and_then(Path::of_key), decode_value(&bytes)) {
            (Some(path), Ok(value)) => {
                builder.add(path, encode_slot(&value));
                continue;
            }
            (None, _) => "the key is not 64 bytes",
            (_, Err(reason)) => reason,
        };
        damaged.push(Problem::new(Segment::Slots, &key, reason));
    }
    let root = builder.finish();
    let visitor = visitor.into_inner();
    damaged
        .into_iter()
        .for_each(|problem| visitor.damaged(problem));
    Ok(Some(root))
}
