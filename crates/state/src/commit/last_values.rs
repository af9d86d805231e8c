//! The last values that the access lists of several blocks give (EIP-7928): a list has the value after its block of all that the
//! block wrote, whatever was there before.

use niwaki_crypto::keccak256;
use niwaki_primitives::map::{AddressMap, HashMap};
use niwaki_primitives::{
    Account, AccountChanges, B256, BlockAccessList, Bytes, EMPTY_CODE_HASH, U256,
};

/// The last values of access lists, added in the order of their blocks.
#[derive(Debug, Default)]
pub struct LastValues {
    pub(crate) accounts: AddressMap<AccountValues>,
    slots: usize,
}

/// The last value of all that several blocks wrote of an account; `None` where they wrote nothing.
#[derive(Debug, Default)]
pub(crate) struct AccountValues {
    pub(crate) balance: Option<U256>,
    pub(crate) nonce: Option<u64>,
    /// With its hash.
    pub(crate) code: Option<(B256, Bytes)>,
    pub(crate) slots: HashMap<U256, U256>,
}

impl LastValues {
    /// Adds the list of the next block.
    pub fn add(&mut self, list: &BlockAccessList) {
        for changes in list.iter().filter(|changes| changes.has_changes()) {
            let account = self.accounts.entry(changes.address).or_default();
            let slots = account.slots.len();
            account.add(changes);
            self.slots += account.slots.len() - slots;
        }
    }

    /// How many accounts and slots there are.
    pub fn len(&self) -> usize {
        self.accounts.len() + self.slots
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }
}

impl AccountValues {
    fn add(&mut self, changes: &AccountChanges) {
        self.balance = changes.balance_post_state().or(self.balance);
        self.nonce = changes.nonce_post_state().or(self.nonce);
        if let Some(code) = changes.code_post_state() {
            self.code = Some((code_hash(code), code.clone()));
        }
        self.slots.extend(changes.storage_post_states());
    }

    /// The account that was `before`, afterwards.
    pub(crate) fn after(&self, before: &Account) -> Account {
        let code = self.code.as_ref();
        Account {
            balance: self.balance.unwrap_or(before.balance),
            nonce: self.nonce.unwrap_or(before.nonce),
            code_hash: code.map_or(before.code_hash, |(hash, _)| *hash),
        }
    }
}

fn code_hash(code: &Bytes) -> B256 {
    match code.is_empty() {
        true => EMPTY_CODE_HASH,
        false => keccak256(code),
    }
}
