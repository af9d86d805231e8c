//! The ready tracers, on two contracts that call each other.
#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]

use niwaki_evm::{
    BlockEnv, CallKind, Evm, Failure, Message, Outcome, Table, Target, Tracer, TxEnv,
    tracers::{CallOptions, CallTree, Eip3155, Eip3155End, Eip3155Options, PrestateTracer},
};
use niwaki_primitives::{Address, Bytes, Fork, U256, hex};
use niwaki_testkit::{MemoryAccount, MemoryState};

const CALLER: Address = Address::repeat_byte(0xca);
const CALLEE: Address = Address::repeat_byte(0xcb);

/// The caller passes its input to the callee, logs, and calls SHA-256; the callee reads a slot and reverts.
fn run(tracer: Option<&mut dyn Tracer>) -> Outcome {
    let caller = format!(
        "365f5f375f5f365f5f73{}5af1505f5fa05f5f5f5f60025afa5000",
        hex::encode(CALLEE)
    );
    let mut state = MemoryState::default();
    for (address, code) in [(CALLER, caller.as_str()), (CALLEE, "6007545f5ffd")] {
        let account = MemoryAccount {
            code: Bytes::from(hex::decode(code).unwrap()).into(),
            ..MemoryAccount::default()
        };
        state.insert(address, account);
    }
    let mut evm = Evm::new(&state, Table::of(Fork::Osaka), BlockEnv::default());
    evm.begin_transaction(TxEnv::default());
    let message = Message {
        target: Target::Call(CALLER),
        input: Bytes::from_static(&[1, 2, 3, 4, 5, 6]),
        gas: 200_000,
        ..Message::default()
    };
    evm.run(&message, tracer).unwrap()
}

fn tree(options: CallOptions) -> niwaki_evm::tracers::Call {
    let mut tree = CallTree::new(options);
    assert_eq!(run(Some(&mut tree)), run(None), "watched or not");
    assert!(!tree.is_too_large());
    tree.into_root().unwrap()
}

#[test]
fn call_tree_has_the_fields_of_call_tracer() {
    let root = tree(CallOptions {
        with_logs: true,
        ..CallOptions::default()
    });
    assert_eq!((root.from, root.to), (Address::ZERO, CALLER));
    assert_eq!(root.failure, None);
    assert_eq!(root.logs.len(), 1);
    assert_eq!(root.logs[0].position, 1, "one call came before it");
    let [callee, sha256] = root.calls.as_slice() else {
        panic!("two calls: {root:?}");
    };
    assert_eq!((callee.from, callee.to), (CALLER, CALLEE));
    assert_eq!(callee.input, root.input);
    assert_eq!(callee.failure, Some(Failure::Revert));
    assert_eq!(
        (sha256.kind, sha256.is_precompiled),
        (CallKind::StaticCall, true)
    );
    let mut addresses = Vec::new();
    root.each(|call, address| addresses.push((call.to, address.to_vec())));
    let sha256 = Address::with_last_byte(2);
    assert_eq!(
        addresses,
        [(CALLER, vec![]), (CALLEE, vec![0]), (sha256, vec![1])]
    );
    let selectors = root.selectors();
    assert_eq!(
        selectors.into_iter().collect::<Vec<_>>(),
        [(([1, 2, 3, 4], 2), 2)]
    );
}

#[test]
fn options_leave_out_inner_calls_logs_and_precompiled_contracts() {
    let top = tree(CallOptions {
        only_top: true,
        ..CallOptions::default()
    });
    assert!(top.calls.is_empty() && top.logs.is_empty());
    let plain = tree(CallOptions {
        without_precompiled: true,
        ..CallOptions::default()
    });
    assert_eq!(plain.calls.len(), 1);
}

#[test]
fn prestate_tracer_records_accessed_accounts_and_slots() {
    let mut touched = PrestateTracer::default();
    run(Some(&mut touched));
    assert_eq!(
        touched.accounts[&CALLEE].iter().collect::<Vec<_>>(),
        [&U256::from(7)]
    );
    let called: Vec<Address> = touched.called.into_iter().collect();
    assert_eq!(called, [Address::with_last_byte(2), CALLEE]);
}

#[test]
fn eip_3155_lines_match() {
    let mut lines = Eip3155::new(Eip3155Options::default(), Vec::new());
    let outcome = run(Some(&mut lines));
    let written = lines.finish(Eip3155End {
        state_root: None,
        output: &outcome.output,
        gas_used: 200_000 - outcome.gas_left,
        exit: outcome.exit,
        fork: "Osaka",
    });
    let lines: Vec<serde_json::Value> = String::from_utf8(written)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let first = serde_json::json!({
        "pc": 0, "op": 0x36, "gas": "0x30d40", "gasCost": "0x2", "stack": [], "depth": 1,
        "returnData": "0x", "refund": 0, "memSize": 0, "opName": "CALLDATASIZE",
    });
    assert_eq!(lines[0], first);
    let reverted = lines
        .iter()
        .find(|line| line["opName"] == "REVERT")
        .unwrap();
    assert_eq!(reverted["depth"], 2);
    assert_eq!(reverted["error"], "execution reverted");
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["pass"], &last["fork"]),
        (&true.into(), &"Osaka".into())
    );
}
