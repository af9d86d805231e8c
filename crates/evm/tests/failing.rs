//! The cost of a failing opcode in traces, as in go-ethereum's: its full price, or its constant part where go-ethereum
//! stops before it reads the operands.
#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]

use niwaki_evm::{
    BlockEnv, CostOrder, Evm, Exit, Message, Outcome, Step, Table, Target, Tracer, TxEnv,
    tracers::{Eip3155, Eip3155End, Eip3155Options, PrestateTracer},
};
use niwaki_primitives::{Address, Bytes, Fork, U256, hex};
use niwaki_testkit::{MemoryAccount, MemoryState};

const CALLEE: Address = Address::repeat_byte(0xc0);
/// Has a balance and code that writes: `SSTORE(1, 1)`.
const OTHER: Address = Address::repeat_byte(0x0e);
/// Delegates to `WRITES`.
const DELEGATING: Address = Address::repeat_byte(0x0d);
const PUSH_DELEGATING: &str = "730d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d";
/// PUSH20 of the account that writes, and of one that does not exist.
const PUSH_OTHER: &str = "730e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e";
const PUSH_ABSENT: &str = "7300000000000000000000000000000000000000f2";

/// Runs `code` (hex) with `gas`.
fn run(fork: Fork, code: &str, gas: u64, tracer: &mut dyn Tracer) -> Outcome {
    let mut state = MemoryState::default();
    let delegation = format!("ef0100{}", hex::encode(OTHER));
    let codes = [
        (CALLEE, code),
        (OTHER, "600160015500"),
        (DELEGATING, &delegation),
    ];
    for (address, code) in codes {
        let account = MemoryAccount {
            balance: U256::from(1_000),
            code: Bytes::from(hex::decode(code).unwrap()).into(),
            ..MemoryAccount::default()
        };
        state.insert(address, account);
    }
    let mut evm = Evm::new(&state, Table::of(fork), BlockEnv::default());
    evm.begin_transaction(TxEnv::default());
    let message = Message {
        target: Target::Call(CALLEE),
        gas,
        ..Message::default()
    };
    evm.run(&message, Some(tracer)).unwrap()
}

/// The last opcode of a run that fails, and its cost.
#[track_caller]
fn last(fork: Fork, code: &str, gas: u64) -> (String, u64) {
    let mut lines = Eip3155::new(Eip3155Options::default(), Vec::new());
    let outcome = run(fork, code, gas, &mut lines);
    assert!(matches!(outcome.exit, Exit::Halt(_)), "{code}: {outcome:?}");
    let written = lines.finish(Eip3155End {
        state_root: None,
        output: &outcome.output,
        gas_used: gas - outcome.gas_left,
        exit: outcome.exit,
        fork: "",
    });
    let text = String::from_utf8(written).unwrap();
    let line = text.lines().rev().nth(1).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(line["error"].is_string(), "{line}");
    let cost = line["gasCost"].as_str().unwrap();
    let cost = u64::from_str_radix(cost.trim_start_matches("0x"), 16).unwrap();
    (line["opName"].as_str().unwrap().to_owned(), cost)
}

/// Each case: mnemonic, code whose last opcode fails, gas of the opcodes before it, gas left for it, its cost.
#[track_caller]
fn check(fork: Fork, cases: &[(&str, &str, u64, u64, u64)]) {
    for (name, code, before, left, cost) in cases {
        let got = last(fork, code, before + left);
        assert_eq!(got, ((*name).to_owned(), *cost), "{fork} {code} {left}");
    }
}

