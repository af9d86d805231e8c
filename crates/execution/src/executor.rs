//! The executor of one block: its rules, its gas counters, and the EVM with its world state.

use crate::transaction::TransactionResult;
use niwaki_evm::{BlockEnv, Evm, Table};
use niwaki_primitives::{Address, DirtyState, Fault, Fork, Header, StateDiff, StateView, U256};
use niwaki_rules::{BlockRules, ChainSpec, GasAvailable, InvalidBlock, TX_MAX_GAS_LIMIT};

/// Why a block has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The block breaks the protocol.
    #[error(transparent)]
    Invalid(#[from] InvalidBlock),
    /// The machine failed; whether the block is valid is not known.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Executes the parts of one block in order, on top of the state after its parent.
#[derive(Debug)]
pub struct Executor<'v> {
    pub(crate) evm: Evm<'v>,
    pub(crate) rules: BlockRules,
    pub(crate) used: Used,
    /// Most gas that the execution of a transaction gets from Amsterdam on.
    pub(crate) execution_cap: u64,
    /// What the block pays to its beneficiary, wei, but for ommers.
    pub(crate) base_reward: Option<U256>,
    /// Who gets the reward and the fees.
    pub(crate) beneficiary: Address,
}

/// What the transactions of a block have used so far, gas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// What they paid for: after refunds, as receipts count it.
    pub gas: u64,
    /// Of execution: before refunds and without state gas (EIP-7778, EIP-8037).
    pub execution: u64,
    /// Of growth of the state (EIP-8037).
    pub state: u64,
    /// Of blobs.
    pub blob: u64,
}

impl Used {
    /// Adds what a transaction with so much blob gas has used.
    pub fn add(&mut self, result: &TransactionResult, blob_gas: u64) {
        self.gas = self.gas.saturating_add(result.gas_used);
        self.execution = self.execution.saturating_add(result.execution_gas);
        self.state = self.state.saturating_add(result.state_gas);
        self.blob = self.blob.saturating_add(blob_gas);
    }

    /// `gas_used` of the header of a block of `fork`.
    ///
    /// Spec: EIP-7778, EIP-8037; execution-specs `amsterdam/fork.py`, `apply_body`.
    pub fn header_gas(&self, fork: Fork) -> u64 {
        match fork >= Fork::Amsterdam {
            true => self.execution.max(self.state),
            false => self.gas,
        }
    }
}

impl<'v> Executor<'v> {
    /// An executor for the block of `header`.
    pub fn new(spec: &ChainSpec, header: &Header, view: &'v dyn StateView) -> Self {
        let fork = spec.fork_of(header);
        Self::with_table(spec, header, view, Table::of(fork))
    }

    /// As [`Executor::new`], with opcodes, gas and precompiles of the chain's own. Blocks and transactions are checked
    /// by the fork's rules. A `contractSizeLimit` of the chain wins over the table's.
    pub fn with_table(
        spec: &ChainSpec,
        header: &Header,
        view: &'v dyn StateView,
        table: &'v Table,
    ) -> Self {
        let rules = BlockRules::new(spec, header);
        let block = block_env(spec, &rules, header);
        let mut evm = Evm::new(view, table, block);
        if let Some(bytes) = spec.max_code_bytes(header.number, rules.fork) {
            evm.set_max_code_bytes(bytes);
        }
        if rules.fork >= Fork::Amsterdam {
            evm.world().record_access_list();
        }
        Self {
            evm,
            rules,
            used: Used::default(),
            execution_cap: TX_MAX_GAS_LIMIT,
            base_reward: spec.base_reward(header, rules.fork),
            beneficiary: spec.beneficiary_of(header),
        }
    }

    /// Lets a simulated transaction spend all its gas on execution, none set aside for the state.
    pub fn lift_execution_cap(&mut self) {
        self.execution_cap = u64::MAX;
    }

    /// Sets what the block pays to its coinbase, wei, whatever the fork says; `None` for nothing at all.
    pub fn set_base_reward(&mut self, reward: Option<U256>) {
        self.base_reward = reward;
    }

    /// The EVM, to choose its dispatch or look at its world.
    pub fn evm(&mut self) -> &mut Evm<'v> {
        &mut self.evm
    }

    /// The rules of the block.
    pub fn rules(&self) -> &BlockRules {
        &self.rules
    }

    /// What the transactions have used so far.
    pub fn used(&self) -> Used {
        self.used
    }

    /// What they have left of the block's gas limit.
    pub fn gas_available(&mut self) -> GasAvailable {
        let limit = self.evm.block().gas_limit;
        let Used {
            gas,
            execution,
            state,
            ..
        } = self.used;
        match self.rules.fork >= Fork::Amsterdam {
            true => GasAvailable {
                execution: limit.saturating_sub(execution),
                state: limit.saturating_sub(state),
            },
            false => GasAvailable::both(limit.saturating_sub(gas)),
        }
    }

    /// What they have left of the block's blob gas.
    pub(crate) fn blob_gas_available(&self) -> u64 {
        self.rules.max_blob_gas().saturating_sub(self.used.blob)
    }

    /// What has changed so far.
    pub fn diff(&mut self) -> StateDiff {
        self.evm.world().diff()
    }

    /// What was written since this was called last; see [`World::drain_dirty`](niwaki_evm::World::drain_dirty).
    pub fn drain_dirty(&mut self) -> DirtyState {
        self.evm.world().drain_dirty()
    }
}

/// What code may ask about the block of `header`.
pub fn block_env(spec: &ChainSpec, rules: &BlockRules, header: &Header) -> BlockEnv {
    let prev_randao = if rules.fork >= Fork::Paris {
        U256::from_be_bytes(header.mix_hash.0)
    } else {
        header.difficulty
    };
    BlockEnv {
        number: header.number,
        timestamp: header.timestamp,
        coinbase: spec.coinbase_of(header),
        gas_limit: header.gas_limit,
        base_fee: rules.base_fee.unwrap_or(0),
        prev_randao,
        blob_base_fee: U256::from(rules.blob_base_fee),
        chain_id: rules.chain_id,
        slot_number: header.slot_number.unwrap_or_default(),
    }
}
