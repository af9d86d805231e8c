//! prestateTracer: the accounts and slots that a transaction looks at, as they were before it,
//! and, on request, what it made of them.

use crate::json::Object;
use crate::{RpcError, RpcResult};
use niwaki_evm::tracers::PrestateTracer;
use niwaki_execution::Overlay;
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Bytes, EMPTY_CODE_HASH, StateDiff, StateView, Transaction,
    TxEnvelope, U256, hex,
};
use niwaki_rules::recover_authority;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Options of the tracer.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PrestateOptions {
    diff_mode: bool,
    disable_code: bool,
    disable_storage: bool,
    include_empty: bool,
}

impl PrestateOptions {
    /// Refuses what contradicts itself: what was empty before has a meaning of its own in a difference.
    ///
    /// # Errors
    /// -32000, in geth's words.
    pub(crate) fn check(self) -> Result<Self, RpcError> {
        if self.diff_mode && self.include_empty {
            return Err(RpcError::server("cannot use diffMode with includeEmpty"));
        }
        Ok(self)
    }
}

/// What a transaction looks at before any code runs: sender, target, `coinbase`, and who has signed
/// authorizations.
pub(crate) fn touched_by(
    tx: &TxEnvelope,
    sender: Address,
    nonce: u64,
    coinbase: Address,
    state: &Overlay<'_>,
) -> Result<PrestateTracer, RpcError> {
    let to = tx.to().unwrap_or_else(|| sender.create(nonce));
    let signed = tx.authorization_list().unwrap_or_default();
    let mut touched = PrestateTracer::default();
    for address in [sender, to, coinbase]
        .into_iter()
        .chain(signed.iter().filter_map(recover_authority))
    {
        touched.account(address);
    }
    if let Some(delegate) = delegate_of(state, &to)? {
        touched.account(delegate);
    }
    Ok(touched)
}

/// Adds the delegates of what was called, as they were and as the transaction made them.
fn add_delegates(touched: &mut PrestateTracer, state: &Overlay<'_>, diff: &StateDiff) -> RpcResult {
    for address in std::mem::take(&mut touched.called) {
        let before = delegate_of(state, &address)?;
        let after = code_after(diff, &address).and_then(|code| niwaki_evm::delegation(code));
        for delegate in before.into_iter().chain(after) {
            touched.account(delegate);
        }
    }
    Ok(())
}

/// The code that the transaction gave the account at `address`, if it did.
fn code_after<'d>(diff: &'d StateDiff, address: &Address) -> Option<&'d Bytes> {
    let new = change_of(diff, address)?.new?;
    code_of(diff, &new.code_hash)
}

/// How `diff` changes the account at `address`, if it does.
fn change_of<'d>(diff: &'d StateDiff, address: &Address) -> Option<&'d AccountDiff> {
    let accounts = &diff.accounts;
    let at = accounts.binary_search_by_key(address, |(address, _)| *address);
    Some(&accounts[at.ok()?].1)
}

/// The code of this hash, if it is new in `diff`.
pub(super) fn code_of<'d>(diff: &'d StateDiff, hash: &B256) -> Option<&'d Bytes> {
    let at = diff.codes.binary_search_by_key(hash, |(hash, _)| *hash);
    Some(&diff.codes[at.ok()?].1)
}

/// Whose code runs for the account at `address` (EIP-7702).
fn delegate_of(state: &Overlay<'_>, address: &Address) -> Result<Option<Address>, RpcError> {
    let account = state.account(address)?.unwrap_or_default();
    if !account.has_code() {
        return Ok(None);
    }
    Ok(niwaki_evm::delegation(&state.code(&account.code_hash)?))
}

/// One account of the output.
#[derive(Clone, Debug, Default)]
struct ShownAccount {
    balance: Option<U256>,
    nonce: u64,
    code: Option<Bytes>,
    has_code_hash: bool,
    code_hash: B256,
    storage: BTreeMap<U256, U256>,
}

