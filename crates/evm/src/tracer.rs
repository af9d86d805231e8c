//! Watching a run opcode by opcode.

use crate::{arena::HEIGHT_MASK, frame::Frame, table::Table, word::Word};
use niwaki_primitives::{Address, U256};

/// Told of every opcode before and after it runs, and of every frame as it ends.
///
/// A run with a tracer uses the loop form of the interpreter; one without pays nothing for it.
pub trait Tracer {
    /// An opcode is about to run.
    fn step(&mut self, step: &Step<'_>);

    /// The opcode has run: gas left in its frame, below zero if it ran out or failed, and gas that
    /// it has handed to a callee (stipend included), which is gone from the former.
    fn step_end(&mut self, gas_left: i64, handed: i64) {
        let _ = (gas_left, handed);
    }

    /// A frame has ended: gas left in it before an exceptional halt took the rest, its output, and
    /// its failure, if it failed.
    fn frame_end(&mut self, depth: usize, gas_left: i64, output: &[u8], error: Option<String>) {
        let _ = (depth, gas_left, output, error);
    }
}

/// The machine before an opcode.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    frame: &'a Frame,
    table: &'a Table,
}

impl<'a> Step<'a> {
    pub(crate) fn new(frame: &'a Frame, table: &'a Table) -> Self {
        Self { frame, table }
    }

    /// Program counter.
    pub fn pc(&self) -> usize {
        // SAFETY: `ip` points into the code that begins at `code_start`.
        unsafe { usize::try_from(self.frame.ip.offset_from(self.frame.code_start)).unwrap_or(0) }
    }

    /// Whether the frame has no code at all, so that what runs is the STOP behind its end.
    pub fn is_code_empty(&self) -> bool {
        // SAFETY: the code outlives the frame.
        unsafe { (*self.frame.code).bytes().is_empty() }
    }

    /// The opcode.
    pub fn opcode(&self) -> u8 {
        // SAFETY: `ip` points into padded code.
        unsafe { *self.frame.ip }
    }

    /// The mnemonic, if the table knows the opcode.
    pub fn mnemonic(&self) -> Option<&'static str> {
        self.table.mnemonic(self.opcode())
    }

    /// Static gas of the opcode.
    pub fn static_gas(&self) -> i64 {
        self.table.gas[usize::from(self.opcode())]
    }

    /// Gas left before it.
    pub fn gas(&self) -> i64 {
        self.frame.gas
    }

    /// Depth of the frame, from 1.
    pub fn depth(&self) -> usize {
        self.frame.depth + 1
    }

    /// Account whose storage is used.
    pub fn address(&self) -> Address {
        self.frame.address
    }

    /// The stack, bottom first.
    pub fn stack(&self) -> Vec<U256> {
        let height = (self.frame.sp as usize & HEIGHT_MASK) / size_of::<Word>();
        (0..height)
            .rev()
            // SAFETY: `height` words lie below the stack pointer.
            .map(|depth| unsafe { (*self.frame.sp.sub(depth + 1)).to_u256() })
            .collect()
    }

    /// The memory.
    pub fn memory(&self) -> &[u8] {
        // SAFETY: the frame's memory is `memory_len` bytes and nothing writes to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.frame.memory, self.frame.memory_len) }
    }

    /// Bytes of memory.
    pub fn memory_len(&self) -> usize {
        self.frame.memory_len
    }

    /// Refund counter of the transaction.
    pub fn refund(&self) -> i64 {
        // SAFETY: shared state outlives the run and nothing writes to it meanwhile.
        unsafe { (*self.frame.shared).world.refund() }
    }

    /// What the last call returned.
    pub fn return_data(&self) -> &[u8] {
        // SAFETY: as in `refund`.
        unsafe { (&*self.frame.shared).return_data.as_slice() }
    }
}
