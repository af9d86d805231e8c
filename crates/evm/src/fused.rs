//! Code in which the commonest sequences of opcodes are one opcode each.
//!
//! Fused code is a copy of the code, byte for byte in the same places, in which the first byte of a sequence
//! names the sequence: one of the bytes that no fork uses for an opcode. A program counter means the same in
//! both, so a frame can go over from one to the other between any two opcodes, and does wherever something
//! is not as usual: a sequence checks gas and stack for all its opcodes at once, and what does not pass is
//! run again opcode by opcode, which finds out what is wrong and when. A jump to an operand of a PUSH is
//! looked up once, here, and its operand is replaced by the distance.
//!
//! Only opcodes without effect on anything but stack, memory and program counter are fused, so nobody can
//! tell that their gas was taken together.

mod patterns;
mod pieces;

use crate::{
    arena::{HEIGHT_MASK, STACK_WORDS},
    frame::Frame,
    interpreter::{Handler, Regs},
    table::Table,
    word::Word,
};
use patterns::PATTERNS;
use pieces::Piece;
use std::sync::LazyLock;

const INVALID: u8 = 0xfe;
const JUMP: u8 = 0x56;
const JUMPI: u8 = 0x57;

/// A sequence of opcodes that is run as one.
struct Pattern {
    /// The byte that stands for it.
    code: u8,
    opcodes: fn(&mut Vec<u8>),
    handler: Handler,
}

const fn pattern<const CODE: u8, P: Piece>() -> Pattern {
    Pattern {
        code: CODE,
        opcodes: P::opcodes,
        handler: fused::<CODE, P>,
    }
}

impl Pattern {
    fn opcodes(&self) -> Vec<u8> {
        let mut opcodes = Vec::new();
        (self.opcodes)(&mut opcodes);
        opcodes
    }
}

/// A sequence of opcodes in one handler.
///
/// # Safety
/// As for [`crate::interpreter::threaded`]; the code is fused and the table knows its codes.
unsafe extern "sysv64-unwind" fn fused<const CODE: u8, P: Piece>(
    ip: *const u8,
    sp: *mut Word,
    gas: i64,
    frame: *mut Frame,
    table: *const Table,
    memory: *mut u8,
) {
    const WORD: usize = size_of::<Word>();
    // SAFETY: gas and stack suffice for every opcode of the sequence; code is padded, so that the next one
    // exists.
    unsafe {
        let left = gas - (*table).gas[CODE as usize];
        let height = sp as usize & HEIGHT_MASK;
        let fits = (P::NEEDS == 0 || height >= P::NEEDS * WORD)
            && (P::PEAK == 0 || height <= (STACK_WORDS - P::PEAK) * WORD);
        if left < 0 || !fits {
            return unfused(ip, sp, gas, frame, table, memory);
        }
        let mut r = Regs {
            ip,
            sp,
            gas: left,
            frame,
            table,
            memory,
        };
        if P::run(&mut r) {
            let next = (*r.table).threaded[*r.ip as usize];
            return next(r.ip, r.sp, r.gas, r.frame, r.table, r.memory);
        }
        r.save();
    }
}

/// Goes on opcode by opcode in the code as it was deployed.
///
/// # Safety
/// As for [`fused`].
#[cold]
unsafe extern "sysv64-unwind" fn unfused(
    ip: *const u8,
    sp: *mut Word,
    gas: i64,
    frame: *mut Frame,
    _table: *const Table,
    memory: *mut u8,
) {
    // SAFETY: the frame, its code and its table outlive the run.
    unsafe {
        let table = (*frame).table;
        let ip = (*frame).unfuse(ip);
        let next = (*table).threaded[*ip as usize];
        next(ip, sp, gas, frame, table, memory)
    }
}

/// Makes of `table`, which knows opcodes only, the table of fused code.
pub(crate) fn fuse_table(table: &mut Table) {
    for code in 0..=u8::MAX {
        if is_free(code) {
            table.threaded[usize::from(code)] = unfused;
        }
    }
    for pattern in &PATTERNS {
        let opcodes = pattern.opcodes();
        if opcodes.iter().all(|opcode| table.meta(*opcode).is_some()) {
            let at = usize::from(pattern.code);
            table.threaded[at] = pattern.handler;
            table.gas[at] = opcodes.iter().map(|opcode| table.static_gas(*opcode)).sum();
        }
    }
    table.threaded[usize::from(JUMP)] = crate::interpreter::threaded::<pieces::JumpPast>;
    table.threaded[usize::from(JUMPI)] = crate::interpreter::threaded::<pieces::JumpiPast>;
}

