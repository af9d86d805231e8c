//! One block, executed one transaction after the other, in the order of the specification.
//!
//! [`apply_body`] is the oracle: whatever executes a block faster must give the same [`ExecutedBlock`], byte for byte.

use crate::{
    dao,
    executor::{ExecuteError, Executor},
    observer::{BlockObserver, Observed},
    senders::RecoveringBlock,
    system::{BEACON_ROOTS, HISTORY_STORAGE},
    transaction::{TransactionError, TransactionResult},
};
use niwaki_primitives::{
    B256, Block, BlockAccessList, BlockBody, Bytes, Fault, Fork, Header, Receipt, RecoveredBlock,
    StateDiff, StateView, Typed2718, U256, Withdrawal,
};
use niwaki_rules::{BlockReward, ChainSpec, InvalidBlock, ommer_reward, recover_senders};

/// The result of executing a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutedBlock {
    /// What changed.
    pub diff: StateDiff,
    /// One receipt per transaction.
    pub receipts: Vec<Receipt>,
    /// EIP-7685 requests, each a type byte and its data; empty before Prague.
    pub requests: Vec<Bytes>,
    /// What the block has touched and changed (EIP-7928); `None` before Amsterdam.
    pub block_access_list: Option<BlockAccessList>,
    /// The header's gas: that of all transactions; from Amsterdam on the larger of execution gas
    /// before refunds and state gas (EIP-7778, EIP-8037).
    pub gas_used: u64,
    /// Blob gas used by all transactions.
    pub blob_gas_used: u64,
}

/// Recovers the senders of all transactions.
///
/// # Errors
/// [`InvalidBlock::Transaction`] with the first transaction whose signature is not valid.
pub fn recover_block(block: Block, hash: B256) -> Result<RecoveredBlock, InvalidBlock> {
    let senders = recover_senders(&block.body.transactions)
        .enumerate()
        .map(|(index, sender)| sender.map_err(|reason| InvalidBlock::Transaction { index, reason }))
        .collect::<Result<_, _>>()?;
    Ok(RecoveredBlock {
        block: block.into(),
        hash,
        senders,
    })
}

/// Executes the body of a block on top of the state after its parent.
///
/// The header is trusted here: the caller compares what it claims with the result.
///
/// # Errors
/// [`ExecuteError::Invalid`] if a transaction or a system contract breaks the protocol,
/// [`ExecuteError::Fault`] if the state can't be read.
///
/// Spec: execution-specs `amsterdam/fork.py`, `apply_body`; of earlier forks likewise.
pub fn apply_body(
    spec: &ChainSpec,
    block: &RecoveringBlock,
    view: &dyn StateView,
    observer: &mut dyn BlockObserver,
) -> Result<ExecutedBlock, ExecuteError> {
    Executor::new(spec, &block.block.header, view).apply_body(spec, block, observer)
}