impl ShownAccount {
    fn of(
        state: &Overlay<'_>,
        address: &Address,
        slots: &BTreeSet<U256>,
        options: &PrestateOptions,
    ) -> Result<(Self, bool), RpcError> {
        let account = state.account(address)?.unwrap_or_default();
        let mut shown = Self {
            balance: Some(account.balance),
            nonce: account.nonce,
            ..Self::default()
        };
        if account.has_code() {
            if !options.disable_code {
                shown.code = Some(state.code(&account.code_hash)?);
            }
            shown.has_code_hash = true;
            shown.code_hash = account.code_hash;
        }
        if !options.disable_storage {
            for slot in slots {
                shown.storage.insert(*slot, state.storage(address, slot)?);
            }
        }
        Ok((shown, account.is_empty()))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::new(out);
        if let Some(balance) = &self.balance {
            object.quantity("balance", balance);
        }
        if let Some(code) = &self.code {
            object.data("code", code);
        }
        if self.has_code_hash {
            object.data("codeHash", self.code_hash.as_slice());
        }
        if self.nonce > 0 {
            object.decimal("nonce", self.nonce);
        }
        if !self.storage.is_empty() {
            let mut slots = object.object("storage");
            for (slot, value) in &self.storage {
                let name = hex::encode_prefixed(slot.to_be_bytes::<32>());
                slots.data(&name, &value.to_be_bytes::<32>());
            }
        }
    }
}

/// Writes the accessed accounts: `before` is the state before the transaction, `diff` what it changed.
pub(crate) fn write(
    out: &mut Vec<u8>,
    mut touched: PrestateTracer,
    before: &Overlay<'_>,
    diff: &StateDiff,
    options: &PrestateOptions,
) -> RpcResult {
    add_delegates(&mut touched, before, diff)?;
    let mut pre = BTreeMap::new();
    let mut post = BTreeMap::new();
    for (address, slots) in &touched.accounts {
        let (mut shown, is_empty) = ShownAccount::of(before, address, slots, options)?;
        if options.diff_mode {
            let Some(change) = change_of(diff, address) else {
                continue;
            };
            if let Some(new) = change.new {
                let slots = change.slots.iter();
                let changed = slots.map(|(slot, values)| (*slot, values.new)).collect();
                let Some(after) = difference(&mut shown, &new, &changed, diff, options) else {
                    continue;
                };
                post.insert(*address, after);
            }
        }
        if options.include_empty || !is_empty {
            pre.insert(*address, shown);
        }
    }
    if !options.diff_mode {
        write_all(out, &pre);
        return Ok(());
    }
    let mut object = Object::new(out);
    write_all(object.field("post"), &post);
    write_all(object.field("pre"), &pre);
    Ok(())
}

fn write_all(out: &mut Vec<u8>, accounts: &BTreeMap<Address, ShownAccount>) {
    let mut object = Object::new(out);
    for (address, shown) in accounts {
        let name = hex::encode_prefixed(address);
        shown.write(object.field(&name));
    }
}

/// The changed fields of an account after the transaction; removes unchanged slots from `before`.
fn difference(
    before: &mut ShownAccount,
    new: &Account,
    changed: &BTreeMap<U256, U256>,
    diff: &StateDiff,
    options: &PrestateOptions,
) -> Option<ShownAccount> {
    let mut after = ShownAccount::default();
    let mut is_changed = false;
    if before.balance != Some(new.balance) {
        after.balance = Some(new.balance);
        is_changed = true;
    }
    if before.nonce != new.nonce {
        after.nonce = new.nonce;
        is_changed = true;
    }
    let code_before = match before.has_code_hash {
        true => before.code_hash,
        false => EMPTY_CODE_HASH,
    };
    if code_before != new.code_hash {
        let code = code_of(diff, &new.code_hash).cloned();
        after.code = (!options.disable_code).then(|| code.unwrap_or_default());
        after.has_code_hash = true;
        after.code_hash = new.code_hash;
        is_changed = true;
    }
    before.storage.retain(|slot, value| {
        let now = changed.get(slot).copied();
        if let Some(now) = now.filter(|now| !now.is_zero()) {
            after.storage.insert(*slot, now);
        }
        is_changed |= now.is_some();
        now.is_some() && !value.is_zero()
    });
    is_changed.then_some(after)
}
