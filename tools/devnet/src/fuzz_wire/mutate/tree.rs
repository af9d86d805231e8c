//! RLP as a tree whose parts can be changed: written again, all lengths around a change are right.

use rand::Rng;
use rand::rngs::SmallRng;

/// Lists within lists that are taken apart; deeper ones stay bytes.
const MAX_DEPTH: usize = 16;

/// A part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    String(Vec<u8>),
    List(Vec<Item>),
    /// Bytes that are written as they are, RLP or not.
    Raw(Vec<u8>),
}

/// The items that `data` consists of. What is no item stays raw, to the end.
pub(super) fn parse(data: &[u8]) -> Vec<Item> {
    parse_at(data, 0)
}

fn parse_at(mut data: &[u8], depth: usize) -> Vec<Item> {
    let mut items = Vec::new();
    while let Some((is_list, head, length)) = head_of(data) {
        let Some(payload) = data.get(head..head.saturating_add(length)) else {
            break;
        };
        items.push(match is_list {
            true if depth < MAX_DEPTH => Item::List(parse_at(payload, depth + 1)),
            true => Item::Raw(data[..head + length].to_vec()),
            false => Item::String(payload.to_vec()),
        });
        data = &data[head + length..];
    }
    if !data.is_empty() {
        items.push(Item::Raw(data.to_vec()));
    }
    items
}

/// Whether a list begins here, the bytes of its head, and those of its payload.
fn head_of(data: &[u8]) -> Option<(bool, usize, usize)> {
    let first = *data.first()?;
    let long = |from: u8| {
        let bytes = usize::from(first - from);
        let digits = data.get(1..=bytes)?;
        let length = digits.iter().try_fold(0_usize, |sum, digit| {
            sum.checked_mul(256)?.checked_add(usize::from(*digit))
        });
        Some((1 + bytes, length?))
    };
    let (is_list, (head, length)) = match first {
        0..=0x7f => (false, (0, 1)),
        0x80..=0xb7 => (false, (1, usize::from(first - 0x80))),
        0xb8..=0xbf => (false, long(0xb7)?),
        0xc0..=0xf7 => (true, (1, usize::from(first - 0xc0))),
        0xf8..=0xff => (true, long(0xf7)?),
    };
    Some((is_list, head, length))
}

/// The encoding of the items, one after the other.
pub(super) fn write(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        match item {
            Item::Raw(bytes) => out.extend_from_slice(bytes),
            Item::String(bytes) if bytes.len() == 1 && bytes[0] < 0x80 => out.push(bytes[0]),
            Item::String(bytes) => {
                put_head(0x80, bytes.len(), &mut out);
                out.extend_from_slice(bytes);
            }
            Item::List(inner) => {
                let payload = write(inner);
                put_head(0xc0, payload.len(), &mut out);
                out.extend(payload);
            }
        }
    }
    out
}

fn put_head(kind: u8, length: usize, out: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(length @ 0..=55) => out.push(kind + length),
        _ => {
            let bytes = length.to_be_bytes();
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let digits = &bytes[zeros..];
            out.push(kind + 55 + u8::try_from(digits.len()).unwrap_or(8));
            out.extend_from_slice(digits);
        }
    }
}

/// An item whose head gives a wrong length: a little off, far too large, or in a form that is not the shortest.
pub(super) fn wrong_length(item: &Item, rng: &mut SmallRng) -> Vec<u8> {
    let (kind, payload) = match item {
        Item::String(bytes) | Item::Raw(bytes) => (0x80, bytes.clone()),
        Item::List(inner) => (0xc0, write(inner)),
    };
    let mut out = Vec::new();
    match rng.random_range(0..4) {
        0 => put_head(kind, payload.len() + rng.random_range(1..9), &mut out),
        1 => put_head(
            kind,
            payload.len().saturating_sub(rng.random_range(1..9)),
            &mut out,
        ),
        2 => {
            let bytes = rng.random_range(1..=8_u8);
            out.push(kind + 55 + bytes);
            out.extend((0..bytes).map(|_| 0xff));
        }
        _ => {
            let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            out.push(kind + 55 + 4);
            out.extend(length.to_be_bytes());
        }
    }
    out.extend(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn what_is_taken_apart_is_put_together_again() {
        let inner = Item::List(vec![Item::String(vec![1; 60]), Item::List(Vec::new())]);
        let items = vec![Item::String(vec![5]), inner, Item::String(Vec::new())];
        let bytes = write(&items);
        assert_eq!(parse(&bytes), items);
        assert_eq!(bytes[..4], [5, 0xf8, 63, 0xb8]);
        // Half an item stays what it is.
        assert_eq!(write(&parse(&bytes[..40])), bytes[..40]);
    }

    #[test]
    fn no_bytes_are_lost_whatever_they_are() {
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..1000 {
            let bytes: Vec<u8> = (0..rng.random_range(0..40)).map(|_| rng.random()).collect();
            // Heads that are longer than they need be get short.
            assert!(write(&parse(&bytes)).len() <= bytes.len());
        }
    }
}
