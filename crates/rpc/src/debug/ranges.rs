//! The contents of a state: one account within a block, ranges of accounts and slots by their hashes.
//!
//! Accounts and slots are stored under their hashes. So an account is shown by the hash of its address, as geth shows
//! one whose preimage it lacks; the number of a slot is known only if the block itself has written it.

use crate::json::Object;
use crate::params::{BlockRef, Count, Params};
use crate::state::State;
use crate::trace::PastBlock;
use crate::{Backend, RpcError, RpcResult};
use niwaki_chain::StoredHeader;
use niwaki_primitives::{Account, AccountDiff, Address, B256, Bytes, StateView, U256, hex};
use niwaki_trie::TrieAccount;
use std::collections::BTreeMap;

/// Most accounts of a response, as in geth.
const MAX_ACCOUNTS: usize = 256;

/// Most slots of a response.
const MAX_SLOTS: usize = 4_096;

/// Keys visited between two checks of the deadline.
const KEYS_PER_CHECK: usize = 1_024;

/// Checks the deadline now and then while keys are visited.
struct DeadlineCheck<'p> {
    params: &'p Params<'p>,
    visited: usize,
    timeout: Option<RpcError>,
}

impl<'p> DeadlineCheck<'p> {
    fn new(params: &'p Params<'p>) -> Self {
        Self {
            params,
            visited: 0,
            timeout: None,
        }
    }

    fn should_continue(&mut self) -> bool {
        self.visited += 1;
        if self.visited.is_multiple_of(KEYS_PER_CHECK) {
            self.timeout = self.params.check_deadline().err();
        }
        self.timeout.is_none()
    }

    fn end(self) -> RpcResult {
        self.timeout.map_or(Ok(()), Err)
    }
}

/// The state before a transaction of a block, or after its last one.
struct StateInBlock {
    /// The state before the block.
    state: State,
    /// How the account in question differs from that state.
    change: Option<AccountDiff>,
    codes: Vec<(B256, Bytes)>,
}

impl StateInBlock {
    /// Reads block and transaction index from the first two parameters, for the account at `address`.
    fn read(backend: &Backend, params: &Params<'_>, address: &Address) -> Result<Self, RpcError> {
        let named: BlockRef = params.required(0)?;
        let Count(index) = params.required(1)?;
        let header = header(backend, named)?;
        if header.id.number == 0 {
            check_index(index, 0, &header)?;
            return Ok(Self {
                state: backend.state_after(&header)?,
                change: None,
                codes: Vec::new(),
            });
        }
        let block = backend.block(&header.id.hash)?;
        let block = block.ok_or_else(|| RpcError::server("block not found"))?;
        check_index(index, block.body.transactions.len(), &header)?;
        let past = PastBlock::new(backend, block, true)?;
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let diff = past.before(backend, index, params)?.state().diff();
        let mut accounts = diff.accounts.into_iter();
        let change = accounts.find(|(changed, _)| changed == address);
        Ok(Self {
            change: change.map(|(_, change)| change),
            codes: diff.codes,
            state: past.parent,
        })
    }

    fn account(&self, address: &Address) -> Result<Option<Account>, RpcError> {
        match &self.change {
            Some(change) => Ok(change.new),
            None => Ok(self.state.account(address)?),
        }
    }

    fn code(&self, hash: &B256) -> Result<Bytes, RpcError> {
        let new = self.codes.iter().find(|(new, _)| new == hash);
        match new {
            Some((_, code)) => Ok(code.clone()),
            None => Ok(self.state.code(hash)?),
        }
    }
}

fn header(backend: &Backend, named: BlockRef) -> Result<StoredHeader, RpcError> {
    let header = backend.header_by_ref(named)?;
    header.ok_or_else(|| RpcError::server("block not found"))
}

fn check_index(index: u64, transactions: usize, block: &StoredHeader) -> RpcResult {
    if index <= transactions as u64 {
        return Ok(());
    }
    Err(RpcError::server(format!(
        "transaction index {index} out of range for block {:#x}, which has {transactions}",
        block.id.hash
    )))
}

/// Parameters: block, transaction index and address. The account before that transaction.
pub(super) fn account_at(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let address: Address = params.required(2)?;
    let in_block = StateInBlock::read(backend, params, &address)?;
    let account = in_block.account(&address)?;
    let account = account.ok_or_else(|| RpcError::server("Account not found"))?;
    let code = in_block.code(&account.code_hash)?;
    let mut object = Object::new(out);
    match code.is_empty() {
        true => object.string("code", "0x0"), // As Besu says it.
        false => object.data("code", &code),
    }
    object.number("nonce", account.nonce);
    object.quantity("balance", &account.balance);
    object.data("codehash", account.code_hash.as_slice());
    Ok(())
}

/// A key of up to 32 bytes, padded with zeros on the left.
fn key(params: &Params<'_>, index: usize) -> Result<B256, RpcError> {
    let bytes: Bytes = params.optional(index)?.unwrap_or_default();
    if bytes.len() > 32 {
        return Err(RpcError::invalid_params(format!(
            "invalid argument {index}: a key has at most 32 bytes, got {}",
            bytes.len()
        )));
    }
    Ok(B256::left_padding_from(&bytes))
}

