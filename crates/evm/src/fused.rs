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
const JUMPDEST: u8 = 0x5b;

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

/// Whether code of `table` may run fused: all that is fused must be stock, and operands where [`fuse`] passes
/// over them, since what it passes over stays as it is.
pub(crate) fn may_fuse(table: &Table) -> bool {
    let jumps = [JUMP, JUMPI, JUMPDEST].into_iter();
    let mut fused = PATTERNS.iter().flat_map(Pattern::opcodes).chain(jumps);
    let moves_operands = |opcode| {
        let own = table.is_overridden(opcode) && !is_free(opcode);
        let immediate = table.meta(opcode).map_or(0, |meta| meta.immediate);
        own && (immediate != operand_bytes(opcode) || matches!(opcode, 0xe6..=0xe8))
    };
    !fused.any(|opcode| table.is_overridden(opcode)) && !(0..=u8::MAX).any(moves_operands)
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

/// A node of the tree; the root is 0, which nothing leads to.
type Node = u16;

/// The end of a sequence.
#[derive(Clone, Copy, Default)]
struct End {
    /// The byte that stands for it; no opcode is fused into 0.
    code: u8,
    /// Bytes of the operand before the jump that it ends in; 0 if it ends otherwise.
    target: usize,
}

/// The sequences as a tree along which code is read.
struct Tree {
    /// Opcodes that occur in sequences, numbered from 1.
    class: [u8; 256],
    classes: usize,
    /// What follows upon each opcode, by node and class.
    next: Vec<Node>,
    ends: Vec<End>,
}

static TREE: LazyLock<Tree> = LazyLock::new(|| {
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
    let mut tree = Tree {
        class,
        classes,
        next: vec![0; classes],
        ends: vec![End::default()],
    };
    for (code, opcodes) in sequences {
        let mut node = 0;
        for opcode in &opcodes {
            let at = node * classes + usize::from(tree.class[usize::from(*opcode)]);
            if tree.next[at] == 0 {
                tree.next[at] = Node::try_from(tree.ends.len()).expect("few");
                tree.next.resize(tree.next.len() + classes, 0);
                tree.ends.push(End::default());
            }
            node = usize::from(tree.next[at]);
        }
        let target = match opcodes.as_slice() {
            [.., push, JUMP | JUMPI] => operand_bytes(*push),
            _ => 0,
        };
        tree.ends[node] = End { code, target };
    }
    tree
});

/// Bytes of operand behind an opcode, as far as jump destinations go.
const fn operand_bytes(opcode: u8) -> usize {
    match opcode {
        0x60..=0x7f => opcode as usize - 0x5f,
        _ => 0,
    }
}

/// What stands in fused code instead of the bytes of a sequence that ends in a jump to an operand of so many
/// bytes; `None` if that can't be.
fn resolve(
    bytes: &mut [u8],
    at: usize,
    operand: usize,
    is_jumpdest: &impl Fn(u64) -> bool,
) -> Option<()> {
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

impl Tree {
    /// The longest sequence at `at` that can be fused, and where it ends; its jump is resolved.
    fn longest(
        &self,
        code: &[u8],
        fused: &mut [u8],
        at: usize,
        is_jumpdest: &impl Fn(u64) -> bool,
    ) -> Option<(u8, usize)> {
        let mut most = code.len();
        loop {
            let (end, behind) = self.walk(code, at, most)?;
            if resolve(&mut fused[at..behind], at, end.target, is_jumpdest).is_some() {
                return Some((end.code, behind));
            }
            most = behind - 1;
        }
    }

    /// The longest sequence at `at` that ends at `most` or before, and where.
    #[inline]
    fn walk(&self, code: &[u8], at: usize, most: usize) -> Option<(End, usize)> {
        let (mut node, mut behind) = (0, at);
        let mut found = None;
        while let Some(opcode) = code.get(behind) {
            let class = usize::from(self.class[usize::from(*opcode)]);
            node = usize::from(self.next[node * self.classes + class]);
            behind += 1 + operand_bytes(*opcode);
            if node == 0 || behind > most {
                break;
            }
            if self.ends[node].code != 0 {
                found = Some((node, behind));
            }
        }
        found.map(|(node, behind)| (self.ends[node], behind))
    }
}

/// Fuses `code`, which is followed by `padding` zero bytes. Linear in its length.
pub(crate) fn fuse(code: &[u8], padding: usize, is_jumpdest: impl Fn(u64) -> bool) -> Box<[u8]> {
    let mut fused = vec![0; code.len() + padding];
    fused[..code.len()].copy_from_slice(code);
    let tree = &*TREE;
    let mut at = 0;
    while let Some(opcode) = code.get(at) {
        if let Some((pattern, behind)) = tree.longest(code, &mut fused, at, &is_jumpdest) {
            fused[at] = pattern;
            at = behind;
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
