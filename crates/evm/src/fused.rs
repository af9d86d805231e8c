//! Superinstructions: fused code, in which one handler runs a common sequence of opcodes.
//!
//! Each dispatch charges gas, checks the stack and jumps indirectly; for most opcodes that is most of the work. Once
//! code is hot ([`crate::set_hot_threshold`]), [`fuse`] makes a second copy of it in which the first byte of each known
//! sequence is replaced by a byte that no fork uses for an opcode, and the handler of that byte runs the whole
//! sequence. All other bytes stay in place, so a program counter means the same in both copies:
//!
//! ```text
//! pc          0        2      3        6      7
//! deployed    PUSH1 5  ADD    PUSH2 7  JUMP   JUMPDEST
//!             60 05    01     61 00 07 56     5b
//! fused       0f 05    01     61 05 00 00     5b       one handler: PUSH1 ADD PUSH2 JUMP
//! ```
//!
//! The target of a jump is checked once, here: the operand of its PUSH is replaced by the distance from the PUSH to the
//! opcode after the JUMPDEST (5 above), little-endian, in the bytes of operand and JUMP.
//!
//! What must hold: nothing can observe fusing. A handler checks gas and stack for the whole sequence at once; if either
//! does not suffice, the frame switches to the deployed copy at the same program counter ([`unfused`]) and runs it
//! opcode by opcode, which halts where it must. Only opcodes that touch nothing but stack, memory and program counter
//! are in sequences, so that charging their gas together can't be seen.

mod patterns;
mod superinstructions;

use crate::{
    arena::{HEIGHT_MASK, STACK_WORDS},
    frame::Frame,
    interpreter::{Handler, Regs},
    table::Table,
    word::Word,
};
use patterns::PATTERNS;
use std::sync::LazyLock;
use superinstructions::Superinstruction;

const INVALID: u8 = 0xfe;
const JUMP: u8 = 0x56;
const JUMPI: u8 = 0x57;
const JUMPDEST: u8 = 0x5b;

/// A sequence of opcodes with a handler of its own.
struct Pattern {
    /// The byte in fused code.
    code: u8,
    opcodes: fn(&mut Vec<u8>),
    handler: Handler,
}

