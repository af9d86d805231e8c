//! Runs a program on this machine, and on revm.

use eyre::{Result, ensure, eyre};
use niwaki_evm::{BlockEnv, Dispatch, Evm, Exit, Message, Step, Table, Target, Tracer, TxEnv};
use niwaki_fuzz::spec_id;
use niwaki_primitives::{Address, B256, Bytes, Fork, TxKind, U256};
use niwaki_testkit::{MemoryAccount, MemoryState};
use revm::{
    Context, ExecuteEvm, MainBuilder, MainContext,
    bytecode::Bytecode,
    context::{TxEnv as RevmTx, result::ExecutionResult},
    database::{CacheDB, EmptyDB, WrapDatabaseRef},
    primitives::hardfork::SpecId,
    state::AccountInfo,
};
use std::time::{Duration, Instant};

const CALLER: Address = Address::repeat_byte(0x10);
const CONTRACT: Address = Address::repeat_byte(0xc0);
/// Intrinsic gas of a transaction without data.
const INTRINSIC: u64 = 21_000;

/// Code at an address, on a state that is the same for each run.
pub(super) struct Ours {
    state: MemoryState,
    fork: Fork,
    dispatch: Dispatch,
}

/// Time and gas of one run.
pub(super) type Run = (Duration, u64);

impl Ours {
    pub(super) fn new(
        contracts: &[(Address, Bytes)],
        code: Bytes,
        fork: Fork,
        dispatch: Dispatch,
    ) -> Self {
        let mut state = MemoryState::default();
        for (address, code) in contracts.iter().cloned().chain([(CONTRACT, code)]) {
            state.insert(
                address,
                MemoryAccount {
                    nonce: 1,
                    balance: U256::from(1),
                    code: code.into(),
                    ..MemoryAccount::default()
                },
            );
        }
        let before = super::NUMBER - 1;
        state.block_hashes.insert(before, B256::repeat_byte(0x77));
        Self {
            state,
            fork,
            dispatch,
        }
    }

    /// How often the opcode at `pc` of the code runs.
    pub(super) fn times(&self, gas: u64, pc: usize) -> Result<u64> {
        let mut counter = OpcodeCounter { pc, count: 0 };
        self.traced(gas, Some(&mut counter))?;
        Ok(counter.count)
    }

    /// Calls the code once; the diff is computed, as for a block.
    pub(super) fn run(&self, gas: u64) -> Result<Run> {
        self.traced(gas, None)
    }

    fn traced(&self, gas: u64, tracer: Option<&mut dyn Tracer>) -> Result<Run> {
        let began = Instant::now();
        let block = BlockEnv {
            number: super::NUMBER,
            gas_limit: gas,
            chain_id: 1,
            ..BlockEnv::default()
        };
        let mut evm = Evm::new(&self.state, Table::of(self.fork), block);
        evm.set_dispatch(self.dispatch);
        evm.begin_transaction(TxEnv {
            origin: CALLER,
            ..TxEnv::default()
        });
        for address in [CALLER, CONTRACT] {
            evm.world().load_warm(&address)?;
        }
        let outcome = evm.run(
            &Message {
                caller: CALLER,
                target: Target::Call(CONTRACT),
                value: U256::ZERO,
                input: Bytes::new(),
                gas,
                reservoir: 0,
            },
            tracer,
        )?;
        let world = evm.world();
        world.end_transaction();
        // Dropped outside of the measured time, as revm's result is.
        let output = (world.take_logs(), world.diff());
        drop(evm);
        let took = began.elapsed();
        drop(output);
        ensure!(
            outcome.exit == Exit::Stop,
            "it ends with {:?}",
            outcome.exit
        );
        Ok((took, gas.saturating_sub(outcome.gas_left)))
    }
}

/// Counts how often an opcode of the first frame runs.
struct OpcodeCounter {
    pc: usize,
    count: u64,
}

impl Tracer for OpcodeCounter {
    fn step(&mut self, step: &Step<'_>) {
        self.count += u64::from(step.depth() == 1 && step.pc() == self.pc);
    }
}

/// The same on revm, by the whole of its `transact`.
pub(super) struct Revm {
    state: CacheDB<EmptyDB>,
    spec: SpecId,
}

impl Revm {
    /// `None` for a fork that revm lacks, or whose state gas a plain call does not have.
    pub(super) fn new(contracts: &[(Address, Bytes)], code: Bytes, fork: Fork) -> Option<Self> {
        let mut state = CacheDB::new(EmptyDB::default());
        for (address, code) in contracts.iter().cloned().chain([(CONTRACT, code)]) {
            let code = Bytecode::new_raw(code);
            let info = AccountInfo::default().with_code(code).with_nonce(1);
            state.insert_account_info(address, info.with_balance(U256::from(1)));
        }
        let rich = AccountInfo::default().with_balance(U256::from(1) << 128);
        state.insert_account_info(CALLER, rich);
        let before = U256::from(super::NUMBER - 1);
        state
            .cache
            .block_hashes
            .insert(before, B256::repeat_byte(0x77));
        Some(Self {
            state,
            spec: spec_id(fork).filter(|_| fork < Fork::Amsterdam)?,
        })
    }

    pub(super) fn run(&self, gas: u64) -> Result<Run> {
        let tx = RevmTx {
            caller: CALLER,
            kind: TxKind::Call(CONTRACT),
            gas_limit: gas + INTRINSIC,
            gas_price: 0,
            ..RevmTx::default()
        };
        let began = Instant::now();
        let mut evm = Context::mainnet()
            .modify_cfg_chained(|cfg| {
                cfg.set_spec_and_mainnet_gas_params(self.spec);
                cfg.tx_gas_limit_cap = Some(u64::MAX);
            })
            .modify_block_chained(|block| {
                block.gas_limit = gas + INTRINSIC;
                block.number = U256::from(super::NUMBER);
                // revm's default is address zero, which programs use.
                block.beneficiary = CALLER;
            })
            .with_db(WrapDatabaseRef(&self.state))
            .build_mainnet();
        let result = evm
            .transact(tx)
            .map_err(|error| eyre!("revm: {error:?}"))?
            .result;
        drop(evm);
        let took = began.elapsed();
        let ExecutionResult::Success { .. } = &result else {
            return Err(eyre!("on revm it ends with {result:?}"));
        };
        Ok((took, result.gas().total_gas_spent() - INTRINSIC))
    }
}
