//! A block made here: a template upon its parent, executed, its header filled in.
//!
//! The header is without a seal: a chain whose blocks need one from a signer is refused.

use crate::import::{body_roots, receipts_root, recover};
use crate::tree::StoredHeader;
use crate::{BlockId, Chain};
use niwaki_execution::{ExecuteError, Executed, apply_body};
use niwaki_primitives::{
    Address, B256, Block, BlockBody, Bytes, Fault, Fork, Header, RecoveredBlock, StateDiff,
    TxEnvelope, U256, Withdrawals,
};
use niwaki_rules::{
    InvalidBlock, SealKind, block_difficulty, next_base_fee, next_excess_blob_gas, requests_hash,
};

/// What a block is made of besides what follows from its parent.
#[derive(Clone, Debug, Default)]
pub struct BlockTemplate {
    /// Hash of the parent, which must be stored.
    pub parent: B256,
    /// Who is paid.
    pub coinbase: Address,
    /// Seconds; must be after the parent's.
    pub timestamp: u64,
    /// At most 32 bytes.
    pub extra_data: Bytes,
    /// In order; every one must be valid.
    pub transactions: Vec<TxEnvelope>,
}

/// Why a block was not made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BuildError {
    /// The parent is not stored.
    #[error("the parent {0} is not known; import it first")]
    UnknownParent(B256),
    /// The state after the parent is too far from the head.
    #[error("the state after the parent {0} is no longer within reach of the head")]
    OutOfReach(BlockId),
    /// Blocks of this chain are made by signers.
    #[error("blocks of a {0} chain are sealed by its signers, which this program can't do")]
    Sealed(&'static str),
    /// A transaction or the block would be invalid.
    #[error("the block would be invalid: {name}: {0}", name = .0.spec_name())]
    Invalid(Box<InvalidBlock>),
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<InvalidBlock> for BuildError {
    fn from(reason: InvalidBlock) -> Self {
        Self::Invalid(Box::new(reason))
    }
}

impl From<ExecuteError> for BuildError {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Invalid(reason) => reason.into(),
            ExecuteError::Fault(fault) => Self::Fault(fault),
        }
    }
}

impl Chain {
    /// Makes a block of `template`. Nothing is stored: [`Chain::import`] does that.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(&self, template: BlockTemplate) -> Result<Block, BuildError> {
        let parent = self
            .header(&template.parent)?
            .ok_or(BuildError::UnknownParent(template.parent))?;
        match self.spec().seal {
            SealKind::Clique { .. } => return Err(BuildError::Sealed("Clique")),
            SealKind::Ibft2 => return Err(BuildError::Sealed("IBFT 2.0")),
            SealKind::Qbft => return Err(BuildError::Sealed("QBFT")),
            SealKind::Ethash { .. } | SealKind::None => {}
        }
        let mut block = self.draft(template, &parent);

        let roots = body_roots(&block);
        block.header.transactions_root = roots.transactions;
        block.header.withdrawals_root = roots.withdrawals;

        let view = self.world().view_at(parent.id)?;
        let view = view.ok_or(BuildError::OutOfReach(parent.id))?;
        let recovered = RecoveredBlock {
            senders: recover(&block)?,
            hash: B256::ZERO,
            block,
        };
        let mut post_state = |diff: &StateDiff| {
            let prepared = self.world().prepare(&view, diff)?;
            Ok(prepared.root())
        };
        let executed = apply_body(self.spec(), &recovered, &view, &mut post_state)?;
        let prepared = self.world().prepare(&view, &executed.diff)?;
        let mut block = recovered.block;
        fill_in(&mut block.header, &executed, prepared.root());
        Ok(block)
    }

    /// The block with everything that is known before its execution, but the roots of its body.
    fn draft(&self, template: BlockTemplate, parent: &StoredHeader) -> Block {
        let spec = self.spec();
        let number = parent.header.number.saturating_add(1);
        let timestamp = template.timestamp;
        let merged = spec.is_terminal(parent.total_difficulty);
        let fork = spec.fork_at(number, timestamp, merged);
        let since = |first: Fork| fork >= first;
        let difficulty = match spec.seal {
            _ if since(Fork::Paris) => U256::ZERO,
            SealKind::Ethash {
                fixed_difficulty: Some(fixed),
            } => U256::from(fixed),
            _ => block_difficulty(fork, number, timestamp, &parent.header),
        };
        let base_fee = if spec.zero_base_fee {
            0
        } else {
            next_base_fee(&parent.header)
        };
        let excess_blob_gas = spec
            .blob_params_at(timestamp)
            .map(|params| next_excess_blob_gas(&parent.header, fork, &params));
        let header = Header {
            parent_hash: parent.id.hash,
            beneficiary: template.coinbase,
            difficulty,
            number,
            gas_limit: parent.header.gas_limit,
            timestamp,
            extra_data: template.extra_data,
            base_fee_per_gas: since(Fork::London).then_some(base_fee),
            excess_blob_gas: excess_blob_gas.filter(|_| since(Fork::Cancun)),
            parent_beacon_block_root: since(Fork::Cancun).then_some(B256::ZERO),
            // Their values follow from the execution; that they are there must be known before.
            blob_gas_used: since(Fork::Cancun).then_some(0),
            requests_hash: since(Fork::Prague).then_some(B256::ZERO),
            ..Header::default()
        };
        let body = BlockBody {
            transactions: template.transactions,
            ommers: Vec::new(),
            withdrawals: since(Fork::Shanghai).then(Withdrawals::default),
        };
        Block { header, body }
    }
}

fn fill_in(header: &mut Header, executed: &Executed, state_root: B256) {
    header.state_root = state_root;
    header.receipts_root = receipts_root(&executed.receipts, &executed.receipt_blooms);
    header.logs_bloom = executed.logs_bloom;
    header.gas_used = executed.gas_used;
    if let Some(blob_gas_used) = &mut header.blob_gas_used {
        *blob_gas_used = executed.blob_gas_used;
    }
    if let Some(hash) = &mut header.requests_hash {
        *hash = requests_hash(&executed.requests);
    }
}
