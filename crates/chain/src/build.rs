//! Builds blocks: from a template and its parent, executed, the header filled in.
//!
//! The transactions are either given, and then every one must be valid, or candidates offered one by one, of which
//! those that do not fit are left out. The header has no seal: a chain whose blocks a signer must seal is refused.

use crate::import::{JudgedBlock, ReadyBlock, Receipts, ValidBlock, body_roots};
use crate::tree::StoredHeader;
use crate::{BlockId, Chain};
use niwaki_execution::{ExecuteError, ExecutedBlock, Executor, TransactionError};
use niwaki_primitives::{
    Address, B256, Block, BlockBody, Bytes, Encodable2718, Fault, Fork, Header, Receipt,
    RecoveredBlock, TxEnvelope, Typed2718, U256, Withdrawal, Withdrawals,
};
use niwaki_rules::{
    BFT_MIX_HASH, GasAvailable, InvalidBlock, InvalidTransaction, MAX_RLP_BLOCK_BYTES, SealKind,
    access_list_hash, block_difficulty, check_access_list, effective_gas_price, encode_access_list,
    next_excess_blob_gas, next_gas_limit, recover_senders, requests_hash,
};
use niwaki_state::View;
use std::sync::Arc;

/// Bytes of a block reserved for its header, its withdrawals and list headers.
const RESERVED_BYTES: usize = 64 << 10;

/// Gas of the smallest transaction: with less left, a block is full.
///
/// Spec: Yellow Paper, `G_transaction`; EIP-2780.
fn min_gas(fork: Fork) -> u64 {
    match fork >= Fork::Amsterdam {
        true => 12_000,
        false => 21_000,
    }
}

/// What a block is built from, besides its parent and its transactions.
#[derive(Clone, Debug, Default)]
pub struct BlockTemplate {
    /// Hash of the parent, which must be stored.
    pub parent: B256,
    /// The fee recipient.
    pub coinbase: Address,
    /// Seconds; must be after the parent's.
    pub timestamp: u64,
    /// At most 32 bytes.
    pub extra_data: Bytes,
    /// From Paris on.
    pub prev_randao: B256,
    /// From Shanghai on.
    pub withdrawals: Vec<Withdrawal>,
    /// From Cancun on.
    pub parent_beacon_block_root: B256,
    /// From Amsterdam on.
    pub slot_number: u64,
    /// The gas limit to approach; `None` keeps the parent's.
    pub target_gas_limit: Option<u64>,
    /// Transactions are taken until they have used this, if the gas limit is not reached before.
    pub max_gas: Option<u64>,
}

/// A transaction that may be included in a block.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The transaction.
    pub tx: TxEnvelope,
    /// Who signed it.
    pub sender: Address,
}

/// Returns the next transaction to try, or `None` to end the block. The argument says why the previous one was left
/// out, if it was.
pub type NextCandidate<'a> = dyn FnMut(Option<&InvalidTransaction>) -> Option<Candidate> + 'a;

/// A block that was built.
#[derive(Clone, Debug)]
pub struct BuiltBlock {
    /// The block.
    pub block: Block,
    /// Its hash.
    pub hash: B256,
    /// EIP-7685 requests, each a type byte and its data.
    pub requests: Vec<Bytes>,
    /// RLP of the block access list; `None` before Amsterdam.
    pub block_access_list: Option<Bytes>,
    /// What the coinbase earns by the transactions' tips, wei.
    pub value: U256,
}

