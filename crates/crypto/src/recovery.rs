//! The signers of many signatures at once, each in a lane of vector registers.
//!
//! The fastest form that the processor has is chosen once, by what it makes of known signatures. What lanes
//! can't tell, and what is left over, goes one by one to the library: it alone says that there is no signer.

mod multiples;
mod scalars;
mod x86_64;

use crate::{Signed, address_of_secret_key, keccak256_batch, sign};
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

/// How keys are computed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Eight at once, with the products of AVX512-IFMA.
    EightIfma,
    /// Eight at once, with AVX-512.
    Eight,
    /// Four at once, with AVX2.
    Four,
}

impl Form {
    /// Every form, whether the processor has it or not, fastest first.
    const ALL: [Self; 3] = [Self::EightIfma, Self::Eight, Self::Four];

    fn is_available(self) -> bool {
        match self {
            Self::EightIfma => Self::Eight.is_available() && is_x86_feature_detected!("avx512ifma"),
            Self::Eight => is_x86_feature_detected!("avx512f"),
            Self::Four => is_x86_feature_detected!("avx2"),
        }
    }

    /// Fewer than this are recovered faster one by one.
    const fn worth_from(self) -> usize {
        match self {
            Self::EightIfma | Self::Four => 3,
            Self::Eight => 5,
        }
    }
}

/// The signers of each of `signed`, where lanes find them.
pub(crate) fn signers(signed: &[Signed]) -> Vec<Option<Address>> {
    match form() {
        Some(form) if signed.len() >= form.worth_from() => signers_by(form, signed),
        _ => vec![None; signed.len()],
    }
}

/// What the processor has, if it finds the signers of a few signatures, each another in each lane. The first
/// call takes some milliseconds.
pub(crate) fn form() -> Option<Form> {
    static FORM: OnceLock<Option<Form>> = OnceLock::new();
    *FORM.get_or_init(|| {
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
        let is_right = |form: &Form| signers_by(*form, &signed) == expected;
        Form::ALL.into_iter().find(is_right)
    })
}

/// As [`signers`], on one form; none if the processor doesn't have it.
fn signers_by(form: Form, signed: &[Signed]) -> Vec<Option<Address>> {
    let mut signers = vec![None; signed.len()];
    if !form.is_available() {
        return signers;
    }
    let (places, tasks) = tasks(signed);
    let keys = match form {
        // SAFETY: the processor has AVX-512F and AVX512-IFMA, as was just asked.
        Form::EightIfma => in_lanes(&tasks, |tasks| unsafe { x86_64::eight_ifma::keys(tasks) }),
        // SAFETY: the processor has AVX-512F, as was just asked.
        Form::Eight => in_lanes(&tasks, |tasks| unsafe { x86_64::eight::keys(tasks) }),
        // SAFETY: the processor has AVX2, as was just asked.
        Form::Four => in_lanes(&tasks, |tasks| unsafe { x86_64::four::keys(tasks) }),
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
