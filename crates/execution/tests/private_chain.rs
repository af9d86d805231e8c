//! Rules that a genesis file changes on private chains: `contractSizeLimit`, and what blocks pay.

use niwaki_evm::{Exit, HaltReason};
use niwaki_execution::{Executor, RecoveringBlock, apply_body};
use niwaki_primitives::{
    Address, B256, Block, BlockBody, Bytes, Fork, Header, SignableTransaction, Signature,
    StateDiff, TxEnvelope, TxKind, TxLegacy, U256,
};
use niwaki_rules::{
    BftProtocol, BftRules, BftStart, ChainSpec, ContractSizeLimit, Quorum, SealKind,
};
use niwaki_testkit::{MemoryAccount, MemoryState};

const SENDER: Address = Address::repeat_byte(0x5e);
const FACTORY: Address = Address::repeat_byte(0xfa);
const COINBASE: Address = Address::repeat_byte(0xcb);
const BENEFICIARY: Address = Address::repeat_byte(0xbe);
const ETHER: u64 = 1_000_000_000_000_000_000;

fn chain(fork: Fork, limit: Option<u64>) -> ChainSpec {
    let mut spec = ChainSpec::single(1, fork);
    spec.contract_size_limits = limit.map(ContractSizeLimit::always).into_iter().collect();
    spec
}

/// Init code of ten bytes, filled up to `total`, that deploys `deployed` zeros.
fn init_code(deployed: u32, total: usize) -> Vec<u8> {
    let [_, a, b, c] = deployed.to_be_bytes();
    let mut code = vec![0x62, a, b, c, 0x5f, 0xf3]; // PUSH3 deployed PUSH0 RETURN
    if total > code.len() {
        code.resize(total, 0);
    }
    code
}

/// As before PUSH0 was there (Shanghai).
fn old_init_code(deployed: u32) -> Vec<u8> {
    let [_, a, b, c] = deployed.to_be_bytes();
    vec![0x62, a, b, c, 0x60, 0, 0xf3]
}

fn transaction(to: TxKind, input: Vec<u8>) -> TxEnvelope {
    let tx = TxLegacy {
        chain_id: None, // Taken at every fork.
        gas_limit: 16_000_000,
        to,
        input: input.into(),
        ..TxLegacy::default()
    };
    let signature = Signature::new(U256::from(1), U256::from(1), false);
    tx.into_signed(signature).into()
}

fn header(fork: Fork) -> Header {
    Header {
        number: 1,
        timestamp: 1,
        gas_limit: 100_000_000,
        beneficiary: COINBASE,
        base_fee_per_gas: (fork >= Fork::London).then_some(0),
        excess_blob_gas: (fork >= Fork::Cancun).then_some(0),
        parent_beacon_block_root: (fork >= Fork::Cancun).then_some(B256::ZERO),
        ..Header::default()
    }
}

fn state() -> MemoryState {
    let mut state = MemoryState::default();
    for (address, code) in niwaki_testkit::genesis::system_contracts() {
        let contract = MemoryAccount {
            code: code.clone().into(),
            ..MemoryAccount::default()
        };
        state.insert(*address, contract);
    }
    let rich = MemoryAccount {
        balance: U256::from(ETHER),
        ..MemoryAccount::default()
    };
    state.insert(SENDER, rich);
    // CALLDATACOPY everything, CREATE with it, and leave the address.
    let code = Bytes::from_static(&[
        0x36, 0x60, 0, 0x60, 0, 0x37, 0x36, 0x60, 0, 0x60, 0, 0xf0, 0x60, 0, 0x52, 0x60, 0x20,
        0x60, 0, 0xf3,
    ]);
    let factory = MemoryAccount {
        code: code.into(),
        ..MemoryAccount::default()
    };
    state.insert(FACTORY, factory);
    state
}

/// How the creation of that code ends in a transaction.
fn create(spec: &ChainSpec, fork: Fork, init_code: Vec<u8>) -> Exit {
    let (state, header) = (state(), header(fork));
    let mut executor = Executor::new(spec, &header, &state);
    let tx = transaction(TxKind::Create, init_code);
    let result = executor.process_transaction(&tx, SENDER, None);
    result.expect("the transaction is taken").exit
}

