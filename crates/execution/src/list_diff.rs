//! What a block has changed, as its access list tells it (EIP-7928).

use niwaki_crypto::keccak256;
use niwaki_primitives::{
    AccountChanges, AccountDiff, B256, Bytes, EMPTY_CODE_HASH, Fault, SlotDiff, StateDiff,
    StateView, U256,
};
use std::collections::BTreeMap;

/// The difference between the state `view` and the one that an access list leads to. It is what
/// executing the block gives if the list is the block's, but for two things that no list tells:
/// an empty account that was touched and is gone, and storage that went with its account.
///
/// `None` if an account with storage would be gone, which nothing in a block of these forks can do
/// (EIP-6780), and whose storage would have to be read as a whole; or once `is_vain`, which is asked
/// before each read of an account.
///
/// # Errors
/// A [`Fault`] of the view.
pub fn diff_of_access_list(
    list: &[AccountChanges],
    view: &dyn StateView,
    is_vain: &dyn Fn() -> bool,
) -> Result<Option<StateDiff>, Fault> {
    let mut diff = StateDiff::default();
    let mut codes = BTreeMap::new();
    for changes in list.iter().filter(|changes| changes.has_changes()) {
        if is_vain() {
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

/// What the list tells of one account; its new code goes to `codes`.
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

    /// The account has a nonce, and storage if so; the list says that nothing is left of it.
    fn emptied(has_storage: bool, is_vain: bool) -> Option<StateDiff> {
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
        diff_of_access_list(&[changes], &state, &|| is_vain).unwrap()
    }

    #[test]
    fn an_account_with_storage_is_never_gone_because_a_list_says_so() {
        assert_eq!(emptied(true, false), None);
        let diff = emptied(false, false).expect("no storage to read");
        assert_eq!(diff.accounts[0].1.new, None);
    }

    #[test]
    fn nothing_is_read_in_vain() {
        assert_eq!(emptied(false, true), None);
    }
}
