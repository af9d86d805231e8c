//! Parity's `vmTrace`: for each opcode its cost and its effect on stack, memory and storage, with inner calls nested.
//!
//! The trace is written while the transaction runs: the effect of an opcode is known when the tracer sees the next one
//! of its frame, or when the frame ends. An opcode that ran out of gas has no `ex`. One that could not begin, because
//! it is undefined or the stack lacks its operands, is not listed, and neither is the implicit STOP after the code.
//! Where Parity's documents are silent, Besu's recorded responses decide.

use super::{MAX_RESPONSE_BYTES, too_large};
use crate::RpcError;
use crate::json::{self, Array, Object};
use crate::response_stream::ResponseStream;
use niwaki_evm::{CallEnd, CallKind, CallStart, CostOrder, Failure, HaltReason, Step, Tracer};
use niwaki_primitives::U256;
use std::time::Instant;

/// The effect of an opcode, as far as its operands determine it.
#[derive(Clone, Copy, Debug, Default)]
struct Effect {
    /// How many words it leaves on top of the stack.
    pushes: usize,
    /// Offset and length of the memory that it reads or writes.
    memory: Option<(U256, U256)>,
    /// Slot and value.
    store: Option<(U256, U256)>,
}

impl Effect {
    fn of(step: &Step<'_>) -> Self {
        let word = |depth| step.peek(depth).unwrap_or_default();
        let part = |offset: usize, length: usize| Some((word(offset), word(length)));
        let opcode = step.opcode();
        let memory = match opcode {
            // CALLDATACOPY, CODECOPY, RETURNDATACOPY, MCOPY.
            0x37 | 0x39 | 0x3e | 0x5e => part(0, 2),
            // EXTCODECOPY.
            0x3c => part(1, 3),
            // MLOAD, MSTORE.
            0x51 | 0x52 => Some((word(0), U256::from(32))),
            // MSTORE8.
            0x53 => Some((word(0), U256::from(1))),
            // CALL, CALLCODE.
            0xf1 | 0xf2 => part(5, 6),
            // DELEGATECALL, STATICCALL.
            0xf4 | 0xfa => part(4, 5),
            _ => None,
        };
        Self {
            pushes: pushes(opcode),
            memory: memory.filter(|(_, length)| !length.is_zero()),
            store: (opcode == 0x55).then(|| (word(0), word(1))),
        }
    }
}

/// How many words an opcode leaves on the stack; for DUP and SWAP all that they touch.
fn pushes(opcode: u8) -> usize {
    match opcode {
        0x80..=0x8f => usize::from(opcode - 0x80) + 2,
        0x90..=0x9f => usize::from(opcode - 0x90) + 2,
        // STOP, the copies, POP, MSTORE and MSTORE8, SSTORE and jumps, JUMPDEST, TSTORE and MCOPY,
        // LOG, RETURN, REVERT to SELFDESTRUCT.
        0x00 | 0x37 | 0x39 | 0x3c | 0x3e | 0x50 | 0x52..=0x53 | 0x55..=0x57 => 0,
        0x5b | 0x5d..=0x5e | 0xa0..=0xa4 | 0xf3 | 0xfd..=0xff => 0,
        _ => 1,
    }
}

/// An opcode whose object is not complete.
#[derive(Clone, Copy, Debug)]
struct OpenOp {
    pc: usize,
    effect: Effect,
    gas: i64,
    static_gas: i64,
    cost: i64,
    /// Whether its object is opened, for an inner call.
    is_opened: bool,
    has_sub: bool,
}

/// A call that has not ended.
#[derive(Debug)]
struct Frame {
    /// The tracer interface reports a SELFDESTRUCT as a call.
    is_call: bool,
    /// The init code of a creation, which may never run.
    init_code: Vec<u8>,
    /// Whether its object is opened: it has code.
    is_opened: bool,
    ops: usize,
    open: Option<OpenOp>,
}

