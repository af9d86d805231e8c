//! Parity's stateDiff: the changes of a transaction, with old and new balance, nonce, code and slots.

use super::prestate::code_of;
use crate::json::{self, Object};
use crate::{RpcError, RpcResult};
use niwaki_execution::Overlay;
use niwaki_primitives::{Account, AccountDiff, Bytes, StateDiff, StateView, U256, hex};

/// Writes `diff`, the changes to the state `before`.
pub(super) fn write(out: &mut Vec<u8>, diff: &StateDiff, before: &Overlay<'_>) -> RpcResult {
    let mut accounts = Object::new(out);
    for (address, change) in &diff.accounts {
        let name = hex::encode_prefixed(address);
        let mut object = accounts.object(&name);
        let prior_code = code(diff, before, change.prior)?;
        let new_code = code(diff, before, change.new)?;
        write_account(&mut object, change, prior_code, new_code);
    }
    Ok(())
}

fn code(
    diff: &StateDiff,
    before: &Overlay<'_>,
    account: Option<Account>,
) -> Result<Bytes, RpcError> {
    let Some(account) = account.filter(Account::has_code) else {
        return Ok(Bytes::new());
    };
    Ok(match code_of(diff, &account.code_hash) {
        Some(code) => code.clone(),
        None => before.code(&account.code_hash)?,
    })
}

fn write_account(
    object: &mut Object<'_>,
    change: &AccountDiff,
    prior_code: Bytes,
    new_code: Bytes,
) {
    let (prior, new) = (change.prior.as_ref(), change.new.as_ref());
    let word = |out: &mut Vec<u8>, value: &U256| json::quantity(out, value);
    let balance = |account: &Account| account.balance;
    delta(
        object.field("balance"),
        prior.map(balance),
        new.map(balance),
        word,
    );
    let (prior_code, new_code) = (prior.map(|_| prior_code), new.map(|_| new_code));
    delta(object.field("code"), prior_code, new_code, |out, code| {
        json::data(out, code)
    });
    let nonce = |account: &Account| U256::from(account.nonce);
    delta(
        object.field("nonce"),
        prior.map(nonce),
        new.map(nonce),
        word,
    );
    let mut storage = object.object("storage");
    for (slot, values) in &change.slots {
        let name = hex::encode_prefixed(slot.to_be_bytes::<32>());
        let data = |out: &mut Vec<u8>, value: &U256| {
            json::data(out, &value.to_be_bytes::<32>());
        };
        let prior = prior.map(|_| values.prior);
        delta(storage.field(&name), prior, Some(values.new), data);
    }
}

/// Writes `"="` for no change, or an object with `+` (created), `-` (removed) or `*` (changed).
fn delta<T: PartialEq>(
    out: &mut Vec<u8>,
    prior: Option<T>,
    new: Option<T>,
    write: impl Fn(&mut Vec<u8>, &T),
) {
    match (prior, new) {
        (Some(from), Some(to)) if from != to => {
            let mut object = Object::new(out);
            let mut both = object.object("*");
            write(both.field("from"), &from);
            write(both.field("to"), &to);
        }
        (None, Some(to)) => write(Object::new(out).field("+"), &to),
        (Some(from), None) => write(Object::new(out).field("-"), &from),
        _ => out.extend_from_slice(b"\"=\""),
    }
}
