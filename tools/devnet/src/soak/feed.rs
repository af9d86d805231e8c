//! Whoever sends transactions: transfers to ever new accounts, writes to the large state, nonces out of order,
//! replacements, and transactions that must be refused.

use super::state::{Storage, touch};
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

/// Transactions of one request.
const BATCH: usize = 100;
/// Transactions that wait in the pool before the sending pauses.
const AHEAD: u64 = 12_000;
/// Accounts that are sent to.
const RECEIVERS: u64 = 1_000_000;
/// Requests until a nonce that was left out follows.
const GAP_LASTS: usize = 3;

/// What a transaction is sent for, and so what its answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Transfer,
    Write,
    /// Before the one with the nonce below.
    Early,
    /// The one that was left out.
    Filling,
    /// One that the next replaces.
    Replaced,
    Replacing,
    /// A nonce that was used.
    Stale,
    /// A fee not enough above that of the one it would replace.
    Cheap,
}

/// Sends until told otherwise, and says how many of each kind.
pub(super) struct Feed<'a> {
    accounts: Vec<Account>,
    storage: &'a Storage,
    random: SmallRng,
    /// The account that is next.
    turn: usize,
    /// Accounts with a nonce left out: the account, and how many requests ago.
    gaps: VecDeque<(usize, u64, usize)>,
    counts: BTreeMap<Kind, u64>,
}

impl<'a> Feed<'a> {
    pub(super) fn new(accounts: Vec<Account>, storage: &'a Storage, seed: u64) -> Self {
        Self {
            accounts,
            storage,
            random: SmallRng::seed_from_u64(seed),
            turn: 0,
            gaps: VecDeque::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Sends until it is over or enough are sent; then fills the gaps that are left.
    pub(super) fn run(
        mut self,
        client: &Client,
        shared: &Shared,
        options: &SoakOptions,
    ) -> Result<Self> {
        let most = options.transactions.unwrap_or(u64::MAX);
        let a_second = match options.transactions_per_second {
            0 => u64::MAX,
            a_second => a_second,
        };
        let began = Instant::now();
        while !shared.is_sent.load(Ordering::Relaxed) {
            let sent = shared.sent.load(Ordering::Relaxed);
            if sent >= most {
                break;
            }
            let waiting = sent.saturating_sub(shared.included.load(Ordering::Relaxed));
            let due = a_second.saturating_mul(began.elapsed().as_secs() + 1);
            if waiting > AHEAD || sent >= due {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let batch = self.batch();
            self.send(client, shared, batch)?;
        }
        let mut rest = Vec::new();
        while let Some((index, nonce, _)) = self.gaps.pop_front() {
            rest.push((Kind::Filling, self.plain(index, nonce, 1)));
        }
        if !rest.is_empty() {
            self.send(client, shared, rest)?;
        }
        Ok(self)
    }

    /// Accounts with the nonce that the chain must have for each in the end.
    pub(super) fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// How many were sent of each kind.
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
            batch.push((Kind::Filling, self.plain(index, nonce, 1)));
        }
        self.gaps.iter_mut().for_each(|(.., left)| *left -= 1);
        while batch.len() < BATCH {
            let index = self.next_account();
            let nonce = self.accounts[index].nonce;
            let taken = match self.random.random_range(0..100) {
                0..70 => {
                    batch.push((Kind::Transfer, self.plain(index, nonce, 1)));
                    1
                }
                70..94 => {
                    let (input, gas) = touch(self.random.random(), 4);
                    let to = self.storage.contract(self.random.random());
                    let raw = self.accounts[index].call(nonce, to, input, gas, 2_000_000_000);
                    batch.push((Kind::Write, raw));
                    1
                }
                94..97 => {
                    batch.push((Kind::Early, self.plain(index, nonce + 1, 1)));
                    self.gaps.push_back((index, nonce, GAP_LASTS));
                    2
                }
                97..99 => {
                    batch.push((Kind::Replaced, self.plain(index, nonce, 1)));
                    batch.push((Kind::Cheap, self.plain(index, nonce, 1)));
                    batch.push((Kind::Replacing, self.plain(index, nonce, 3)));
                    1
                }
                _ if nonce > 0 => {
                    batch.push((Kind::Stale, self.plain(index, nonce - 1, 1)));
                    0
                }
                _ => 0,
            };
            self.accounts[index].nonce += taken;
        }
        batch
    }

    /// One that has no gap.
    fn next_account(&mut self) -> usize {
        loop {
            self.turn = (self.turn + 1) % self.accounts.len();
            if self.gaps.iter().all(|(index, ..)| *index != self.turn) {
                return self.turn;
            }
        }
    }

    /// One wei for somebody, `tip` in Gwei per gas.
    fn plain(&mut self, index: usize, nonce: u64, tip: u128) -> Bytes {
        let receiver = self.random.random_range(0..RECEIVERS);
        let to = Address::from_word(keccak256(receiver.to_be_bytes()));
        let tip = tip * 1_000_000_000 + u128::from(self.random.random_range(0..1_000_u32));
        self.accounts[index].call(nonce, to, Bytes::new(), 21_000, tip)
    }

    /// Sends, and holds every answer against what the kind asks for.
    fn send(&mut self, client: &Client, shared: &Shared, batch: Vec<(Kind, Bytes)>) -> Result<()> {
        let (kinds, raw): (Vec<Kind>, Vec<Bytes>) = batch.into_iter().unzip();
        for (kind, error) in kinds.into_iter().zip(client.send_all(&raw)?) {
            let error = error.as_deref();
            let is_right = match kind {
                Kind::Stale => error.is_some_and(|text| {
                    text.contains("nonce too low") || text.contains("replacement")
                }),
                // A block may have taken what it would have replaced.
                Kind::Cheap => error.is_some(),
                Kind::Replacing => error.is_none_or(|text| text.contains("nonce too low")),
                _ => error.is_none(),
            };
            ensure!(is_right, "a {kind:?} transaction was answered {error:?}");
            *self.counts.entry(kind).or_default() += 1;
            let counts = !matches!(kind, Kind::Stale | Kind::Cheap | Kind::Replacing);
            shared.sent.fetch_add(u64::from(counts), Ordering::Relaxed);
        }
        Ok(())
    }
}
