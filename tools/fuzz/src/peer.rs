//! Runs a case on revm.

use crate::{
    case::{CHAIN_ID, Case, End, Outcome},
    ours::{AccountValues, is_empty, values},
    terms::{revm_block, spec_id, tx_env},
};
use niwaki_primitives::{Address, Bytes, Fault, Fork, StateView, Transaction, U256};
use niwaki_rules::{BlockRules, ChainSpec, blob_gas_of};
use revm::{
    Context, ExecuteCommitEvm, MainBuilder, MainContext,
    bytecode::Bytecode,
    context::result::{ExecutionResult, ResultGas},
    database::{BundleState, State, WrapDatabaseRef, states::bundle_state::BundleRetention},
    database_interface::{DBErrorMarker, DatabaseRef},
    state::AccountInfo,
};
use std::collections::BTreeMap;

/// The pre-state as a database of revm.
struct Reader<'a>(&'a niwaki_testkit::MemoryState);

/// A fault in revm's terms.
#[derive(Debug)]
struct ReadError(Fault);

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
impl std::error::Error for ReadError {}
impl DBErrorMarker for ReadError {}

impl DatabaseRef for Reader<'_> {
    type Error = ReadError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, ReadError> {
        let Some(account) = self.0.accounts.get(&address) else {
            return Ok(None);
        };
        let code = Bytecode::new_raw_checked(Bytes::clone(&account.code))
            .unwrap_or_else(|_| Bytecode::new_legacy(Bytes::clone(&account.code)));
        let info = AccountInfo::default()
            .with_nonce(account.nonce)
            .with_balance(account.balance)
            .with_code_and_hash(code, revm::primitives::keccak256(&**account.code));
        Ok(Some(info))
    }

    fn code_by_hash_ref(&self, hash: revm::primitives::B256) -> Result<Bytecode, ReadError> {
        self.0.code(&hash).map(Bytecode::new_raw).map_err(ReadError)
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, ReadError> {
        self.0.storage(&address, &slot).map_err(ReadError)
    }

    fn block_hash_ref(&self, number: u64) -> Result<revm::primitives::B256, ReadError> {
        self.0.block_hash(number).map_err(ReadError)
    }
}

/// Gas left in the block: for execution, and from Amsterdam on for state.
struct GasLeft {
    execution: u64,
    state: u64,
}

impl GasLeft {
    fn of(gas_limit: u64) -> Self {
        Self {
            execution: gas_limit,
            state: gas_limit,
        }
    }

    /// Whether a transaction with this gas fits. (revm does not know the bound of a transaction.)
    fn fits(&self, gas: u64, fork: Fork) -> bool {
        if fork < Fork::Amsterdam {
            return gas <= self.execution;
        }
        let execution = gas.min(niwaki_rules::TX_MAX_GAS_LIMIT);
        execution <= self.execution && gas <= self.state && gas <= u64::from(u32::MAX)
    }

    fn use_gas(&mut self, gas: &ResultGas, fork: Fork) {
        if fork < Fork::Amsterdam {
            self.execution -= gas.tx_gas_used();
        } else {
            self.execution -= gas.block_regular_gas_used();
            self.state -= gas.block_state_gas_used();
        }
    }
}

pub(crate) fn run(case: &Case) -> (Vec<Outcome>, BTreeMap<Address, AccountValues>) {
    let spec = ChainSpec::single(CHAIN_ID, case.fork);
    let rules = BlockRules::new(&spec, &case.header);
    let header = &case.header;
    let mut evm = Context::mainnet()
        .modify_cfg_chained(|cfg| {
            cfg.set_spec_and_mainnet_gas_params(
                spec_id(case.fork).expect("of those that revm knows"),
            );
            cfg.chain_id = CHAIN_ID;
            cfg.max_blobs_per_tx = rules.blob_params.map(|p| p.max.min(6));
        })
        .modify_block_chained(|block| *block = revm_block(header, &rules))
        .with_db(
            State::builder()
                .with_database(WrapDatabaseRef(Reader(&case.state)))
                .with_bundle_update()
                .build(),
        )
        .build_mainnet();
    let mut outcomes = Vec::new();
    let (mut gas_left, mut blob_gas_left) = (GasLeft::of(header.gas_limit), rules.max_blob_gas());
    for (tx, sender) in &case.transactions {
        // revm leaves the block's gas limits to its caller.
        let blob_gas = blob_gas_of(tx);
        let fits = gas_left.fits(tx.gas_limit(), case.fork) && blob_gas <= blob_gas_left;
        let result = fits.then(|| evm.transact_commit(tx_env(tx, *sender)));
        outcomes.push(match result {
            Some(Ok(result)) => {
                gas_left.use_gas(result.gas(), case.fork);
                blob_gas_left -= blob_gas;
                outcome(result)
            }
            _ => Outcome::Refused,
        });
    }
    let state = &mut evm.ctx.journaled_state.database;
    state.merge_transitions(BundleRetention::PlainState);
    (outcomes, post_state(case, &state.bundle_state))
}

fn outcome(result: ExecutionResult) -> Outcome {
    let gas_used = result.tx_gas_used();
    let end = match &result {
        ExecutionResult::Success { .. } => End::Success,
        ExecutionResult::Revert { .. } => End::Revert,
        ExecutionResult::Halt { .. } => End::Halt,
    };
    let output = result.output().cloned().unwrap_or_default();
    let logs = result.into_logs();
    Outcome::Ran {
        end,
        gas_used,
        output,
        logs: if end == End::Success { logs } else { vec![] },
    }
}

/// The accounts after the transactions: the pre-state with the changes in `bundle`.
fn post_state(case: &Case, bundle: &BundleState) -> BTreeMap<Address, AccountValues> {
    let mut accounts = values(&case.state);
    for (address, account) in &bundle.state {
        let Some(info) = &account.info else {
            accounts.remove(address);
            continue;
        };
        let entry = accounts.entry(*address).or_default();
        (entry.0, entry.1, entry.2) = (info.nonce, info.balance, info.code_hash);
        if account.status.was_destroyed() {
            entry.3.clear();
        }
        for (slot, value) in &account.storage {
            if value.present_value.is_zero() {
                entry.3.remove(slot);
            } else {
                entry.3.insert(*slot, value.present_value);
            }
        }
    }
    accounts.retain(|_, account| !is_empty(account));
    accounts
}