#[test]
fn opcode_out_of_gas_costs_its_full_price() {
    let balance = format!("{PUSH_ABSENT}31");
    let size = format!("{PUSH_ABSENT}3b");
    let hash = format!("{PUSH_ABSENT}3f");
    let copy = format!("60205f5f{PUSH_ABSENT}3c");
    let destruct = format!("{PUSH_ABSENT}ff");
    check(
        Fork::Osaka,
        &[
            ("SLOAD", "600154", 3, 997, 2_100),
            ("SLOAD", "6001545060015400", 2_108, 99, 100),
            ("SSTORE", "60015f556001600155", 22_111, 10_000, 22_100),
            ("SSTORE", "600154506002600155", 2_111, 10_000, 20_000),
            ("LOG1", "600760405fa1", 8, 1_000, 1_268),
            ("LOG0", "60205fa0", 5, 600, 634),
            ("LOG4", "5f5f5f5f60205fa4", 13, 1_900, 2_134),
            ("BALANCE", &balance, 3, 2_599, 2_600),
            ("EXTCODESIZE", &size, 3, 100, 2_600),
            ("EXTCODEHASH", &hash, 3, 100, 2_600),
            ("EXTCODECOPY", &copy, 10, 2_605, 2_606),
            ("MSTORE", "600161ffff52", 6, 14_349, 14_350),
            ("MSTORE8", "600161ffff53", 6, 14_000, 14_339),
            ("MLOAD", "61ffff51", 3, 14_000, 14_350),
            ("EXP", "61ffff60020a", 6, 109, 110),
            ("KECCAK256", "6104005f20", 5, 300, 320),
            ("CALLDATACOPY", "6101005f5f37", 7, 50, 51),
            ("CODECOPY", "6101005f5f39", 7, 50, 51),
            ("RETURNDATACOPY", "6101005f5f3e", 7, 50, 51),
            ("MCOPY", "60205f60e05e", 8, 29, 30),
            ("MCOPY", "602060e05f5e", 8, 29, 30),
            ("TLOAD", "5f5c", 2, 99, 100),
            ("TSTORE", "5f5f5d", 4, 99, 100),
            ("CREATE", "60205f5ff0", 7, 32_004, 32_005),
            ("CREATE2", "5f60205f5ff5", 9, 32_010, 32_011),
            ("SELFDESTRUCT", &destruct, 3, 32_599, 32_600),
            ("RETURN", "6104005ff3", 5, 97, 98),
            ("REVERT", "6104005ffd", 5, 97, 98),
            ("JUMP", "5f56", 2, 7, 8),
            ("ADD", "600160020101", 6, 2, 3),
            // The square of the words needs all 64 bits: KECCAK256(91, 115,618,835,307), MLOAD(2^37 - 64).
            (
                "KECCAK256",
                "641aeb6b6b6b605b20",
                6,
                5_000,
                25_496_925_646_768_569,
            ),
            ("MLOAD", "641fffffffc051", 3, 5_000, 36_028_809_887_088_640),
        ],
    );
}

#[test]
fn opcode_without_gas_for_its_constant_part_costs_that() {
    let balance = format!("{PUSH_ABSENT}31");
    let destruct = format!("{PUSH_ABSENT}ff");
    check(
        Fork::Osaka,
        &[
            ("BALANCE", &balance, 3, 99, 100),
            ("MSTORE", "600161ffff52", 6, 2, 3),
            ("KECCAK256", "6104005f20", 5, 29, 30),
            ("CREATE", "60205f5ff0", 7, 31_999, 32_000),
            // Not enough gas for the cold account: whether it would be created is not read.
            ("SELFDESTRUCT", &destruct, 3, 7_599, 5_000),
            // These have no constant part.
            ("LOG1", "600760405fa1", 8, 10, 1_268),
            ("SLOAD", "600154", 3, 1, 2_100),
            ("EXP", "61ffff60020a", 6, 1, 110),
        ],
    );
}

#[test]
fn sstore_with_2300_gas_left_costs_0() {
    check(
        Fork::Osaka,
        &[
            ("SSTORE", "6001600155", 6, 2_300, 0),
            ("SSTORE", "6001600155", 6, 2_301, 22_100),
        ],
    );
    check(
        Fork::Byzantium,
        &[("SSTORE", "6001600155", 6, 2_300, 20_000)],
    );
}

#[test]
fn call_out_of_gas_costs_its_constant_part_from_prague() {
    // CALL(gas 0, absent, value 1).
    let call = format!("60006000600060006001{PUSH_ABSENT}6000f1");
    let delegating = format!("6000600060006000{PUSH_DELEGATING}5afa");
    check(
        Fork::Osaka,
        &[
            ("CALL", &call, 21, 2_599, 100),
            ("CALL", &call, 21, 10_000, 100),
            ("CALL", &call, 21, 36_599, 100),
            // The gas covers the account, but not the one that it delegates to.
            ("STATICCALL", &delegating, 17, 5_199, 100),
        ],
    );
    check(
        Fork::London,
        &[
            ("CALL", &call, 21, 2_599, 100),
            ("CALL", &call, 21, 10_000, 100),
            // The new account is read, and part of the cost.
            ("CALL", &call, 21, 36_599, 36_600),
        ],
    );
    // CALL(gas 10000, other, value 0): before EIP-150 no 64th is kept.
    let call = format!("60006000600060006000{PUSH_OTHER}612710f1");
    check(Fork::Frontier, &[("CALL", &call, 21, 5_000, 10_040)]);
}

/// Records the cost of the last opcode, in Besu's order.
#[derive(Default)]
struct AsBesu {
    gas: i64,
    cost: i64,
}

impl Tracer for AsBesu {
    fn cost_order(&self) -> CostOrder {
        CostOrder::Besu
    }

    fn step(&mut self, step: &Step<'_>) {
        self.gas = step.gas();
    }

    fn step_end(&mut self, gas_left: i64, _: i64) {
        self.cost = self.gas - gas_left;
    }
}

