//! Where code may be jumped to: a bit for each byte, set where a JUMPDEST stands that is no operand.
//!
//! Bytes are looked at 64 at a time. Only PUSHes have to be followed one by one, since the operand of one may
//! hold another.

const JUMPDEST: u8 = 0x5b;
const PUSH1: u8 = 0x60;
#[cfg(any(test, not(target_arch = "x86_64")))]
const PUSH32: u8 = 0x7f;
/// Bytes looked at together.
const PIECE: usize = 64;

/// Marks the jump destinations of `code`; bit `at % 8` of byte `at / 8` belongs to byte `at` of the code.
pub(crate) fn mark(code: &[u8]) -> Box<[u8]> {
    let mut marks = Vec::with_capacity(code.len().div_ceil(PIECE) * 8);
    // Bytes of the next piece that are operand still.
    let mut operand = 0;
    for piece in code.chunks(PIECE) {
        let (jumpdests, pushes) = match piece.try_into() {
            Ok(whole) => masks(whole),
            Err(_) => {
                let mut padded = [0; PIECE];
                padded[..piece.len()].copy_from_slice(piece);
                masks(&padded)
            }
        };
        let mut operands = low_bits(operand);
        operand = operand.saturating_sub(PIECE);
        let mut pushes = pushes & !operands;
        while pushes != 0 {
            let at = pushes.trailing_zeros() as usize;
            let end = at + 1 + usize::from(piece[at] - PUSH1) + 1;
            operands |= low_bits(end) & !low_bits(at + 1);
            pushes &= !low_bits(end);
            operand = end.saturating_sub(PIECE);
        }
        marks.extend((jumpdests & !operands).to_le_bytes());
    }
    marks.truncate(code.len().div_ceil(8));
    marks.into()
}

/// The lowest `count` bits, all of them from 64 on.
const fn low_bits(count: usize) -> u64 {
    if count >= PIECE {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

/// A bit for each JUMPDEST, and one for each PUSH from PUSH1 on.
#[cfg(target_arch = "x86_64")]
fn masks(piece: &[u8; PIECE]) -> (u64, u64) {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    const LANES: usize = size_of::<__m128i>();
    let (mut jumpdests, mut pushes) = (0, 0);
    for (at, part) in piece.chunks_exact(LANES).enumerate() {
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
fn masks(piece: &[u8; PIECE]) -> (u64, u64) {
    let mask = |is: fn(u8) -> bool| {
        let bits = piece.iter().rev().map(|byte| u64::from(is(*byte)));
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
        let marks = mark(code);
        assert_eq!(marks.len(), code.len().div_ceil(8));
        (0..marks.len() * 8)
            .filter(|at| marks[at / 8] >> (at % 8) & 1 == 1)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]
        #[test]
        fn what_is_marked_is_what_is_defined(
            code in prop::collection::vec(prop_oneof![
                any::<u8>(), Just(JUMPDEST), Just(PUSH1), Just(PUSH32), PUSH1..=PUSH32,
            ], 0..400),
        ) {
            prop_assert_eq!(marked(&code), defined(&code));
        }
    }

    #[test]
    fn an_operand_reaches_over_the_end_of_a_piece_and_of_the_code() {
        for start in 0..140 {
            for push in PUSH1..=PUSH32 {
                for behind in [0, 1, 31, 32, 33, 100] {
                    let mut code = vec![JUMPDEST; start];
                    code.push(push);
                    code.extend(vec![JUMPDEST; behind]);
                    assert_eq!(marked(&code), defined(&code), "{start} {push:#x} {behind}");
                }
            }
        }
    }
}
