//! The block access list of a block whose transactions run one by one (EIP-7928).

use niwaki_primitives::{AccountChanges, Address, BlockAccessIndex, BlockAccessList};
use std::collections::BTreeMap;

/// The list so far. Each part belongs to one block access index: the system calls before the first transaction, a
/// transaction, or the system calls after the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct BalBuilder {
    accounts: BTreeMap<Address, AccountChanges>,
    index: u64,
}

impl BalBuilder {
    /// Adds a part under the next index; the index in `part` is ignored.
    pub(crate) fn add(&mut self, part: BlockAccessList) {
        let index = BlockAccessIndex(self.index);
        self.index = self.index.saturating_add(1);
        for mut account in part {
            account.collapse_changes_at(index);
            let address = account.address;
            let so_far = self.accounts.entry(address);
            so_far
                .or_insert_with(|| AccountChanges::new(address))
                .merge(account);
        }
    }

    /// The list of all parts.
    pub(crate) fn into_list(self) -> BlockAccessList {
        let mut list: BlockAccessList = self.accounts.into_values().collect();
        list.iter_mut().for_each(AccountChanges::sort);
        list
    }
}
