//! Block access lists (EIP-7928): encoding, and the checks that need no execution.
//!
//! Whether a list matches its block is known only after execution, by its hash.

mod bounds;

use crate::chain_spec::ChainSpec;
use crate::invalid::{InvalidAccessList, InvalidBlock};
use alloy_primitives::{Address, B256, Bytes, U256};
use niwaki_crypto::keccak256;
use niwaki_primitives::{AccountChanges, BlockAccessList, Header};

/// Gas of the block's limit that each account and each slot of a list counts for.
///
/// Spec: EIP-7928, execution-specs `amsterdam/block_access_lists.py`.
const ITEM_GAS: u64 = 2_000;

/// Most bytes of deployed code from Amsterdam on (EIP-7954), unless the chain has its own limit.
const MAX_CODE_BYTES: u64 = 65_536;

/// Decodes the list of a block with this gas limit and number of transactions, or tells why it is too large for the
/// block. A list that is too large is not built in memory.
///
/// # Errors
/// [`InvalidBlock::Encoding`] for anything but the RLP of one list.
pub fn decode_bounded_access_list(
    bytes: &[u8],
    gas_limit: u64,
    transactions: usize,
) -> Result<Result<BlockAccessList, InvalidAccessList>, InvalidBlock> {
    match bounds::too_large(bytes, gas_limit, last_index(transactions)) {
        Ok(Some(reason)) => Ok(Err(reason)),
        Ok(None) => decode_access_list(bytes).map(Ok),
        Err(error) => Err(malformed(&error)),
    }
}

/// The block access index after the last transaction.
const fn last_index(transactions: usize) -> u64 {
    (transactions as u64).saturating_add(1)
}

fn malformed(error: &alloy_rlp::Error) -> InvalidBlock {
    InvalidBlock::Encoding {
        what: "the block access list".to_owned(),
        reason: error.to_string(),
    }
}

/// Decodes a list, which may take 64 times the size of its bytes in memory.
///
/// # Errors
/// [`InvalidBlock::Encoding`] for anything but the RLP of one list.
pub fn decode_access_list(bytes: &[u8]) -> Result<BlockAccessList, InvalidBlock> {
    alloy_rlp::decode_exact(bytes).map_err(|error| malformed(&error))
}

/// The RLP of a list.
pub fn encode_access_list(list: &BlockAccessList) -> Bytes {
    alloy_rlp::encode(list).into()
}

/// The hash of a list's RLP, as in the header.
pub fn access_list_hash(bytes: &Bytes) -> B256 {
    keccak256(bytes)
}

/// Checks that a block with this header and number of transactions could have the list: that all its parts are in
/// order, and that it is not too long.
///
/// # Errors
/// The first rule that the list breaks.
///
/// Spec: EIP-7928; execution-specs `amsterdam/block_access_lists.py`.
pub fn check_access_list(
    spec: &ChainSpec,
    list: &[AccountChanges],
    header: &Header,
    transactions: usize,
) -> Result<(), InvalidAccessList> {
    let last_index = last_index(transactions);
    let max_code_bytes = spec
        .contract_size_limit(header.number)
        .unwrap_or(MAX_CODE_BYTES);
    let mut items: u64 = 0;
    let mut before: Option<Address> = None;
    for account in list {
        let address = account.address;
        if before.is_some_and(|before| before >= address) {
            return Err(InvalidAccessList::AccountOrder { address });
        }
        before = Some(address);
        check_slots(account)?;
        check_indices(account, last_index)?;
        for change in &account.code_changes {
            let (got, max) = (change.new_code.len() as u64, max_code_bytes);
            if got > max {
                return Err(InvalidAccessList::CodeTooLarge { address, got, max });
            }
        }
        let slots = (account.storage_changes.len()).saturating_add(account.storage_reads.len());
        items = items.saturating_add(1).saturating_add(slots as u64);
    }

    let max = header.gas_limit / ITEM_GAS;
    if items > max {
        return Err(InvalidAccessList::TooManyItems { got: items, max });
    }
    Ok(())
}

/// Changed slots ascend, read slots ascend, and no slot is in both.
fn check_slots(account: &AccountChanges) -> Result<(), InvalidAccessList> {
    let address = account.address;
    let changed = account.storage_changes.iter().map(|change| change.slot);
    let read = account.storage_reads.iter().copied();
    let ascend = |what, slots: &mut dyn Iterator<Item = U256>| {
        let mut before = None;
        for slot in slots {
            if before.is_some_and(|before| before >= slot) {
                return Err(InvalidAccessList::SlotOrder {
                    address,
                    what,
                    slot,
                });
            }
            before = Some(slot);
        }
        Ok(())
    };
    ascend("changes", &mut changed.clone())?;
    ascend("reads", &mut read.clone())?;

    let mut reads = read.peekable();
    for slot in changed {
        while reads.next_if(|read| *read < slot).is_some() {}
        if reads.peek() == Some(&slot) {
            return Err(InvalidAccessList::SlotChangedAndRead { address, slot });
        }
    }
    Ok(())
}

/// The indices of each kind of change ascend, up to the last index of the block.
fn check_indices(account: &AccountChanges, max: u64) -> Result<(), InvalidAccessList> {
    let address = account.address;
    let ascend = |what, indices: &mut dyn Iterator<Item = u64>| {
        let mut before = None;
        for index in indices {
            check_index(address, what, before, index, max)?;
            before = Some(index);
        }
        Ok(())
    };
    for slot in &account.storage_changes {
        if slot.changes.is_empty() {
            let slot = slot.slot;
            return Err(InvalidAccessList::SlotWithoutChange { address, slot });
        }
        let mut indices = slot.changes.iter().map(|c| c.block_access_index.0);
        ascend("storage", &mut indices)?;
    }
    let mut indices = account
        .balance_changes
        .iter()
        .map(|c| c.block_access_index.0);
    ascend("balance", &mut indices)?;
    let mut indices = account.nonce_changes.iter().map(|c| c.block_access_index.0);
    ascend("nonce", &mut indices)?;
    let mut indices = account.code_changes.iter().map(|c| c.block_access_index.0);
    ascend("code", &mut indices)
}

/// An index of an account's changes is higher than the one before it, and at most `max`.
fn check_index(
    address: Address,
    what: &'static str,
    before: Option<u64>,
    index: u64,
    max: u64,
) -> Result<(), InvalidAccessList> {
    if before.is_some_and(|before| before >= index) {
        return Err(InvalidAccessList::IndexOrder {
            address,
            what,
            index,
        });
    }
    if index > max {
        return Err(InvalidAccessList::IndexTooHigh {
            address,
            what,
            index,
            max,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
