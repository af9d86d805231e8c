//! The permutation over vectors of 64-bit words, and lanes that take one message after the other.

use super::RATE_BYTES;
use alloy_primitives::B256;

const ROUNDS: usize = 24;
const ROUND_CONSTANTS: [u64; ROUNDS] = [
    0x0000_0000_0000_0001,
    0x0000_0000_0000_8082,
    0x8000_0000_0000_808a,
    0x8000_0000_8000_8000,
    0x0000_0000_0000_808b,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x0000_0000_0000_008a,
    0x0000_0000_0000_0088,
    0x0000_0000_8000_8009,
    0x0000_0000_8000_000a,
    0x0000_0000_8000_808b,
    0x8000_0000_0000_008b,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x0000_0000_0000_800a,
    0x8000_0000_8000_000a,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8008,
];

/// A message that a lane is in the middle of.
#[derive(Clone, Copy)]
struct Lane<'a> {
    /// What is not yet absorbed.
    rest: &'a [u8],
    /// Where its hash goes.
    index: usize,
    /// Its last block with the padding.
    padded: [u8; RATE_BYTES],
    is_busy: bool,
}

impl<'a> Lane<'a> {
    const IDLE: Self = Self {
        rest: &[],
        index: 0,
        padded: [0; RATE_BYTES],
        is_busy: false,
    };

    fn new(index: usize, message: &'a [u8]) -> Self {
        let tail = &message[message.len() / RATE_BYTES * RATE_BYTES..];
        let mut padded = [0; RATE_BYTES];
        padded[..tail.len()].copy_from_slice(tail);
        padded[tail.len()] ^= 0x01;
        padded[RATE_BYTES - 1] ^= 0x80;
        Self {
            rest: message,
            index,
            padded,
            is_busy: true,
        }
    }

    /// The block to absorb next.
    fn block(&self) -> &[u8; RATE_BYTES] {
        self.rest.first_chunk().unwrap_or(&self.padded)
    }

    /// Goes past that block; true if it was the last.
    fn advance(&mut self) -> bool {
        match self.rest.get(RATE_BYTES..) {
            Some(rest) => {
                self.rest = rest;
                false
            }
            None => true,
        }
    }
}

/// The 64-bit word at `at` of a block.
#[inline(always)]
fn word(block: &[u8; RATE_BYTES], at: usize) -> i64 {
    let bytes = block[8 * at..].first_chunk().expect("a block has 17 words");
    i64::from_le_bytes(*bytes)
}

/// One module for each width. `$rol` is a rotation by a constant, `$xor3` the sum of three,
/// `$chi(a, b, c)` is `a ^ (!b & c)`, `$gather` a vector of one word of each lane's block, `$clear`
/// sets the lanes that are named to zero, `$store` brings a vector to memory.
macro_rules! width {
    (
        $name:ident, $lanes:literal, $feature:literal, $vector:ident,
        zero $zero:expr, splat $splat:expr, xor $xor:expr, xor3 $xor3:expr, chi $chi:expr,
        rol $rol:ident, gather $gather:ident, clear $clear:ident, store $store:ident
    ) => {
        pub(super) mod $name {
            use super::*;
            use std::arch::x86_64::*;

            const LANES: usize = $lanes;

            /// Hashes every message into its place.
            #[target_feature(enable = $feature)]
            pub(in crate::keccak) fn hash(messages: &[&[u8]], hashes: &mut [B256]) {
                let mut waiting = messages.iter().enumerate();
                let mut lanes = [Lane::IDLE; LANES];
                for lane in &mut lanes {
                    if let Some((index, message)) = waiting.next() {
                        *lane = Lane::new(index, message);
                    }
                }
                let mut state = [$zero; 25];
                while lanes.iter().any(|lane| lane.is_busy) {
                    let blocks: [&[u8; RATE_BYTES]; LANES] =
                        std::array::from_fn(|lane| lanes[lane].block());
                    for (at, place) in state[..17].iter_mut().enumerate() {
                        *place = $xor(*place, $gather(&blocks, at));
                    }
                    permute(&mut state);
                    let mut done = 0_u8;
                    for (at, lane) in lanes.iter_mut().enumerate() {
                        if lane.advance() {
                            done |= 1 << at;
                        }
                    }
                    if done == 0 {
                        continue;
                    }
                    let words: [[u64; LANES]; 4] = std::array::from_fn(|at| $store(state[at]));
                    for (at, lane) in lanes.iter_mut().enumerate() {
                        if done & (1 << at) == 0 {
                            continue;
                        }
                        if lane.is_busy {
                            let places = hashes[lane.index].0.chunks_exact_mut(8);
                            for (place, word) in places.zip(&words) {
                                place.copy_from_slice(&word[at].to_le_bytes());
                            }
                        }
                        *lane = match waiting.next() {
                            Some((index, message)) => Lane::new(index, message),
                            None => Lane::IDLE,
                        };
                    }
                    for place in &mut state {
                        *place = $clear(*place, done);
                    }
                }
            }

            /// Keccak-f[1600] on every lane.
            #[target_feature(enable = $feature)]
            fn permute(a: &mut [$vector; 25]) {
                for constant in ROUND_CONSTANTS {
                    let c: [$vector; 5] = std::array::from_fn(|x| {
                        $xor3($xor3(a[x], a[x + 5], a[x + 10]), a[x + 15], a[x + 20])
                    });
                    let d: [$vector; 5] =
                        std::array::from_fn(|x| $xor(c[(x + 4) % 5], $rol!(c[(x + 1) % 5], 1)));
                    let t = |at: usize| $xor(a[at], d[at % 5]);
                    let b = [
                        t(0),
                        $rol!(t(6), 44),
                        $rol!(t(12), 43),
                        $rol!(t(18), 21),
                        $rol!(t(24), 14),
                        $rol!(t(3), 28),
                        $rol!(t(9), 20),
                        $rol!(t(10), 3),
                        $rol!(t(16), 45),
                        $rol!(t(22), 61),
                        $rol!(t(1), 1),
                        $rol!(t(7), 6),
                        $rol!(t(13), 25),
                        $rol!(t(19), 8),
                        $rol!(t(20), 18),
                        $rol!(t(4), 27),
                        $rol!(t(5), 36),
                        $rol!(t(11), 10),
                        $rol!(t(17), 15),
                        $rol!(t(23), 56),
                        $rol!(t(2), 62),
                        $rol!(t(8), 55),
                        $rol!(t(14), 39),
                        $rol!(t(15), 41),
                        $rol!(t(21), 2),
                    ];
                    for y in [0, 5, 10, 15, 20] {
                        for x in 0..5 {
                            a[y + x] = $chi(b[y + x], b[y + (x + 1) % 5], b[y + (x + 2) % 5]);
                        }
                    }
                    a[0] = $xor(a[0], $splat(constant.cast_signed()));
                }
            }
        }
    };
}

