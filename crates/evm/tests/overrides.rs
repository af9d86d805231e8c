//! Tables with host opcodes, guards, prices and contracts: same results on every dispatch and with every amount of gas.
#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]

use niwaki_evm::{
    BlockEnv, CallEnd, ContractCall, ContractOutput, Dispatch, Evm, Exit, Flow, HaltReason,
    HostError, Message, OpcodeInfo, Outcome, Step, Table, Target, Tracer, TxEnv,
};
use niwaki_primitives::{Address, Bytes, Fault, Fork, Log, U256, hex};
use niwaki_testkit::{MemoryAccount, MemoryState};
use std::sync::Arc;

const CONTRACT: Address = Address::repeat_byte(0xc0);
/// The address of the host contract.
const OWN: Address = Address::repeat_byte(0x0e);
const GAS: u64 = 200_000;
/// Adds 1 to the top word 20 times in a loop and returns it: hot after a few runs, and mostly superinstructions.
const LOOP: &str = "5f60145b90600101906001900380600357505f5260205ff3";
const RETURN_TOP: &str = "5f5260205ff3";

fn info(input: usize, output: usize, immediate: usize) -> OpcodeInfo {
    OpcodeInfo {
        mnemonic: "OWN",
        input,
        output,
        immediate,
    }
}

fn osaka() -> Table {
    Table::of(Fork::Osaka).clone()
}

/// How a host contract ends.
type End = fn() -> Result<ContractOutput, HostError>;

struct Run {
    outcome: Result<Outcome, Fault>,
    slot: U256,
    logs: usize,
}

/// Runs `code` until it is hot; returns the last run.
fn run_on(table: &Table, code: &str, gas: u64, dispatch: Dispatch) -> Run {
    let mut state = MemoryState::default();
    let account = MemoryAccount {
        nonce: 1,
        balance: U256::from(10),
        code: Bytes::from(hex::decode(code).unwrap()).into(),
        ..MemoryAccount::default()
    };
    state.insert(CONTRACT, account);
    let run = || {
        let mut evm = Evm::new(&state, table, BlockEnv::default());
        evm.set_dispatch(dispatch);
        evm.begin_transaction(TxEnv::default());
        let target = Target::Call(CONTRACT);
        let message = Message {
            target,
            gas,
            ..Message::default()
        };
        let outcome = evm.run(&message, None);
        let world = evm.world();
        let account = world.load(&CONTRACT).unwrap();
        let slot = world.slot(account, U256::ZERO).unwrap();
        Run {
            outcome,
            slot: world.slot_value(slot),
            logs: world.logs().len(),
        }
    };
    for _ in 0..5 {
        run();
    }
    run()
}

/// The run, which must be the same on every dispatch.
fn run(table: &Table, code: &str, gas: u64) -> Run {
    let runs = Dispatch::ALL.map(|dispatch| run_on(table, code, gas, dispatch));
    for other in &runs[1..] {
        let of = |run: &Run| format!("{:?} {} {}", run.outcome, run.slot, run.logs);
        assert_eq!(of(other), of(&runs[0]), "{code} with {gas} gas");
    }
    runs.into_iter().next().unwrap()
}

fn outcome(table: &Table, code: &str) -> Outcome {
    run(table, code, GAS).outcome.unwrap()
}

fn result(table: &Table, code: &str) -> U256 {
    let outcome = outcome(table, code);
    assert_eq!(outcome.exit, Exit::Return, "{code}");
    U256::from_be_slice(&outcome.output)
}

/// A table with SQUARE at `opcode`.
fn with_square(opcode: u8) -> Table {
    let mut table = osaka();
    table.set_opcode(opcode, info(1, 1, 0), 4, |machine| {
        let word = machine.pop()?;
        machine.push(word.wrapping_mul(word))?;
        Ok(Flow::Next)
    });
    table
}

#[test]
fn host_opcode_squares_at_any_byte_between_stock_opcodes() {
    // Unused bytes, one of them a superinstruction's, and stock opcodes that are fused and not.
    for opcode in [
        0x0c, 0x0d, 0x21, 0xa5, 0xe0, 0xe6, 0xfe, 0x20, 0x54, 0x64, 0x01, 0x5b, 0x56,
    ] {
        let code = format!("6003{opcode:02x}600201600101{RETURN_TOP}");
        let code = if opcode == 0x01 {
            format!("600301{RETURN_TOP}")
        } else {
            code
        };
        let expected = if opcode == 0x01 { 9 } else { 12 };
        assert_eq!(result(&with_square(opcode), &code), U256::from(expected));
    }
    assert_eq!(
        outcome(Table::of(Fork::Osaka), "60030c").exit,
        Exit::Halt(HaltReason::UndefinedOpcode(0x0c)),
        "the fork's own table is as it was"
    );
}