/// The requested count, from 1 to `most`; `most` if there is none.
fn count(params: &Params<'_>, index: usize, most: usize) -> Result<usize, RpcError> {
    let requested: Option<i64> = params.optional(index)?;
    let requested = requested.and_then(|requested| usize::try_from(requested).ok());
    Ok(requested
        .filter(|requested| *requested > 0)
        .map_or(most, |requested| requested.min(most)))
}

/// Parameters: block, first hashed address, most accounts, whether codes are left out.
pub(super) fn account_range(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let header = header(backend, params.required(0)?)?;
    let from = key(params, 1)?;
    let most = count(params, 2, MAX_ACCOUNTS)?;
    let without_code = params.optional(3)?.unwrap_or(false);
    let state = backend.state_after(&header)?;
    let mut check = DeadlineCheck::new(params);
    let mut found: Vec<(B256, TrieAccount)> = Vec::new();
    let mut next = None;
    state.accounts_from(&from, &mut |key, account| {
        if let Some(account) = account {
            match found.len() < most {
                true => found.push((*key, account)),
                false => next = Some(*key),
            }
        }
        next.is_none() && check.should_continue()
    })?;
    check.end()?;

    let mut object = Object::new(out);
    object.string("root", &hex::encode(header.header.state_root));
    let mut accounts = object.object("accounts");
    for (key, account) in &found {
        params.check_deadline()?;
        let mut object = accounts.object(&format!("pre({key:#x})"));
        object.string("balance", &account.balance.to_string());
        object.decimal("nonce", account.nonce);
        object.data("root", account.storage_root.as_slice());
        object.data("codeHash", account.code_hash.as_slice());
        if account.account().has_code() && !without_code {
            object.data("code", &state.code(&account.code_hash)?);
        }
        object.data("key", key.as_slice());
    }
    drop(accounts);
    if let Some(next) = next {
        object.data("next", next.as_slice());
    }
    Ok(())
}

/// Parameters: block, transaction index, address, first hashed slot, most slots. The account's storage before that
/// transaction.
pub(super) fn storage_range_at(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let address: Address = params.required(2)?;
    let from = key(params, 3)?;
    let most = count(params, 4, MAX_SLOTS)?;
    let in_block = StateInBlock::read(backend, params, &address)?;
    let slots = slots(&in_block, &address, &from, most, params)?;

    let mut object = Object::new(out);
    let mut storage = object.object("storage");
    for (key, (slot, value)) in slots.iter().take(most) {
        let mut object = storage.object(&format!("{key:#x}"));
        object.data_or_null("key", slot.map(B256::from));
        object.data("value", B256::from(*value).as_slice());
    }
    drop(storage);
    let next = slots.keys().nth(most);
    object.data_or_null("nextKey", next);
    Ok(())
}

type Slots = BTreeMap<B256, (Option<U256>, U256)>;

/// The first nonzero slots from `from` on: up to `most`, and one more to continue from. Their numbers are known if the
/// block has written them.
fn slots(
    in_block: &StateInBlock,
    address: &Address,
    from: &B256,
    most: usize,
    params: &Params<'_>,
) -> Result<Slots, RpcError> {
    let mut slots = Slots::new();
    let change = in_block.change.as_ref();
    let written = change.map_or(&[][..], |change| &change.slots);
    let written = written.iter().map(|(slot, values)| {
        let key = niwaki_crypto::keccak256(B256::from(*slot));
        (key, (Some(*slot), values.new))
    });
    let written: Slots = written.filter(|(key, _)| key >= from).collect();
    let is_gone = change.is_some_and(|change| change.storage_wiped || change.prior.is_none());
    if !is_gone {
        let mut check = DeadlineCheck::new(params);
        let key = niwaki_crypto::keccak256(address);
        in_block.state.slots_from(&key, from, &mut |key, value| {
            let value = value.filter(|_| !written.contains_key(key));
            slots.extend(value.map(|value| (*key, (None, value))));
            slots.len() <= most && check.should_continue()
        })?;
        check.end()?;
    }
    let written = written.into_iter();
    slots.extend(written.filter(|(_, (_, value))| !value.is_zero()));
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn keys_of_up_to_32_bytes_are_padded_and_counts_are_bounded() {
        let params = |json: &'static str| Params::new(Some(json), Instant::now()).unwrap();
        assert_eq!(key(&params("[\"0x01\"]"), 0), Ok(B256::with_last_byte(1)));
        assert_eq!(key(&params("[]"), 0), Ok(B256::ZERO));
        let long = format!("[\"0x{}\"]", "00".repeat(33));
        let refused = key(&Params::new(Some(&long), Instant::now()).unwrap(), 0);
        assert_eq!(refused.unwrap_err().code, -32602);
        for (json, want) in [("[-1]", 9), ("[0]", 9), ("[3]", 3), ("[10]", 9), ("[]", 9)] {
            assert_eq!(count(&params(json), 0, 9), Ok(want), "{json}");
        }
        assert!(count(&params("[\"x\"]"), 0, 9).is_err());
    }
}
