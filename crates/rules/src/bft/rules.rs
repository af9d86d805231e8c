//! The parameters of a BFT chain, which may change at given blocks or times.

use super::{BftProtocol, ValidatorSet};
use alloy_primitives::{Address, U256};

/// Who says who the validators are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValidatorSource {
    /// The headers: the genesis block has a list, and votes change it.
    #[default]
    Headers,
    /// A contract: its `getValidators()` in the state of the parent.
    Contract(Address),
}

/// Where rules begin to hold. Those by time come after all by block, as in Besu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BftStart {
    /// At this block.
    Block(u64),
    /// At this time, seconds.
    Time(u64),
}

impl BftStart {
    /// Whether the rules hold for a block.
    pub const fn has_begun(self, number: u64, timestamp: u64) -> bool {
        match self {
            Self::Block(first) => first <= number,
            Self::Time(first) => first <= timestamp,
        }
    }
}

/// What holds from one block on: `config.{qbft,ibft2}` of a genesis file, and each of its `transitions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BftRules {
    /// From where on.
    pub from: BftStart,
    /// How validators agree.
    pub protocol: BftProtocol,
    /// Votes end at each block whose distance from `epochs_from` is a multiple of this.
    pub epoch_blocks: u64,
    /// The genesis block, or the last one before a migration.
    pub epochs_from: u64,
    /// Seconds from one block to the next,
    pub period_s: u64,
    /// unless there are milliseconds.
    pub period_ms: Option<u64>,
    /// Seconds from a block to the next one without transactions; zero if that comes as soon as others.
    pub empty_period_s: u64,
    /// Seconds until the first round is given up.
    pub request_timeout_s: u64,
    /// Reward of a block, wei. Zero touches no account.
    pub reward: U256,
    /// The recipient of fees and rewards, and the result of COINBASE; `None` for the header's coinbase.
    pub beneficiary: Option<Address>,
    /// The highest gas limit of a transaction from Osaka on; zero for none, `None` for the fork's.
    pub tx_gas_limit: Option<u64>,
    /// Who says who the validators are.
    pub source: ValidatorSource,
    /// The validators of this block, whatever the votes before.
    pub validators: Option<ValidatorSet>,
    /// GoQuorum's `isQuorum`, which says who proposes after one that is no validator any more.
    pub is_quorum: bool,
}

impl BftRules {
    /// Besu's defaults.
    pub const fn new(protocol: BftProtocol) -> Self {
        Self {
            from: BftStart::Block(0),
            protocol,
            epoch_blocks: 30_000,
            epochs_from: 0,
            period_s: 1,
            period_ms: None,
            empty_period_s: 0,
            request_timeout_s: 1,
            reward: U256::ZERO,
            beneficiary: None,
            tx_gas_limit: None,
            source: ValidatorSource::Headers,
            validators: None,
            is_quorum: false,
        }
    }

    /// Who of the validators proposes the child of a block with this coinbase in a round.
    pub fn proposer(
        &self,
        validators: &ValidatorSet,
        parent_coinbase: &Address,
        round: u32,
    ) -> Option<Address> {
        match self.is_quorum {
            true => validators.quorum_proposer(parent_coinbase, round),
            false => validators.proposer(parent_coinbase, round),
        }
    }

    /// Milliseconds from one block to the next.
    pub fn block_period_ms(&self) -> u64 {
        self.period_ms
            .unwrap_or_else(|| self.period_s.saturating_mul(1_000))
    }

    /// Whether votes end at a block.
    pub fn is_epoch(&self, number: u64) -> bool {
        number
            .checked_sub(self.epochs_from)
            .is_some_and(|distance| distance.is_multiple_of(self.epoch_blocks))
    }
}
