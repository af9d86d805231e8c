//! Keccak-256 of many messages at once, each in a lane of a vector register.
//!
//! A lane that is done with its message takes the next one, so messages of any lengths may be mixed. The widest vectors
//! that the CPU has are chosen at run time; without any, or for few messages, they are hashed one after the other.
//!
//! Spec: FIPS 202 with the padding of the original submission (first byte 0x01).

#[cfg(target_arch = "x86_64")]
mod x86_64;

use alloy_primitives::{B256, keccak256};

/// Bytes that one permutation absorbs.
const RATE_BYTES: usize = 136;

/// How many messages are hashed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// One after the other.
    One,
    /// Four at once, with AVX2.
    Four,
    /// Eight at once, with AVX-512F and BW.
    Eight,
}

impl Lanes {
    /// Every width, whether the CPU has it or not.
    pub const ALL: [Self; 3] = [Self::One, Self::Four, Self::Eight];

    /// The widest one that the CPU has.
    pub fn best() -> Self {
        let mut widths = Self::ALL.into_iter().rev();
        widths
            .find(|lanes| lanes.is_available())
            .unwrap_or(Self::One)
    }

    /// Whether the CPU has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::One => true,
            #[cfg(target_arch = "x86_64")]
            Self::Four => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Eight => {
                use std::arch::is_x86_feature_detected;
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

/// Fewer messages than this are hashed faster one after the other.
const MIN_MESSAGES: usize = 3;

/// The Keccak-256 hashes of `messages`, in their order.
pub fn keccak256_batch(messages: &[&[u8]]) -> Vec<B256> {
    let mut hashes = vec![B256::ZERO; messages.len()];
    keccak256_batch_by(Lanes::best(), messages, &mut hashes);
    hashes
}

/// The Keccak-256 hashes of `messages` with these `lanes`, or one after the other if the CPU does not have them.
///
/// # Panics
/// If `hashes` is not as long as `messages`.
pub fn keccak256_batch_by(lanes: Lanes, messages: &[&[u8]], hashes: &mut [B256]) {
    assert_eq!(messages.len(), hashes.len(), "a place for each hash");
    if messages.len() >= MIN_MESSAGES && lanes.is_available() {
        match lanes {
            Lanes::One => {}
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has AVX2, as was just checked.
            Lanes::Four => return unsafe { x86_64::four::hash(messages, hashes) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has AVX-512F and BW, as was just checked.
            Lanes::Eight => return unsafe { x86_64::eight::hash(messages, hashes) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => {}
        }
    }
    for (message, hash) in messages.iter().zip(hashes) {
        *hash = keccak256(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ from message to message.
    fn message(n: usize, bytes: usize) -> Vec<u8> {
        let seed = keccak256(n.to_be_bytes());
        seed.iter().copied().cycle().take(bytes).collect()
    }

    #[track_caller]
    fn assert_right(messages: &[Vec<u8>]) {
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let expected: Vec<B256> = messages.iter().map(keccak256).collect();
        for lanes in Lanes::ALL {
            let mut hashes = vec![B256::ZERO; messages.len()];
            keccak256_batch_by(lanes, &messages, &mut hashes);
            assert_eq!(hashes, expected, "{lanes:?}");
        }
        assert_eq!(keccak256_batch(&messages), expected);
    }

    #[test]
    fn messages_of_every_length_have_the_same_hash_at_every_width() {
        for bytes in (0..=300).chain([407, 408, 409, 532, 24_576]) {
            let messages: Vec<_> = (0..9).map(|n| message(n, bytes)).collect();
            assert_right(&messages);
        }
    }

    #[test]
    fn any_number_of_messages_of_mixed_lengths_give_the_same_hashes() {
        for count in 0..70 {
            let lengths = (0..count).map(|n| (n * n * 37 + count) % 700);
            let messages: Vec<_> = lengths.enumerate().map(|(n, l)| message(n, l)).collect();
            assert_right(&messages);
        }
    }
}
