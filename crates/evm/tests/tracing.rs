//! The tracer's events for calls, logs and failures, with opcode tracing and without.
#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]

use niwaki_evm::{
    BlockEnv, CallEnd, CallKind, CallStart, Evm, Exit, Message, Outcome, Step, Table, Target,
    Tracer, TxEnv,
};
use niwaki_primitives::{Address, Bytes, Fork, Log, U256, hex};
use niwaki_testkit::{MemoryAccount, MemoryState};

const CALLER: Address = Address::repeat_byte(0xca);
const CALLEE: Address = Address::repeat_byte(0xcb);

/// Records a line for each event.
#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    traces_steps: bool,
    /// Stops the run after so many opcodes.
    limit: Option<usize>,
    steps: usize,
}

impl Tracer for Lines {
    fn step(&mut self, _: &Step<'_>) {
        self.steps += 1;
    }

    fn should_trace_steps(&self) -> bool {
        self.traces_steps
    }

    fn should_stop(&mut self) -> bool {
        self.limit.is_some_and(|limit| self.steps >= limit)
    }

    fn enter(&mut self, start: &CallStart<'_>) {
        let CallStart { kind, depth, .. } = start;
        let to = match start.to {
            CALLER => "caller",
            CALLEE => "callee",
            _ if start.is_precompiled => "precompiled",
            _ => "other",
        };
        self.lines.push(format!("{depth} {} {to}", kind.mnemonic()));
    }

    fn exit(&mut self, end: &CallEnd<'_>) {
        let failure = end
            .failure
            .map_or_else(String::new, |failure| format!(": {failure}"));
        self.lines.push(format!("{} ends{failure}", end.depth));
    }

    fn logs(&mut self, logs: &[Log]) {
        self.lines.push(format!("{} logs", logs.len()));
    }
}

/// Runs the code `caller` in a state that also has the code `callee`.
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

/// A call of the callee by `opcode`, whose result is popped.
fn calls(opcode: &str) -> String {
    let value = if ["f1", "f2"].contains(&opcode) {
        "5f"
    } else {
        ""
    };
    format!("5f5f5f5f{value}73{}5a{opcode}50", hex::encode(CALLEE))
}

/// The events of a run, which must not depend on whether opcodes are traced.
fn events(caller: &str, callee: &str) -> Vec<String> {
    let events = [false, true].map(|traces_steps| {
        let mut lines = Lines {
            traces_steps,
            ..Lines::default()
        };
        let outcome = run(caller, callee, Some(&mut lines));
        assert_eq!(outcome, run(caller, callee, None), "traced or not");
        lines.lines
    });
    assert_eq!(events[0], events[1], "with opcodes or without");
    events[0].clone()
}

#[test]
fn each_kind_of_call_enters_and_exits_in_order() {
    for (opcode, kind) in [
        ("f1", CallKind::Call),
        ("f2", CallKind::CallCode),
        ("f4", CallKind::DelegateCall),
        ("fa", CallKind::StaticCall),
    ] {
        let lines = events(&calls(opcode), "00");
        let call = format!("1 {} callee", kind.mnemonic());
        assert_eq!(lines, ["0 CALL caller", &call, "1 ends", "0 ends"]);
    }
    let precompiled = "5f5f5f5f60045afa50";
    let lines = events(precompiled, "");
    assert_eq!(
        lines,
        [
            "0 CALL caller",
            "1 STATICCALL precompiled",
            "1 ends",
            "0 ends"
        ]
    );
    let creates = events("5f5f5ff050", "");
    assert_eq!(
        creates,
        ["0 CALL caller", "1 CREATE other", "1 ends", "0 ends"]
    );
    let destroys = events(&calls("f1"), &format!("73{}ff", hex::encode(CALLER)));
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
fn logs_are_reported_in_their_call_even_if_it_reverts() {
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
    assert_eq!(events(&caller, &format!("{logs}5f5ffd")), want);
}

#[test]
fn failures_have_the_messages_of_geth() {
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
        let lines = events(&calls("f1"), code);
        assert_eq!(lines[2], format!("1 ends: {want}"), "{code}");
    }
    let writes = events(&calls("fa"), "5f5f55");
    assert_eq!(writes[2], "1 ends: write protection");
    let poor = format!("5f5f5f5f600173{}5af1", hex::encode(CALLEE));
    assert_eq!(
        events(&poor, "00")[2],
        "1 ends: insufficient balance for transfer"
    );
}

#[test]
fn tracer_stops_an_endless_loop_after_100_opcodes() {
    let mut lines = Lines {
        traces_steps: true,
        limit: Some(100),
        ..Lines::default()
    };
    let outcome = run("5b5f56", "", Some(&mut lines));
    assert_eq!((outcome.exit, lines.steps), (Exit::Interrupted, 100));
}
