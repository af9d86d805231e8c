//! Jump analysis: a bitmap of code with a bit set for each JUMPDEST that is not the operand of a PUSH.
//!
//! Code is read in chunks of 64 bytes: two comparisons per 16 bytes (SSE2) give one mask of JUMPDESTs and one of
//! PUSHes. Only PUSHes are followed one by one, since the operand of a PUSH may contain the byte of another. An operand
//! may reach into the next chunk.
//!
//! ```text
//! code       60 5b 5b 61 5b 5b 5b      PUSH1 0x5b, JUMPDEST, PUSH2 0x5b5b, JUMPDEST
//! jumpdests   0  1  1  0  1  1  1
//! operands    0  1  0  0  1  1  0
//! bitmap      0  0  1  0  0  0  1      jumpdests & !operands
//! ```

const JUMPDEST: u8 = 0x5b;
const PUSH1: u8 = 0x60;
#[cfg(any(test, not(target_arch = "x86_64")))]
const PUSH32: u8 = 0x7f;
/// Bytes per chunk.
const CHUNK: usize = 64;

/// The jump destinations of `code`: bit `at % 8` of byte `at / 8` is that of byte `at` of the code.
pub(crate) fn analyze(code: &[u8]) -> Box<[u8]> {
    let mut bitmap = Vec::with_capacity(code.len().div_ceil(CHUNK) * 8);
    // Bytes at the start of the next chunk that are still operand.
    let mut operand = 0;
    for chunk in code.chunks(CHUNK) {
        let (jumpdests, pushes) = match chunk.try_into() {
            Ok(whole) => masks(whole),
            Err(_) => {
                let mut padded = [0; CHUNK];
                padded[..chunk.len()].copy_from_slice(chunk);
                masks(&padded)
            }
        };
        let mut operands = low_bits(operand);
        operand = operand.saturating_sub(CHUNK);
        let mut pushes = pushes & !operands;
        while pushes != 0 {
            let at = pushes.trailing_zeros() as usize;
            let end = at + 1 + usize::from(chunk[at] - PUSH1) + 1;
            operands |= low_bits(end) & !low_bits(at + 1);
            pushes &= !low_bits(end);
            operand = end.saturating_sub(CHUNK);
        }
        bitmap.extend((jumpdests & !operands).to_le_bytes());
    }
    bitmap.truncate(code.len().div_ceil(8));
    bitmap.into()
}

/// The lowest `count` bits, all of them from 64 on.
const fn low_bits(count: usize) -> u64 {
    if count >= CHUNK {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

/// A bit for each JUMPDEST, and one for each PUSH from PUSH1 on.
#[cfg(target_arch = "x86_64")]
fn masks(chunk: &[u8; CHUNK]) -> (u64, u64) {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    const LANES: usize = size_of::<__m128i>();
    let (mut jumpdests, mut pushes) = (0, 0);
    for (at, part) in chunk.chunks_exact(LANES).enumerate() {
        // SAFETY: SSE2 is part of x86-64, and the part has 16 bytes.
        let (jumps, pushed) = unsafe {
            let bytes = _mm_loadu_si128(part.as_ptr().cast());
            let jumps = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(JUMPDEST.cast_signed()));
            // As signed bytes, PUSH1 to PUSH32 are the greatest there are.
            let pushed = _mm_cmpgt_epi8(bytes, _mm_set1_epi8(PUSH1.cast_signed() - 1));
            (_mm_movemask_epi8(jumps), _mm_movemask_epi8(pushed))
        };
        jumpdests |= u64::from(jumps.cast_unsigned()) << (at * LANES);
        pushes |= u64::from(pushed.cast_unsigned()) << (at * LANES);
    }
    (jumpdests, pushes)
}

/// A bit for each JUMPDEST, and one for each PUSH from PUSH1 on.
#[cfg(not(target_arch = "x86_64"))]
fn masks(chunk: &[u8; CHUNK]) -> (u64, u64) {
    let mask = |is: fn(u8) -> bool| {
        let bits = chunk.iter().rev().map(|byte| u64::from(is(*byte)));
        bits.fold(0, |mask, bit| mask << 1 | bit)
    };
    (
        mask(|byte| byte == JUMPDEST),
        mask(|byte| (PUSH1..=PUSH32).contains(&byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition (Yellow Paper 9.4.3): opcode by opcode.
    fn defined(code: &[u8]) -> Vec<usize> {
        let (mut marked, mut at) = (Vec::new(), 0);
        while let Some(opcode) = code.get(at) {
            if *opcode == JUMPDEST {
                marked.push(at);
            }
            if (PUSH1..=PUSH32).contains(opcode) {
                at += usize::from(opcode - PUSH1) + 1;
            }
            at += 1;
        }
        marked
    }

    fn marked(code: &[u8]) -> Vec<usize> {
        let marks = analyze(code);
        assert_eq!(marks.len(), code.len().div_ceil(8));
        (0..marks.len() * 8)
            .filter(|at| marks[at / 8] >> (at % 8) & 1 == 1)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]
        #[test]
        fn bitmap_equals_opcode_by_opcode_definition(
            code in prop::collection::vec(prop_oneof![
                any::<u8>(), Just(JUMPDEST), Just(PUSH1), Just(PUSH32), PUSH1..=PUSH32,
            ], 0..400),
        ) {
            prop_assert_eq!(marked(&code), defined(&code));
        }
    }

    #[test]
    fn operands_of_push1_to_push32_cross_chunks_and_the_end_of_code() {
        for start in 0..140 {
            for push in PUSH1..=PUSH32 {
                for tail in [0, 1, 31, 32, 33, 100] {
                    let mut code = vec![JUMPDEST; start];
                    code.push(push);
                    code.extend(vec![JUMPDEST; tail]);
                    assert_eq!(marked(&code), defined(&code), "{start} {push:#x} {tail}");
                }
            }
        }
    }
}