macro_rules! rol4 {
    ($word:expr, $bits:literal) => {{
        let word = $word;
        _mm256_or_si256(
            _mm256_slli_epi64::<$bits>(word),
            _mm256_srli_epi64::<{ 64 - $bits }>(word),
        )
    }};
}

macro_rules! rol8 {
    ($word:expr, $bits:literal) => {
        _mm512_rol_epi64::<$bits>($word)
    };
}

width!(
    four, 4, "avx2", __m256i,
    zero _mm256_setzero_si256(),
    splat _mm256_set1_epi64x,
    xor _mm256_xor_si256,
    xor3 |a, b, c| _mm256_xor_si256(_mm256_xor_si256(a, b), c),
    chi |a, b, c| _mm256_xor_si256(a, _mm256_andnot_si256(b, c)),
    rol rol4, gather gather4, clear clear4, store store4
);

width!(
    eight, 8, "avx512f", __m512i,
    zero _mm512_setzero_si512(),
    splat _mm512_set1_epi64,
    xor _mm512_xor_si512,
    xor3 |a, b, c| _mm512_ternarylogic_epi64::<0x96>(a, b, c),
    chi |a, b, c| _mm512_ternarylogic_epi64::<0xd2>(a, b, c),
    rol rol8, gather gather8, clear clear8, store store8
);

use std::arch::x86_64::{__m256i, __m512i};

#[target_feature(enable = "avx2")]
fn gather4(blocks: &[&[u8; RATE_BYTES]; 4], at: usize) -> __m256i {
    let [a, b, c, d] = blocks.map(|block| word(block, at));
    std::arch::x86_64::_mm256_setr_epi64x(a, b, c, d)
}

#[target_feature(enable = "avx512f")]
fn gather8(blocks: &[&[u8; RATE_BYTES]; 8], at: usize) -> __m512i {
    let [a, b, c, d, e, f, g, h] = blocks.map(|block| word(block, at));
    std::arch::x86_64::_mm512_setr_epi64(a, b, c, d, e, f, g, h)
}

#[target_feature(enable = "avx2")]
fn clear4(vector: __m256i, lanes: u8) -> __m256i {
    use std::arch::x86_64::{_mm256_andnot_si256, _mm256_setr_epi64x};
    let [a, b, c, d] = [0, 1, 2, 3].map(|lane| -i64::from(lanes >> lane & 1));
    _mm256_andnot_si256(_mm256_setr_epi64x(a, b, c, d), vector)
}

#[target_feature(enable = "avx512f")]
fn clear8(vector: __m512i, lanes: u8) -> __m512i {
    std::arch::x86_64::_mm512_maskz_mov_epi64(!lanes, vector)
}

#[target_feature(enable = "avx2")]
fn store4(vector: __m256i) -> [u64; 4] {
    let mut words = [0; 4];
    // SAFETY: the place has 32 bytes; no alignment is asked for.
    unsafe { std::arch::x86_64::_mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
    words
}

#[target_feature(enable = "avx512f")]
fn store8(vector: __m512i) -> [u64; 8] {
    let mut words = [0; 8];
    // SAFETY: the place has 64 bytes; no alignment is asked for.
    unsafe { std::arch::x86_64::_mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
    words
}
