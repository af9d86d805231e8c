//! Transactions of a chain with opcodes of its own.

use niwaki_evm::{Exit, Flow, HaltReason, OpcodeInfo, Table};
use niwaki_execution::Executor;
use niwaki_primitives::{
    Address, Bytes, Fork, Header, SignableTransaction, Signature, TxEip1559, TxEnvelope, TxKind,
    U256,
};
use niwaki_rules::ChainSpec;
use niwaki_testkit::{MemoryAccount, MemoryState};

const SENDER: Address = Address::repeat_byte(0x5e);
const CONTRACT: Address = Address::repeat_byte(0xc0);

fn call(nonce: u64) -> TxEnvelope {
    let tx = TxEip1559 {
        chain_id: 1,
        nonce,
        gas_limit: 100_000,
        max_fee_per_gas: 1,
        to: TxKind::Call(CONTRACT),
        ..TxEip1559::default()
    };
    let signature = Signature::new(U256::from(1), U256::from(1), false);
    tx.into_signed(signature).into()
}

#[test]
fn transactions_run_on_the_table_that_an_executor_was_given() {
    let mut state = MemoryState::default();
    let code = Bytes::from_static(&[0x0c, 0x5f, 0x55]);
    let contract = MemoryAccount {
        code: code.into(),
        ..MemoryAccount::default()
    };
    state.insert(CONTRACT, contract);
    let sender = MemoryAccount {
        balance: U256::from(10_000_000),
        ..MemoryAccount::default()
    };
    state.insert(SENDER, sender);
    let spec = ChainSpec::single(1, Fork::Osaka);
    let header = Header {
        gas_limit: 30_000_000,
        base_fee_per_gas: Some(1),
        excess_blob_gas: Some(0),
        ..Header::default()
    };
    let mut table = Table::of(Fork::Osaka).clone();
    let info = OpcodeInfo {
        mnemonic: "TIMES",
        input: 0,
        output: 1,
        immediate: 0,
    };
    table.set_opcode(0x0c, info, 700, |machine| {
        let address = machine.address();
        let stored = machine.state().storage(&address, U256::ZERO)?;
        machine.push(stored + U256::from(1))?;
        Ok(Flow::Next)
    });
    let mut executor = Executor::with_table(&spec, &header, &state, &table);
    // The first write sets a slot, the second changes it; each finds it cold.
    for (nonce, store) in [(0, 22_100), (1, 5_000)] {
        let result = executor.process_transaction(&call(nonce), SENDER, None);
        let result = result.unwrap();
        assert_eq!(result.exit, Exit::Stop);
        assert_eq!(result.gas_used, 21_000 + 700 + 2 + store, "{nonce}");
    }
    let diff = executor.diff();
    let contract = diff.accounts.iter().find(|(at, _)| *at == CONTRACT);
    let slots = &contract.unwrap().1.slots;
    assert_eq!(slots[0].1.new, U256::from(2));

    let mut stock = Executor::new(&spec, &header, &state);
    let result = stock.process_transaction(&call(0), SENDER, None).unwrap();
    assert_eq!(result.exit, Exit::Halt(HaltReason::UndefinedOpcode(0x0c)));
}
