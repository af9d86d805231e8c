//! What one block (or transaction) changed: the value that execution hands to trie and state.

use crate::Account;
use alloy_primitives::{Address, B256, Bytes, U256};

/// Every change of a block, sorted by address, each account and slot once.
///
/// An account or slot that ends as it began is not listed. To roll a diff back, every `prior` is put in place; to
/// roll it forward, every `new`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDiff {
    /// Changed accounts, strictly ascending by address.
    pub accounts: Vec<(Address, AccountDiff)>,
    /// Code deployed in this block that its accounts refer to, strictly ascending by hash.
    pub codes: Vec<(B256, Bytes)>,
}

impl StateDiff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }
}

/// What a block has written since its changes were last drained, with the values of now.
///
/// Unlike in a [`StateDiff`], an account or slot may have the value of the parent state again, and code is not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirtyState {
    /// Written accounts, strictly ascending by address. With `storage_wiped`, zero slots may be listed too.
    pub accounts: Vec<(Address, AccountDiff)>,
}

impl From<StateDiff> for DirtyState {
    fn from(diff: StateDiff) -> Self {
        Self {
            accounts: diff.accounts,
        }
    }
}

/// How one account changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountDiff {
    /// The account before; `None` if it did not exist.
    pub prior: Option<Account>,
    /// The account after; `None` if it does not exist any more.
    pub new: Option<Account>,
    /// All storage of the account before the block was destroyed (SELFDESTRUCT before EIP-6780).
    /// Then `slots` are written to empty storage, and slots that are not listed are zero.
    pub storage_wiped: bool,
    /// Changed slots, strictly ascending by slot. With `storage_wiped`, `prior` is still the value
    /// before the block, and only non-zero `new` values are listed.
    pub slots: Vec<(U256, SlotDiff)>,
}

/// How one storage slot changed; zero is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotDiff {
    /// Value before.
    pub prior: U256,
    /// Value after.
    pub new: U256,
}