const fn pattern<const CODE: u8, P: Superinstruction>() -> Pattern {
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

/// The handler of a sequence of opcodes.
///
/// # Safety
/// As for [`crate::interpreter::threaded`]; the code is fused and the table knows its codes.
unsafe extern "sysv64-unwind" fn fused<const CODE: u8, P: Superinstruction>(
    ip: *const u8,
    sp: *mut Word,
    gas: i64,
    frame: *mut Frame,
    table: *const Table,
    memory: *mut u8,
) {
    const WORD: usize = size_of::<Word>();
    // SAFETY: gas and stack suffice for every opcode of the sequence; code is padded, so the next opcode exists.
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

/// The fallback: continues opcode by opcode in the code as deployed.
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

/// Whether code of `table` may run fused: the host has replaced no opcode that is part of a sequence, and none whose
/// operand [`fuse`] would take for opcodes.
pub(crate) fn may_fuse(table: &Table) -> bool {
    let jumps = [JUMP, JUMPI, JUMPDEST].into_iter();
    let mut fused = PATTERNS.iter().flat_map(Pattern::opcodes).chain(jumps);
    let moves_operands = |opcode| {
        let is_host = table.overrides.contains(opcode) && !is_free(opcode);
        let immediate = table.info(opcode).map_or(0, |info| info.immediate);
        is_host && (immediate != operand_bytes(opcode) || matches!(opcode, 0xe6..=0xe8))
    };
    !fused.any(|opcode| table.overrides.contains(opcode)) && !(0..=u8::MAX).any(moves_operands)
}

/// Adds the handlers of fused code to `table`.
pub(crate) fn fuse_table(table: &mut Table) {
    for code in 0..=u8::MAX {
        if is_free(code) {
            table.threaded[usize::from(code)] = unfused;
        }
    }
    for pattern in &PATTERNS {
        let opcodes = pattern.opcodes();
        if opcodes.iter().all(|opcode| table.info(*opcode).is_some()) {
            let at = usize::from(pattern.code);
            table.threaded[at] = pattern.handler;
            table.gas[at] = opcodes.iter().map(|opcode| table.static_gas(*opcode)).sum();
        }
    }
    table.threaded[usize::from(JUMP)] = crate::interpreter::threaded::<superinstructions::JumpPast>;
    table.threaded[usize::from(JUMPI)] =
        crate::interpreter::threaded::<superinstructions::JumpiPast>;
}

/// Whether no fork has an opcode at this byte (INVALID does not count).
const fn is_free(code: u8) -> bool {
    matches!(code, 0x0c..=0x0f | 0x1f | 0x21..=0x2f | 0x4c..=0x4f | 0xa5..=0xe5 | 0xe9..=0xef)
        || matches!(code, 0xf6..=0xf9 | 0xfb | 0xfc | INVALID)
}

/// A node of the trie of sequences. The root is 0, so 0 as a child means none.
type Node = u16;

/// The end of a sequence in the trie.
#[derive(Clone, Copy, Default)]
struct End {
    /// The byte in fused code; 0 if no sequence ends here.
    code: u8,
    /// Operand bytes of the PUSH before the final jump; 0 if there is none.
    target: usize,
}

/// The sequences as a trie over opcodes.
struct Trie {
    /// Number of each opcode that occurs in sequences, from 1; 0 for the others.
    class: [u8; 256],
    classes: usize,
    /// The child for each opcode, by node and class.
    next: Vec<Node>,
    ends: Vec<End>,
}

static TRIE: LazyLock<Trie> = LazyLock::new(|| {
    let sequences = PATTERNS
        .iter()
        .map(|pattern| (pattern.code, pattern.opcodes()));
    let sequences: Vec<(u8, Vec<u8>)> = sequences.collect();
    let mut class = [0; 256];
    let mut classes = 1;
    for opcode in sequences.iter().flat_map(|(_, opcodes)| opcodes) {
        let class = &mut class[usize::from(*opcode)];
        if *class == 0 {
            *class = u8::try_from(classes).expect("no more than there are opcodes");
            classes += 1;
        }
    }
    let mut trie = Trie {
        class,
        classes,
        next: vec![0; classes],
        ends: vec![End::default()],
    };
    for (code, opcodes) in sequences {
        let mut node = 0;
        for opcode in &opcodes {
            let at = node * classes + usize::from(trie.class[usize::from(*opcode)]);
            if trie.next[at] == 0 {
                trie.next[at] = Node::try_from(trie.ends.len()).expect("few");
                trie.next.resize(trie.next.len() + classes, 0);
                trie.ends.push(End::default());
            }
            node = usize::from(trie.next[at]);
        }
        let target = match opcodes.as_slice() {
            [.., push, JUMP | JUMPI] => operand_bytes(*push),
            _ => 0,
        };
        trie.ends[node] = End { code, target };
    }
    trie
});

/// Operand bytes of an opcode that jump analysis skips: those of PUSH.
const fn operand_bytes(opcode: u8) -> usize {
    match opcode {
        0x60..=0x7f => opcode as usize - 0x5f,
        _ => 0,
    }
}

/// Replaces the target of a sequence that ends in PUSH and jump by the distance; `None` if the target is no JUMPDEST or
/// the distance does not fit.
fn resolve_jump(
    bytes: &mut [u8],
    at: usize,
    operand: usize,
    is_jumpdest: &impl Fn(u64) -> bool,
) -> Option<()> {
    if operand == 0 {
        return Some(());
    }
    // PUSH, operand and jump are the last bytes; the distance is counted from the PUSH.
    let push = bytes.len() - operand - 2;
    let (_, tail) = bytes.split_at_mut(push);
    let target = tail[1..=operand]
        .iter()
        .fold(0, |target, byte| target << 8 | u64::from(*byte));
    if !is_jumpdest(target) {
        return None;
    }
    let after_jumpdest = i64::try_from(target).ok()? + 1;
    let distance = after_jumpdest - i64::try_from(at + push).ok()?;
    let distance = superinstructions::encode_distance(distance, operand)?;
    tail[1..1 + distance.len()].copy_from_slice(&distance);
    Some(())
}

impl Trie {
    /// The longest sequence at `at` that can be fused, with its jump resolved, and where it ends.
    fn longest(
        &self,
        code: &[u8],
        fused: &mut [u8],
        at: usize,
        is_jumpdest: &impl Fn(u64) -> bool,
    ) -> Option<(u8, usize)> {
        let mut limit = code.len();
        loop {
            let (end, end_at) = self.longest_before(code, at, limit)?;
            if resolve_jump(&mut fused[at..end_at], at, end.target, is_jumpdest).is_some() {
                return Some((end.code, end_at));
            }
            limit = end_at - 1;
        }
    }

    /// The longest sequence at `at` that ends at `limit` or before, and where it ends.
    #[inline]
    fn longest_before(&self, code: &[u8], at: usize, limit: usize) -> Option<(End, usize)> {
        let (mut node, mut end_at) = (0, at);
        let mut found = None;
        while let Some(opcode) = code.get(end_at) {
            let class = usize::from(self.class[usize::from(*opcode)]);
            node = usize::from(self.next[node * self.classes + class]);
            end_at += 1 + operand_bytes(*opcode);
            if node == 0 || end_at > limit {
                break;
            }
            if self.ends[node].code != 0 {
                found = Some((node, end_at));
            }
        }
        found.map(|(node, end_at)| (self.ends[node], end_at))
    }
}

/// Fuses `code`, which is followed by `padding` zero bytes. Linear in its length.
pub(crate) fn fuse(code: &[u8], padding: usize, is_jumpdest: impl Fn(u64) -> bool) -> Box<[u8]> {
    let mut fused = vec![0; code.len() + padding];
    fused[..code.len()].copy_from_slice(code);
    let trie = &*TRIE;
    let mut at = 0;
    while let Some(opcode) = code.get(at) {
        if let Some((pattern, end_at)) = trie.longest(code, &mut fused, at, &is_jumpdest) {
            fused[at] = pattern;
            at = end_at;
            continue;
        }
        if is_free(*opcode) {
            fused[at] = INVALID;
        }
        at += 1 + operand_bytes(*opcode);
        // The operand of DUPN, SWAPN or EXCHANGE is no opcode (EIP-8024).
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
