//! Blocks whose senders are recovered in the background, late or never: they give what they give with all senders known, and an
//! invalid block has the error that the specification finds first.

use niwaki_execution::{
    BlockExecution, ExecuteError, Parallelism, RecoveringBlock, apply_body, recover_block,
    recover_in_background,
};
use niwaki_primitives::{
    Address, B256, Block, BlockBody, Bytes, Fork, Header, SignableTransaction, Signature,
    TxEip1559, TxEnvelope, TxKind, U256,
};
use niwaki_rules::{ChainSpec, InvalidBlock, InvalidTransaction, recover_sender};
use niwaki_testkit::{Key, MemoryAccount, MemoryState};
use std::sync::Arc;

const CHAIN_ID: u64 = 1;
const KEYS: usize = 8;
/// Enough for several threads to be woken.
const TRANSACTIONS: usize = 72;
const COUNTER: Address = Address::repeat_byte(0xa0);

fn key(number: usize) -> Key {
    Key::new(U256::from(number + 1).into())
}

fn signed(number: usize, tx: TxEip1559) -> TxEnvelope {
    key(number).sign(tx)
}

fn tx(nonce: u64) -> TxEip1559 {
    TxEip1559 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit: 100_000,
        max_fee_per_gas: 100,
        to: TxKind::Call(COUNTER),
        ..TxEip1559::default()
    }
}

/// The same with a signature that belongs to no key.
fn unsigned(tx: TxEip1559) -> TxEnvelope {
    let mut r = U256::ZERO;
    loop {
        r += U256::ONE;
        let signature = Signature::new(r, U256::ONE, false);
        let tx = TxEnvelope::from(tx.clone().into_signed(signature));
        if recover_sender(&tx).is_err() {
            return tx;
        }
    }
}

/// Rich accounts, and a contract that adds one to slot 0 and logs the sum.
fn state() -> MemoryState {
    let mut state = MemoryState::default();
    for number in 0..KEYS {
        let account = MemoryAccount {
            balance: U256::from(1_u64 << 60),
            ..MemoryAccount::default()
        };
        let address = key(number).address;
        state.insert(address, account);
    }
    let code = Bytes::from_static(&[
        0x5f, 0x54, 0x60, 1, 0x01, 0x80, 0x5f, 0x55, 0x5f, 0x52, 0x60, 32, 0x5f, 0xa0,
    ]);
    let counter = MemoryAccount {
        code: code.into(),
        nonce: 1,
        ..MemoryAccount::default()
    };
    state.insert(COUNTER, counter);
    state
}

fn block() -> Block {
    let transactions = (0..TRANSACTIONS).map(|at| signed(at % KEYS, tx((at / KEYS) as u64)));
    let body = BlockBody {
        transactions: transactions.collect(),
        ommers: Vec::new(),
        withdrawals: None,
    };
    let header = Header {
        number: 1000,
        gas_limit: 60_000_000,
        base_fee_per_gas: Some(7),
        excess_blob_gas: Some(0),
        ..Header::default()
    };
    Block::new(header, body)
}

type Outcome = Result<niwaki_execution::ExecutedBlock, String>;

/// Executes a block on so many threads that recover senders and that execute, and maybe all speculatively first.
fn run(block: &Block, known: &[Option<Address>], way: (usize, usize, bool)) -> Outcome {
    let (recovering, threads, speculate_all) = way;
    let (spec, state) = (ChainSpec::single(CHAIN_ID, Fork::Cancun), state());
    let known = known.iter().copied();
    let block = Arc::new(RecoveringBlock::new(block.clone(), B256::ZERO, known));
    let parallelism = Parallelism {
        speculate_all,
        ..Parallelism::of(threads)
    };
    let _recovering = recover_in_background(&block, recovering);
    let ran = BlockExecution {
        parallelism,
        ..BlockExecution::new(&spec, &block, &state)
    }
    .run(&mut |_: &_| Ok(B256::ZERO));
    ran.map(|(executed, _)| executed).map_err(why)
}

fn why(error: ExecuteError) -> String {
    error.to_string()
}

