//! Traces as EIP-3155 has them: one JSON object per opcode, one at the end.
//!
//! Fields stand in the order of the EIP. `refund` is a plain number, as other clients write it, and
//! the counter before the opcode; storage is left out, memory unless it is asked for. `gasCost` of a call holds what
//! the callee gets, as in the example of the EIP, that of a creation does not, as go-ethereum has
//! it. An opcode that ends its frame by an exceptional halt costs what there was or more.

use niwaki_evm::{Exit, Step, Tracer};
use niwaki_primitives::B256;
use serde::Serialize;
use std::fmt::Write;

/// What of each opcode is written besides what always is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The frame's memory.
    pub(crate) memory: bool,
    /// The stack, from the bottom to the top.
    pub(crate) stack: bool,
    /// What the last call has returned.
    pub(crate) return_data: bool,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            memory: false,
            stack: true,
            return_data: true,
        }
    }
}

/// Collects the trace of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Eip3155 {
    shown: Shown,
    text: String,
    pending: Option<Line>,
    gas: i64,
}

/// One opcode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    pc: usize,
    op: u8,
    gas: String,
    gas_cost: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<String>>,
    depth: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_data: Option<String>,
    refund: i64,
    mem_size: usize,
    op_name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The end of a transaction.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Closing<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    state_root: Option<B256>,
    output: String,
    gas_used: String,
    pass: bool,
    fork: &'a str,
}

/// How the run ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    /// Root of the state after it, where there is one.
    pub(crate) state_root: Option<B256>,
    /// Returned data.
    pub(crate) output: &'a [u8],
    /// Gas used by all of it.
    pub(crate) gas_used: u64,
    /// How the first frame ended.
    pub(crate) exit: Exit,
    /// Name of the fork.
    pub(crate) fork: &'a str,
}

impl Eip3155 {
    /// One that writes what `shown` says.
    pub(crate) fn showing(shown: Shown) -> Self {
        Self {
            shown,
            ..Self::default()
        }
    }

    fn flush(&mut self, error: Option<String>) {
        if let Some(line) = self.pending.take() {
            self.write(&Line { error, ..line });
        }
    }

    fn write(&mut self, object: &impl Serialize) {
        let line = serde_json::to_string(object).expect("numbers and strings are JSON");
        let _ = writeln!(self.text, "{line}");
    }

    /// The whole trace, ending with the line that sums it up.
    pub(crate) fn finish(mut self, end: End<'_>) -> String {
        self.flush(None);
        self.write(&Closing {
            state_root: end.state_root,
            output: hex::encode_prefixed(end.output),
            gas_used: format!("{:#x}", end.gas_used),
            pass: end.exit.is_success(),
            fork: end.fork,
        });
        self.text
    }
}

impl Tracer for Eip3155 {
    fn step(&mut self, step: &Step<'_>) {
        self.flush(None);
        if step.is_code_empty() {
            return;
        }
        let words = || {
            step.stack()
                .iter()
                .map(|word| format!("{word:#x}"))
                .collect()
        };
        let shown = self.shown;
        self.gas = step.gas();
        self.pending = Some(Line {
            pc: step.pc(),
            op: step.opcode(),
            gas: format!("{:#x}", step.gas()),
            gas_cost: String::new(),
            memory: shown.memory.then(|| hex::encode_prefixed(step.memory())),
            stack: shown.stack.then(words),
            depth: step.depth(),
            return_data: shown
                .return_data
                .then(|| hex::encode_prefixed(step.return_data())),
            refund: step.refund(),
            mem_size: step.memory_len(),
            op_name: step.mnemonic().unwrap_or("INVALID"),
            error: None,
        });
    }

    fn step_end(&mut self, gas_left: i64, handed: i64) {
        const CREATIONS: [u8; 2] = [0xf0, 0xf5];
        if let Some(line) = &mut self.pending {
            let handed = handed * i64::from(CREATIONS.contains(&line.op));
            line.gas_cost = format!("{:#x}", self.gas - gas_left - handed);
        }
    }

    /// Only the opcode that failed carries the error; its callers' opcodes have been written.
    fn frame_end(&mut self, _depth: usize, _gas: i64, _output: &[u8], error: Option<String>) {
        self.flush(error);
    }
}