#[test]
fn besu_order_adds_state_independent_costs_first() {
    let balance = format!("{PUSH_ABSENT}31");
    let destruct = format!("{PUSH_ABSENT}ff");
    let call = format!("60006000600060006001{PUSH_ABSENT}6000f1");
    let delegating = format!("6000600060006000{PUSH_DELEGATING}5afa");
    let frontier = format!("60006000600060006000{PUSH_OTHER}612710f1");
    for (fork, code, gas, cost) in [
        (Fork::Osaka, balance.as_str(), 3 + 50, 2_600),
        (Fork::Osaka, &destruct, 3 + 7_599, 7_600),
        (Fork::Osaka, &destruct, 3 + 7_600, 32_600),
        (Fork::Istanbul, &destruct, 3 + 4_999, 5_000),
        (Fork::Osaka, &call, 21 + 11_599, 11_600),
        (Fork::Osaka, &call, 21 + 11_600, 36_600),
        (Fork::Osaka, &delegating, 17 + 5_199, 5_200),
        (Fork::Frontier, &frontier, 21 + 5_000, 10_040),
        (Fork::Osaka, "6001600155", 6 + 2_300, 2_300),
        (Fork::Osaka, "60205f5ff0", 7 + 500, 32_005),
    ] {
        let mut tracer = AsBesu::default();
        run(fork, code, gas, &mut tracer);
        assert_eq!(tracer.cost, cost, "{fork} {code} {gas}");
    }
}

#[test]
fn memory_beyond_2_37_bytes_and_stack_underflow_cost_the_constant_part() {
    check(
        Fork::Osaka,
        &[
            // MSTORE(2^64 - 1, 1), MLOAD(2^37), RETURN(0, 2^64).
            ("MSTORE", "600167ffffffffffffffff52", 6, 5_000, 3),
            ("MLOAD", "64200000000051", 3, 5_000, 3),
            ("RETURN", "680100000000000000005ff3", 5, 5_000, 0),
            ("LOG0", "680100000000000000005fa0", 5, 5_000, 0),
            // Init code beyond 49,152 bytes.
            ("CREATE", "61c0015f5ff0", 7, 90_000, 32_000),
            ("KECCAK256", "5f20", 2, 5_000, 30),
            ("LOG1", "5f5fa1", 4, 5_000, 0),
            ("SLOAD", "54", 0, 5_000, 0),
            ("BALANCE", "31", 0, 5_000, 100),
            ("SELFDESTRUCT", "ff", 0, 5_500, 5_000),
            ("ADD", "5f01", 2, 5_000, 3),
            ("INVALID", "fe", 0, 5_000, 0),
            ("JUMP", "600756", 3, 5_000, 8),
            ("RETURNDATACOPY", "60205f5f3e", 7, 5_000, 9),
        ],
    );
}

#[test]
fn write_in_static_call_costs_its_constant_part() {
    // STATICCALL(all but a 64th, itself): with 32 bytes of input it writes.
    for (name, code, cost) in [
        ("SSTORE", "5f5f55", "0x0"),
        ("TSTORE", "5f5f5d", "0x64"),
        ("LOG1", "5f60205fa1", "0x3f1"),
        ("CREATE", "5f5f5ff0", "0x7d00"),
        ("SELFDESTRUCT", "5fff", "0x1388"),
    ] {
        let mut lines = Eip3155::new(Eip3155Options::default(), Vec::new());
        let code = format!("36600d575f5f60205f305afa005b{code}");
        run(Fork::Osaka, &code, 90_000, &mut lines);
        let text = String::from_utf8(lines.end().clone()).unwrap();
        let mut lines = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let write = lines.find(|line| line["opName"] == name).unwrap();
        assert_eq!(write["gasCost"], cost, "{write}");
        assert_eq!(write["error"], "write in a static context");
    }
}

#[test]
fn failing_opcode_adds_no_access_to_prestate() {
    let touched = |code: &str, gas: u64| {
        let mut touched = PrestateTracer::default();
        run(Fork::Osaka, code, gas, &mut touched);
        (touched.accounts, touched.called)
    };
    let absent = Address::with_last_byte(0xf2);
    let balance = format!("{PUSH_ABSENT}31");
    let call = format!("60006000600060006001{PUSH_ABSENT}6000f1");
    let destruct = format!("{PUSH_ABSENT}ff");
    for (code, gas) in [(&balance, 2_603), (&call, 36_621), (&destruct, 32_603)] {
        let (accounts, _) = touched(code, gas);
        assert!(accounts.contains_key(&absent), "{code}");
        let (accounts, called) = touched(code, gas - 1);
        assert!(accounts.is_empty() && called.is_empty(), "{code}");
    }
    assert_eq!(touched("600154", 2_103).0[&CALLEE].len(), 1);
    assert!(touched("600154", 2_102).0.is_empty());
    assert!(touched("54", 9_000).0.is_empty(), "no slot on the stack");
    // Accesses before the failure are kept.
    let two = format!("6001545060025460ff{balance}");
    let (accounts, _) = touched(&two, 4_300);
    assert_eq!(accounts.keys().collect::<Vec<_>>(), [&CALLEE]);
    assert_eq!(accounts[&CALLEE].len(), 2);
}