/// The stream for the response, and its deadline.
pub(super) type StreamUntil<'o> = Option<(&'o ResponseStream, Instant)>;

/// Writes a transaction's opcodes.
pub(super) struct VmTracer<'o> {
    out: &'o mut Vec<u8>,
    frames: Vec<Frame>,
    stream: StreamUntil<'o>,
    error: Option<RpcError>,
}

impl<'o> VmTracer<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, stream: StreamUntil<'o>) -> Self {
        Self {
            out,
            frames: Vec::new(),
            stream,
            error: None,
        }
    }

    /// Why tracing stopped early, if it did.
    pub(super) fn into_error(self) -> Option<RpcError> {
        self.error
    }

    fn send(&mut self) {
        if self.error.is_some() {
            return;
        }
        self.error = match self.stream {
            Some((stream, deadline)) => stream.flush(self.out, deadline).err(),
            None => (self.out.len() > MAX_RESPONSE_BYTES).then(too_large),
        };
    }

    /// Opens the object of the current opcode, if there is one that is not opened.
    fn begin_op(&mut self) {
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        let Some(open) = frame.open.as_mut().filter(|open| !open.is_opened) else {
            return;
        };
        open.is_opened = true;
        if frame.ops > 0 {
            self.out.push(b',');
        }
        frame.ops += 1;
        let text = format!("{{\"cost\":{},\"pc\":{}", open.cost.max(0), open.pc);
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Opens the object of the innermost call, within the opcode that makes it.
    fn begin_frame(&mut self, code: &[u8]) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        self.begin_sub();
        self.frames.push(Frame {
            is_opened: true,
            ..frame
        });
        self.out.extend_from_slice(b"{\"code\":");
        json::data(self.out, code);
        self.out.extend_from_slice(b",\"ops\":[");
    }

    /// Opens the member for a call in the current opcode; the outermost call has none.
    fn begin_sub(&mut self) {
        self.begin_op();
        if let Some(frame) = self.frames.last_mut() {
            self.out.extend_from_slice(b",\"sub\":");
            if let Some(open) = &mut frame.open {
                open.has_sub = true;
            }
        }
    }

    /// Completes the current opcode with its effect; `None` if it failed.
    fn end_op(&mut self, after: Option<&After<'_, '_>>) {
        self.begin_op();
        let Some(open) = self.frames.last_mut().and_then(|frame| frame.open.take()) else {
            return;
        };
        if !open.has_sub {
            self.out.extend_from_slice(b",\"sub\":null");
        }
        self.out.extend_from_slice(b",\"ex\":");
        match after {
            Some(after) => write_effect(self.out, &open, after),
            None => self.out.extend_from_slice(b"null"),
        }
        self.out.push(b'}');
        self.send();
    }
}

/// The state of the interpreter after an opcode.
enum After<'s, 'm> {
    /// Before the next one.
    Step(&'s Step<'m>),
    /// It ended the frame.
    End,
}

fn write_effect(out: &mut Vec<u8>, open: &OpenOp, after: &After<'_, '_>) {
    let mut object = Object::new(out);
    let effect = open.effect;
    let memory = match after {
        After::Step(step) => effect
            .memory
            .and_then(|(offset, length)| memory(step, offset, length)),
        After::End => None,
    };
    match memory {
        Some((offset, bytes)) => {
            let mut object = object.object("mem");
            object.data("data", bytes);
            object.decimal("off", offset);
        }
        None => object.null("mem"),
    }
    let mut list: Array<'_> = object.array("push");
    if let After::Step(step) = after {
        for depth in (0..effect.pushes).rev() {
            if let Some(word) = step.peek(depth) {
                json::quantity(list.item(), &word);
            }
        }
    }
    drop(list);
    match effect.store {
        Some((slot, value)) => {
            let mut object = object.object("store");
            object.quantity("key", &slot);
            object.quantity("val", &value);
        }
        None => object.null("store"),
    }
    let used = match after {
        After::Step(step) => step.gas(),
        After::End => open.gas - open.cost,
    };
    object.decimal("used", u64::try_from(used).unwrap_or(0));
}

