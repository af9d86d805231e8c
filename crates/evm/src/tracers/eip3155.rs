//! EIP-3155 traces: one JSON object per opcode, and one at the end.
//!
//! Fields are in the order of the EIP. `refund` is a plain number, as other clients write it, and the counter before
//! the opcode; memory and storage are left out unless requested. `gasCost` of a call includes the callee's gas, as in
//! the example of the EIP; that of a creation does not, as in go-ethereum. An opcode that halts costs its full price,
//! also if there was less gas. [`Eip3155Format::Besu`] writes lines as Besu's evmtool does.

use crate::{
    cost::CostOrder,
    exit::Exit,
    tracer::{Step, Tracer},
};
use niwaki_primitives::{Address, B256, U256, hex};
use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, io::Write};

/// The optional fields of a line, and its format.
#[derive(Clone, Copy, Debug)]
pub struct Eip3155Options {
    /// The frame's memory.
    pub memory: bool,
    /// The stack, from the bottom to the top.
    pub stack: bool,
    /// Return data of the last call.
    pub return_data: bool,
    /// The slots of the account that the transaction has written, with their values.
    pub storage: bool,
    /// The format of lines.
    pub form: Eip3155Format,
}

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eip3155Format {
    /// The EIP's.
    Eip3155,
    /// Besu's: no empty fields, no STOP after the end of code, Besu's costs and errors. `strict` numbers are those of
    /// the EIP, others are decimal.
    Besu {
        /// Whether numbers are in the EIP's notation.
        strict: bool,
    },
}

impl Default for Eip3155Options {
    fn default() -> Self {
        Self {
            memory: false,
            stack: true,
            return_data: true,
            storage: false,
            form: Eip3155Format::Eip3155,
        }
    }
}

/// Writes the trace of one transaction.
#[derive(Debug)]
pub struct Eip3155<W> {
    shown: Eip3155Options,
    out: W,
    pending: Option<OpcodeLine>,
    gas: i64,
    written: BTreeMap<Address, BTreeSet<U256>>,
}

/// A number of gas, or an opcode.
#[derive(Debug)]
enum Number {
    Plain(i64),
    Hex(String),
}

