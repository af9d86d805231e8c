//! A chain with a host opcode, a host contract and a changed price, based on a fork's table.
//!
//! `cargo run -p niwaki-evm --example custom_chain`

use niwaki_evm::{
    BlockEnv, ContractOutput, Evm, Flow, HaltReason, Message, OpcodeInfo, Table, Target, TxEnv,
};
use niwaki_primitives::{Address, Bytes, Fork, U256};
use niwaki_testkit::{MemoryAccount, MemoryState};
use std::sync::Arc;

const SQUARE: OpcodeInfo = OpcodeInfo {
    mnemonic: "SQUARE",
    input: 1,
    output: 1,
    immediate: 0,
};

/// Osaka with SQUARE (0x0c), a counter of its calls at 0x..0c0ffee, SLOADs for 7 gas, and no SELFDESTRUCT.
fn table() -> Table {
    let mut table = Table::of(Fork::Osaka).clone();
    table.set_opcode(0x0c, SQUARE, 4, |machine| {
        let word = machine.pop()?;
        machine.push(word.wrapping_mul(word))?;
        Ok(Flow::Next)
    });
    let counter = Arc::new(|mut call: niwaki_evm::ContractCall<'_>| {
        let calls = call.state.storage(&call.address, U256::ZERO)? + U256::ONE;
        call.state.set_storage(&call.address, U256::ZERO, calls)?;
        let output = Bytes::from(calls.to_be_bytes_vec());
        Ok(ContractOutput {
            gas_used: 100,
            output,
            reverts: false,
        })
    });
    table.set_precompile(
        Address::left_padding_from(&[0xc0, 0xff, 0xee]),
        Some(counter),
    );
    table.set_static_gas(0x54, 7);
    table.set_guard(0xff, |_| Err(HaltReason::Host("no contract goes").into()));
    table
}

fn main() {
    // SQUARE of 12, plus what the counter says: PUSH1 12 SQUARE, CALL into memory, MLOAD ADD, return it.
    let code =
        "600c0c 60206000600060006000 62c0ffee 5af150 600051 01 600052 60206000f3".replace(' ', "");
    let contract = Address::repeat_byte(0xc0);
    let code = Bytes::from(niwaki_primitives::hex::decode(code).expect("hex"));
    let mut state = MemoryState::default();
    state.insert(
        contract,
        MemoryAccount {
            code: code.into(),
            ..MemoryAccount::default()
        },
    );

    // An account with nothing but storage would be cleared as empty (EIP-161).
    let counter = Address::left_padding_from(&[0xc0, 0xff, 0xee]);
    state.insert(
        counter,
        MemoryAccount {
            nonce: 1,
            ..MemoryAccount::default()
        },
    );

    let table = table();
    let mut evm = Evm::new(&state, &table, BlockEnv::default());
    for _ in 0..3 {
        evm.begin_transaction(TxEnv::default());
        let target = Target::Call(contract);
        let message = Message {
            target,
            gas: 100_000,
            ..Message::default()
        };
        let outcome = evm
            .run(&message, None)
            .expect("a state in memory can be read");
        let (used, result) = (
            100_000 - outcome.gas_left,
            U256::from_be_slice(&outcome.output),
        );
        println!("{:?}: {result} for {used} gas", outcome.exit);
        evm.world().end_transaction();
    }
}