/// A range of the memory and its offset, if the memory has it.
fn memory<'s>(step: &'s Step<'_>, offset: U256, length: U256) -> Option<(u64, &'s [u8])> {
    let from = usize::try_from(offset).ok()?;
    let to = from.checked_add(usize::try_from(length).ok()?)?;
    Some((u64::try_from(offset).ok()?, step.memory().get(from..to)?))
}

/// Whether the last opcode of a call with this result has run.
fn has_run(failure: Option<Failure>) -> bool {
    use Failure::{CodeDeposit, Halt as Halted, Revert};
    matches!(
        failure,
        None | Some(
            Revert
                | CodeDeposit
                | Halted(HaltReason::CodeTooLong | HaltReason::InvalidContractPrefix)
        )
    )
}

/// Whether the last opcode of a call with this result could not begin.
fn is_unlisted(failure: Option<Failure>) -> bool {
    use Failure::{Halt as Halted, StackOverflow, StackUnderflow};
    matches!(
        failure,
        Some(StackUnderflow { .. } | StackOverflow { .. } | Halted(HaltReason::UndefinedOpcode(_)))
    )
}

/// Whether a call with this result was never entered.
fn is_refused(failure: Option<Failure>) -> bool {
    matches!(
        failure,
        Some(Failure::Balance | Failure::Depth | Failure::Nonce)
    )
}

impl Tracer for VmTracer<'_> {
    fn cost_order(&self) -> CostOrder {
        CostOrder::Besu
    }

    fn step(&mut self, step: &Step<'_>) {
        if step.is_code_empty() {
            return;
        }
        match self.frames.last() {
            Some(frame) if frame.is_opened => self.end_op(Some(&After::Step(step))),
            _ => self.begin_frame(step.code()),
        }
        if step.pc() >= step.code().len() {
            return;
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.open = Some(OpenOp {
                pc: step.pc(),
                effect: Effect::of(step),
                gas: step.gas(),
                static_gas: step.static_gas(),
                cost: 0,
                is_opened: false,
                has_sub: false,
            });
        }
    }

    fn step_end(&mut self, gas_left: i64, _: i64) {
        let open = self.frames.last_mut().and_then(|frame| frame.open.as_mut());
        if let Some(open) = open {
            open.cost = open.gas - gas_left;
        }
    }

    fn should_stop(&mut self) -> bool {
        self.error.is_some()
    }

    fn enter(&mut self, entered: &CallStart<'_>) {
        self.frames.push(Frame {
            is_call: entered.kind != CallKind::SelfDestruct,
            init_code: match entered.kind.creates() {
                true => entered.input.to_vec(),
                false => Vec::new(),
            },
            is_opened: false,
            ops: 0,
            open: None,
        });
    }

    fn exit(&mut self, left: &CallEnd<'_>) {
        let failure = left.failure;
        let frame = self.frames.last_mut();
        if let Some(open) = frame.and_then(|frame| frame.open.as_mut()) {
            match failure {
                _ if has_run(failure) => self.end_op(Some(&After::End)),
                _ if is_unlisted(failure) && !open.is_opened => {}
                Some(Failure::Halt(HaltReason::OutOfGas)) => self.end_op(None),
                _ => {
                    open.cost = open.static_gas;
                    self.end_op(Some(&After::End));
                }
            }
        }
        let Some(frame) = self.frames.pop() else {
            return;
        };
        match frame.is_opened {
            true => self.out.extend_from_slice(b"]}"),
            false if !frame.is_call => {}
            false if is_refused(failure) => {
                self.begin_sub();
                self.out.extend_from_slice(b"null");
            }
            false => {
                self.begin_sub();
                let mut object = Object::new(self.out);
                object.data("code", &frame.init_code);
                drop(object.array("ops"));
            }
        }
    }
}