fn ways() -> impl Iterator<Item = (usize, usize, bool)> {
    let threads = [(1, false), (1, true), (2, false), (3, false), (3, true)];
    let ways = (1..=3).flat_map(move |beside| threads.map(|(threads, all)| (beside, threads, all)));
    // Races end one way or the other.
    ways.flat_map(|way| [way; 3])
}

#[test]
fn a_block_gives_the_same_result_on_whatever_thread_its_senders_are_recovered() {
    let block = block();
    let (spec, state) = (ChainSpec::single(CHAIN_ID, Fork::Cancun), state());
    let recovered = recover_block(block.clone(), B256::ZERO).unwrap();
    let all: Vec<_> = recovered.senders.iter().copied().map(Some).collect();
    let known = [
        Vec::new(),
        all.clone(),
        all[..TRANSACTIONS / 2].to_vec(),
        (0..TRANSACTIONS)
            .map(|at| all[at].filter(|_| at % 3 == 0))
            .collect(),
    ];
    let recovered = recovered.into();
    let serial = apply_body(&spec, &recovered, &state, &mut |_: &_| Ok(B256::ZERO)).map_err(why);
    assert_eq!(
        serial.as_ref().map(|executed| executed.receipts.len()),
        Ok(TRANSACTIONS)
    );
    for way in ways() {
        for known in &known {
            assert_eq!(run(&block, known, way), serial, "{way:?}");
        }
    }
}

/// What a block is refused for in every way, none of its senders known.
fn refused_for(block: &Block) -> String {
    let mut reasons: Vec<_> = ways()
        .map(|way| run(block, &[], way).expect_err("it is bad"))
        .collect();
    reasons.dedup();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

fn of_transaction(index: usize, reason: InvalidTransaction) -> String {
    InvalidBlock::Transaction { index, reason }.to_string()
}

#[test]
fn the_error_names_the_first_transaction_without_a_valid_signature() {
    for index in [0, TRANSACTIONS / 2, TRANSACTIONS - 1] {
        let mut block = block();
        let transactions = &mut block.body.transactions;
        transactions[index] = unsigned(tx(0));
        transactions[TRANSACTIONS - 1] = unsigned(tx(0));
        let expected = of_transaction(index, InvalidTransaction::SignatureRecovery);
        assert_eq!(refused_for(&block), expected);
    }
}

#[test]
fn the_error_is_that_of_the_first_invalid_transaction() {
    let wrong_nonce = |index| {
        let (got, expected) = (77, (index / KEYS) as u64);
        of_transaction(index, InvalidTransaction::NonceTooHigh { got, expected })
    };
    let unsigned_at = |index| of_transaction(index, InvalidTransaction::SignatureRecovery);
    for (nonce_at, signature_at) in [(3, 5), (5, 3), (0, 71), (71, 0)] {
        let mut block = block();
        let transactions = &mut block.body.transactions;
        transactions[nonce_at] = signed(nonce_at % KEYS, tx(77));
        transactions[signature_at] = unsigned(tx(0));
        let expected = match nonce_at < signature_at {
            true => wrong_nonce(nonce_at),
            false => unsigned_at(signature_at),
        };
        assert_eq!(refused_for(&block), expected);
    }
}

/// Spec: execution-specs `cancun/fork.py`, `process_transaction`: `validate_transaction`, then in
/// `check_transaction` first the room that is left, and then `recover_sender`.
#[test]
fn an_invalid_signature_is_reported_after_the_gas_limit_and_before_the_fee() {
    let index = 40;
    let mut block = block();
    let gas_limit = 60_000_001;
    block.body.transactions[index] = unsigned(TxEip1559 { gas_limit, ..tx(0) });
    let reason = refused_for(&block);
    assert!(
        reason.contains("gas limit 60000001 is above the"),
        "{reason}"
    );

    // The fee is checked after the signature.
    block.body.transactions[index] = unsigned(TxEip1559 {
        max_fee_per_gas: 0,
        ..tx(0)
    });
    assert_eq!(
        refused_for(&block),
        of_transaction(index, InvalidTransaction::SignatureRecovery)
    );
}
