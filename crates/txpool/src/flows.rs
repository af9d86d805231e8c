//! What has come into the pool, moved up in it and left it since the start, by kind of transaction.

use crate::events::{DropReason, PoolEvent};
use crate::transaction::{Origin, PooledTransaction};
use std::collections::BTreeMap;

/// Transactions that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxClass {
    /// Whether the next block could include them.
    pub pending: bool,
    /// Whether they precede others and are never evicted.
    pub priority: bool,
    /// Where they come from.
    pub origin: Origin,
}

impl TxClass {
    pub(crate) fn of(tx: &PooledTransaction, pending: bool) -> Self {
        Self {
            pending,
            priority: tx.priority,
            origin: tx.origin,
        }
    }
}

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    /// Transactions added, by what they were then.
    pub added: BTreeMap<TxClass, u64>,
    /// Queued transactions that became pending, by what they were before.
    pub promoted: BTreeMap<TxClass, u64>,
    /// Pending transactions that became queued, by what they were before.
    pub demoted: BTreeMap<TxClass, u64>,
    /// Transactions removed, by what they were then.
    pub removed: BTreeMap<(DropReason, TxClass), u64>,
}

impl Flows {
    /// All transactions added from there.
    pub fn added_from(&self, origin: Origin) -> u64 {
        let classes = self.added.iter();
        let from = classes.filter(|(class, _)| class.origin == origin);
        from.map(|(_, count)| count).sum()
    }

    /// All transactions added.
    pub fn added(&self) -> u64 {
        self.added.values().sum()
    }

    /// All transactions removed for this reason.
    pub fn removed_for(&self, reason: DropReason) -> u64 {
        let all = self.removed.iter();
        let of_reason = all.filter(|((of, _), _)| *of == reason);
        of_reason.map(|(_, count)| count).sum()
    }

    pub(crate) fn count_demoted(&mut self, tx: &PooledTransaction) {
        *self.demoted.entry(TxClass::of(tx, true)).or_default() += 1;
    }

    /// Counts what listeners of the pool hear.
    pub(crate) fn count(&mut self, event: &PoolEvent) {
        let count = match event {
            PoolEvent::Added { tx, pending } => self.added.entry(TxClass::of(tx, *pending)),
            PoolEvent::Promoted { tx } => self.promoted.entry(TxClass::of(tx, false)),
            PoolEvent::Missed { .. } => return,
            PoolEvent::Dropped {
                tx,
                reason,
                pending,
                ..
            } => {
                let class = TxClass::of(tx, *pending);
                *self.removed.entry((*reason, class)).or_default() += 1;
                return;
            }
        };
        *count.or_default() += 1;
    }
}