/// Fusing skips operands. A byte that is an operand on the stock table but an opcode on this one must be fused.
#[test]
fn former_operand_bytes_of_push5_run_as_opcodes() {
    let table = with_square(0xe6);
    for (code, undefined) in [("6001e60c0080", 0x0c), ("6001e6a500", 0xa5)] {
        let exit = outcome(&table, code).exit;
        assert_eq!(
            exit,
            Exit::Halt(HaltReason::UndefinedOpcode(undefined)),
            "{code}"
        );
    }
    // Instead of PUSH5.
    let exit = outcome(&with_square(0x64), "6001640c0c0c0c0c").exit;
    assert_eq!(exit, Exit::Halt(HaltReason::UndefinedOpcode(0x0c)));
    let mut table = with_square(0xe6);
    table.set_opcode(0x0c, info(0, 0, 0), 0, |_| Ok(Flow::Stop));
    assert_eq!(outcome(&table, "6001e60c").exit, Exit::Stop);
}

#[test]
fn end_of_code_stops_although_stop_is_replaced() {
    let mut table = osaka();
    table.set_opcode(0x00, info(0, 1, 0), 0, |machine| {
        machine.push(U256::from(9))?;
        Ok(Flow::Next)
    });
    assert_eq!(outcome(&table, "5b").exit, Exit::Stop);
    assert_eq!(result(&table, &format!("00{RETURN_TOP}")), U256::from(9));
    table.set_guard(0x00, |machine| Ok(machine.charge(1)?));
    assert_eq!(outcome(&table, "5b").exit, Exit::Stop);
}

#[test]
fn guard_does_not_run_after_gas_has_run_out() {
    let mut table = osaka();
    table.set_guard(0x00, |machine| Ok(machine.charge(1)?));
    // PUSH1 JUMP JUMPDEST cost 12, and the guard 1.
    for gas in 0..13 {
        let run = run(&table, "6003565b00", gas).outcome.unwrap();
        assert_eq!(run.exit, Exit::Halt(HaltReason::OutOfGas), "{gas}");
    }
    let run = run(&table, "6003565b00", 13).outcome.unwrap();
    assert_eq!((run.exit, run.gas_left), (Exit::Stop, 0));
}

#[test]
fn price_of_u32_max_halts_an_opcode_in_superinstructions_too() {
    let mut table = osaka();
    table.set_static_gas(0x60, i64::from(u32::MAX));
    for code in ["60016002", "6001600201"] {
        assert_eq!(outcome(&table, code).exit, Exit::Halt(HaltReason::OutOfGas));
    }
}

#[test]
fn host_opcode_checks_gas_and_stack_like_stock_opcodes() {
    let table = with_square(0x0c);
    let code = format!("60030c{RETURN_TOP}");
    let needed = GAS - outcome(&table, &code).gas_left;
    assert_eq!(needed, 3 + 4 + 2 + 3 + 3 + 3 + 2);
    for gas in 0..needed {
        let run = run(&table, &code, gas).outcome.unwrap();
        assert_eq!(run.exit, Exit::Halt(HaltReason::OutOfGas), "{gas}");
        assert_eq!(run.gas_left, 0);
    }
    assert_eq!(run(&table, &code, needed).outcome.unwrap().gas_left, 0);
    assert_eq!(
        outcome(&table, "0c").exit,
        Exit::Halt(HaltReason::StackUnderflow)
    );
    let mut puts_one = osaka();
    puts_one.set_opcode(0x0c, info(0, 1, 0), 1, |machine| {
        machine.push(U256::ONE)?;
        Ok(Flow::Next)
    });
    let full = |words: usize| format!("{}00", "0c".repeat(words));
    assert_eq!(outcome(&puts_one, &full(1024)).exit, Exit::Stop);
    let over = outcome(&puts_one, &full(1025)).exit;
    assert_eq!(over, Exit::Halt(HaltReason::StackOverflow));
}

#[test]
fn pops_and_pushes_beyond_the_declared_words_halt() {
    let mut table = osaka();
    table.set_opcode(0x0c, info(0, 0, 0), 0, |machine| {
        machine.pop()?;
        Ok(Flow::Next)
    });
    table.set_opcode(0x0d, info(0, 0, 0), 0, |machine| {
        loop {
            machine.push(U256::MAX)?;
        }
    });
    assert_eq!(
        outcome(&table, "0c").exit,
        Exit::Halt(HaltReason::StackUnderflow)
    );
    assert_eq!(
        outcome(&table, "0d").exit,
        Exit::Halt(HaltReason::StackOverflow)
    );
}