/// One opcode.
#[derive(Debug)]
struct OpcodeLine {
    pc: usize,
    op: Number,
    gas: Number,
    gas_cost: Number,
    memory: Option<String>,
    stack: Option<Vec<String>>,
    depth: usize,
    return_data: Option<String>,
    refund: i64,
    mem_size: usize,
    op_name: &'static str,
    error: Option<String>,
    storage: BTreeMap<String, String>,
    opcode: u8,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(number) => write!(f, "{number}"),
            Self::Hex(number) => write!(f, "\"{number}\""),
        }
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if u32::from(letter) < 0x20 => {
                out += &format!("\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// As JSON.
impl fmt::Display for OpcodeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pc, op, gas, cost) = (self.pc, &self.op, &self.gas, &self.gas_cost);
        write!(f, r#"{{"pc":{pc},"op":{op},"gas":{gas},"gasCost":{cost}"#)?;
        if let Some(memory) = &self.memory {
            write!(f, r#","memory":"{memory}""#)?;
        }
        if let Some(stack) = &self.stack {
            let words: Vec<String> = stack.iter().map(|word| format!("\"{word}\"")).collect();
            write!(f, r#","stack":[{}]"#, words.join(","))?;
        }
        write!(f, r#","depth":{}"#, self.depth)?;
        if let Some(data) = &self.return_data {
            write!(f, r#","returnData":"{data}""#)?;
        }
        let (refund, size, name) = (self.refund, self.mem_size, self.op_name);
        write!(
            f,
            r#","refund":{refund},"memSize":{size},"opName":{}"#,
            quoted(name)
        )?;
        if let Some(error) = &self.error {
            write!(f, r#","error":{}"#, quoted(error))?;
        }
        if !self.storage.is_empty() {
            let slots = self.storage.iter();
            let slots: Vec<String> = slots
                .map(|(key, value)| format!(r#""{key}":"{value}""#))
                .collect();
            write!(f, r#","storage":{{{}}}"#, slots.join(","))?;
        }
        f.write_str("}")
    }
}

/// How the run ended.
#[derive(Clone, Copy, Debug)]
pub struct Eip3155End<'a> {
    /// Root of the state after it, where there is one.
    pub state_root: Option<B256>,
    /// Returned data.
    pub output: &'a [u8],
    /// Gas used by all of it.
    pub gas_used: u64,
    /// How the first frame ended.
    pub exit: Exit,
    /// Name of the fork.
    pub fork: &'a str,
}

/// SSTORE fails with this much gas left, or less (EIP-2200).
const STIPEND: i64 = 2_300;
const SSTORE: u8 = 0x55;

impl<W: Write> Eip3155<W> {
    /// A tracer that writes to `out`.
    pub fn new(shown: Eip3155Options, out: W) -> Self {
        Self {
            shown,
            out,
            pending: None,
            gas: 0,
            written: BTreeMap::new(),
        }
    }

    /// A number in the notation of the format.
    fn number(&self, value: i64) -> Number {
        match self.shown.form {
            Eip3155Format::Besu { strict: false } => Number::Plain(value),
            _ => Number::Hex(format!("{value:#x}")),
        }
    }

    fn op(&self, opcode: u8) -> Number {
        match self.shown.form {
            Eip3155Format::Besu { strict: false } => Number::Hex(format!("{opcode:#04x}")),
            _ => Number::Plain(opcode.into()),
        }
    }

    fn flush(&mut self, error: Option<String>) {
        if let Some(line) = self.pending.take() {
            self.write(&OpcodeLine { error, ..line }.to_string());
        }
    }

    /// Ignores errors: the reader has closed the stream.
    fn write(&mut self, line: &str) {
        let _ = writeln!(self.out, "{line}");
    }

    /// Writes the last opcode and the summary line.
    pub fn finish(mut self, end: Eip3155End<'_>) -> W {
        self.flush(None);
        let root = end
            .state_root
            .map(|root| format!("\"stateRoot\":\"{root}\","));
        let closing = format!(
            r#"{{{}"output":"{}","gasUsed":"{:#x}","pass":{},"fork":{}}}"#,
            root.unwrap_or_default(),
            hex::encode_prefixed(end.output),
            end.gas_used,
            end.exit.is_success(),
            quoted(end.fork)
        );
        self.write(&closing);
        self.out
    }

    /// Writes the last opcode.
    pub fn end(&mut self) -> &mut W {
        self.flush(None);
        &mut self.out
    }

    /// The slots of the account that were written, with their values.
    fn storage(&self, step: &Step<'_>) -> BTreeMap<String, String> {
        let keys = self.written.get(&step.address()).into_iter().flatten();
        keys.map(|key| (format!("{key:#x}"), format!("{:#x}", step.slot(*key))))
            .collect()
    }

    /// The error of an opcode in Besu's words, and its cost where Besu shows another than was charged.
    fn as_besu(&self, opcode: u8, output: &[u8], error: &str) -> (String, Option<i64>) {
        match error {
            "execution reverted" => return (hex::encode_prefixed(output), None),
            "out of gas" if opcode == SSTORE && self.gas <= STIPEND => {
                return (besu_error(error), Some(STIPEND));
            }
            _ => {}
        }
        let free = ["undefined", "stack", "return data"];
        let cost = free.iter().any(|start| error.starts_with(start));
        (besu_error(error), cost.then_some(0))
    }
}

/// Besu's message for a [`HaltReason`](crate::HaltReason) as displayed.
pub fn besu_error(halt: &str) -> String {
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
    fn cost_order(&self) -> CostOrder {
        match self.shown.form {
            Eip3155Format::Eip3155 => CostOrder::Geth,
            Eip3155Format::Besu { .. } => CostOrder::Besu,
        }
    }

    fn step(&mut self, step: &Step<'_>) {
        self.flush(None);
        let is_besu = self.shown.form != Eip3155Format::Eip3155;
        if step.is_code_empty() || (is_besu && step.pc() >= step.code().len()) {
            return;
        }
        let words = || {
            step.stack()
                .iter()
                .map(|word| format!("{word:#x}"))
                .collect()
        };
        let bytes = |is_shown: bool, bytes: &[u8]| {
            let is_shown = is_shown && !(is_besu && bytes.is_empty());
            is_shown.then(|| hex::encode_prefixed(bytes))
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
        self.pending = Some(OpcodeLine {
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

    fn step_end(&mut self, gas_left: i64, forwarded: i64) {
        const CREATIONS: [u8; 2] = [0xf0, 0xf5];
        if let Some(mut line) = self.pending.take() {
            let creation = forwarded * i64::from(CREATIONS.contains(&line.opcode));
            line.gas_cost = self.number(self.gas - gas_left - creation);
            self.pending = Some(line);
        }
    }

    /// Only the opcode that failed has the error; the opcodes of its callers are written already.
    fn frame_end(&mut self, _depth: usize, _gas: i64, output: &[u8], error: Option<String>) {
        let is_besu = self.shown.form != Eip3155Format::Eip3155;
        let opcode = self.pending.as_ref().map(|line| line.opcode);
        let (Some(opcode), Some(text), true) = (opcode, &error, is_besu) else {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_json_with_quotes_and_control_characters_in_mnemonic() {
        assert_eq!(quoted("a \"b\"\\\n"), r#""a \"b\"\\\u000a""#);
        let line = OpcodeLine {
            pc: 1,
            op: Number::Plain(12),
            gas: Number::Hex("0x5".into()),
            gas_cost: Number::Hex("0x3".into()),
            memory: None,
            stack: Some(vec!["0x1".into(), "0x2".into()]),
            depth: 1,
            return_data: Some("0x".into()),
            refund: 0,
            mem_size: 0,
            op_name: "O\"N",
            error: Some("no \"way\"".into()),
            storage: BTreeMap::from([("0x0".into(), "0x7".into())]),
            opcode: 12,
        };
        let read: serde_json::Value = serde_json::from_str(&line.to_string()).unwrap();
        let expected = serde_json::json!({
            "pc": 1, "op": 12, "gas": "0x5", "gasCost": "0x3", "stack": ["0x1", "0x2"], "depth": 1,
            "returnData": "0x", "refund": 0, "memSize": 0, "opName": "O\"N", "error": "no \"way\"",
            "storage": {"0x0": "0x7"},
        });
        assert_eq!(read, expected);
    }
}
