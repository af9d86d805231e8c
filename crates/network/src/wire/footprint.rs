//! How much memory an answer takes once it is read, told from the heads of its lists before anything is allocated.
//!
//! The smallest receipt has 5 bytes on the wire and 104 in memory, so the bytes of a message say little. The task that reads a peer's
//! messages takes room for this many bytes before it reads an answer.

use super::fields::{Fields, is_list};
use super::{EthVersion, RequestKind, snap};
use niwaki_primitives::rlp::Result;
use niwaki_primitives::{B256, BlockBody, Bytes, Header, Log, Receipt, TxEnvelope, Withdrawal};

/// A list that grows by doubling has allocated up to four times its items when it is whole, with all that it has left behind.
pub(super) const GROWTH: usize = 4;
/// The least allocation.
const SMALLEST: usize = 64;
/// A list begins with room for so many items.
pub(super) const FIRST_ITEMS: usize = 4;

/// Most bytes that reading the answer in this message allocates, with what it frees again.
///
/// # Errors
/// If the lists are not as the kind of answer has them.
pub(crate) fn footprint(kind: RequestKind, data: &[u8], version: EthVersion) -> Result<usize> {
    let mut fields = Fields::of(data)?;
    let _id = fields.raw()?;
    let bytes = match kind {
        RequestKind::Headers => items(&mut fields, size_of::<Header>())?,
        RequestKind::Bodies => sum(fields.list()?, body)?,
        RequestKind::Receipts => {
            if version >= EthVersion::Eth70 {
                let _is_last_incomplete = fields.raw()?;
            }
            sum(fields.list()?, |blocks| receipts(blocks, version))?
        }
        RequestKind::PooledTransactions | RequestKind::AccessLists => {
            items(&mut fields, size_of::<Option<Bytes>>())?
        }
        RequestKind::Cells => items(&mut fields, size_of::<B256>())? + sum(fields.list()?, cells)?,
        RequestKind::Snap(kind) => snap::footprint(kind, &mut fields)?,
    };
    Ok(bytes.saturating_add(data.len()))
}

/// The items of the list that comes next: their bytes, and `size` in memory for each.
pub(super) fn items(fields: &mut Fields<'_>, size: usize) -> Result<usize> {
    let list = fields.list()?;
    sum(list, |item| {
        Ok(GROWTH * (item.raw()?.len() + size) + SMALLEST)
    })
}

