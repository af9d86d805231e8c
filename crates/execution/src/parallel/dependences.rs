//! Which transactions of a block look at what others before them have changed: for whoever wants to know
//! what more threads would bring.

use super::before::Before;
use super::listed::{Listed, last_before};
use crate::body::at_index;
use crate::executor::{ExecuteError, Executor};
use niwaki_evm::Effects;
use niwaki_primitives::{AccountChanges, Address, RecoveredBlock, StateView, map::HashMap};
use niwaki_rules::ChainSpec;

/// What a transaction of a block must wait for, if it is to run ahead of its turn and to be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependences {
    /// The least number of the block's transactions that must count before; `None` if no run ahead holds.
    pub after: Option<usize>,
    /// Those that have made the values it looks at, by their index, ascending.
    pub upon: Vec<usize>,
}

/// What each transaction of a block must wait for, by the rule by which runs ahead are kept. `list` is
/// the block's true access list, the transactions alone: the values before each come from it. Takes about
/// as long as running each transaction as often as its index has binary digits.
///
/// # Errors
/// As [`apply_body`](crate::apply_body).
pub fn dependences_of(
    spec: &ChainSpec,
    (block, list): (&RecoveredBlock, &[AccountChanges]),
    view: &(dyn StateView + Sync),
) -> Result<Vec<Dependences>, ExecuteError> {
    let header = &block.block.header;
    let listed = Listed::new(view, list);
    let before = Before::Listed(&listed).view();
    let makers = Makers::of(list);
    let mut ahead = Executor::new(spec, header, before.state());
    let mut in_turn = Executor::new(spec, header, view);
    let transactions = &block.block.body.transactions;
    let mut all = Vec::with_capacity(transactions.len());
    for (index, tx) in transactions.iter().enumerate() {
        let sender = in_turn.sender(block, index)?;
        let mut run_after = |count| -> Result<Option<Effects>, ExecuteError> {
            before.begin(count, ahead.evm.world());
            let Some((_, effects)) = ahead.run_ahead(tx, sender) else {
                return Ok(None);
            };
            let world = in_turn.evm.world();
            let holds = before.take_told().is_known_to(world) && world.holds(&effects)?.is_some();
            Ok(holds.then_some(effects))
        };
        let mut own = Dependences::default();
        if let Some(effects) = run_after(index)? {
            // What holds after some transactions is taken to hold after more of them.
            let (mut fails, mut holds) = (0_usize, index);
            if index == 0 || run_after(0)?.is_some() {
                holds = 0;
            }
            while fails.saturating_add(1) < holds {
                let middle = usize::midpoint(fails, holds);
                match run_after(middle)? {
                    Some(_) => holds = middle,
                    None => fails = middle,
                }
            }
            own.after = Some(holds);
            own.upon = makers.of_what_was_read(&effects, holds, sender);
        }
        all.push(own);
        let result = in_turn.process_transaction(tx, sender, None);
        result.map_err(|error| at_index(index, error))?;
    }
    Ok(all)
}

/// Who has changed what, by the list.
struct Makers<'l>(HashMap<Address, &'l AccountChanges>);

impl<'l> Makers<'l> {
    fn of(list: &'l [AccountChanges]) -> Self {
        Self(
            list.iter()
                .map(|changes| (changes.address, changes))
                .collect(),
        )
    }

    /// The last of the first `count` transactions to change each thing that was read, and the very last of
    /// them, without which the run would not hold. The sender's nonce is taken to be right.
    fn of_what_was_read(&self, effects: &Effects, count: usize, sender: Address) -> Vec<usize> {
        let mut upon: Vec<u64> = Vec::new();
        let end = (count as u64).saturating_add(1);
        for (address, balance, nonce) in effects.accounts_read() {
            let Some(changes) = self.0.get(&address) else {
                continue;
            };
            let codes = &changes.code_changes;
            upon.extend(last(codes, end, |change| change.block_access_index.0));
            if balance {
                let balances = &changes.balance_changes;
                upon.extend(last(balances, end, |change| change.block_access_index.0));
            }
            if nonce && address != sender {
                let nonces = &changes.nonce_changes;
                upon.extend(last(nonces, end, |change| change.block_access_index.0));
            }
        }
        for (address, key) in effects.slots_read() {
            let slots = self.0.get(&address).map(|changes| &changes.storage_changes);
            let slot = slots.and_then(|slots| {
                let at = slots.binary_search_by(|changes| changes.slot.cmp(&key));
                slots.get(at.ok()?)
            });
            if let Some(slot) = slot {
                upon.extend(last(&slot.changes, end, |change| {
                    change.block_access_index.0
                }));
            }
        }
        // Index 0 of the list is what comes before the first transaction.
        let upon = upon.iter().filter_map(|index| index.checked_sub(1));
        let mut upon: Vec<usize> = upon.filter_map(|index| index.try_into().ok()).collect();
        upon.extend(count.checked_sub(1));
        upon.sort_unstable();
        upon.dedup();
        upon
    }
}

/// The index of the last of `changes` before `end`.
fn last<T>(changes: &[T], end: u64, index_of: impl Fn(&T) -> u64) -> Option<u64> {
    let at = last_before(changes, end, &index_of)?;
    Some(index_of(&changes[at]))
}
