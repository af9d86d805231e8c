//! Options of the pool. The defaults are Besu's.

use niwaki_primitives::{Address, U256, map::HashSet};

/// How transactions of different senders are ordered, and what bounds the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolMode {
    /// By effective tip at the next base fee; bounded by bytes.
    #[default]
    Layered,
    /// By arrival; bounded by the number of transactions and by their age.
    Sequenced,
}

/// Limits and options of a [`Pool`](crate::Pool). Each field names its flag.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// `--tx-pool`.
    pub mode: PoolMode,
    /// `--tx-pool-layer-max-capacity`, bytes. Queued transactions take at most this, local ones
    /// at most this, all together at most three times this; blobs are counted separately. Layered only.
    pub layer_max_capacity_bytes: usize,
    /// `--tx-pool-max-prioritized`: most transactions offered to one block.
    pub max_prioritized: usize,
    /// `--tx-pool-max-prioritized-by-type`: the same for each transaction type.
    pub max_prioritized_by_type: [usize; 5],
    /// `--tx-pool-max-future-by-sender`: how far above its account's a nonce may be. Layered only.
    pub max_future_by_sender: u64,
    /// `--tx-pool-min-score`: a transaction whose score falls below it leaves the pool. Scores
    /// begin at 127 and fall by one with each [`Pool::penalize`](crate::Pool::penalize).
    pub min_score: i8,
    /// `--tx-pool-enable-balance-check`: refuse a transaction that the sender can't pay together
    /// with its others in the pool. Otherwise it is queued until the sender can.
    pub balance_check: bool,
    /// `--tx-pool-max-size`: most transactions. Sequenced only.
    pub max_size: usize,
    /// `--tx-pool-limit-by-account-percentage`, as a fraction of `max_size`: how far above its
    /// account's a nonce may be. Sequenced only.
    pub limit_by_account: f64,
    /// `--tx-pool-retention-hours`, in seconds. Sequenced only.
    pub retention_s: u64,
    /// `--tx-pool-price-bump`, percent.
    pub price_bump_percent: u32,
    /// `--tx-pool-blob-price-bump`, percent.
    pub blob_price_bump_percent: u32,
    /// `--tx-pool-blob-fetch-probability`, percent, 15 to 100.
    pub whole_blobs_percent: u8,
    /// `--tx-pool-min-gas-price`, wei, for all but priority transactions.
    pub min_gas_price: u128,
    /// `--tx-pool-priority-senders`: always first, and like local ones otherwise.
    pub priority_senders: HashSet<Address>,
    /// `--tx-pool-no-local-priority`: treat local transactions as any others.
    pub no_local_priority: bool,
    /// `--rpc-tx-feecap`, wei, for local transactions; zero is no cap.
    pub tx_fee_cap: U256,
    /// `--strict-tx-replay-protection-enabled`: local transactions must name a chain (EIP-155).
    pub strict_replay_protection: bool,
    /// Most bytes of the blobs of pending transactions, with their proofs.
    pub blob_capacity_bytes: usize,
    /// Most bytes of the blobs of included transactions, kept for reorganisations and payloads.
    pub included_blob_bytes: usize,
    /// Most pending transactions of an account that delegates (EIP-7702), or is about to.
    pub max_delegated_in_flight: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            mode: PoolMode::Layered,
            layer_max_capacity_bytes: 25_000_000,
            max_prioritized: 4_000,
            max_prioritized_by_type: [usize::MAX, usize::MAX, usize::MAX, 72, usize::MAX],
            max_future_by_sender: 200,
            min_score: i8::MIN,
            balance_check: false,
            max_size: 4_096,
            limit_by_account: 0.001,
            retention_s: 13 * 3_600,
            price_bump_percent: 10,
            blob_price_bump_percent: 100,
            whole_blobs_percent: 15,
            min_gas_price: 1_000,
            priority_senders: HashSet::default(),
            no_local_priority: false,
            tx_fee_cap: U256::from(1_000_000_000_000_000_000_u64),
            strict_replay_protection: false,
            blob_capacity_bytes: 256 << 20,
            included_blob_bytes: 72 << 20,
            max_delegated_in_flight: 1,
        }
    }
}

impl PoolConfig {
    /// How many nonces, starting at its account's, a sender can use; at least one.
    pub fn nonce_window(&self) -> u64 {
        match self.mode {
            PoolMode::Layered => self.max_future_by_sender.max(1),
            PoolMode::Sequenced => self.sequenced_window(),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a float becomes the nearest integer in range, and a pool is not 2^52 long"
    )]
    fn sequenced_window(&self) -> u64 {
        (self.limit_by_account * self.max_size as f64)
            .ceil()
            .max(1.0) as u64
    }

    /// Whether a transaction comes before those without priority and is never evicted.
    pub(crate) fn has_priority(&self, local: bool, sender: &Address) -> bool {
        local && !self.no_local_priority || self.priority_senders.contains(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nonce_window_of_a_sequenced_pool_is_a_share_of_its_size() {
        let mut config = PoolConfig::default();
        assert_eq!(config.nonce_window(), 200);
        config.max_future_by_sender = 0;
        assert_eq!(config.nonce_window(), 1);
        config.mode = PoolMode::Sequenced;
        assert_eq!(config.nonce_window(), 5);
        config.limit_by_account = 0.15;
        assert_eq!(config.nonce_window(), 615);
        config.limit_by_account = f64::NAN;
        assert_eq!(config.nonce_window(), 1);
    }
}