/// Whether no fork has an opcode here, INVALID counted as none.
const fn is_free(code: u8) -> bool {
    matches!(code, 0x0c..=0x0f | 0x1f | 0x21..=0x2f | 0x4c..=0x4f | 0xa5..=0xe5 | 0xe9..=0xef)
        || matches!(code, 0xf6..=0xf9 | 0xfb | 0xfc | INVALID)
}

/// The code of a pattern and its opcodes.
type Sequence = (u8, Vec<u8>);

/// The patterns that begin with each opcode, longest first.
static BY_FIRST: LazyLock<Vec<Vec<Sequence>>> = LazyLock::new(|| {
    let mut by_first = vec![Vec::new(); 256];
    for pattern in &PATTERNS {
        let opcodes = pattern.opcodes();
        by_first[usize::from(opcodes[0])].push((pattern.code, opcodes));
    }
    for patterns in &mut by_first {
        patterns.sort_by_key(|(_, opcodes)| std::cmp::Reverse(opcodes.len()));
    }
    by_first
});

/// Bytes of operand behind an opcode, as far as jump destinations go.
const fn operand_bytes(opcode: u8) -> usize {
    match opcode {
        0x60..=0x7f => opcode as usize - 0x5f,
        _ => 0,
    }
}

/// The bytes that `opcodes` take at the start of `code`, if that is what stands there.
fn matched(code: &[u8], opcodes: &[u8]) -> Option<usize> {
    let mut at = 0;
    for opcode in opcodes {
        if code.get(at) != Some(opcode) {
            return None;
        }
        at += 1 + operand_bytes(*opcode);
    }
    (at <= code.len()).then_some(at)
}

/// What stands in fused code instead of the bytes of a sequence that ends in a jump to an operand; `None` if
/// that can't be.
fn resolve(
    bytes: &mut [u8],
    at: usize,
    opcodes: &[u8],
    is_jumpdest: &impl Fn(u64) -> bool,
) -> Option<()> {
    let [.., push, JUMP | JUMPI] = opcodes else {
        return Some(());
    };
    let operand = operand_bytes(*push);
    if operand == 0 {
        return Some(());
    }
    // The PUSH, its operand and the jump are the last bytes; the distance is counted from the PUSH.
    let begins = bytes.len() - operand - 2;
    let (_, tail) = bytes.split_at_mut(begins);
    let target = tail[1..=operand]
        .iter()
        .fold(0, |target, byte| target << 8 | u64::from(*byte));
    if !is_jumpdest(target) {
        return None;
    }
    let past = i64::try_from(target).ok()? + 1;
    let distance = past - i64::try_from(at + begins).ok()?;
    let distance = pieces::encode_distance(distance, operand)?;
    tail[1..1 + distance.len()].copy_from_slice(&distance);
    Some(())
}

/// Fuses `code`, which is followed by `padding` zero bytes. Linear in its length.
pub(crate) fn fuse(code: &[u8], padding: usize, is_jumpdest: impl Fn(u64) -> bool) -> Box<[u8]> {
    let mut fused = vec![0; code.len() + padding];
    fused[..code.len()].copy_from_slice(code);
    let mut at = 0;
    while let Some(opcode) = code.get(at) {
        let patterns = &BY_FIRST[usize::from(*opcode)];
        let found = patterns.iter().find_map(|(pattern, opcodes)| {
            let length = matched(&code[at..], opcodes)?;
            resolve(&mut fused[at..at + length], at, opcodes, &is_jumpdest)?;
            Some((*pattern, length))
        });
        if let Some((pattern, length)) = found {
            fused[at] = pattern;
            at += length;
            continue;
        }
        if is_free(*opcode) {
            fused[at] = INVALID;
        }
        at += 1 + operand_bytes(*opcode);
        // The operand of DUPN, SWAPN or EXCHANGE stays as it is (EIP-8024).
        if matches!(opcode, 0xe6..=0xe8)
            && let Some(operand) = code.get(at)
        {
            at += 1 + operand_bytes(*operand);
        }
    }
    fused.into()
}

#[cfg(test)]
mod tests;