#[test]
fn operand_is_read_as_deployed_and_skipped() {
    for opcode in [0x0c, 0x20] {
        let mut table = osaka();
        table.set_opcode(opcode, info(0, 1, 2), 3, |machine| {
            let operand: [u8; 2] = machine.operand();
            machine.push(U256::from(u16::from_be_bytes(operand)))?;
            Ok(Flow::Next)
        });
        // The operand is also the start of a sequence.
        let code = format!("{opcode:02x}6001600101{RETURN_TOP}");
        assert_eq!(result(&table, &code), U256::from(0x6002));
        let at_the_end = outcome(&table, &format!("{opcode:02x}"));
        assert_eq!(at_the_end.exit, Exit::Stop, "the code is followed by zeros");
    }
}

#[test]
fn host_opcode_ends_the_frame_by_stop_return_revert_halt_and_fault() {
    let ends = |flow: fn() -> Result<Flow, HostError>| {
        let mut table = osaka();
        table.set_opcode(0x0c, info(0, 0, 0), 0, move |_| flow());
        run(&table, "602a5f520c00", GAS)
    };
    assert_eq!(ends(|| Ok(Flow::Stop)).outcome.unwrap().exit, Exit::Stop);
    let returned = ends(|| {
        Ok(Flow::Return {
            offset: U256::ZERO,
            length: U256::from(64),
        })
    });
    let returned = returned.outcome.unwrap();
    assert_eq!(returned.exit, Exit::Return);
    assert_eq!(returned.output.len(), 64);
    assert_eq!(returned.output[31], 0x2a);
    // PUSH1 PUSH0 MSTORE with a word, and a second word of memory.
    assert_eq!(returned.gas_left, GAS - (3 + 2 + 3 + 3) - 3);
    let reverted = ends(|| {
        Ok(Flow::Revert {
            offset: U256::from(31),
            length: U256::ONE,
        })
    });
    assert_eq!(reverted.outcome.unwrap().output.as_ref(), [0x2a]);
    let far = ends(|| {
        Ok(Flow::Return {
            offset: U256::MAX,
            length: U256::ONE,
        })
    });
    assert_eq!(far.outcome.unwrap().exit, Exit::Halt(HaltReason::OutOfGas));
    let halted = ends(|| Err(HaltReason::Host("no").into()));
    assert_eq!(
        halted.outcome.unwrap().exit,
        Exit::Halt(HaltReason::Host("no"))
    );
    let fault = ends(|| {
        Err(HostError::Fault(Fault::Missing {
            segment: "test",
            key: "none".into(),
        }))
    });
    assert!(fault.outcome.is_err());
}

#[test]
fn changed_prices_are_charged_in_superinstructions() {
    let stock = GAS - outcome(Table::of(Fork::Osaka), LOOP).gas_left;
    let mut table = osaka();
    for (opcode, more) in [(0x01, 97), (0x60, 10), (0x5b, 1_000), (0x57, 5)] {
        let price = table.static_gas(opcode) + more;
        table.set_static_gas(opcode, price);
    }
    // 20 iterations with an ADD, three PUSH1, a JUMPDEST and a JUMPI each, and a PUSH1 before and after.
    let dear = GAS - outcome(&table, LOOP).gas_left;
    assert_eq!(
        dear - stock,
        20 * 97 + (1 + 3 * 20 + 1) * 10 + 20 * 1_000 + 20 * 5
    );
    for gas in [0, 100, 1_000, dear - 1] {
        let short = run(&table, LOOP, gas).outcome.unwrap();
        assert_eq!(short.exit, Exit::Halt(HaltReason::OutOfGas));
    }
    let mut table = osaka();
    table.change_schedule(|prices| prices.cold_slot = 77);
    assert_eq!(GAS - outcome(&table, "5f54").gas_left, 2 + 100 + 77);
}

