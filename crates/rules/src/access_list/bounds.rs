//! The size of a list, from its bytes alone.
//!
//! A slot of one byte takes 32 times that in memory, so a list is looked through before it is decoded:
//! by the lengths that are written in it, without keeping anything.

use super::ITEM_GAS;
use crate::invalid::InvalidAccessList;
use alloy_primitives::Address;
use alloy_rlp::{Decodable, Error, Header};

/// The rule that makes a list too large to be decoded for a block with this gas limit and last index.
///
/// # Errors
/// For bytes that are no list of accounts.
pub(super) fn too_large(
    mut bytes: &[u8],
    gas_limit: u64,
    last_index: u64,
) -> Result<Option<InvalidAccessList>, Error> {
    let mut accounts = list(&mut bytes)?;
    let (mut items, mut too_many_changes) = (0_u64, None);
    while !accounts.is_empty() {
        let mut account = list(&mut accounts)?;
        let address = Address::decode(&mut account)?;
        items = items.saturating_add(1);
        let mut check = |what, changes| {
            let broken = too_many(address, what, changes, last_index)?;
            too_many_changes = too_many_changes.take().or(broken);
            Ok::<_, Error>(())
        };
        let mut slots = list(&mut account)?;
        while !slots.is_empty() {
            let mut slot = list(&mut slots)?;
            Header::decode_bytes(&mut slot, false)?;
            check("storage", list(&mut slot)?)?;
            items = items.saturating_add(1);
        }
        let mut reads = list(&mut account)?;
        while !reads.is_empty() {
            Header::decode_bytes(&mut reads, false)?;
            items = items.saturating_add(1);
        }
        for what in ["balance", "nonce", "code"] {
            check(what, list(&mut account)?)?;
        }
    }
    let max = gas_limit / ITEM_GAS;
    let too_many_items = InvalidAccessList::TooManyItems { got: items, max };
    Ok((items > max).then_some(too_many_items).or(too_many_changes))
}

fn list<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    Header::decode_bytes(bytes, true)
}

/// The index that is out of order, or beyond the last one, if there are more changes than indices.
fn too_many(
    address: Address,
    what: &'static str,
    mut changes: &[u8],
    last_index: u64,
) -> Result<Option<InvalidAccessList>, Error> {
    let (mut count, mut before, mut broken) = (0_u64, None, None);
    while !changes.is_empty() {
        let mut change = list(&mut changes)?;
        let index = u64::decode(&mut change)?;
        count = count.saturating_add(1);
        if broken.is_none() {
            broken = super::check_index(address, what, before, index, last_index).err();
        }
        before = Some(index);
    }
    Ok(broken.filter(|_| count > last_index.saturating_add(1)))
}
