//! What a tracer is told of calls, logs and ends, with opcodes and without.
#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]

use niwaki_evm::{
    BlockEnv, CallKind, Entered, Evm, Exit, Left, Message, Outcome, Step, Table, Target, Tracer,
    TxEnv,
};
use niwaki_primitives::{Address, Bytes, Fork, Log, U256, hex};
use niwaki_testkit::{MemoryAccount, MemoryState};

const CALLER: Address = Address::repeat_byte(0xca);
const CALLEE: Address = Address::repeat_byte(0xcb);

/// Keeps a line for each event.
#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    steps: bool,
    /// Ends the run after so many opcodes.
    most: Option<usize>,
    told: usize,
}

impl Tracer for Lines {
    fn step(&mut self, _: &Step<'_>) {
        self.told += 1;
    }

    fn wants_steps(&self) -> bool {
        self.steps
    }

    fn stops(&mut self) -> bool {
        self.most.is_some_and(|most| self.told >= most)
    }

    fn enter(&mut self, entered: &Entered<'_>) {
        let Entered { kind, depth, .. } = entered;
        let to = match entered.to {
            CALLER => "caller",
            CALLEE => "callee",
            _ if entered.is_precompiled => "precompiled",
            _ => "other",
        };
        self.lines.push(format!("{depth} {} {to}", kind.mnemonic()));
    }

    fn leave(&mut self, left: &Left<'_>) {
        let failure = left
            .failure
            .map_or_else(String::new, |failure| format!(": {failure}"));
        self.lines.push(format!("{} ends{failure}", left.depth));
    }

    fn logs(&mut self, logs: &[Log]) {
        self.lines.push(format!("{} logs", logs.len()));
    }
}

/// Runs `caller`, beside which `callee` stands, and gives its outcome.
fn run(caller: &str, callee: &str, tracer: Option<&mut dyn Tracer>) -> Outcome {
    let mut state = MemoryState::default();
    for (address, code) in [(CALLER, caller), (CALLEE, callee)] {
        let account = MemoryAccount {
            code: Bytes::from(hex::decode(code).unwrap()).into(),
            ..MemoryAccount::default()
        };
        state.insert(address, account);
    }
    let mut evm = Evm::new(&state, Table::of(Fork::Osaka), BlockEnv::default());
    evm.begin_transaction(TxEnv::default());
    let message = Message {
        caller: Address::ZERO,
        target: Target::Call(CALLER),
        value: U256::ZERO,
        input: Bytes::new(),
        gas: 200_000,
        reservoir: 0,
    };
    evm.run(&message, tracer).unwrap()
}

/// A call of the callee by `opcode`, and its result off the stack.
fn calls(opcode: &str) -> String {
    let value = if ["f1", "f2"].contains(&opcode) {
        "5f"
    } else {
        ""
    };
    format!("5f5f5f5f{value}73{}5a{opcode}50", hex::encode(CALLEE))
}

fn told(caller: &str, callee: &str) -> Vec<String> {
    let told = [false, true].map(|steps| {
        let mut lines = Lines {
            steps,
            ..Lines::default()
        };
        let outcome = run(caller, callee, Some(&mut lines));
        assert_eq!(outcome, run(caller, callee, None), "watched or not");
        lines.lines
    });
    assert_eq!(told[0], told[1], "with opcodes or without");
    told[0].clone()
}

#[test]
fn calls_of_each_kind_begin_and_end_in_their_order() {
    for (opcode, kind) in [
        ("f1", CallKind::Call),
        ("f2", CallKind::CallCode),
        ("f4", CallKind::DelegateCall),
        ("fa", CallKind::StaticCall),
    ] {
        let lines = told(&calls(opcode), "00");
        let call = format!("1 {} callee", kind.mnemonic());
        assert_eq!(lines, ["0 CALL caller", &call, "1 ends", "0 ends"]);
    }
    let precompiled = "5f5f5f5f60045afa50";
    let lines = told(precompiled, "");
    assert_eq!(
        lines,
        [
            "0 CALL caller",
            "1 STATICCALL precompiled",
            "1 ends",
            "0 ends"
        ]
    );
    let creates = told("5f5f5ff050", "");
    assert_eq!(
        creates,
        ["0 CALL caller", "1 CREATE other", "1 ends", "0 ends"]
    );
    let destroys = told(&calls("f1"), &format!("73{}ff", hex::encode(CALLER)));
    let want = [
        "0 CALL caller",
        "1 CALL callee",
        "2 SELFDESTRUCT caller",
        "2 ends",
        "1 ends",
        "0 ends",
    ];
    assert_eq!(destroys, want);
}

#[test]
fn logs_are_told_where_they_come_even_if_they_are_taken_back() {
    let logs = "5f5fa0";
    let caller = format!("{logs}{}{logs}{logs}", calls("f1"));
    let want = [
        "0 CALL caller",
        "1 logs",
        "1 CALL callee",
        "1 logs",
        "1 ends: execution reverted",
        "2 logs",
        "0 ends",
    ];
    assert_eq!(told(&caller, &format!("{logs}5f5ffd")), want);
}

#[test]
fn failures_are_told_in_the_words_of_geth() {
    for (code, want) in [
        ("5f5ffd", "execution reverted"),
        ("fe", "invalid opcode: INVALID"),
        ("0c", "invalid opcode: opcode 0xc not defined"),
        ("5f01", "stack underflow (1 <=> 2)"),
        ("5b56", "stack underflow (0 <=> 1)"),
        ("5b6000600056", "stack limit reached 1024 (1023)"),
        ("5f56", "invalid jump destination"),
        ("5f5f60013d3e", "return data out of bounds"),
        ("5b5f56", "out of gas"),
    ] {
        let lines = told(&calls("f1"), code);
        assert_eq!(lines[2], format!("1 ends: {want}"), "{code}");
    }
    let writes = told(&calls("fa"), "5f5f55");
    assert_eq!(writes[2], "1 ends: write protection");
    let poor = format!("5f5f5f5f600173{}5af1", hex::encode(CALLEE));
    assert_eq!(
        told(&poor, "00")[2],
        "1 ends: insufficient balance for transfer"
    );
}

#[test]
fn a_tracer_can_end_a_run_that_would_not_end_soon() {
    let mut lines = Lines {
        steps: true,
        most: Some(100),
        ..Lines::default()
    };
    let outcome = run("5b5f56", "", Some(&mut lines));
    assert_eq!((outcome.exit, lines.told), (Exit::Interrupted, 100));
}