/// What the items of a list take, each of which `of` reads.
pub(super) fn sum(
    mut list: Fields<'_>,
    of: impl Fn(&mut Fields<'_>) -> Result<usize>,
) -> Result<usize> {
    let mut bytes = 0_usize;
    while !list.is_empty() {
        bytes = bytes.saturating_add(of(&mut list)?);
    }
    Ok(bytes)
}

fn body(bodies: &mut Fields<'_>) -> Result<usize> {
    let mut fields = bodies.list()?;
    let transactions = sum(fields.list()?, transaction)?;
    let ommers = items(&mut fields, size_of::<Header>())?;
    let withdrawals = match fields.is_empty() {
        true => 0,
        false => items(&mut fields, size_of::<Withdrawal>())?,
    };
    let first = FIRST_ITEMS * size_of::<TxEnvelope>();
    Ok(GROWTH * size_of::<BlockBody>() + SMALLEST + first + transactions + ommers + withdrawals)
}

fn transaction(list: &mut Fields<'_>) -> Result<usize> {
    let raw = list.raw()?;
    let of_lists = match is_list(raw) {
        true => 0,
        false => lists_of_typed(Fields::string(raw)?)?,
    };
    Ok(GROWTH * size_of::<TxEnvelope>() + SMALLEST + raw.len() + of_lists)
}

/// What the lists among the fields of a typed transaction (EIP-2718) take: all else, the input too, takes what it has on the wire.
fn lists_of_typed(payload: &[u8]) -> Result<usize> {
    let (kind, fields) = payload.split_first().unwrap_or((&0, &[]));
    // An authorization has 27 bytes at least and takes 136 (EIP-7702); an entry of an access list 23 and 48 (EIP-2930).
    let per_byte = if *kind == 4 { 16 } else { 7 };
    sum(Fields::of(fields)?, |fields| {
        let field = fields.raw()?;
        Ok(if is_list(field) {
            per_byte * field.len()
        } else {
            0
        })
    })
}

fn receipts(blocks: &mut Fields<'_>, version: EthVersion) -> Result<usize> {
    let of_block = match version.has_ranges() {
        true => sum(blocks.list()?, |list| receipt(&mut list.list()?))?,
        false => sum(blocks.list()?, old_receipt)?,
    };
    let first = FIRST_ITEMS * size_of::<Receipt>();
    Ok(GROWTH * size_of::<Vec<Receipt>>() + SMALLEST + first + of_block)
}

fn receipt(fields: &mut Fields<'_>) -> Result<usize> {
    for _before_logs in 0..3 {
        fields.raw()?;
    }
    Ok(GROWTH * size_of::<Receipt>() + items(fields, size_of::<Log>())?)
}

/// Up to eth/68: a list, or a type and a list in a string. Outcome, gas, bloom, logs.
fn old_receipt(list: &mut Fields<'_>) -> Result<usize> {
    let raw = list.raw()?;
    let payload = match is_list(raw) {
        true => raw,
        false => Fields::string(raw)?.get(1..).unwrap_or_default(),
    };
    receipt(&mut Fields::of(payload)?)
}

fn cells(transactions: &mut Fields<'_>) -> Result<usize> {
    Ok(GROWTH * size_of::<Vec<Bytes>>() + items(transactions, size_of::<Bytes>())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::fields::list;
    use niwaki_primitives::rlp::encode;

    const ETH: EthVersion = EthVersion::Eth71;

    fn repeated(item: &[u8], count: usize) -> Vec<u8> {
        list(&[&item.repeat(count)])
    }

    #[test]
    fn a_thousand_receipts_of_five_bytes_take_a_thousand_times_their_value() {
        // Type, status, gas, no logs.
        let receipts = repeated(&[0xc4, 0x80, 0x80, 0x80, 0xc0], 1000);
        let message = list(&[&encode(7_u64), &[0x80], &list(&[&receipts])]);
        let bytes = footprint(RequestKind::Receipts, &message, ETH).unwrap();
        assert!(bytes >= 1000 * size_of::<Receipt>(), "{bytes}");
    }

    #[test]
    fn transactions_that_a_body_holds_are_counted_one_by_one() {
        let legacy = [0xc9, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80];
        let typed = [0x83, 0x02, 0xc1, 0x80];
        for transaction in [&legacy[..], &typed] {
            let body = list(&[&repeated(transaction, 1000), &[0xc0]]);
            let message = list(&[&encode(7_u64), &list(&[&body])]);
            let bytes = footprint(RequestKind::Bodies, &message, ETH).unwrap();
            assert!(bytes >= 1000 * size_of::<TxEnvelope>(), "{bytes}");
        }
    }

    #[test]
    fn input_is_counted_once_and_an_access_list_seven_times() {
        let million = encode(Bytes::from(vec![1; 1_000_000]).as_ref());
        let body_of = |fields: &[u8]| {
            let typed = [&[2][..], &list(&[fields])].concat();
            let body = list(&[&list(&[&encode(&typed[..])]), &[0xc0]]);
            let message = list(&[&encode(7_u64), &list(&[&body])]);
            let bytes = footprint(RequestKind::Bodies, &message, ETH).unwrap();
            // The message itself is held while it is read.
            bytes - message.len()
        };
        let of_input = body_of(&million);
        assert!((1_000_000..1_010_000).contains(&of_input), "{of_input}");
        let of_list = body_of(&list(&[&million]));
        assert!((8_000_000..8_010_000).contains(&of_list), "{of_list}");
    }

    #[test]
    fn what_is_no_answer_of_the_kind_is_refused() {
        let message = list(&[&encode(7_u64), &list(&[&[0x80]])]);
        for kind in [
            RequestKind::Bodies,
            RequestKind::Receipts,
            RequestKind::Cells,
        ] {
            assert!(footprint(kind, &message, ETH).is_err(), "{kind:?}");
        }
        assert!(footprint(RequestKind::Headers, &message, ETH).is_ok());
        assert!(footprint(RequestKind::Headers, &[0xc1], ETH).is_err());
    }
}
