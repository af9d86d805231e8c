//! The signers of many signatures at once, each in a lane of vector registers.
//!
//! The fastest width that the CPU has is chosen once, and tested on known signatures. Signatures for which a lane
//! finds no key are left to the library, one by one: only the library decides that there is no signer.

mod multiples;
mod scalars;
mod x86_64;

use crate::keys::pure_public_key;
use crate::signature::pure_sign;
use crate::{Signed, keccak256_batch};
use alloy_primitives::{Address, B256, U256};
use scalars::Halves;
use std::sync::OnceLock;

/// One recovery: the signature's point by its x coordinate and the parity of y, and the halves of its factors.
#[derive(Clone, Copy)]
struct Task {
    x: U256,
    is_odd: bool,
    halves: Halves,
}

/// The coordinates of a public key. `None` if there is none, or if a lane can't compute it.
type Key = Option<[U256; 2]>;

/// How many keys are computed at once, and by which instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// Eight at once, with the products of AVX512-IFMA.
    EightIfma,
    /// Eight at once, with AVX-512.
    Eight,
    /// Four at once, with AVX2.
    Four,
}

impl Width {
    /// Every width, whether the CPU has it or not, fastest first.
    const ALL: [Self; 3] = [Self::EightIfma, Self::Eight, Self::Four];

    fn is_available(self) -> bool {
        match self {
            Self::EightIfma => Self::Eight.is_available() && is_x86_feature_detected!("avx512ifma"),
            Self::Eight => is_x86_feature_detected!("avx512f"),
            Self::Four => is_x86_feature_detected!("avx2"),
        }
    }

    /// Fewer signatures than this are recovered faster one by one.
    const fn min_signatures(self) -> usize {
        match self {
            Self::EightIfma | Self::Four => 3,
            Self::Eight => 5,
        }
    }
}

/// The signer of each of `signed`; `None` where a lane finds none.
pub(crate) fn signers(signed: &[Signed]) -> Vec<Option<Address>> {
    match width() {
        Some(width) if signed.len() >= width.min_signatures() => signers_by(width, signed),
        _ => vec![None; signed.len()],
    }
}

/// The fastest width that the CPU has and that recovers eight signers of signatures by the pure library. The first call takes some milliseconds.
pub(crate) fn width() -> Option<Width> {
    static WIDTH: OnceLock<Option<Width>> = OnceLock::new();
    *WIDTH.get_or_init(|| {
        let example = |number| {
            let (hash, key) = (B256::repeat_byte(number), B256::repeat_byte(100 + number));
            let (r, s, y_parity) = pure_sign(&hash, &key)?;
            let public_key = pure_public_key(&key).ok()?;
            let signer = Some(Address::from_raw_public_key(public_key.as_slice()));
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
        let is_right = |width: &Width| signers_by(*width, &signed) == expected;
        Width::ALL.into_iter().find(is_right)
    })
}

/// As [`signers`], at one width; all `None` if the CPU does not have it.
fn signers_by(width: Width, signed: &[Signed]) -> Vec<Option<Address>> {
    let mut signers = vec![None; signed.len()];
    if !width.is_available() {
        return signers;
    }
    let (indices, tasks) = tasks(signed);
    let keys = match width {
        // SAFETY: the processor has AVX-512F and AVX512-IFMA, as was just checked.
        Width::EightIfma => in_lanes(&tasks, |tasks| unsafe { x86_64::eight_ifma::keys(tasks) }),
        // SAFETY: the processor has AVX-512F, as was just checked.
        Width::Eight => in_lanes(&tasks, |tasks| unsafe { x86_64::eight::keys(tasks) }),
        // SAFETY: the processor has AVX2, as was just checked.
        Width::Four => in_lanes(&tasks, |tasks| unsafe { x86_64::four::keys(tasks) }),
    };
    let found = indices.iter().zip(keys);
    let found: Vec<_> = found
        .filter_map(|(index, key)| Some((*index, key?)))
        .collect();
    let keys: Vec<[u8; 64]> = found.iter().map(|(_, key)| bytes_of(key)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 64]>::as_slice).collect();
    for ((index, _), hash) in found.iter().zip(keccak256_batch(&keys)) {
        signers[*index] = Some(Address::from_word(hash));
    }
    signers
}

/// The tasks of the signatures whose numbers are in range, with their indices.
fn tasks(signed: &[Signed]) -> (Vec<usize>, Vec<Task>) {
    let numbers = signed.iter().enumerate().filter_map(|(index, signed)| {
        let (r, s) = (scalars::scalar(&signed.r)?, scalars::scalar(&signed.s)?);
        Some((index, (signed.hash.into(), r, s)))
    });
    let (indices, numbers): (Vec<usize>, Vec<_>) = numbers.unzip();
    let halves = scalars::factors(&numbers);
    let tasks = indices.iter().zip(halves).map(|(index, halves)| Task {
        x: signed[*index].r,
        is_odd: signed[*index].y_parity,
        halves,
    });
    let tasks = tasks.collect();
    (indices, tasks)
}

/// The keys that `work` computes for `tasks`, with the last lanes filled with copies of the last task.
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
