//! The byte forms of what the chain stores; `niwaki-storage`'s FORMAT.md describes them.

use alloy_rlp::{Decodable, Encodable, Header as RlpHeader};
use niwaki_primitives::{Address, B256, Bytes, Header, Log, Receipt, U256};

/// Appends total difficulty, then the header.
pub(crate) fn encode_header(header: &Header, total_difficulty: &U256, out: &mut Vec<u8>) {
    let total = total_difficulty.to_be_bytes_trimmed_vec();
    out.reserve(1 + total.len() + header.length());
    out.push(u8::try_from(total.len()).expect("at most 32 bytes"));
    out.extend_from_slice(&total);
    header.encode(out);
}

/// The header in a row.
pub(crate) fn header_rlp(row: &[u8]) -> Result<&[u8], &'static str> {
    Ok(split_header(row)?.1)
}

/// Total difficulty and header.
fn split_header(row: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let (length, rest) = row.split_first().ok_or("empty header row")?;
    rest.split_at_checked(usize::from(*length))
        .ok_or("the total difficulty ends early")
}

pub(crate) fn decode_header(row: &[u8]) -> Result<(Header, U256), &'static str> {
    let (total, rlp) = split_header(row)?;
    let total = U256::try_from_be_slice(total).ok_or("the total difficulty has over 32 bytes")?;
    let header = alloy_rlp::decode_exact(rlp).map_err(|_| "the header is not RLP of one")?;
    Ok((header, total))
}

/// Receipts without their blooms, as `eth/69` and Ere files have them: RLP of lists of type, status or state root, gas and logs.
pub fn slim_receipts(receipts: &[Receipt]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_receipts(receipts, &mut out);
    out
}

/// Appends receipts without their blooms.
pub(crate) fn encode_receipts(receipts: &[Receipt], out: &mut Vec<u8>) {
    let fields = |receipt| list_header(fields_length(receipt));
    let payload_length = receipts
        .iter()
        .map(|receipt| fields(receipt).length_with_payload())
        .sum();
    let header = list_header(payload_length);
    out.reserve(header.length_with_payload());
    header.encode(out);
    for receipt in receipts {
        fields(receipt).encode(out);
        receipt.tx_type.encode(out);
        outcome(receipt).encode(out);
        receipt.cumulative_gas_used.encode(out);
        receipt.logs.encode(out);
    }
}

fn list_header(payload_length: usize) -> RlpHeader {
    RlpHeader {
        list: true,
        payload_length,
    }
}

fn fields_length(receipt: &Receipt) -> usize {
    receipt.tx_type.length()
        + outcome(receipt).length()
        + receipt.cumulative_gas_used.length()
        + receipt.logs.length()
}

/// The state root, or the status as a number.
fn outcome(receipt: &Receipt) -> &[u8] {
    match (&receipt.post_state, receipt.status) {
        (Some(root), _) => root.as_slice(),
        (None, Some(true)) => &[1],
        (None, _) => &[],
    }
}

pub(crate) fn decode_receipts(row: &[u8]) -> Result<Vec<Receipt>, alloy_rlp::Error> {
    let mut rest = row;
    let mut list = RlpHeader::decode_bytes(&mut rest, true)?;
    let mut receipts = Vec::new();
    while !list.is_empty() {
        receipts.push(decode_receipt(&mut list)?);
    }
    if !rest.is_empty() {
        return Err(alloy_rlp::Error::UnexpectedLength);
    }
    Ok(receipts)
}

fn decode_receipt(list: &mut &[u8]) -> Result<Receipt, alloy_rlp::Error> {
    let mut fields = RlpHeader::decode_bytes(list, true)?;
    let tx_type = u8::decode(&mut fields)?;
    let (status, post_state) = match RlpHeader::decode_bytes(&mut fields, false)? {
        [] => (Some(false), None),
        [1] => (Some(true), None),
        root => {
            let root = B256::try_from(root).map_err(|_| alloy_rlp::Error::UnexpectedLength)?;
            (None, Some(root))
        }
    };
    let cumulative_gas_used = u64::decode(&mut fields)?;
    let mut logs_list = RlpHeader::decode_bytes(&mut fields, true)?;
    let mut logs = Vec::new();
    while !logs_list.is_empty() {
        logs.push(decode_log(&mut logs_list)?);
    }
    if !fields.is_empty() {
        return Err(alloy_rlp::Error::UnexpectedLength);
    }
    Ok(Receipt {
        tx_type,
        status,
        post_state,
        cumulative_gas_used,
        logs,
    })
}

fn decode_log(list: &mut &[u8]) -> Result<Log, alloy_rlp::Error> {
    let mut fields = RlpHeader::decode_bytes(list, true)?;
    let address = Address::decode(&mut fields)?;
    let topics = Vec::<B256>::decode(&mut fields)?;
    let data = Bytes::decode(&mut fields)?;
    if !fields.is_empty() {
        return Err(alloy_rlp::Error::UnexpectedLength);
    }
    Log::new(address, topics, data).ok_or(alloy_rlp::Error::Custom("more than 4 topics"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_of_every_outcome_come_back_whole() {
        let log = Log::new(
            Address::repeat_byte(3),
            vec![B256::repeat_byte(1), B256::repeat_byte(2)],
            vec![9; 70].into(),
        );
        let receipt = |tx_type, status, post_state, logs| Receipt {
            tx_type,
            status,
            post_state,
            cumulative_gas_used: 21_000,
            logs,
        };
        let receipts = vec![
            receipt(0, Some(true), None, vec![]),
            receipt(4, Some(false), None, vec![]),
            receipt(
                0,
                None,
                Some(B256::repeat_byte(7)),
                log.into_iter().collect(),
            ),
        ];
        let encoded = |receipts: &[Receipt]| {
            let mut row = vec![7];
            encode_receipts(receipts, &mut row);
            assert_eq!(row.remove(0), 7, "appended");
            row
        };
        let row = encoded(&receipts);
        assert_eq!(decode_receipts(&row), Ok(receipts));
        for end in 0..row.len() {
            assert!(decode_receipts(&row[..end]).is_err(), "{end} bytes");
        }
        assert_eq!(decode_receipts(&encoded(&[])), Ok(vec![]));
    }

    #[test]
    fn a_header_comes_back_with_its_total_difficulty() {
        let header = Header {
            number: 7,
            ..Header::default()
        };
        for total in [U256::ZERO, U256::from(0x1234), U256::MAX] {
            let mut row = Vec::new();
            encode_header(&header, &total, &mut row);
            assert_eq!(decode_header(&row), Ok((header.clone(), total)));
            for end in 0..row.len() {
                assert!(decode_header(&row[..end]).is_err(), "{end} bytes");
            }
        }
    }
}
