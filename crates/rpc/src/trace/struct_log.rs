//! geth's struct logger: every opcode, with stack, memory and storage.
//!
//! Logs are written as opcodes run: in memory are one log, and what is not sent yet.

use crate::RpcError;
use crate::json::{self, Array, Object};
use crate::response_stream::ResponseStream;
use niwaki_evm::{CallEnd, CallStart, Failure, HaltReason, Step, Tracer};
use niwaki_primitives::{Address, U256, hex};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Options of the logger.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StructOptions {
    enable_memory: bool,
    disable_stack: bool,
    disable_storage: bool,
    enable_return_data: bool,
    /// No log follows after this many bytes, as geth counts them; 0 for no bound.
    limit: u64,
}

/// Writes the list of struct logs.
pub(crate) struct StructLogger<'o> {
    lines: Array<'o>,
    options: StructOptions,
    /// Bytes of the logs so far.
    written: u64,
    /// Bytes that all further logs may take, if they are not streamed.
    bytes_left: usize,
    stream: Option<(&'o ResponseStream, Instant)>,
    /// Why no log can be sent any more.
    error: Option<RpcError>,
    pending: Option<StructLog>,
    /// The slots that each account has accessed so far.
    storage: HashMap<Address, BTreeMap<U256, U256>>,
}

/// The log of an opcode that has not ended.
struct StructLog {
    pc: usize,
    name: String,
    gas: i64,
    cost: i64,
    opcode: u8,
    depth: usize,
    /// The written rest of the log, without storage and refund.
    machine: Vec<u8>,
    /// The slot that it reads or writes: account, slot and new value.
    slot: Option<(Address, U256, U256)>,
    refund: u64,
}

impl<'o> StructLogger<'o> {
    /// Writes to `out`: at most `bytes_left` bytes, or any number if they go to `stream`.
    pub(crate) fn new(
        out: &'o mut Vec<u8>,
        options: StructOptions,
        bytes_left: usize,
        stream: Option<(&'o ResponseStream, Instant)>,
    ) -> Self {
        Self {
            lines: Array::new(out),
            options,
            written: 0,
            bytes_left,
            stream,
            error: None,
            pending: None,
            storage: HashMap::new(),
        }
    }

    /// Why tracing stopped early, if it did: the trace is too long, or the client is too slow or gone.
    pub(crate) fn into_error(self) -> Option<RpcError> {
        let is_full = self.bytes_left == 0;
        self.error.or_else(|| is_full.then(super::too_large))
    }

    fn flush(&mut self, error: Option<Failure>) {
        let Some(line) = self.pending.take().filter(|_| self.error.is_none()) else {
            return;
        };
        let out = self.lines.item();
        let before = out.len();
        let mut object = Object::new(out);
        object.decimal("pc", line.pc as u64);
        object.string("op", &line.name);
        object.decimal("gas", line.gas.unsigned_abs());
        object.decimal("gasCost", line.cost.unsigned_abs());
        object.decimal("depth", line.depth as u64);
        if let Some(error) = error {
            object.string("error", &error.to_string());
        }
        drop(object);
        out.pop();
        out.extend_from_slice(&line.machine);
        if let Some((address, slot, value)) = line.slot {
            let known = self.storage.entry(address).or_default();
            known.insert(slot, value);
            write_storage(out, known);
        }
        if line.refund > 0 {
            out.extend_from_slice(format!(",\"refund\":{}", line.refund).as_bytes());
        }
        out.push(b'}');
        let bytes = out.len() - before;
        self.written += bytes as u64;
        match self.stream {
            Some((stream, deadline)) => {
                self.error = stream.flush(self.lines.buffer(), deadline).err();
            }
            None => self.bytes_left = self.bytes_left.saturating_sub(bytes),
        }
    }

    /// Writes stack, return data and memory, each after a comma.
    fn machine(&self, step: &Step<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.options.disable_stack {
            out.extend_from_slice(b",\"stack\":");
            let mut words = Array::new(&mut out);
            for word in step.stack() {
                json::quantity(words.item(), &word);
            }
        }
        if self.options.enable_return_data && !step.return_data().is_empty() {
            out.extend_from_slice(b",\"returnData\":");
            json::data(&mut out, step.return_data());
        }
        if self.options.enable_memory && step.memory_len() > 0 {
            out.extend_from_slice(b",\"memory\":");
            let mut words = Array::new(&mut out);
            for word in step.memory().chunks(32) {
                words.data(word);
            }
        }
        out
    }

    /// The slot that an opcode reads or writes, unless storage is disabled.
    fn slot(&self, step: &Step<'_>) -> Option<(Address, U256, U256)> {
        let (slot, value) = match (step.opcode(), step.peek(0), step.peek(1)) {
            _ if self.options.disable_storage => return None,
            (0x54, Some(slot), _) => (slot, step.slot(slot)),
            (0x55, Some(slot), Some(value)) => (slot, value),
            _ => return None,
        };
        Some((step.address(), slot, value))
    }
}

/// Writes the accessed slots of an account.
fn write_storage(out: &mut Vec<u8>, known: &BTreeMap<U256, U256>) {
    out.extend_from_slice(b",\"storage\":");
    let mut object = Object::new(out);
    for (slot, value) in known {
        let name = hex::encode_prefixed(slot.to_be_bytes::<32>());
        object.data(&name, &value.to_be_bytes::<32>());
    }
}

impl Tracer for StructLogger<'_> {
    fn step(&mut self, step: &Step<'_>) {
        self.flush(None);
        let is_over = self.options.limit > 0 && self.written > self.options.limit;
        if step.is_code_empty() || is_over {
            return;
        }
        let opcode = step.opcode();
        let name = match step.mnemonic() {
            Some(name) => name.to_owned(),
            None if opcode == 0xfe => "INVALID".to_owned(),
            None => format!("opcode {opcode:#x} not defined"),
        };
        let machine = self.machine(step);
        let slot = self.slot(step);
        self.pending = Some(StructLog {
            pc: step.pc(),
            name,
            gas: step.gas(),
            cost: 0,
            opcode,
            depth: step.depth(),
            machine,
            slot,
            refund: u64::try_from(step.refund()).unwrap_or(0),
        });
    }

    fn step_end(&mut self, gas_left: i64, forwarded: i64) {
        const CREATIONS: [u8; 2] = [0xf0, 0xf5];
        if let Some(line) = &mut self.pending {
            // The gas that a creation forwards is no cost of the opcode; the gas that a call forwards is.
            let forwarded = forwarded * i64::from(CREATIONS.contains(&line.opcode));
            line.cost = line.gas - gas_left - forwarded;
        }
    }

    fn should_stop(&mut self) -> bool {
        self.bytes_left == 0 || self.error.is_some()
    }

    fn enter(&mut self, _: &CallStart<'_>) {
        self.flush(None);
    }

    /// Only a failure that keeps an opcode from running is shown as its error.
    fn exit(&mut self, left: &CallEnd<'_>) {
        let failure = left.failure.filter(|failure| {
            use Failure::{Halt as Halted, StackOverflow, StackUnderflow};
            matches!(
                failure,
                Halted(HaltReason::OutOfGas) | StackUnderflow { .. } | StackOverflow { .. }
            )
        });
        // An opcode that ends its frame accesses storage only if it fails, and then it has read nothing.
        if let Some(line) = &mut self.pending {
            line.slot = None;
        }
        self.flush(failure);
    }
}
