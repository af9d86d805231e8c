//! Which transactions of a block read what transactions before them have changed: the data of a model that tells
//! what more threads would gain (`niwaki-bench model`).

use super::bal_view::{Bal, last_before};
use super::speculative_base::SpeculativeBase;
use crate::body::at_index;
use crate::executor::{ExecuteError, Executor};
use niwaki_evm::ReadWriteSet;
use niwaki_primitives::{AccountChanges, Address, RecoveredBlock, StateView, map::HashMap};
use niwaki_rules::ChainSpec;

/// What must be committed before a speculative execution of a transaction is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxDependencies {
    /// How many of the block's first transactions must be committed; `None` if no speculative execution is valid.
    pub after: Option<usize>,
    /// Indices of the transactions that wrote the values it reads, ascending.
    pub writers: Vec<usize>,
}

/// The dependencies of each transaction of a block, by the rule by which speculative results are validated. `bal` is
/// the block's true access list, which gives the values before each transaction. Executes each transaction about log2
/// of its index times.
///
/// # Errors
/// As [`apply_body`](crate::apply_body).
pub fn tx_dependencies(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    bal: &[AccountChanges],
    view: &(dyn StateView + Sync),
) -> Result<Vec<TxDependencies>, ExecuteError> {
    let header = &block.block.header;
    let writers = Writers::of(bal);
    let bal = Bal::new(view, bal);
    let base = SpeculativeBase::Bal(&bal).view();
    let mut speculative = Executor::new(spec, header, base.state());
    let mut sequential = Executor::new(spec, header, view);
    let mut all = Vec::with_capacity(block.senders.len());
    for (index, (tx, sender)) in block.transactions().enumerate() {
        let mut execute_after = |count| -> Result<Option<ReadWriteSet>, ExecuteError> {
            base.begin(count, speculative.evm.world());
            let Some((_, read_write_set)) = speculative.speculate(tx, sender) else {
                return Ok(None);
            };
            let world = sequential.evm.world();
            let is_valid = base.take_bal_reads().are_loaded_in(world)
                && world.validate(&read_write_set)?.is_some();
            Ok(is_valid.then_some(read_write_set))
        };
        let mut own = TxDependencies::default();
        if let Some(read_write_set) = execute_after(index)? {
            // What is valid after some transactions is taken to be valid after more of them.
            let (mut invalid, mut valid) = (0_usize, index);
            if index == 0 || execute_after(0)?.is_some() {
                valid = 0;
            }
            while invalid.saturating_add(1) < valid {
                let middle = usize::midpoint(invalid, valid);
                match execute_after(middle)? {
                    Some(_) => valid = middle,
                    None => invalid = middle,
                }
            }
            own.after = Some(valid);
            own.writers = writers.of_reads(&read_write_set, valid, sender);
        }
        all.push(own);
        let result = sequential.process_transaction(tx, sender, None);
        result.map_err(|error| at_index(index, error))?;
    }
    Ok(all)
}

/// Which transactions have written what, by the access list.
struct Writers<'l>(HashMap<Address, &'l AccountChanges>);

impl<'l> Writers<'l> {
    fn of(list: &'l [AccountChanges]) -> Self {
        Self(
            list.iter()
                .map(|changes| (changes.address, changes))
                .collect(),
        )
    }

    /// Of the first `count` transactions, the last writer of each value that was read, and the very last of them,
    /// without which the execution would not be valid. The sender's nonce is taken to be right.
    fn of_reads(&self, read_write_set: &ReadWriteSet, count: usize, sender: Address) -> Vec<usize> {
        let mut writers: Vec<u64> = Vec::new();
        let end = (count as u64).saturating_add(1);
        for (address, balance, nonce) in read_write_set.accounts_read() {
            let Some(changes) = self.0.get(&address) else {
                continue;
            };
            let codes = &changes.code_changes;
            writers.extend(last(codes, end, |change| change.block_access_index.0));
            if balance {
                let balances = &changes.balance_changes;
                writers.extend(last(balances, end, |change| change.block_access_index.0));
            }
            if nonce && address != sender {
                let nonces = &changes.nonce_changes;
                writers.extend(last(nonces, end, |change| change.block_access_index.0));
            }
        }
        for (address, key) in read_write_set.slots_read() {
            let slots = self.0.get(&address).map(|changes| &changes.storage_changes);
            let slot = slots.and_then(|slots| {
                let at = slots.binary_search_by(|changes| changes.slot.cmp(&key));
                slots.get(at.ok()?)
            });
            if let Some(slot) = slot {
                writers.extend(last(&slot.changes, end, |change| {
                    change.block_access_index.0
                }));
            }
        }
        // Block access index 0 is what comes before the first transaction.
        let writers = writers.iter().filter_map(|index| index.checked_sub(1));
        let mut writers: Vec<usize> = writers.filter_map(|index| index.try_into().ok()).collect();
        writers.extend(count.checked_sub(1));
        writers.sort_unstable();
        writers.dedup();
        writers
    }
}

/// The block access index of the last of `changes` before `end`.
fn last<T>(changes: &[T], end: u64, index_of: impl Fn(&T) -> u64) -> Option<u64> {
    let at = last_before(changes, end, &index_of)?;
    Some(index_of(&changes[at]))
}