/// Why a block was not built.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BuildError {
    /// The parent is not stored.
    #[error("the parent {0} is not known; import it first")]
    UnknownParent(B256),
    /// The state after the parent is too far from the head.
    #[error("the state after the parent {0} is no longer within reach of the head")]
    OutOfReach(BlockId),
    /// Blocks of this chain are sealed by signers.
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
    /// Builds a block from `template` and all of `transactions`, in order. [`Chain::import`] stores it.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(
        &self,
        template: BlockTemplate,
        transactions: Vec<TxEnvelope>,
    ) -> Result<BuiltBlock, BuildError> {
        let senders = recover_senders(&transactions).enumerate();
        let senders = senders.map(|(index, sender)| {
            sender.map_err(|reason| InvalidBlock::Transaction { index, reason })
        });
        let senders: Vec<Address> = senders.collect::<Result<_, _>>()?;
        let mut offered = transactions.into_iter().zip(senders);
        let mut refused = None;
        let mut next = |refusal: Option<&InvalidTransaction>| {
            refused = refusal.cloned();
            let (tx, sender) = offered.next().filter(|_| refusal.is_none())?;
            Some(Candidate { tx, sender })
        };
        let built = self.build_best(template, &mut next)?;
        let index = built.block.body.transactions.len();
        match refused {
            Some(reason) => Err(InvalidBlock::Transaction { index, reason }.into()),
            None => Ok(built),
        }
    }

    /// Builds a block from `template` and those of the offered transactions that are valid and fit, in order.
    /// [`Chain::import`] stores it.
    ///
    /// # Errors
    /// [`BuildError`]; a transaction that does not fit is no error.
    pub fn build_best(
        &self,
        template: BlockTemplate,
        next: &mut NextCandidate<'_>,
    ) -> Result<BuiltBlock, BuildError> {
        let parent = self.template_parent(&template)?;
        match self.spec().seal {
            SealKind::Clique { .. } if !self.spec().is_terminal(parent.total_difficulty) => {
                Err(BuildError::Sealed("Clique"))
            }
            SealKind::Bft => Err(BuildError::Sealed("BFT")),
            SealKind::Clique { .. } | SealKind::Ethash { .. } | SealKind::None => {
                Ok(self.build_executed(template, parent, next)?.0)
            }
        }
    }

    /// Builds a block that validators are to agree on, likewise. [`Chain::commit_judged`] stores it, without executing it again, once it
    /// has seals.
    ///
    /// # Errors
    /// [`BuildError`]; a transaction that does not fit is no error.
    pub fn build_judged(
        &self,
        template: BlockTemplate,
        next: &mut NextCandidate<'_>,
    ) -> Result<(BuiltBlock, JudgedBlock), BuildError> {
        let parent = self.template_parent(&template)?;
        let (built, ready) = self.build_executed(template, parent, next)?;
        Ok((built, JudgedBlock::new(ready)))
    }

    fn template_parent(&self, template: &BlockTemplate) -> Result<StoredHeader, BuildError> {
        let parent = self.header(&template.parent)?;
        parent.ok_or(BuildError::UnknownParent(template.parent))
    }

    fn build_executed(
        &self,
        template: BlockTemplate,
        parent: StoredHeader,
        next: &mut NextCandidate<'_>,
    ) -> Result<(BuiltBlock, ReadyBlock), BuildError> {
        let max_gas = template.max_gas.unwrap_or(u64::MAX);
        let mut block = self.draft(template, &parent);
        let view = self.world().view_at(parent.id)?;
        let view = view.ok_or(BuildError::OutOfReach(parent.id))?;

        let mut executor = Executor::new(self.spec(), &block.header, &view);
        executor.begin_block(self.spec(), &block.header)?;
        let mut senders = Vec::new();
        let mut next = |refusal: Option<&InvalidTransaction>| {
            if refusal.is_some() {
                senders.pop();
            }
            let candidate = next(refusal)?;
            senders.push(candidate.sender);
            Some(candidate)
        };
        let (receipts, value) = self.fill(&mut executor, &mut block, max_gas, &view, &mut next)?;
        let executed = executor.finish_block(self.spec(), &block.header, &block.body, receipts)?;

        let prepared = self.world().compute_root(&view, &executed.diff)?;
        let roots = body_roots(&block.body);
        block.header.transactions_root = roots.transactions;
        block.header.withdrawals_root = roots.withdrawals;
        let access_list = self.access_list_of(&block, &executed)?;
        fill_in(&mut block.header, &executed, prepared.root());
        if let Some(hash) = &mut block.header.block_access_list_hash {
            *hash = access_list_hash(&access_list.clone().unwrap_or_default());
        }
        let hash = self.spec().header_hash(&block.header);
        let built = BuiltBlock {
            hash,
            block: block.clone(),
            requests: executed.requests.clone(),
            block_access_list: access_list.clone(),
            value,
        };
        senders.truncate(block.body.transactions.len());
        let block = Arc::new(block);
        let valid = ValidBlock {
            block: Arc::clone(&block),
            hash,
            view,
            executed,
            access_list,
            root: prepared,
        };
        let recovered = RecoveredBlock {
            block,
            hash,
            senders,
        };
        Ok((built, ReadyBlock::new(valid, parent, recovered)))
    }

    /// The bytes of the block access list, if its length is valid: in a block with a low gas limit, withdrawals and
    /// system calls could make it too long.
    fn access_list_of(
        &self,
        block: &Block,
        executed: &ExecutedBlock,
    ) -> Result<Option<Bytes>, InvalidBlock> {
        let Some(list) = &executed.block_access_list else {
            return Ok(None);
        };
        let transactions = block.body.transactions.len();
        check_access_list(self.spec(), list, &block.header, transactions)?;
        Ok(Some(encode_access_list(list)))
    }

    /// Executes the candidates and puts those that fit into the body.
    fn fill(
        &self,
        executor: &mut Executor<'_>,
        block: &mut Block,
        max_gas: u64,
        view: &View,
        next: &mut NextCandidate<'_>,
    ) -> Result<(Vec<Receipt>, U256), BuildError> {
        let base_fee = block.header.base_fee_per_gas;
        let min_gas = min_gas(executor.rules().fork);
        let has_status = executor.rules().fork >= Fork::Byzantium;
        let mut available = MAX_RLP_BLOCK_BYTES.saturating_sub(RESERVED_BYTES);
        let mut receipts = Vec::new();
        let mut value = U256::ZERO;
        let mut gas_used = 0_u64;
        let mut refusal = None;
        while let Some(Candidate { tx, sender }) = next(refusal.as_ref()) {
            refusal = None;
            let bytes = tx.encode_2718_len();
            if bytes > available {
                refusal = Some(InvalidTransaction::GasAllowanceExceeded {
                    got: bytes as u64,
                    available: available as u64,
                });
                continue;
            }
            let result = match executor.process_transaction(&tx, sender, None) {
                Ok(result) => result,
                Err(TransactionError::Invalid(reason)) => {
                    refusal = Some(reason);
                    continue;
                }
                Err(TransactionError::Fault(fault)) => return Err(fault.into()),
            };
            available -= bytes;
            let price = effective_gas_price(&tx, base_fee);
            let tip = price.saturating_sub(u128::from(base_fee.unwrap_or(0)));
            let earned = U256::from(tip).saturating_mul(U256::from(result.gas_used));
            value = value.saturating_add(earned);
            gas_used = gas_used.saturating_add(result.gas_used);
            let post_state = match has_status {
                true => None,
                false => Some(self.world().compute_root(view, &executor.diff())?.root()),
            };
            receipts.push(executor.receipt(tx.ty(), result, post_state));
            block.body.transactions.push(tx);
            let GasAvailable { execution, state } = executor.gas_available();
            if execution.min(state) < min_gas || gas_used >= max_gas {
                break;
            }
        }
        Ok((receipts, value))
    }

    /// The header of a child of the template's parent. What follows from the parent is filled in, what follows from
    /// execution is not.
    ///
    /// # Errors
    /// [`BuildError::UnknownParent`], [`BuildError::Fault`].
    pub fn next_header(&self, template: BlockTemplate) -> Result<Header, BuildError> {
        let parent = self
            .header(&template.parent)?
            .ok_or(BuildError::UnknownParent(template.parent))?;
        Ok(self.draft(template, &parent).header)
    }

    /// The block with all that is known before its execution, except the roots of its body.
    fn draft(&self, template: BlockTemplate, parent: &StoredHeader) -> Block {
        let spec = self.spec();
        let number = parent.header.number.saturating_add(1);
        let timestamp = template.timestamp;
        let merged = spec.is_terminal(parent.total_difficulty);
        let fork = spec.fork_at(number, timestamp, merged);
        let since = |first: Fork| fork >= first;
        let difficulty = match spec.seal {
            SealKind::Bft => U256::ONE,
            _ if since(Fork::Paris) => U256::ZERO,
            SealKind::Ethash {
                fixed_difficulty: Some(fixed),
            } => U256::from(fixed),
            _ => block_difficulty(fork, number, timestamp, &parent.header),
        };
        let base_fee = spec.next_base_fee(&parent.header);
        let excess_blob_gas = spec
            .blob_params_at(timestamp)
            .map(|params| next_excess_blob_gas(&parent.header, fork, &params));
        // The first block with a base fee counts its parent's limit twice (EIP-1559).
        let first_london = since(Fork::London) && parent.header.base_fee_per_gas.is_none();
        let before = match first_london {
            true => parent.header.gas_limit.saturating_mul(2),
            false => parent.header.gas_limit,
        };
        let gas_limit = match template.target_gas_limit {
            Some(target) => next_gas_limit(before, target),
            None => before,
        };
        let header = Header {
            parent_hash: parent.id.hash,
            beneficiary: template.coinbase,
            difficulty,
            number,
            gas_limit,
            timestamp,
            extra_data: template.extra_data,
            mix_hash: match spec.seal {
                SealKind::Bft => BFT_MIX_HASH,
                _ if since(Fork::Paris) => template.prev_randao,
                _ => B256::ZERO,
            },
            base_fee_per_gas: since(Fork::London).then_some(base_fee),
            excess_blob_gas: excess_blob_gas.filter(|_| since(Fork::Cancun)),
            parent_beacon_block_root: since(Fork::Cancun)
                .then_some(template.parent_beacon_block_root),
            // Their values follow from the execution, which must see that they are present.
            blob_gas_used: since(Fork::Cancun).then_some(0),
            requests_hash: since(Fork::Prague).then_some(B256::ZERO),
            block_access_list_hash: since(Fork::Amsterdam).then_some(B256::ZERO),
            slot_number: (since(Fork::Amsterdam) && spec.seal != SealKind::Bft)
                .then_some(template.slot_number),
            ..Header::default()
        };
        let withdrawals = Withdrawals::new(template.withdrawals);
        let body = BlockBody {
            transactions: Vec::new(),
            ommers: Vec::new(),
            withdrawals: since(Fork::Shanghai).then_some(withdrawals),
        };
        Block { header, body }
    }
}

fn fill_in(header: &mut Header, executed: &ExecutedBlock, state_root: B256) {
    header.state_root = state_root;
    let receipts = Receipts::of(&executed.receipts);
    header.receipts_root = receipts.root();
    header.logs_bloom = receipts.logs_bloom();
    header.gas_used = executed.gas_used;
    if let Some(blob_gas_used) = &mut header.blob_gas_used {
        *blob_gas_used = executed.blob_gas_used;
    }
    if let Some(hash) = &mut header.requests_hash {
        *hash = requests_hash(&executed.requests);
    }
}
