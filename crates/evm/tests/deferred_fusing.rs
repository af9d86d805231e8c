//! Deferred fusing of hot code. The setting is per process, so this test is a binary of its own.
#![cfg(target_arch = "x86_64")]

use niwaki_evm::{
    BlockEnv, Evm, Message, Outcome, Table, Target, TxEnv, defer_fusing, fuse_hot_codes,
    set_hot_threshold,
};
use niwaki_primitives::{Address, Bytes, Fork, hex};
use niwaki_testkit::{MemoryAccount, MemoryState};

#[test]
fn hot_code_is_fused_once_by_fuse_hot_codes_after_2_runs() {
    let contract = Address::repeat_byte(0xc0);
    let mut state = MemoryState::default();
    // Adds one 20 times, and returns the sum.
    let code = "5f60145b90600101906001900380600357505f5260205ff3";
    let account = MemoryAccount {
        code: Bytes::from(hex::decode(code).unwrap()).into(),
        ..MemoryAccount::default()
    };
    state.insert(contract, account);
    let run = || -> Outcome {
        let mut evm = Evm::new(&state, Table::of(Fork::Osaka), BlockEnv::default());
        evm.begin_transaction(TxEnv::default());
        let message = Message {
            target: Target::Call(contract),
            gas: 100_000,
            ..Message::default()
        };
        evm.run(&message, None).unwrap()
    };
    defer_fusing();
    set_hot_threshold(2);
    let first = run();
    assert_eq!(first.output[31], 20);
    assert_eq!(fuse_hot_codes(), 0, "one run is below the threshold");
    assert_eq!(run(), first);
    assert_eq!(fuse_hot_codes(), 1);
    for _ in 0..40 {
        assert_eq!(run(), first);
    }
    assert_eq!(fuse_hot_codes(), 0, "fused already");
}
