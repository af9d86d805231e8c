//! Published results of opcodes on two words, on every dispatch; needs the corpus.
#![expect(clippy::unwrap_used, reason = "a test that can't read its cases fails")]

use niwaki_evm::{BlockEnv, Dispatch, Evm, Message, Table, Target, TxEnv};
use niwaki_primitives::{Address, Bytes, Fork, U256, hex};
use niwaki_testkit::{MemoryAccount, MemoryState, corpus};
use serde_json::Value;

/// File name and opcode.
const FILES: [(&str, u8); 16] = [
    ("add", 0x01),
    ("and", 0x16),
    ("byte", 0x1a),
    ("div", 0x04),
    ("eq", 0x14),
    ("gt", 0x11),
    ("lt", 0x10),
    ("mul", 0x02),
    ("sgt", 0x13),
    ("shl", 0x1b),
    ("shr", 0x1c),
    ("signext", 0x0b),
    ("slt", 0x12),
    ("smod", 0x07),
    ("sub", 0x03),
    ("xor", 0x18),
];

/// Runs `opcode` on two words; `top` is popped first.
fn operate(opcode: u8, below: &[u8], top: &[u8], dispatch: Dispatch) -> Bytes {
    let contract = Address::repeat_byte(0xc0);
    let put = [0x60, 0, 0x52, 0x60, 32, 0x60, 0, 0xf3];
    let code = [&[0x7f][..], below, &[0x7f], top, &[opcode], &put].concat();
    let mut state = MemoryState::default();
    let account = MemoryAccount {
        code: Bytes::from(code).into(),
        ..MemoryAccount::default()
    };
    state.insert(contract, account);
    let mut evm = Evm::new(&state, Table::of(Fork::Osaka), BlockEnv::default());
    evm.set_dispatch(dispatch);
    evm.begin_transaction(TxEnv::default());
    let message = Message {
        caller: Address::ZERO,
        target: Target::Call(contract),
        value: U256::ZERO,
        input: Bytes::new(),
        gas: 100_000,
        reservoir: 0,
    };
    evm.run(&message, None).unwrap().output
}

#[test]
fn over_1000_operations_of_the_corpus_give_their_result() {
    let Some(folder) = corpus("basic-tests/go-ethereum/core/vm/testdata") else {
        return;
    };
    let mut count = 0;
    for (name, opcode) in FILES {
        let text = std::fs::read_to_string(folder.join(format!("testcases_{name}.json"))).unwrap();
        let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
        for case in cases {
            let word = |key: &str| hex::decode(case[key].as_str().unwrap()).unwrap();
            let (below, top) = (word("X"), word("Y"));
            for dispatch in Dispatch::ALL {
                let got = operate(opcode, &below, &top, dispatch);
                assert_eq!(got, word("Expected"), "{name} {case} {dispatch:?}");
            }
            count += 1;
        }
    }
    println!("{count} operations");
    assert!(count > 1_000, "{count}");
}