impl Executor<'_> {
    /// As the function [`apply_body`], on an executor that the caller has set up for this block.
    ///
    /// # Errors
    /// As [`apply_body`].
    pub fn apply_body(
        mut self,
        spec: &ChainSpec,
        block: &RecoveringBlock,
        observer: &mut dyn BlockObserver,
    ) -> Result<ExecutedBlock, ExecuteError> {
        self.begin_block(spec, &block.block.header)?;
        let receipts = self.process_transactions(block, &mut Observed::new(observer))?;
        self.finish_block(spec, &block.block.header, &block.block.body, receipts)
    }

    /// What happens before the first transaction: system calls, whose failure does not make the block invalid, and the
    /// DAO fork's change.
    ///
    /// # Errors
    /// A [`Fault`] of the state.
    pub fn begin_block(&mut self, spec: &ChainSpec, header: &Header) -> Result<(), Fault> {
        let fork = self.rules.fork;
        if let Some(root) = header
            .parent_beacon_block_root
            .filter(|_| fork >= Fork::Cancun && spec.has_system_calls())
        {
            self.system_call(BEACON_ROOTS, root.0.into())?;
        }
        if fork >= Fork::Prague && spec.has_system_calls() {
            self.system_call(HISTORY_STORAGE, header.parent_hash.0.into())?;
        }
        if spec
            .dao_fork
            .is_some_and(|dao| dao.support && dao.block == header.number)
        {
            dao::move_funds(self.evm.world())?;
        }
        self.evm.world().close_access_index();
        Ok(())
    }

    /// What happens after the last transaction: withdrawals, rewards and requests. Of `body` only ommers and
    /// withdrawals are read.
    ///
    /// # Errors
    /// As [`apply_body`].
    pub fn finish_block(
        mut self,
        spec: &ChainSpec,
        header: &Header,
        body: &BlockBody,
        receipts: Vec<Receipt>,
    ) -> Result<ExecutedBlock, ExecuteError> {
        let requests = self.end_block(spec, header, body, &receipts)?;
        Ok(self.executed(receipts, requests))
    }

    /// Withdrawals, rewards and requests. Returns the requests.
    pub(crate) fn end_block(
        &mut self,
        spec: &ChainSpec,
        header: &Header,
        body: &BlockBody,
        receipts: &[Receipt],
    ) -> Result<Vec<Bytes>, ExecuteError> {
        if let Some(withdrawals) = &body.withdrawals {
            self.process_withdrawals(withdrawals)?;
        }
        self.pay_rewards(header, &body.ommers)?;
        match self.rules.fork >= Fork::Prague && spec.has_system_calls() {
            true => self.collect_requests(spec, receipts),
            false => Ok(Vec::new()),
        }
    }

    /// The result of a block whose last step is done.
    pub(crate) fn executed(
        &mut self,
        receipts: Vec<Receipt>,
        requests: Vec<Bytes>,
    ) -> ExecutedBlock {
        let world = self.evm.world();
        world.close_access_index();
        let block_access_list = world.take_access_list();

        ExecutedBlock {
            diff: self.diff(),
            receipts,
            requests,
            block_access_list,
            gas_used: self.used.header_gas(self.rules.fork),
            blob_gas_used: self.used.blob,
        }
    }

    pub(crate) fn process_transactions(
        &mut self,
        block: &RecoveringBlock,
        observed: &mut Observed<'_>,
    ) -> Result<Vec<Receipt>, ExecuteError> {
        let transactions = &block.block.body.transactions;
        let mut receipts = Vec::with_capacity(transactions.len());
        for (index, tx) in transactions.iter().enumerate() {
            let sender = self.sender(block, index)?;
            let result = self
                .process_transaction(tx, sender, None)
                .map_err(|error| at_index(index, error))?;
            // EIP-658 put the status in the place of the intermediate root.
            let post_state = if self.rules.fork >= Fork::Byzantium {
                None
            } else {
                Some(observed.observer.intermediate_root(&self.diff())?)
            };
            receipts.push(self.receipt(tx.ty(), result, post_state));
            observed.committed(self, &block.block.header, &receipts);
        }
        Ok(receipts)
    }

    /// The receipt of the transaction that was committed last, of type `tx_type`; `post_state` is the state root after
    /// it, before Byzantium.
    pub fn receipt(
        &self,
        tx_type: u8,
        result: TransactionResult,
        post_state: Option<B256>,
    ) -> Receipt {
        Receipt {
            tx_type,
            status: post_state.is_none().then(|| result.exit.is_success()),
            post_state,
            cumulative_gas_used: self.used.gas,
            logs: result.logs,
        }
    }

    /// Spec: EIP-4895; execution-specs `shanghai/fork.py`, `process_withdrawals`.
    fn process_withdrawals(&mut self, withdrawals: &[Withdrawal]) -> Result<(), Fault> {
        const WEI_PER_GWEI: u64 = 1_000_000_000;
        let world = self.evm.world();
        world.begin_transaction();
        for withdrawal in withdrawals {
            let amount = U256::from(withdrawal.amount).saturating_mul(U256::from(WEI_PER_GWEI));
            let account = world.load(&withdrawal.address)?;
            world.add_balance(account, amount);
        }
        world.end_transaction();
        Ok(())
    }

    /// Spec: execution-specs `frontier/fork.py`, `pay_rewards`.
    fn pay_rewards(&mut self, header: &Header, ommers: &[Header]) -> Result<(), Fault> {
        let Some(base) = self.base_reward else {
            return Ok(());
        };
        let reward = BlockReward::of(base, ommers.len());
        let world = self.evm.world();
        world.begin_transaction();
        let beneficiary = world.load(&self.beneficiary)?;
        world.add_balance(beneficiary, reward.coinbase);
        for ommer in ommers {
            let amount = ommer_reward(reward.base, header.number, ommer.number);
            let account = world.load(&ommer.beneficiary)?;
            world.add_balance(account, amount);
        }
        world.end_transaction();
        Ok(())
    }
}

/// The error of a block whose transaction at `index` can't be executed.
pub(crate) fn at_index(index: usize, error: TransactionError) -> ExecuteError {
    match error {
        TransactionError::Fault(fault) => fault.into(),
        TransactionError::Invalid(reason) => InvalidBlock::Transaction { index, reason }.into(),
    }
}
