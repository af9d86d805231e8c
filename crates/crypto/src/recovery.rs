//! The signers of many signatures at once, each in a lane of vector registers.
//!
//! The widest form that the processor has is chosen once, by what it makes of a known signature. What lanes
//! can't tell, and what is left over, goes one by one to the library: it alone says that there is no signer.

mod multiples;
mod scalars;
mod x86_64;

use crate::{KeccakLanes, Signed, keccak256_batch};
use alloy_primitives::{Address, B256, U256, hex};
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
        true => KeccakLanes::One,
        false => lanes(),
    };
    signers_by(way, signed)
}

/// What the processor has, if it gives the signer of EIP-155's example in each lane. The first call takes some
/// milliseconds.
pub(crate) fn lanes() -> KeccakLanes {
    static LANES: OnceLock<KeccakLanes> = OnceLock::new();
    *LANES.get_or_init(|| {
        let example = Signed {
            hash: B256::new(hex!(
                "daf5a779ae972f972197303d7b574746c7ef83eadac0f2791ad23db92e4c8e53"
            )),
            r: U256::from_be_bytes(hex!(
                "28ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276"
            )),
            s: U256::from_be_bytes(hex!(
                "67cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"
            )),
            y_parity: false,
        };
        let signer = Address::new(hex!("9d8a62f656a8d1615c1294fd71e9cfb3e4855a4f"));
        let is_right = |lanes: &KeccakLanes| signers_by(*lanes, &[example; 8]) == [Some(signer); 8];
        let ways = KeccakLanes::ALL.into_iter().rev();
        let way = ways.filter(|way| way.is_available()).find(is_right);
        way.unwrap_or(KeccakLanes::One)
    })
}

fn signers_by(lanes: KeccakLanes, signed: &[Signed]) -> Vec<Option<Address>> {
    let mut signers = vec![None; signed.len()];
    if lanes == KeccakLanes::One || !lanes.is_available() {
        return signers;
    }
    let (places, tasks) = tasks(signed);
    let keys = match lanes {
        // SAFETY: the processor has AVX2, as was just asked.
        KeccakLanes::Four => in_lanes(&tasks, |tasks| unsafe { x86_64::four::keys(tasks) }),
        // SAFETY: the processor has AVX-512F, as was just asked.
        KeccakLanes::Eight => in_lanes(&tasks, |tasks| unsafe { x86_64::eight::keys(tasks) }),
        KeccakLanes::One => return signers,
    };
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
