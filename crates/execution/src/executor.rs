//! The machine of one block: rules, gas counters, and the EVM with its world.

use niwaki_evm::{BlockEnv, Evm, Table};
use niwaki_primitives::{Fault, Fork, Header, StateDiff, StateView, U256};
use niwaki_rules::{BlockRules, ChainSpec, InvalidBlock};

/// Why a block has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The block breaks the protocol.
    #[error(transparent)]
    Invalid(#[from] InvalidBlock),
    /// The machine failed; nothing is known of the block.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Runs the parts of one block in order upon the state after its parent.
#[derive(Debug)]
pub struct Executor<'v> {
    pub(crate) evm: Evm<'v>,
    pub(crate) rules: BlockRules,
    pub(crate) gas_used: u64,
    pub(crate) blob_gas_used: u64,
}

impl<'v> Executor<'v> {
    /// A machine for the block of `header`.
    pub fn new(spec: &ChainSpec, header: &Header, view: &'v dyn StateView) -> Self {
        let rules = BlockRules::new(spec, header);
        let block = block_env(&rules, header);
        let evm = Evm::new(view, Table::of(rules.fork), block);
        Self {
            evm,
            rules,
            gas_used: 0,
            blob_gas_used: 0,
        }
    }

    /// The EVM, to choose its dispatch or look at its world.
    pub fn evm(&mut self) -> &mut Evm<'v> {
        &mut self.evm
    }

    /// The rules of the block.
    pub fn rules(&self) -> &BlockRules {
        &self.rules
    }

    /// Gas used so far.
    pub fn gas_used(&self) -> u64 {
        self.gas_used
    }

    /// What has changed so far.
    pub fn diff(&mut self) -> StateDiff {
        self.evm.world().diff()
    }
}

/// What code may ask about the block of `header`.
pub fn block_env(rules: &BlockRules, header: &Header) -> BlockEnv {
    let prev_randao = if rules.fork >= Fork::Paris {
        U256::from_be_bytes(header.mix_hash.0)
    } else {
        header.difficulty
    };
    BlockEnv {
        number: header.number,
        timestamp: header.timestamp,
        coinbase: header.beneficiary,
        gas_limit: header.gas_limit,
        base_fee: rules.base_fee.unwrap_or(0),
        prev_randao,
        blob_base_fee: U256::from(rules.blob_base_fee),
        chain_id: rules.chain_id,
    }
}
