//! What a transaction changed, as Parity showed it: old and new of every balance, nonce, code and
//! slot.

use crate::RpcError;
use crate::json::{self, Object};
use niwaki_execution::Overlay;
use niwaki_primitives::{Account, AccountDiff, Bytes, StateDiff, StateView, U256, hex};

/// Writes `diff`, made upon the state `before`.
pub(super) fn write(
    out: &mut Vec<u8>,
    diff: &StateDiff,
    before: &Overlay<'_>,
) -> Result<(), RpcError> {
    let mut accounts = Object::new(out);
    for (address, change) in &diff.accounts {
        let name = hex::encode_prefixed(address);
        let mut object = accounts.object(&name);
        let codes = (
            code(diff, before, change.prior)?,
            code(diff, before, change.new)?,
        );
        write_account(&mut object, change, codes);
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
    let new = diff
        .codes
        .binary_search_by_key(&account.code_hash, |(hash, _)| *hash);
    Ok(match new {
        Ok(at) => diff.codes[at].1.clone(),
        Err(_) => before.code(&account.code_hash)?,
    })
}

fn write_account(object: &mut Object<'_>, change: &AccountDiff, codes: (Bytes, Bytes)) {
    let pair =
        |get: fn(&Account) -> U256| (change.prior.as_ref().map(get), change.new.as_ref().map(get));
    let word = |out: &mut Vec<u8>, value: &U256| json::quantity(out, value);
    let balance = pair(|account| account.balance);
    delta(object.field("balance"), balance, word);
    let codes = (change.prior.map(|_| codes.0), change.new.map(|_| codes.1));
    delta(object.field("code"), codes, |out, code| {
        json::data(out, code)
    });
    delta(
        object.field("nonce"),
        pair(|account| U256::from(account.nonce)),
        word,
    );
    let mut storage = object.object("storage");
    for (slot, values) in &change.slots {
        let name = hex::encode_prefixed(slot.to_be_bytes::<32>());
        let data = |out: &mut Vec<u8>, value: &U256| {
            json::data(out, &value.to_be_bytes::<32>());
        };
        let prior = change.prior.map(|_| values.prior);
        delta(storage.field(&name), (prior, Some(values.new)), data);
    }
}

/// `"="`, or what came (`+`), went (`-`), or is different (`*`).
fn delta<T: PartialEq>(
    out: &mut Vec<u8>,
    values: (Option<T>, Option<T>),
    write: impl Fn(&mut Vec<u8>, &T),
) {
    match values {
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
