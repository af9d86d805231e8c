//! Runs a case on this machine.

use crate::case::{CHAIN_ID, Case, End, Outcome};
use alloy_primitives::keccak256;
use niwaki_evm::{Dispatch, Exit};
use niwaki_execution::{Executor, TransactionError};
use niwaki_primitives::{Address, B256, U256};
use niwaki_rules::ChainSpec;
use niwaki_testkit::{MemoryAccount, MemoryState};
use std::collections::BTreeMap;

/// An account in comparable form: nonce, balance, code hash, storage without zeros.
pub(crate) type AccountValues = (u64, U256, B256, BTreeMap<U256, U256>);

pub(crate) fn run(
    case: &Case,
    dispatch: Dispatch,
) -> (Vec<Outcome>, BTreeMap<Address, AccountValues>) {
    let spec = ChainSpec::single(CHAIN_ID, case.fork);
    let mut executor = Executor::new(&spec, &case.header, &case.state);
    executor.evm().set_dispatch(dispatch);
    let outcomes = case
        .transactions
        .iter()
        .map(
            |(tx, sender)| match executor.process_transaction(tx, *sender, None) {
                Ok(result) => Outcome::Ran {
                    end: match result.exit {
                        Exit::Revert => End::Revert,
                        Exit::Halt(_) => End::Halt,
                        _ => End::Success,
                    },
                    gas_used: result.gas_used,
                    output: result.output,
                    logs: result.logs,
                },
                Err(TransactionError::Invalid(_)) => Outcome::Refused,
                Err(TransactionError::Fault(fault)) => panic!("memory does not fail: {fault}"),
            },
        )
        .collect();
    let mut state = case.state.clone();
    state.apply(&executor.diff());
    let mut accounts = values(&state);
    accounts.retain(|_, account| !is_empty(account));
    (outcomes, accounts)
}

/// The accounts of `state` in comparable form.
pub(crate) fn values(state: &MemoryState) -> BTreeMap<Address, AccountValues> {
    let values = |account: &MemoryAccount| {
        let hash = keccak256(&**account.code);
        let storage = account.storage.clone();
        (account.nonce, account.balance, hash, storage)
    };
    let accounts = state.accounts.iter();
    accounts
        .map(|(address, account)| (*address, values(account)))
        .collect()
}

/// Whether an account is empty. Before Spurious Dragon revm does not distinguish an empty account from an absent one;
/// fixtures cover that.
pub(crate) fn is_empty(account: &AccountValues) -> bool {
    let (nonce, balance, hash, _) = account;
    *nonce == 0 && balance.is_zero() && *hash == niwaki_primitives::EMPTY_CODE_HASH
}
