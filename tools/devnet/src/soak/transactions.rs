//! The transaction load of the soak: transfers to new accounts, writes to the large state, nonces out of order,
//! replacements, and transactions that the pool must reject.

use super::state::{Storage, storage_call};
use super::{Shared, SoakOptions};
use crate::accounts::Account;
use crate::client::Client;
use eyre::{Result, ensure};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, Bytes};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Transactions of one JSON-RPC batch.
const BATCH: usize = 100;
/// Pending transactions at which the sender pauses.
const MAX_PENDING: u64 = 12_000;
/// Accounts that receive.
const RECEIVERS: u64 = 1_000_000;
/// Batches until the transaction of a skipped nonce is sent.
const GAP_BATCHES: usize = 3;

/// What a transaction tests; it decides the expected response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Transfer,
    Write,
    /// Sent before the transaction of the nonce below.
    Early,
    /// Fills a skipped nonce.
    Filling,
    /// Is replaced by the transaction after next.
    Replaced,
    Replacing,
    /// Has a used nonce; must be rejected.
    Stale,
    /// Pays too little more to replace a transaction; must be rejected.
    Cheap,
}

/// Sends transactions until the soak stops it, and counts them by kind.
pub(super) struct TransactionSender<'a> {
    accounts: Vec<Account>,
    storage: &'a Storage,
    random: SmallRng,
    /// The account that sends next.
    next_index: usize,
    /// Skipped nonces: account, nonce, batches left until it is sent.
    gaps: VecDeque<(usize, u64, usize)>,
    counts: BTreeMap<Kind, u64>,
}

impl<'a> TransactionSender<'a> {
    pub(super) fn new(accounts: Vec<Account>, storage: &'a Storage, seed: u64) -> Self {
        Self {
            accounts,
            storage,
            random: SmallRng::seed_from_u64(seed),
            next_index: 0,
            gaps: VecDeque::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Sends until the soak is over or `--transactions` are sent; then fills the gaps that are left.
    pub(super) fn run(
        mut self,
        client: &Client,
        shared: &Shared,
        options: &SoakOptions,
    ) -> Result<Self> {
        let max_count = options.transactions.unwrap_or(u64::MAX);
        let per_second = match options.transactions_per_second {
            0 => u64::MAX,
            per_second => per_second,
        };
        let began = Instant::now();
        while !shared.is_sent.load(Ordering::Relaxed) {
            let sent = shared.sent.load(Ordering::Relaxed);
            if sent >= max_count {
                break;
            }
            let pending = sent.saturating_sub(shared.included.load(Ordering::Relaxed));
            let due = per_second.saturating_mul(began.elapsed().as_secs() + 1);
            if pending > MAX_PENDING || sent >= due {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let batch = self.batch();
            self.send(client, shared, batch)?;
        }
        let mut rest = Vec::new();
        while let Some((index, nonce, _)) = self.gaps.pop_front() {
            rest.push((Kind::Filling, self.transfer(index, nonce, 1)));
        }
        if !rest.is_empty() {
            self.send(client, shared, rest)?;
        }
        Ok(self)
    }

    /// The accounts, each with the nonce that the chain must reach.
    pub(super) fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// Transactions sent, by kind.
    pub(super) fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        let name = |kind: &Kind| format!("transactions: {}", format!("{kind:?}").to_lowercase());
        self.counts
            .iter()
            .map(move |(kind, count)| (name(kind), *count))
    }

    fn batch(&mut self) -> Vec<(Kind, Bytes)> {
        let mut batch = Vec::with_capacity(BATCH + 2);
        while let Some((_, _, left)) = self.gaps.front()
            && *left == 0
            && let Some((index, nonce, _)) = self.gaps.pop_front()
        {
            batch.push((Kind::Filling, self.transfer(index, nonce, 1)));
        }
        self.gaps.iter_mut().for_each(|(.., left)| *left -= 1);
        while batch.len() < BATCH {
            let index = self.next_account();
            let nonce = self.accounts[index].nonce;
            let nonces_used = match self.random.random_range(0..100) {
                0..70 => {
                    batch.push((Kind::Transfer, self.transfer(index, nonce, 1)));
                    1
                }
                70..94 => {
                    let (input, gas) = storage_call(self.random.random(), 4);
                    let to = self.storage.contract(self.random.random());
                    let raw = self.accounts[index].call(nonce, to, input, gas, 2_000_000_000);
                    batch.push((Kind::Write, raw));
                    1
                }
                94..97 => {
                    batch.push((Kind::Early, self.transfer(index, nonce + 1, 1)));
                    self.gaps.push_back((index, nonce, GAP_BATCHES));
                    2
                }
                97..99 => {
                    batch.push((Kind::Replaced, self.transfer(index, nonce, 1)));
                    batch.push((Kind::Cheap, self.transfer(index, nonce, 1)));
                    batch.push((Kind::Replacing, self.transfer(index, nonce, 3)));
                    1
                }
                _ if nonce > 0 => {
                    batch.push((Kind::Stale, self.transfer(index, nonce - 1, 1)));
                    0
                }
                _ => 0,
            };
            self.accounts[index].nonce += nonces_used;
        }
        batch
    }

    /// The next account without a skipped nonce.
    fn next_account(&mut self) -> usize {
        loop {
            self.next_index = (self.next_index + 1) % self.accounts.len();
            if self
                .gaps
                .iter()
                .all(|(index, ..)| *index != self.next_index)
            {
                return self.next_index;
            }
        }
    }

    /// A transfer of one wei to a random account, with `tip` in Gwei per gas.
    fn transfer(&mut self, index: usize, nonce: u64, tip: u128) -> Bytes {
        let receiver = self.random.random_range(0..RECEIVERS);
        let to = Address::from_word(keccak256(receiver.to_be_bytes()));
        let tip = tip * 1_000_000_000 + u128::from(self.random.random_range(0..1_000_u32));
        self.accounts[index].call(nonce, to, Bytes::new(), 21_000, tip)
    }

    /// Sends a batch and checks each response against what its kind expects.
    fn send(&mut self, client: &Client, shared: &Shared, batch: Vec<(Kind, Bytes)>) -> Result<()> {
        let (kinds, raw): (Vec<Kind>, Vec<Bytes>) = batch.into_iter().unzip();
        for (kind, error) in kinds.into_iter().zip(client.send_batch(&raw)?) {
            let error = error.as_deref();
            let is_expected = match kind {
                Kind::Stale => error.is_some_and(|text| {
                    text.contains("nonce too low") || text.contains("replacement")
                }),
                // A block may already include the transaction that it would have replaced.
                Kind::Cheap => error.is_some(),
                Kind::Replacing => error.is_none_or(|text| text.contains("nonce too low")),
                _ => error.is_none(),
            };
            ensure!(is_expected, "response to a {kind:?} transaction: {error:?}");
            *self.counts.entry(kind).or_default() += 1;
            let counts = !matches!(kind, Kind::Stale | Kind::Cheap | Kind::Replacing);
            shared.sent.fetch_add(u64::from(counts), Ordering::Relaxed);
        }
        Ok(())
    }
}
