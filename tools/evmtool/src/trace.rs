//! Traces as EIP-3155 has them: one JSON object per opcode, one at the end.
//!
//! Fields stand in the order of the EIP. `refund` is a plain number, as other clients write it, and
//! the counter before the opcode; memory and storage are left out unless they are asked for.
//! `gasCost` of a call holds what the callee gets, as in the example of the EIP, that of a creation
//! does not, as go-ethereum has it. An opcode that ends its frame by an exceptional halt costs what
//! there was or more. [`Form::Besu`] writes them as Besu's tool does.

mod options;

pub(crate) use options::TraceOptions;

use niwaki_evm::{Exit, Step, Tracer};
use niwaki_primitives::{Address, B256, U256};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// What of each opcode is written besides what always is, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The frame's memory.
    pub(crate) memory: bool,
    /// The stack, from the bottom to the top.
    pub(crate) stack: bool,
    /// What the last call has returned.
    pub(crate) return_data: bool,
    /// The slots of the account that the transaction has written to, as they stand.
    pub(crate) storage: bool,
    pub(crate) form: Form,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As the EIP has them.
    Eip3155,
    /// As Besu's tool: nothing that is empty, no STOP behind the end of code, costs and errors in
    /// its way; `strict` numbers are those of the EIP, others decimal.
    Besu { strict: bool },
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            memory: false,
            stack: true,
            return_data: true,
            storage: false,
            form: Form::Eip3155,
        }
    }
}

/// Writes the trace of one transaction.
#[derive(Debug)]
pub(crate) struct Eip3155<W> {
    shown: Shown,
    out: W,
    pending: Option<Line>,
    gas: i64,
    written: BTreeMap<Address, BTreeSet<U256>>,
}

/// A number of gas, or an opcode.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Number {
    Plain(i64),
    Hex(String),
}

/// One opcode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    pc: usize,
    op: Number,
    gas: Number,
    gas_cost: Number,
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
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    storage: BTreeMap<String, String>,
    #[serde(skip)]
    opcode: u8,
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

/// The gas that EIP-2200 wants an SSTORE to leave behind.
const STIPEND: i64 = 2_300;
const SSTORE: u8 = 0x55;

impl<W: Write> Eip3155<W> {
    /// One that writes what `shown` says to `out`.
    pub(crate) fn new(shown: Shown, out: W) -> Self {
        Self {
            shown,
            out,
            pending: None,
            gas: 0,
            written: BTreeMap::new(),
        }
    }

    /// A number as it is to be written.
    fn number(&self, value: i64) -> Number {
        match self.shown.form {
            Form::Besu { strict: false } => Number::Plain(value),
            _ => Number::Hex(format!("{value:#x}")),
        }
    }

    fn op(&self, opcode: u8) -> Number {
        match self.shown.form {
            Form::Besu { strict: false } => Number::Hex(format!("{opcode:#04x}")),
            _ => Number::Plain(opcode.into()),
        }
    }

    fn flush(&mut self, error: Option<String>) {
        if let Some(line) = self.pending.take() {
            self.write(&Line { error, ..line });
        }
    }

    /// What can't be written is lost: whoever reads has gone.
    fn write(&mut self, object: &impl Serialize) {
        let line = serde_json::to_string(object).expect("numbers and strings are JSON");
        let _ = writeln!(self.out, "{line}");
    }

    /// Writes the last opcode, and the line that sums the trace up.
    pub(crate) fn finish(mut self, end: End<'_>) -> W {
        self.flush(None);
        self.write(&Closing {
            state_root: end.state_root,
            output: hex::encode_prefixed(end.output),
            gas_used: format!("{:#x}", end.gas_used),
            pass: end.exit.is_success(),
            fork: end.fork,
        });
        self.out
    }

    /// Writes the last opcode.
    pub(crate) fn end(&mut self) -> &mut W {
        self.flush(None);
        &mut self.out
    }

    /// The slots that the account has written to, with what they hold.
    fn storage(&self, step: &Step<'_>) -> BTreeMap<String, String> {
        let keys = self.written.get(&step.address()).into_iter().flatten();
        keys.map(|key| (format!("{key:#x}"), format!("{:#x}", step.slot(*key))))
            .collect()
    }