#[test]
fn guard_runs_before_gas_and_stack_checks_of_its_opcode() {
    // Before SSTORE in hot code: it can read and change the operands.
    let mut table = osaka();
    table.set_guard(0x55, |machine| {
        let (key, value) = (machine.pop()?, machine.pop()?);
        machine.push(value + U256::ONE)?;
        machine.push(key)?;
        machine.charge(1_000)?;
        Ok(())
    });
    let stock = outcome(Table::of(Fork::Osaka), "60075f55");
    let guarded = run(&table, "60075f55", GAS);
    assert_eq!(guarded.slot, U256::from(8));
    assert_eq!(guarded.outcome.unwrap().gas_left, stock.gas_left - 1_000);
    // Here the guard detects stack underflow; the opcode does if the guard reads nothing.
    assert_eq!(
        outcome(&table, "5f55").exit,
        Exit::Halt(HaltReason::StackUnderflow)
    );

    // Before an opcode that is fused, and before a host opcode.
    let mut table = with_square(0x0c);
    for opcode in [0x01, 0x0c] {
        table.set_guard(opcode, |machine| {
            let log = Log::new_unchecked(machine.address(), vec![], Bytes::new());
            machine.state().log(log)
        });
    }
    let run = run(&table, LOOP, GAS);
    assert_eq!(run.logs, 20);
    assert_eq!(run.outcome.unwrap().output[31], 20);
    let code = format!("60030c{RETURN_TOP}");
    assert_eq!(result(&table, &code), U256::from(9));

    let mut table = osaka();
    table.set_guard(0xff, |_| Err(HaltReason::Host("no contract goes").into()));
    table.set_opcode(0xff, info(0, 0, 0), 0, |_| Ok(Flow::Stop));
    let refused = outcome(&table, "5fff").exit;
    assert_eq!(refused, Exit::Halt(HaltReason::Host("no contract goes")));
}

/// Calls the host contract with the word 5; returns success and output.
fn call_host(opcode: &str) -> String {
    let value = if opcode == "f1" { "6003" } else { "" };
    format!(
        "60055f5260206020{}{value}73{}61c350{opcode}5f5260405ff3",
        "60205f",
        hex::encode(OWN)
    )
}

fn with_contract(
    contract: impl Fn(ContractCall<'_>) -> Result<ContractOutput, HostError> + Send + Sync + 'static,
) -> Table {
    let mut table = osaka();
    table.set_precompile(OWN, Some(Arc::new(contract)));
    table
}

#[test]
fn host_contract_runs_by_all_four_calls() {
    let table = with_contract(|call| {
        assert_eq!(call.gas, if call.value.is_zero() { 50_000 } else { 52_300 });
        let number = U256::from_be_slice(call.input);
        let is_own = U256::from(call.address == OWN);
        let output = Bytes::from((number * number + is_own).to_be_bytes_vec());
        Ok(ContractOutput {
            gas_used: 500,
            output,
            reverts: false,
        })
    });
    for (opcode, expected) in [("f1", 26), ("fa", 26), ("f4", 25)] {
        let outcome = outcome(&table, &call_host(opcode));
        assert_eq!(outcome.exit, Exit::Return, "{opcode}");
        let words: Vec<U256> = outcome.output.chunks(32).map(U256::from_be_slice).collect();
        assert_eq!(words, [U256::ONE, U256::from(expected)], "{opcode}");
    }
    // Warm from the start, as all precompiled contracts: the call costs 100.
    let used = GAS - outcome(&table, &call_host("fa")).gas_left;
    let pushes = 3 + 2 + 3 + 3 + (2 * 3 + 3 + 2 + 3 + 3) + (2 + 3 + 3 + 2);
    assert_eq!(used, 100 + 500 + pushes + 3);
}

#[test]
fn changes_of_a_failing_host_contract_are_reverted() {
    let writes = |end: End| {
        with_contract(move |mut call| {
            call.state
                .set_storage(&CONTRACT, U256::ZERO, U256::from(9))?;
            call.state.set_balance(&OWN, U256::from(100))?;
            let log = Log::new_unchecked(OWN, vec![], Bytes::new());
            call.state.log(log)?;
            end()
        })
    };
    // How it ends, its gas, and whether its changes are kept.
    let ends: [(End, u64, bool); 4] = [
        (|| Ok(ContractOutput::default()), 0, true),
        (
            || {
                Ok(ContractOutput {
                    gas_used: 10,
                    output: Bytes::from_static(b"why"),
                    reverts: true,
                })
            },
            10,
            false,
        ),
        (|| Err(HaltReason::Host("no").into()), 50_000, false),
        (
            || {
                Ok(ContractOutput {
                    gas_used: 50_001,
                    ..ContractOutput::default()
                })
            },
            50_000,
            false,
        ),
    ];
    let idle = with_contract(|_| Ok(ContractOutput::default()));
    let idle = outcome(&idle, &call_host("f4")).gas_left;
    for (at, (end, used, stays)) in ends.into_iter().enumerate() {
        let run = run(&writes(end), &call_host("f4"), GAS);
        assert_eq!(run.slot, U256::from(if stays { 9 } else { 0 }), "{at}");
        assert_eq!(run.logs, usize::from(stays), "{at}");
        let outcome = run.outcome.unwrap();
        assert_eq!(outcome.output[31], u8::from(stays), "{at}");
        assert_eq!(idle - outcome.gas_left, used, "{at}");
    }
    let writes = writes(|| Ok(ContractOutput::default()));
    let in_static = run(&writes, &call_host("fa"), GAS);
    assert_eq!(
        in_static.slot,
        U256::ZERO,
        "nothing is written within STATICCALL"
    );
    assert_eq!(in_static.outcome.unwrap().output[31], 0);
}

#[test]
fn precompiled_contract_of_the_fork_can_be_removed() {
    // SHA-256 of the empty input.
    let code = "60205f5f5f600261fffffa3d5f5260205ff3";
    assert_eq!(result(Table::of(Fork::Osaka), code), U256::from(32));
    let mut table = osaka();
    let sha256 = Address::with_last_byte(2);
    table.set_precompile(sha256, None);
    assert_eq!(result(&table, code), U256::ZERO);
    // And replaced by another one.
    for byte in [9, 1, 5] {
        table.set_precompile(Address::repeat_byte(byte), None);
    }
    let empty = Arc::new(|_: ContractCall<'_>| {
        let output = Bytes::from_static(&[0; 7]);
        Ok(ContractOutput {
            output,
            ..ContractOutput::default()
        })
    });
    table.set_precompile(sha256, Some(empty));
    assert_eq!(result(&table, code), U256::from(7));
}

