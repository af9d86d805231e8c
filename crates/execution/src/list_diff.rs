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
/// # Errors
/// A [`Fault`] of the view.
pub fn diff_of_access_list(
    list: &[AccountChanges],
    view: &dyn StateView,
) -> Result<StateDiff, Fault> {
    let mut diff = StateDiff::default();
    let mut codes = BTreeMap::new();
    for changes in list.iter().filter(|changes| changes.has_changes()) {
        let change = account_diff(changes, view, &mut codes)?;
        if change.prior != change.new || !change.slots.is_empty() {
            diff.accounts.push((changes.address, change));
        }
    }
    diff.codes = codes.into_iter().collect();
    Ok(diff)
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
