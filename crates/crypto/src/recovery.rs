//! The signers of many signatures at once, each in a lane of vector registers.
//!
//! The widest form that the processor has is chosen once, by what it makes of known signatures. What lanes
//! can't tell, and what is left over, goes one by one to the library: it alone says that there is no signer.

mod multiples;
mod scalars;
mod x86_64;

use crate::{Lanes, Signed, address_of_secret_key, keccak256_batch, sign};
use alloy_primitives::{Address, B256, U256};
use scalars::Halves;
use std::sync::OnceLock;

/// A signature's point by its first coordinate, whether its second is odd, and the halves of its factors.
#[derive(Clone, Copy)]
struct Task {
    x: U256,
    is_odd: bool,
    halves: Halves,
}

/// What came of it: the key's coordinates. `None` if there is none or this way can't tell.
type Key = Option<[U256; 2]>;

/// Fewer than this are recovered faster one by one.
const WORTH_LANES: usize = 3;

/// The signers of each of `signed`, where lanes find them.
pub(crate) fn signers(signed: &[Signed]) -> Vec<Option<Address>> {
    let way = match signed.len() < WORTH_LANES {
        true => Lanes::One,
        false => lanes(),
    };
    signers_by(way, signed)
}

/// What the processor has, if it finds the signers of a few signatures, each another in each lane. The first
/// call takes some milliseconds.
pub(crate) fn lanes() -> Lanes {
    static LANES: OnceLock<Lanes> = OnceLock::new();
    *LANES.get_or_init(|| {
        let example = |number| {
            let (hash, key) = (B256::repeat_byte(number), B256::repeat_byte(100 + number));
            let (r, s, y_parity) = sign(&hash, &key).ok()?;
            let signer = address_of_secret_key(&key).ok();
            Some((
                Signed {
                    hash,
                    r,
                    s,
                    y_parity,
                },
                signer,
            ))
        };
        let (signed, expected): (Vec<_>, Vec<_>) = (1..=8).filter_map(example).unzip();
        let mut ways = Lanes::ALL.into_iter().rev();
        let is_right = |way: &Lanes| way.is_available() && signers_by(*way, &signed) == expected;
        ways.find(is_right).unwrap_or(Lanes::One)
    })
}

fn signers_by(lanes: Lanes, signed: &[Signed]) -> Vec<Option<Address>> {
    let mut signers = vec![None; signed.len()];
    let keys: fn(&[Task]) -> Vec<Key> = match lanes {
        Lanes::Four if lanes.is_available() => |tasks| {
            // SAFETY: the processor has AVX2, as was just asked.
            in_lanes(tasks, |tasks| unsafe { x86_64::four::keys(tasks) })
        },
        Lanes::Eight if lanes.is_available() => |tasks| {
            // SAFETY: the processor has AVX-512F, as was just asked.
            in_lanes(tasks, |tasks| unsafe { x86_64::eight::keys(tasks) })
        },
        _ => return signers,
    };
    let (places, tasks) = tasks(signed);
    let keys = keys(&tasks);
    let found = places.iter().zip(keys);
    let found: Vec<_> = found
        .filter_map(|(place, key)| Some((*place, key?)))
        .collect();
    let keys: Vec<[u8; 64]> = found.iter().map(|(_, key)| bytes_of(key)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 64]>::as_slice).collect();
    for ((place, _), hash) in found.iter().zip(keccak256_batch(&keys)) {
        signers[*place] = Some(Address::from_word(hash));
    }
    signers
}

/// The tasks that signatures are, with their places; none for one whose numbers are out of range.
fn tasks(signed: &[Signed]) -> (Vec<usize>, Vec<Task>) {
    let numbers = signed.iter().enumerate().filter_map(|(place, signed)| {
        let (r, s) = (scalars::scalar(&signed.r)?, scalars::scalar(&signed.s)?);
        Some((place, (signed.hash.into(), r, s)))
    });
    let (places, numbers): (Vec<usize>, Vec<_>) = numbers.unzip();
    let halves = scalars::factors(&numbers);
    let tasks = places.iter().zip(halves).map(|(place, halves)| Task {
        x: signed[*place].r,
        is_odd: signed[*place].y_parity,
        halves,
    });
    let tasks = tasks.collect();
    (places, tasks)
}

/// What `work` makes of `tasks`, which are filled up to whole lanes with copies.
fn in_lanes<const LANES: usize>(
    tasks: &[Task],
    work: impl FnOnce(&[[Task; LANES]]) -> Vec<[Key; LANES]>,
) -> Vec<Key> {
    let (whole, rest) = tasks.as_chunks();
    let mut whole = whole.to_vec();
    if let Some(last) = rest.last() {
        whole.push(std::array::from_fn(|lane| *rest.get(lane).unwrap_or(last)));
    }
    work(&whole).into_flattened()
}

fn bytes_of(key: &[U256; 2]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (bytes, coordinate) in bytes.chunks_exact_mut(32).zip(key) {
        bytes.copy_from_slice(&coordinate.to_be_bytes::<32>());
    }
    bytes
}

#[cfg(test)]
mod tests;
