//! Adding transactions: what can be checked without the lock, then the rest under it.
//!
//! ```text
//! known? stateless checks --> senders, recovered together --> policy, price, account, proofs --> lock: admit, insert
//!                                                                  ^                                |
//!                                                                  +------ the head has moved ------+
//! ```

use super::Pool;
use crate::admit::{Added, Entry};
use crate::error::PoolError;
use crate::events::lock;
use crate::head::Head;
use crate::sender::SenderAccount;
use crate::sidecar::{Sidecar, check_proofs};
use crate::store::Store;
use crate::transaction::{Incoming, Origin, PooledTransaction, SignedTransaction};
use crate::validate::{check_gas, check_policy, check_price, check_stateless};
use niwaki_primitives::{Address, TxEnvelope, map::HashSet};
use niwaki_rules::recover_senders;
use std::sync::Arc;

/// How often an addition repeats its checks because the head has moved meanwhile, before it repeats them with the lock
/// held.
const HEAD_RETRIES: usize = 3;

/// A transaction that may join the pool, as far as that can be said without the lock.
#[derive(Debug)]
struct Checked {
    tx: Arc<PooledTransaction>,
    account: SenderAccount,
    sidecar: Option<Arc<Sidecar>>,
}

impl Pool {
    /// Checks and adds a transaction. About 40 us, and 2 to 10 ms per blob.
    ///
    /// # Errors
    /// Any [`PoolError`]; the pool is then unchanged.
    pub fn add(&self, incoming: Incoming, origin: Origin, now: u64) -> Result<Added, PoolError> {
        let mut added = self.add_many(vec![incoming], origin, now);
        added.pop().expect("a result for each")
    }

    /// Adds transactions in order, each as [`Pool::add`] does. Their signatures are recovered together, and the lock is taken once.
    pub fn add_many(
        &self,
        incoming: Vec<Incoming>,
        origin: Origin,
        now: u64,
    ) -> Vec<Result<Added, PoolError>> {
        let head = Arc::clone(&self.read().head);
        let senders = self.senders(&incoming, &head, now);
        let all = incoming.into_iter().zip(senders);
        let checked = all.map(|(incoming, sender)| {
            let sender = sender?;
            self.check(incoming, sender, origin, &head, now)
        });
        let checked: Vec<Result<Checked, PoolError>> = checked.collect();
        let added = match checked.iter().any(Result::is_ok) {
            true => self.insert_checked(checked, head, now),
            false => checked
                .into_iter()
                .filter_map(Result::err)
                .map(Err)
                .collect(),
        };
        let mut rejected = lock(&self.rejected);
        for reason in added.iter().filter_map(|added| added.as_ref().err()) {
            let count = rejected.entry((reason.name(), origin)).or_default();
            *count = count.saturating_add(1);
        }
        added
    }

    /// Recovers the senders of transactions that are about to be added one by one, together: that takes a quarter of the time.
    pub fn learn_senders(&self, transactions: &[TxEnvelope]) {
        let recovered: Vec<_> = recover_senders(transactions).collect();
        self.write(|store| {
            for (tx, sender) in transactions.iter().zip(recovered) {
                if let Ok(sender) = sender {
                    store.recent.record(*tx.tx_hash(), sender, Origin::Local);
                }
            }
        });
    }

    /// The senders of transactions that are new, after the checks that need no sender.
    fn senders(
        &self,
        incoming: &[Incoming],
        head: &Head,
        now: u64,
    ) -> Vec<Result<Address, PoolError>> {
        let (rules, limit) = (head.next_rules(&self.spec, now), head.header.gas_limit);
        let known: Vec<Result<Option<Address>, PoolError>> = {
            let store = self.read();
            let known = incoming.iter().map(|one| {
                let hash = one.tx.tx_hash();
                match store.txs.contains_key(hash) {
                    true => Err(PoolError::AlreadyKnown),
                    false => Ok(store.recent.get(hash).map(|(sender, _)| sender)),
                }
            });
            known.collect()
        };
        let known = incoming.iter().zip(known).map(|(one, known)| {
            let known = known?;
            check_stateless(&one.tx, one.sidecar.as_deref(), known, &rules, limit)?;
            Ok(known)
        });
        let known: Vec<Result<Option<Address>, PoolError>> = known.collect();
        let unknown = incoming.iter().zip(&known);
        let unknown = unknown.filter(|(_, known)| matches!(known, Ok(None)));
        let recovered: Vec<_> = recover_senders(unknown.map(|(one, _)| &one.tx)).collect();
        let mut recovered = recovered.into_iter();
        let all = incoming.iter().zip(known).map(|(one, known)| {
            if let Some(sender) = known? {
                return Ok(sender);
            }
            let sender = recovered.next().and_then(Result::ok);
            let sender = sender.ok_or(PoolError::InvalidSender)?;
            check_gas(&one.tx, sender, &rules, limit)?;
            Ok(sender)
        });
        all.collect()
    }