/// Whether CREATE makes a contract of that code.
fn factory_creates(spec: &ChainSpec, fork: Fork, init_code: Vec<u8>) -> bool {
    let (state, header) = (state(), header(fork));
    let mut executor = Executor::new(spec, &header, &state);
    let tx = transaction(TxKind::Call(FACTORY), init_code);
    let result = executor.process_transaction(&tx, SENDER, None);
    let result = result.expect("the transaction is taken");
    result.output.iter().any(|byte| *byte != 0)
}

#[test]
fn a_contract_size_limit_of_64_deploys_64_bytes_and_refuses_65() {
    for fork in [Fork::Shanghai, Fork::Osaka] {
        let spec = chain(fork, Some(64));
        assert_eq!(create(&spec, fork, init_code(64, 0)), Exit::Return);
        let refused = Exit::Halt(HaltReason::CodeTooLong);
        assert_eq!(create(&spec, fork, init_code(65, 0)), refused);
        assert!(factory_creates(&spec, fork, init_code(64, 0)));
        assert!(!factory_creates(&spec, fork, init_code(65, 0)));
    }
}

#[test]
fn a_contract_size_limit_of_2147483647_deploys_24577_and_30000_bytes() {
    let spec = chain(Fork::Osaka, Some(2_147_483_647));
    for bytes in [24_576, 24_577, 30_000] {
        assert_eq!(
            create(&spec, Fork::Osaka, init_code(bytes, 0)),
            Exit::Return
        );
        assert!(factory_creates(&spec, Fork::Osaka, init_code(bytes, 0)));
    }
    let stock = chain(Fork::Osaka, None);
    let refused = Exit::Halt(HaltReason::CodeTooLong);
    assert_eq!(create(&stock, Fork::Osaka, init_code(24_577, 0)), refused);
}

#[test]
fn a_contract_size_limit_holds_in_amsterdam_in_place_of_65536() {
    let fork = Fork::Amsterdam;
    assert!(factory_creates(&chain(fork, None), fork, init_code(100, 0)));
    assert!(!factory_creates(
        &chain(fork, Some(99)),
        fork,
        init_code(100, 0)
    ));
}

#[test]
fn a_contract_size_limit_begins_with_spurious_dragon() {
    for (fork, exit) in [
        (Fork::TangerineWhistle, Exit::Return),
        (Fork::SpuriousDragon, Exit::Halt(HaltReason::CodeTooLong)),
    ] {
        let spec = chain(fork, Some(64));
        assert_eq!(create(&spec, fork, old_init_code(65)), exit, "{fork}");
    }
}

#[test]
fn a_contract_size_limit_leaves_init_code_at_49152_bytes() {
    for limit in [64, 2_147_483_647] {
        let spec = chain(Fork::Osaka, Some(limit));
        let at_limit = init_code(64, 49_152);
        assert_eq!(create(&spec, Fork::Osaka, at_limit.clone()), Exit::Return);
        assert!(factory_creates(&spec, Fork::Osaka, at_limit));
        assert!(!factory_creates(&spec, Fork::Osaka, init_code(64, 49_153)));

        let (state, header) = (state(), header(Fork::Osaka));
        let mut executor = Executor::new(&spec, &header, &state);
        let tx = transaction(TxKind::Create, init_code(64, 49_153));
        let refused = executor.process_transaction(&tx, SENDER, None).unwrap_err();
        assert!(refused.to_string().contains("49153"), "{refused}");
    }
}

/// What an empty block of the chain at `number` changes.
fn empty_block(spec: &ChainSpec, fork: Fork, number: u64) -> StateDiff {
    let header = Header {
        number,
        difficulty: U256::from(1),
        withdrawals_root: (fork >= Fork::Shanghai).then_some(B256::ZERO),
        ..header(fork)
    };
    let block = Block::new(header, BlockBody::default());
    let block = RecoveringBlock::new(block, B256::ZERO, []);
    let mut no_roots = |_: &StateDiff| Ok(B256::ZERO);
    apply_body(spec, &block, &state(), &mut no_roots)
        .expect("an empty block")
        .diff
}

/// Wei that each account got.
fn paid(diff: &StateDiff) -> Vec<(Address, U256)> {
    let accounts = diff.accounts.iter();
    accounts
        .filter_map(|(at, change)| Some((*at, change.new.as_ref()?.balance)))
        .collect()
}

