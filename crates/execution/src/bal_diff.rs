//! The state diff that a block access list claims (EIP-7928).

use niwaki_crypto::keccak256;
use niwaki_primitives::{
    AccountChanges, AccountDiff, B256, Bytes, EMPTY_CODE_HASH, Fault, SlotDiff, StateDiff,
    StateView, U256,
};
use std::collections::BTreeMap;

/// The difference between the state `view` and the state that an access list leads to. It is the diff of executing the
/// block if the list is the block's, but for two things that no list holds: an empty account that was touched and
/// deleted, and storage that was deleted with its account.
///
/// `None` if an account with storage would be deleted: no block of these forks can do that (EIP-6780), and its whole
/// storage would have to be read. `None` too once `is_cancelled()`, which is called before each account.
///
/// # Errors
/// A [`Fault`] of the view.
pub fn bal_state_diff(
    list: &[AccountChanges],
    view: &dyn StateView,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<StateDiff>, Fault> {
    let mut diff = StateDiff::default();
    let mut codes = BTreeMap::new();
    for changes in list.iter().filter(|changes| changes.has_changes()) {
        if is_cancelled() {
            return Ok(None);
        }
        let change = account_diff(changes, view, &mut codes)?;
        if change.new.is_none() && view.has_storage(&changes.address)? {
            return Ok(None);
        }
        if change.prior != change.new || !change.slots.is_empty() {
            diff.accounts.push((changes.address, change));
        }
    }
    diff.codes = codes.into_iter().collect();
    Ok(Some(diff))
}

/// The changes of one account; its new code goes to `codes`.
fn account_diff(
    changes: &AccountChanges,
    view: &dyn StateView,
    codes: &mut BTreeMap<B256, Bytes>,
) -> Result<AccountDiff, Fault> {
    let prior = view.account(&changes.address)?;
    let before = prior.unwrap_or_default();
    let mut now = before;
    now.balance = changes.balance_post_state().unwrap_or(now.balance);
    now.nonce = changes.nonce_post_state().unwrap_or(now.nonce);
    if let Some(code) = changes.code_post_state() {
        now.code_hash = match code.is_empty() {
            true => EMPTY_CODE_HASH,
            false => keccak256(code),
        };
        if now.has_code() && prior.map(|prior| prior.code_hash) != Some(now.code_hash) {
            codes.insert(now.code_hash, code.clone());
        }
    }
    let mut slots = Vec::new();
    for (slot, new) in changes.storage_post_states() {
        let prior = match prior {
            Some(_) => view.storage(&changes.address, &slot)?,
            None => U256::ZERO,
        };
        if new != prior {
            slots.push((slot, SlotDiff { prior, new }));
        }
    }
    Ok(AccountDiff {
        prior,
        new: (!now.is_empty()).then_some(now),
        storage_wiped: false,
        slots,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{Address, BalanceChange, BlockAccessIndex, NonceChange};
    use niwaki_testkit::{MemoryAccount, MemoryState};

    const ACCOUNT: Address = Address::repeat_byte(1);

    /// The diff of a list that leaves nothing of an account with a nonce.
    fn diff_of_emptied_account(has_storage: bool, is_cancelled: bool) -> Option<StateDiff> {
        let mut account = MemoryAccount {
            nonce: 1,
            ..MemoryAccount::default()
        };
        if has_storage {
            account.storage.insert(U256::ONE, U256::ONE);
        }
        let mut state = MemoryState::default();
        state.insert(ACCOUNT, account);
        let mut changes = AccountChanges::new(ACCOUNT);
        let index = BlockAccessIndex(1);
        changes.nonce_changes.push(NonceChange::new(index, 0));
        changes
            .balance_changes
            .push(BalanceChange::new(index, U256::ZERO));
        bal_state_diff(&[changes], &state, &|| is_cancelled).unwrap()
    }

    #[test]
    fn a_list_that_deletes_an_account_with_storage_gives_no_diff() {
        assert_eq!(diff_of_emptied_account(true, false), None);
        let diff = diff_of_emptied_account(false, false).expect("no storage to read");
        assert_eq!(diff.accounts[0].1.new, None);
    }

    #[test]
    fn a_cancelled_diff_reads_no_account() {
        assert_eq!(diff_of_emptied_account(false, true), None);
    }
}
