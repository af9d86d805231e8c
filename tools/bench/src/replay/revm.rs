//! The same transactions on revm, on a state that is equally warm: accounts, slots and analysed codes in maps.
//!
//! Each run commits every transaction into revm's `State` and collects the changes, as a node built on revm does. It
//! computes receipt blooms where our time includes them. revm does not execute system calls, withdrawals and rewards.

use alloy_primitives::logs_bloom;
use eyre::{Result, ensure, eyre};
use niwaki_fuzz::{revm_block, spec_id, tx_env};
use niwaki_primitives::{Account, Address, Bytes, Fork, RecoveredBlock, StateView, U256};
use niwaki_rules::{BlockRules, ChainSpec};
use niwaki_testkit::MemoryState;
use revm::{
    Context, ExecuteCommitEvm, MainBuilder, MainContext,
    bytecode::Bytecode,
    context::TxEnv,
    database::{CacheDB, EmptyDB, State, WrapDatabaseRef, states::bundle_state::BundleRetention},
    primitives::hardfork::SpecId,
    state::AccountInfo,
};
use std::time::{Duration, Instant};

/// Ancestors whose hashes BLOCKHASH can read.
const HASHES: u64 = 256;

/// A block's transactions, ready to run.
pub(super) struct RevmBlock<'b> {
    block: &'b RecoveredBlock,
    rules: BlockRules,
    spec: SpecId,
    state: CacheDB<EmptyDB>,
    transactions: Vec<TxEnv>,
    with_blooms: bool,
}

/// A state whose values can be listed.
pub(super) trait AllValues: StateView {
    fn accounts(&self) -> Vec<(Address, Account, Bytes)>;
    fn slots(&self) -> Vec<(Address, U256, U256)>;
}

impl AllValues for MemoryState {
    fn accounts(&self) -> Vec<(Address, Account, Bytes)> {
        let of = |address| self.account(address).ok().flatten();
        let accounts = self.accounts.iter();
        let existing = accounts.filter_map(|(address, account)| {
            Some((*address, of(address)?, Bytes::clone(&account.code)))
        });
        existing.collect()
    }

    fn slots(&self) -> Vec<(Address, U256, U256)> {
        let of_each = self.accounts.iter().flat_map(|(address, account)| {
            account
                .storage
                .iter()
                .map(|(slot, value)| (*address, *slot, *value))
        });
        of_each.collect()
    }
}

impl<'b> RevmBlock<'b> {
    /// `None` for a block before Byzantium: its receipts hold state roots, and collecting the changes for them after
    /// each transaction is not revm's work.
    ///
    /// # Errors
    /// If revm does not know the fork.
    pub(super) fn new(
        spec: &ChainSpec,
        block: &'b RecoveredBlock,
        values: &impl AllValues,
        with_blooms: bool,
    ) -> Result<Option<Self>> {
        let header = &block.block.header;
        let rules = BlockRules::new(spec, header);
        if rules.fork < Fork::Byzantium {
            return Ok(None);
        }
        let spec =
            spec_id(rules.fork).ok_or_else(|| eyre!("revm has no rules of {}", rules.fork))?;
        let mut state = CacheDB::new(EmptyDB::default());
        for (address, account, code) in values.accounts() {
            let code = Bytecode::new_raw_checked(code.clone())
                .unwrap_or_else(|_| Bytecode::new_legacy(code));
            let info = AccountInfo::default()
                .with_nonce(account.nonce)
                .with_balance(account.balance)
                .with_code_and_hash(code, account.code_hash);
            state.insert_account_info(address, info);
        }
        for (address, slot, value) in values.slots() {
            state
                .insert_account_storage(address, slot, value)
                .map_err(|error| eyre!("revm: {error:?}"))?;
        }
        for number in header.number.saturating_sub(HASHES)..header.number {
            if let Ok(hash) = values.block_hash(number) {
                state.cache.block_hashes.insert(U256::from(number), hash);
            }
        }
        let transactions = block.transactions().map(|(tx, sender)| tx_env(tx, sender));
        Ok(Some(Self {
            with_blooms,
            block,
            rules,
            spec,
            state,
            transactions: transactions.collect(),
        }))
    }

    /// Runs all transactions; returns the time.
    ///
    /// # Errors
    /// If a transaction is invalid, or the total gas is not that of the block.
    pub(super) fn run(&self) -> Result<Duration> {
        let header = &self.block.block.header;
        let transactions = self.transactions.clone();
        let began = Instant::now();
        let mut evm = Context::mainnet()
            .modify_cfg_chained(|cfg| {
                cfg.set_spec_and_mainnet_gas_params(self.spec);
                cfg.chain_id = self.rules.chain_id;
            })
            .modify_block_chained(|block| *block = revm_block(header, &self.rules))
            .with_db(
                State::builder()
                    .with_database(WrapDatabaseRef(&self.state))
                    .with_bundle_update()
                    .build(),
            )
            .build_mainnet();
        let mut gas = 0;
        let mut results = Vec::with_capacity(transactions.len());
        for (index, tx) in transactions.into_iter().enumerate() {
            let result = evm
                .transact_commit(tx)
                .map_err(|error| eyre!("revm, transaction {index}: {error:?}"))?;
            gas += result.tx_gas_used();
            results.push(result);
        }
        let state = &mut evm.ctx.journaled_state.database;
        state.merge_transitions(BundleRetention::Reverts);
        if self.with_blooms {
            let blooms = results.iter().map(|result| logs_bloom(result.logs()));
            std::hint::black_box(blooms.collect::<Vec<_>>());
        }
        let took = began.elapsed();
        let expected = header.gas_used;
        ensure!(
            gas == expected,
            "revm used {gas} gas, the chain has {expected}"
        );
        Ok(took)
    }
}