const QBFT: BftRules = BftRules::new(BftProtocol::Qbft);

fn bft(fork: Fork, rules: &[BftRules]) -> ChainSpec {
    let mut spec = chain(fork, None);
    spec.seal = SealKind::Bft;
    spec.bft_rules = rules.to_vec();
    spec
}

#[test]
fn a_bft_chain_pays_its_own_reward_at_every_fork() {
    let payment = BftRules {
        reward: U256::from(7),
        ..QBFT
    };
    for fork in [Fork::Berlin, Fork::London, Fork::Shanghai, Fork::Osaka] {
        let diff = empty_block(&bft(fork, std::slice::from_ref(&payment)), fork, 1);
        let expected = (COINBASE, U256::from(7));
        assert!(paid(&diff).contains(&expected), "{fork}: {diff:?}");
    }
}

#[test]
fn a_bft_chain_without_a_reward_touches_no_account() {
    for fork in [Fork::Berlin, Fork::London] {
        let diff = empty_block(&bft(fork, &[QBFT]), fork, 1);
        assert_eq!(paid(&diff), [], "{fork}");
    }
}

#[test]
fn a_clique_chain_pays_no_reward() {
    let mut spec = chain(Fork::Berlin, None);
    spec.seal = SealKind::Clique {
        period_s: 15,
        epoch_blocks: 30_000,
    };
    assert_eq!(paid(&empty_block(&spec, Fork::Berlin, 1)), []);
    spec.seal = SealKind::None;
    let two_ether = (COINBASE, U256::from(2 * ETHER));
    assert_eq!(paid(&empty_block(&spec, Fork::Berlin, 1)), [two_ether]);
}

#[test]
fn a_bft_reward_and_beneficiary_change_at_their_transition() {
    let payments = [
        QBFT,
        BftRules {
            from: BftStart::Block(34),
            reward: U256::from(ETHER),
            beneficiary: Some(BENEFICIARY),
            ..QBFT
        },
    ];
    let spec = bft(Fork::London, &payments);
    assert_eq!(paid(&empty_block(&spec, Fork::London, 33)), []);
    let reward = (BENEFICIARY, U256::from(ETHER));
    assert_eq!(paid(&empty_block(&spec, Fork::London, 34)), [reward]);
    assert_eq!(paid(&empty_block(&spec, Fork::London, 99)), [reward]);
}

#[test]
fn coinbase_gives_the_beneficiary_of_a_bft_chain() {
    let payment = BftRules {
        beneficiary: Some(BENEFICIARY),
        ..QBFT
    };
    let spec = bft(Fork::London, &[payment]);
    let (state, header) = (state(), header(Fork::London));
    let mut executor = Executor::new(&spec, &header, &state);
    assert_eq!(executor.evm().block().coinbase, BENEFICIARY);
}

#[test]
fn the_beneficiary_of_a_chain_of_goquorum_is_paid_while_coinbase_gives_that_of_the_header() {
    let payment = BftRules {
        beneficiary: Some(BENEFICIARY),
        reward: U256::from(7),
        is_quorum: true,
        ..QBFT
    };
    let mut spec = bft(Fork::Berlin, &[payment]);
    spec.quorum = Some(Quorum {
        gas_price_block: Some(0),
    });
    let (state, header) = (state(), header(Fork::Berlin));
    let mut executor = Executor::new(&spec, &header, &state);
    assert_eq!(executor.evm().block().coinbase, COINBASE);
    let reward = (BENEFICIARY, U256::from(7));
    assert_eq!(paid(&empty_block(&spec, Fork::Berlin, 1)), [reward]);
}

#[test]
fn a_contract_size_limit_of_a_transition_begins_at_its_block() {
    let mut spec = chain(Fork::Shanghai, None);
    spec.contract_size_limits = vec![ContractSizeLimit {
        from_block: 2,
        bytes: 64,
    }];
    let limits = [1, 2, 3].map(|number| spec.max_code_bytes(number, Fork::Shanghai));
    assert_eq!(limits, [None, Some(64), Some(64)]);
    assert_eq!(spec.max_code_bytes(2, Fork::Homestead), None);
}