#[test]
fn host_opcode_reads_state_and_transfers_wei() {
    let mut table = osaka();
    table.set_opcode(0x0c, info(0, 1, 0), 0, |machine| {
        let (own, other) = (machine.address(), Address::repeat_byte(0x77));
        let mut state = machine.state();
        assert_eq!(state.account(&other)?, None);
        assert_eq!(state.code(&other)?, Bytes::new());
        assert!(state.code(&own)?.starts_with(&[0x0c]));
        assert!(!state.transfer(&own, &other, U256::from(11))?);
        assert!(state.transfer(&own, &other, U256::from(4))?);
        let mut balance = |address| -> Result<U256, Fault> {
            Ok(state
                .account(address)?
                .map_or(U256::ZERO, |account| account.balance))
        };
        assert_eq!(
            (balance(&own)?, balance(&other)?),
            (U256::from(6), U256::from(4))
        );
        state.set_storage(&own, U256::ZERO, U256::from(5))?;
        let stored = state.storage(&own, U256::ZERO)?;
        assert_eq!(
            (machine.pc(), machine.opcode(), machine.depth()),
            (0, 0x0c, 0)
        );
        machine.push(stored)?;
        Ok(Flow::Next)
    });
    assert_eq!(result(&table, &format!("0c{RETURN_TOP}")), U256::from(5));
}

#[derive(Default)]
struct Names {
    names: Vec<&'static str>,
    failures: Vec<Option<String>>,
}

impl Tracer for Names {
    fn step(&mut self, step: &Step<'_>) {
        self.names.push(step.mnemonic().unwrap_or("none"));
    }

    fn exit(&mut self, left: &CallEnd<'_>) {
        self.failures
            .push(left.failure.map(|failure| failure.to_string()));
    }
}

#[test]
fn tracer_sees_host_opcodes() {
    let mut table = with_square(0x0c);
    let reverts = Arc::new(|_: ContractCall<'_>| {
        Ok(ContractOutput {
            reverts: true,
            ..ContractOutput::default()
        })
    });
    table.set_precompile(OWN, Some(reverts));
    let mut state = MemoryState::default();
    let code = format!("60030c{}", call_host("f4"));
    let code: Bytes = hex::decode(code).unwrap().into();
    let account = MemoryAccount {
        code: code.into(),
        ..MemoryAccount::default()
    };
    state.insert(CONTRACT, account);
    let mut evm = Evm::new(&state, &table, BlockEnv::default());
    evm.begin_transaction(TxEnv::default());
    let message = Message {
        target: Target::Call(CONTRACT),
        gas: GAS,
        ..Message::default()
    };
    let mut names = Names::default();
    evm.run(&message, Some(&mut names)).unwrap();
    assert_eq!(names.names[..2], ["PUSH1", "OWN"]);
    assert_eq!(
        names.failures,
        [Some("execution reverted".to_string()), None]
    );
}
