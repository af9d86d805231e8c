//! The struct logger: every opcode, with stack, memory and storage, as geth writes them.
//!
//! Lines go out as they come: what is held is one line, and what has not been sent yet.

use crate::RpcError;
use crate::json::{self, Array, Object};
use crate::outlet::Outlet;
use niwaki_evm::{Entered, Failure, Halt, Left, Step, Tracer};
use niwaki_primitives::{Address, U256, hex};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// What of the machine is shown.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StructOptions {
    enable_memory: bool,
    disable_stack: bool,
    disable_storage: bool,
    enable_return_data: bool,
    /// Bytes of lines after which none follows, as geth counts them; 0 for no bound.
    limit: u64,
}

/// Writes the list of lines.
pub(crate) struct StructLogger<'o> {
    lines: Array<'o>,
    options: StructOptions,
    /// Bytes of the lines so far.
    written: u64,
    /// Bytes that all lines together may take, if they are not sent on.
    room: usize,
    outlet: Option<(&'o Outlet, Instant)>,
    /// Why no line can be sent any more.
    cut: Option<RpcError>,
    pending: Option<Line>,
    /// What is known of the storage of each account.
    storage: HashMap<Address, BTreeMap<U256, U256>>,
}

/// An opcode that has not ended.
struct Line {
    pc: usize,
    name: String,
    gas: i64,
    cost: i64,
    opcode: u8,
    depth: usize,
    /// The rest of the line, written already, but for storage and refund.
    machine: Vec<u8>,
    /// The slot that it reads or writes, with its account and what it will hold.
    slot: Option<(Address, U256, U256)>,
    refund: u64,
}

impl<'o> StructLogger<'o> {
    /// Writes to `out` at most `room` bytes, or any number of bytes by way of `outlet`.
    pub(crate) fn new(
        out: &'o mut Vec<u8>,
        options: StructOptions,
        room: usize,
        outlet: Option<(&'o Outlet, Instant)>,
    ) -> Self {
        Self {
            lines: Array::new(out),
            options,
            written: 0,
            room,
            outlet,
            cut: None,
            pending: None,
            storage: HashMap::new(),
        }
    }

    /// Why the run was ended before its end, if it was: it had more to say than may be sent, or
    /// nobody reads it.
    pub(crate) fn into_cut(self) -> Option<RpcError> {
        let is_full = self.room == 0;
        self.cut.or_else(|| is_full.then(super::too_large))
    }

    fn flush(&mut self, error: Option<Failure>) {
        let Some(line) = self.pending.take().filter(|_| self.cut.is_none()) else {
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
        match self.outlet {
            Some((outlet, deadline)) => {
                self.cut = outlet.flush(self.lines.place(), deadline).err();
            }
            None => self.room = self.room.saturating_sub(bytes),
        }
    }

    /// Stack, return data and memory, each with a comma before it.
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

    /// The slot that an opcode reads or writes, if that is shown.
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

/// Writes what is known of an account's storage.
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
        self.pending = Some(Line {
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

    fn step_end(&mut self, gas_left: i64, handed: i64) {
        const CREATIONS: [u8; 2] = [0xf0, 0xf5];
        if let Some(line) = &mut self.pending {
            // What a creation hands on is no cost of the opcode; what a call hands on is.
            let handed = handed * i64::from(CREATIONS.contains(&line.opcode));
            line.cost = line.gas - gas_left - handed;
        }
    }

    fn stops(&mut self) -> bool {
        self.room == 0 || self.cut.is_some()
    }

    fn enter(&mut self, _: &Entered<'_>) {
        self.flush(None);
    }

    /// Only what keeps an opcode from running at all is its error.
    fn leave(&mut self, left: &Left<'_>) {
        let failure = left.failure.filter(|failure| {
            use Failure::{Halt as Halted, StackOverflow, StackUnderflow};
            matches!(
                failure,
                Halted(Halt::OutOfGas) | StackUnderflow { .. } | StackOverflow { .. }
            )
        });
        // An opcode that ends its frame looks at storage only if it fails: then it has seen nothing.
        if let Some(line) = &mut self.pending {
            line.slot = None;
        }
        self.flush(failure);
    }
}
