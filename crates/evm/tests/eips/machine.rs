//! A fixture for one test: accounts, a fork, a call.

use niwaki_evm::{BlockEnv, Dispatch, Evm, Exit, HaltReason, Message, Table, Target, TxEnv};
use niwaki_primitives::{Address, Bytes, Fork, Log, StateDiff, U256};
use niwaki_testkit::{MemoryAccount, MemoryState};

pub(crate) const CALLER: Address = Address::repeat_byte(0xca);
/// The account whose code is called.
pub(crate) const CALLEE: Address = Address::repeat_byte(0xc0);
/// Another account, for code to call.
pub(crate) const OTHER: Address = Address::repeat_byte(0x0e);

/// Accounts and a fork.
pub(crate) struct Machine {
    fork: Fork,
    state: MemoryState,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) gas_used: u64,
    pub(crate) output: Bytes,
    pub(crate) refund: i64,
    pub(crate) logs: Vec<Log>,
    pub(crate) diff: StateDiff,
}

impl Ran {
    /// The output as a number.
    pub(crate) fn number(&self) -> U256 {
        U256::from_be_slice(&self.output)
    }

    pub(crate) fn ran_out_of_gas(&self) -> bool {
        self.exit == Exit::Halt(HaltReason::OutOfGas)
    }
}

impl Machine {
    /// A machine whose callee has `code` (hex).
    pub(crate) fn new(fork: Fork, code: &str) -> Self {
        let mut machine = Self {
            fork,
            state: MemoryState::default(),
        };
        let balance = U256::from(1_000_000);
        machine.state.insert(
            CALLER,
            MemoryAccount {
                balance,
                ..MemoryAccount::default()
            },
        );
        machine.with(CALLEE, 1000, code)
    }

    /// Adds an account with `balance` wei and `code` (hex).
    pub(crate) fn with(mut self, address: Address, balance: u64, code: &str) -> Self {
        let code = niwaki_primitives::hex::decode(code).expect("tests write hex");
        let account = MemoryAccount {
            nonce: 1,
            balance: U256::from(balance),
            code: Bytes::from(code).into(),
            ..MemoryAccount::default()
        };
        self.state.insert(address, account);
        self
    }

    /// Sets a slot of the callee.
    pub(crate) fn with_slot(mut self, slot: u64, value: u64) -> Self {
        let callee = self
            .state
            .accounts
            .get_mut(&CALLEE)
            .expect("there from the start");
        callee.storage.insert(U256::from(slot), U256::from(value));
        self
    }

    /// Calls the callee with 10 million gas.
    pub(crate) fn run(&self) -> Ran {
        self.run_with(10_000_000)
    }

    /// Calls the callee with `gas`, on every dispatch, which must agree.
    pub(crate) fn run_with(&self, gas: u64) -> Ran {
        niwaki_evm::set_hot_threshold(1);
        let [fused, threaded, looped] = Dispatch::ALL.map(|dispatch| self.run_on(dispatch, gas));
        for other in [&threaded, &looped] {
            assert_eq!(fused.exit, other.exit);
            assert_eq!(fused.gas_used, other.gas_used);
            assert_eq!(fused.output, other.output);
            assert_eq!(fused.diff, other.diff);
        }
        fused
    }

    fn run_on(&self, dispatch: Dispatch, gas: u64) -> Ran {
        let block = BlockEnv {
            number: 1,
            gas_limit: gas,
            chain_id: 1,
            ..BlockEnv::default()
        };
        let mut evm = Evm::new(&self.state, Table::of(self.fork), block);
        evm.set_dispatch(dispatch);
        evm.begin_transaction(TxEnv {
            origin: CALLER,
            ..TxEnv::default()
        });
        evm.world().warm_account(&CALLER);
        evm.world().warm_account(&CALLEE);
        let message = Message {
            caller: CALLER,
            target: Target::Call(CALLEE),
            value: U256::ZERO,
            input: Bytes::new(),
            gas,
            reservoir: 0,
        };
        let outcome = evm.run(&message, None).expect("memory does not fail");
        let world = evm.world();
        let refund = world.refund();
        world.end_transaction();
        Ran {
            exit: outcome.exit,
            gas_used: gas - outcome.gas_left,
            output: outcome.output,
            refund,
            logs: world.take_logs(),
            diff: world.diff(),
        }
    }

    /// Asserts that `gas` suffices exactly: one less runs out.
    pub(crate) fn costs(&self, gas: u64) {
        let enough = self.run_with(gas);
        assert_eq!(enough.exit, Exit::Stop, "with {gas}");
        assert_eq!(enough.gas_used, gas);
        assert!(self.run_with(gas - 1).ran_out_of_gas(), "with {}", gas - 1);
    }
}

/// `PUSH20 address`, hex.
pub(crate) fn push(address: Address) -> String {
    format!("73{}", niwaki_primitives::hex::encode(address))
}