    /// The error of an opcode, and where it is not what the opcode has taken, its cost, as Besu has
    /// them.
    fn as_besu(&self, opcode: u8, output: &[u8], error: &str) -> (String, Option<i64>) {
        match error {
            "execution reverted" => return (hex::encode_prefixed(output), None),
            "out of gas" if opcode == SSTORE && self.gas <= STIPEND => {
                return (besu_words(error), Some(STIPEND));
            }
            _ => {}
        }
        let free = ["undefined", "stack", "return data"];
        let cost = free.iter().any(|start| error.starts_with(start));
        (besu_words(error), cost.then_some(0))
    }
}

/// Besu's words for a reason of ours to halt.
pub(crate) fn besu_words(halt: &str) -> String {
    if let Some(opcode) = halt.strip_prefix("undefined opcode ") {
        return format!("Invalid opcode: {opcode}");
    }
    match halt {
        "out of gas" => "Out of gas",
        "stack underflow" => "Stack underflow",
        "stack overflow" => "Out of stack",
        "invalid jump destination" => "Bad jump destination",
        "return data out of bounds" => "Out of bounds",
        "write in a static context" | "address collision" => "Illegal state change",
        "code begins with 0xef" => "Code is invalid",
        "code too long" => "Code is too large",
        "precompiled contract failed" => "Precompile error",
        other => other,
    }
    .to_owned()
}

impl<W: Write> Tracer for Eip3155<W> {
    fn step(&mut self, step: &Step<'_>) {
        self.flush(None);
        let besu = self.shown.form != Form::Eip3155;
        if step.is_code_empty() || (besu && step.pc() >= step.code().len()) {
            return;
        }
        let words = || {
            step.stack()
                .iter()
                .map(|word| format!("{word:#x}"))
                .collect()
        };
        let bytes = |wanted: bool, bytes: &[u8]| {
            let wanted = wanted && !(besu && bytes.is_empty());
            wanted.then(|| hex::encode_prefixed(bytes))
        };
        let (shown, opcode) = (self.shown, step.opcode());
        let storage = match shown.storage {
            true => self.storage(step),
            false => BTreeMap::new(),
        };
        if let (true, SSTORE, Some(key)) = (shown.storage, opcode, step.peek(0)) {
            self.written.entry(step.address()).or_default().insert(key);
        }
        self.gas = step.gas();
        self.pending = Some(Line {
            pc: step.pc(),
            op: self.op(opcode),
            gas: self.number(step.gas()),
            gas_cost: Number::Plain(0),
            memory: bytes(shown.memory, step.memory()),
            stack: shown.stack.then(words),
            depth: step.depth(),
            return_data: bytes(shown.return_data, step.return_data()),
            refund: step.refund(),
            mem_size: step.memory_len(),
            op_name: step.mnemonic().unwrap_or("INVALID"),
            error: None,
            storage,
            opcode,
        });
    }

    fn step_end(&mut self, gas_left: i64, handed: i64) {
        const CREATIONS: [u8; 2] = [0xf0, 0xf5];
        if let Some(mut line) = self.pending.take() {
            let handed = handed * i64::from(CREATIONS.contains(&line.opcode));
            line.gas_cost = self.number(self.gas - gas_left - handed);
            self.pending = Some(line);
        }
    }

    /// Only the opcode that failed carries the error; its callers' opcodes have been written.
    fn frame_end(&mut self, _depth: usize, _gas: i64, output: &[u8], error: Option<String>) {
        let besu = self.shown.form != Form::Eip3155;
        let opcode = self.pending.as_ref().map(|line| line.opcode);
        let (Some(opcode), Some(text), true) = (opcode, &error, besu) else {
            return self.flush(error);
        };
        let (text, cost) = self.as_besu(opcode, output, text);
        let cost = cost.map(|cost| self.number(cost));
        if let (Some(line), Some(cost)) = (&mut self.pending, cost) {
            line.gas_cost = cost;
        }
        self.flush(Some(text));
    }
}
