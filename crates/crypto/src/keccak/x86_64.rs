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

/// The message that a lane is hashing.
#[derive(Clone, Copy)]
struct Lane<'a> {
    /// The bytes that are not absorbed yet; the last block is shorter than a whole one.
    rest: &'a [u8],
    /// Where its hash goes.
    index: usize,
    is_busy: bool,
}

impl<'a> Lane<'a> {
    const IDLE: Self = Self {
        rest: &[],
        index: 0,
        is_busy: false,
    };

    fn new(index: usize, rest: &'a [u8]) -> Self {
        Self {
            rest,
            index,
            is_busy: true,
        }
    }

    /// Goes past the block that was absorbed; true if it was the last.
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

/// Words of a block.
const WORDS: usize = RATE_BYTES / 8;

/// Padding: xored into the last byte of the last block; the byte after the message is a 1.
const LAST: u8 = 0x80;

/// One module for each width. `$rol` is a rotation by a constant, `$xor3` the sum of three, `$chi(a, b, c)` is
/// `a ^ (!b & c)`, `$words` vectors of the words of each lane's next block, `$clear` sets the named lanes to zero,
/// `$store` brings a vector to memory.
macro_rules! width {
    (
        $name:ident, $lanes:literal, $feature:literal, $vector:ident,
        zero $zero:expr, splat $splat:expr, xor $xor:expr, xor3 $xor3:expr, chi $chi:expr,
        rol $rol:ident, words $words:ident, clear $clear:ident, store $store:ident
    ) => {
        pub(super) mod $name {
            use super::*;
            use std::arch::x86_64::*;

            const LANES: usize = $lanes;

            /// Hashes every message into `hashes`, in order.
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
                    for (place, words) in state.iter_mut().zip($words(&lanes)) {
                        *place = $xor(*place, words);
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

            /// `Keccak-f[1600]` on every lane.
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
    rol rol4, words words4, clear clear4, store store4
);

width!(
    eight, 8, "avx512f,avx512bw", __m512i,
    zero _mm512_setzero_si512(),
    splat _mm512_set1_epi64,
    xor _mm512_xor_si512,
    xor3 |a, b, c| _mm512_ternarylogic_epi64::<0x96>(a, b, c),
    chi |a, b, c| _mm512_ternarylogic_epi64::<0xd2>(a, b, c),
    rol rol8, words words8, clear clear8, store store8
);

use std::arch::x86_64::{__m256i, __m512i};

/// For each word of a block, the vector of that word of each lane's next block.
#[inline]
#[target_feature(enable = "avx2")]
fn words4(lanes: &[Lane<'_>; 4]) -> [__m256i; WORDS] {
    use std::arch::x86_64::*;
    let mut padded = [[0; RATE_BYTES]; 4];
    let mut blocks = [&[0; RATE_BYTES]; 4];
    for ((lane, padded), block) in lanes.iter().zip(&mut padded).zip(&mut blocks) {
        *block = lane.rest.first_chunk().unwrap_or_else(|| {
            padded[..lane.rest.len()].copy_from_slice(lane.rest);
            padded[lane.rest.len()] ^= 1;
            padded[RATE_BYTES - 1] ^= LAST;
            padded
        });
    }
    let mut words = [_mm256_setzero_si256(); WORDS];
    for (four, words) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let [a, b, c, d] = blocks.map(|block| load4(bytes(block, 4 * four)));
        // Of two blocks each, words 0 and 2, then 1 and 3.
        let (even, odd) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        let (more_even, more_odd) = (_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
        *words = [
            _mm256_permute2x128_si256::<0x20>(even, more_even),
            _mm256_permute2x128_si256::<0x20>(odd, more_odd),
            _mm256_permute2x128_si256::<0x31>(even, more_even),
            _mm256_permute2x128_si256::<0x31>(odd, more_odd),
        ];
    }
    let [a, b, c, d] = blocks.map(|block| i64::from_le_bytes(*bytes(block, WORDS - 1)));
    words[WORDS - 1] = _mm256_setr_epi64x(a, b, c, d);
    words
}

/// `BYTES` bytes of a block, from the word at `at` on.
#[inline(always)]
fn bytes<const BYTES: usize>(block: &[u8; RATE_BYTES], at: usize) -> &[u8; BYTES] {
    let bytes = block[8 * at..].first_chunk();
    bytes.expect("that is within a block")
}

/// For each word of a block, the vector of that word of each lane's next block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn words8(lanes: &[Lane<'_>; 8]) -> [__m512i; WORDS] {
    use std::arch::x86_64::*;
    let mut words = [_mm512_setzero_si512(); WORDS];
    for (eight, words) in words.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mut rows = [_mm512_setzero_si512(); 8];
        for (row, lane) in rows.iter_mut().zip(lanes) {
            *row = load8(lane.rest, 64 * eight);
        }
        // Of each two lanes, words 0, 2, 4 and 6, then 1, 3, 5 and 7.
        let mut pairs = [[_mm512_setzero_si512(); 4]; 2];
        for (at, [a, b]) in rows.as_chunks().0.iter().enumerate() {
            pairs[0][at] = _mm512_unpacklo_epi64(*a, *b);
            pairs[1][at] = _mm512_unpackhi_epi64(*a, *b);
        }
        for (at, [a, b, c, d]) in pairs.into_iter().enumerate() {
            // Of each four lanes, words 0 and 4, then 2 and 6; or one more.
            let (first, more_first) = (
                _mm512_shuffle_i64x2::<0x88>(a, b),
                _mm512_shuffle_i64x2::<0x88>(c, d),
            );
            let (second, more_second) = (
                _mm512_shuffle_i64x2::<0xdd>(a, b),
                _mm512_shuffle_i64x2::<0xdd>(c, d),
            );
            words[at] = _mm512_shuffle_i64x2::<0x88>(first, more_first);
            words[at + 2] = _mm512_shuffle_i64x2::<0x88>(second, more_second);
            words[at + 4] = _mm512_shuffle_i64x2::<0xdd>(first, more_first);
            words[at + 6] = _mm512_shuffle_i64x2::<0xdd>(second, more_second);
        }
    }
    let last = |lane: usize| {
        let rest = lanes[lane].rest;
        match rest.first_chunk() {
            Some(block) => i64::from_le_bytes(*bytes(block, WORDS - 1)),
            None => {
                let word = _mm512_castsi512_si128(load8(rest, 8 * (WORDS - 1)));
                _mm_cvtsi128_si64(word) ^ i64::from(LAST) << 56
            }
        }
    };
    words[WORDS - 1] = _mm512_setr_epi64(
        last(0),
        last(1),
        last(2),
        last(3),
        last(4),
        last(5),
        last(6),
        last(7),
    );
    words
}

#[inline]
#[target_feature(enable = "avx2")]
fn load4(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are there; no alignment is required.
    unsafe { std::arch::x86_64::_mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// 64 bytes from `start` on; behind the end of `rest` is a 1, then zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load8(rest: &[u8], start: usize) -> __m512i {
    use std::arch::x86_64::*;
    if let Some(bytes) = rest.get(start..).and_then(|rest| rest.first_chunk::<64>()) {
        // SAFETY: 64 bytes are there; no alignment is required.
        return unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    }
    let count = rest.len().saturating_sub(start);
    let there = (1 << count) - 1;
    // SAFETY: what is not there is not read.
    let bytes = unsafe { _mm512_maskz_loadu_epi8(there, rest.as_ptr().wrapping_add(start).cast()) };
    let end = u64::from(rest.len() >= start) << count;
    _mm512_mask_mov_epi8(bytes, end, _mm512_set1_epi8(1))
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
    // SAFETY: the place has 32 bytes; no alignment is required.
    unsafe { std::arch::x86_64::_mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
    words
}

#[target_feature(enable = "avx512f")]
fn store8(vector: __m512i) -> [u64; 8] {
    let mut words = [0; 8];
    // SAFETY: the place has 64 bytes; no alignment is required.
    unsafe { std::arch::x86_64::_mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
    words
}