    /// The checks that follow, up to those that need the lock.
    fn check(
        &self,
        incoming: Incoming,
        sender: Address,
        origin: Origin,
        head: &Head,
        now: u64,
    ) -> Result<Checked, PoolError> {
        let priority = self.config.has_priority(origin == Origin::Local, &sender);
        check_policy(&incoming.tx, origin, &self.config)?;
        check_price(&incoming.tx, priority, self.min_gas_price())?;

        let rules = head.next_rules(&self.spec, now);
        let account = SenderAccount::read(&*head.view, &sender, rules.fork)?;
        // A contract that is asked takes longer than the checks before.
        if !self.permits(&sender, &incoming.tx) {
            return Err(PoolError::SenderNotPermitted);
        }
        let Incoming { tx, sidecar } = incoming;
        let sidecar = sidecar.filter(|_| matches!(tx, TxEnvelope::Eip4844(_)));
        let signed = SignedTransaction::new(tx, sender, self.next_seq());
        let tx = Arc::new(signed.pooled(&self.config, origin, sidecar.as_deref(), now));
        if let Some(sidecar) = &sidecar {
            // Proofs cost milliseconds: only those of what would be taken are verified.
            self.read().admit(&tx, &account, Entry::New)?;
            check_proofs(sidecar)?;
        }
        Ok(Checked {
            tx,
            account,
            sidecar,
        })
    }

    /// Adds what was checked at `head`; checks it again if the head has moved.
    fn insert_checked(
        &self,
        mut checked: Vec<Result<Checked, PoolError>>,
        mut head: Arc<Head>,
        now: u64,
    ) -> Vec<Result<Added, PoolError>> {
        for _ in 0..HEAD_RETRIES {
            let current = self.write(|store| match Arc::ptr_eq(&store.head, &head) {
                true => Ok(store.insert_all(std::mem::take(&mut checked))),
                false => Err(Arc::clone(&store.head)),
            });
            head = match current {
                Ok(added) => return added,
                Err(moved) => moved,
            };
            self.check_all_again(&mut checked, &head, now);
        }
        self.write(|store| {
            let head = Arc::clone(&store.head);
            self.check_all_again(&mut checked, &head, now);
            store.insert_all(checked)
        })
    }

    fn check_all_again(&self, all: &mut [Result<Checked, PoolError>], head: &Head, now: u64) {
        for slot in all {
            let Ok(checked) = slot else {
                continue;
            };
            match self.check_again(&checked.tx, checked.sidecar.as_deref(), head, now) {
                Ok(account) => checked.account = account,
                Err(reason) => *slot = Err(reason),
            }
        }
    }

    /// Repeats the checks that depend on the head, and reads the account again.
    fn check_again(
        &self,
        tx: &PooledTransaction,
        sidecar: Option<&Sidecar>,
        head: &Head,
        now: u64,
    ) -> Result<SenderAccount, PoolError> {
        let rules = head.next_rules(&self.spec, now);
        let limit = head.header.gas_limit;
        check_stateless(&tx.tx, sidecar, Some(tx.sender), &rules, limit)?;
        SenderAccount::read(&*head.view, &tx.sender, rules.fork)
    }
}

impl Store {
    /// Adds those that are checked, each after its sender's account is updated.
    fn insert_all(
        &mut self,
        all: Vec<Result<Checked, PoolError>>,
    ) -> Vec<Result<Added, PoolError>> {
        let insert = |checked: Result<Checked, PoolError>| {
            let Checked {
                tx,
                account,
                sidecar,
            } = checked?;
            self.update_account(tx.sender, account, &HashSet::default());
            self.insert(tx, account, sidecar, Entry::New)
        };
        all.into_iter().map(insert).collect()
    }
}
