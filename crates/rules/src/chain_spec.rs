//! The parameters of one chain: when each fork begins, and what differs from mainnet.

use crate::bft::{BftRules, bft_block_hash};
use crate::fees;
use crate::genesis::FirstPeers;
use crate::rewards::base_reward;
use crate::transaction::fork_gas_limit;
use alloy_primitives::{Address, B256, U256, address};
use niwaki_primitives::{Fork, Header};
use std::fmt;

/// Blob gas of one blob (EIP-4844).
pub const GAS_PER_BLOB: u64 = 1 << 17;

/// When a fork activates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Not scheduled on this chain.
    #[default]
    Never,
    /// From this block number on.
    Block(u64),
    /// When the parent has reached the chain's terminal total difficulty. Paris only.
    TotalDifficulty,
    /// From this timestamp on, in seconds.
    Time(u64),
}

/// Blob parameters of one fork (EIP-7840).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobParams {
    /// Blobs per block at which the blob base fee stays as it is.
    pub target: u64,
    /// Most blobs per block.
    pub max: u64,
    /// Denominator of the exponent of the blob base fee.
    pub update_fraction: u64,
}

impl BlobParams {
    /// EIP-4844.
    pub const CANCUN: Self = Self::new(3, 6, 3_338_477);
    /// EIP-7691; Osaka keeps it.
    pub const PRAGUE: Self = Self::new(6, 9, 5_007_716);
    /// EIP-7892, the first blob-parameter-only fork.
    pub const BPO1: Self = Self::new(10, 15, 8_346_193);
    /// EIP-7892, the second blob-parameter-only fork.
    pub const BPO2: Self = Self::new(14, 21, 11_684_671);

    /// Blob parameters from the three numbers of a `blobSchedule` entry.
    pub const fn new(target: u64, max: u64, update_fraction: u64) -> Self {
        Self {
            target,
            max,
            update_fraction,
        }
    }

    /// Blob gas per block at which the blob base fee stays as it is.
    pub const fn target_gas(&self) -> u64 {
        self.target.saturating_mul(GAS_PER_BLOB)
    }

    /// Most blob gas per block.
    pub const fn max_gas(&self) -> u64 {
        self.max.saturating_mul(GAS_PER_BLOB)
    }

    /// Blob base fee in wei at `excess_blob_gas`; `u128::MAX` if it does not fit.
    pub fn base_fee(&self, excess_blob_gas: u64) -> u128 {
        fees::blob_base_fee(excess_blob_gas, self)
    }
}

/// The consensus engine: who may seal a block, and how its header shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealKind {
    /// Proof of work, until Paris if the chain has a terminal total difficulty.
    Ethash {
        /// Besu's `ethash.fixeddifficulty`: every block has this difficulty.
        fixed_difficulty: Option<u64>,
    },
    /// Clique proof of authority (EIP-225), until Paris if there is a terminal total difficulty.
    Clique {
        /// Seconds between blocks.
        period_s: u64,
        /// Blocks between checkpoints.
        epoch_blocks: u64,
    },
    /// IBFT 2.0 or QBFT, as [`ChainSpec::bft_rules`] say.
    Bft,
    /// No seal: difficulty and nonce follow from the rules of the fork.
    None,
}

/// The irregular state change of mainnet's block 1,920,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaoFork {
    /// The block of the change.
    pub block: u64,
    /// Whether this chain applied it; if not, it refuses the extra data of chains that did.
    pub support: bool,
}

/// The longest code that can be deployed from a block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContractSizeLimit {
    /// The first block that it holds in.
    pub from_block: u64,
    /// Bytes of code.
    pub bytes: u64,
}

impl ContractSizeLimit {
    /// A limit of all blocks.
    pub const fn always(bytes: u64) -> Self {
        Self {
            from_block: 0,
            bytes,
        }
    }
}

impl fmt::Display for ContractSizeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from_block {
            0 => write!(f, "{}", self.bytes),
            block => write!(f, "{} from block {block} on", self.bytes),
        }
    }
}

/// A network of GoQuorum, which its other nodes join with their messages and rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    /// The first block whose transactions may have a gas price: `enableGasPriceBlock`, or `gasPriceEnabled` of a transition.
    pub gas_price_block: Option<u64>,
}

/// The parameters of one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainSpec {
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// Network id of the eth protocol.
    pub network_id: u64,
    /// One activation per fork, indexed by `Fork as usize`.
    pub activations: [Activation; Fork::ALL.len()],
    /// Total difficulty at which Paris begins; zero if it does at genesis.
    pub terminal_total_difficulty: Option<U256>,
    /// A block that only splits the fork id at the merge (EIP-3675).
    pub merge_netsplit_block: Option<u64>,
    /// The DAO fork, if the chain has it.
    pub dao_fork: Option<DaoFork>,
    /// Blob parameters given for each fork, indexed by `Fork as usize`.
    pub blob_schedule: [Option<BlobParams>; Fork::ALL.len()],
    /// EIP-6110 deposit contract.
    pub deposit_contract: Address,
    /// EIP-7002 withdrawal request contract.
    pub withdrawal_request_contract: Address,
    /// EIP-7251 consolidation request contract.
    pub consolidation_request_contract: Address,
    /// Who seals blocks.
    pub seal: SealKind,
    /// The longest code that can be deployed from Spurious Dragon on, at every fork, ascending by block: one of Besu's
    /// (`contractSizeLimit`), any number of GoQuorum's. Before the first it is the fork's (EIP-170, EIP-7954). Init code has the fork's
    /// limit.
    pub contract_size_limits: Vec<ContractSizeLimit>,
    /// The rules of a BFT chain, ascending by their first block; empty on other chains.
    pub bft_rules: Vec<BftRules>,
    /// Besu's `zeroBaseFee`: the base fee is always zero.
    pub zero_base_fee: bool,
    /// Besu's `fixedBaseFee`, of BFT chains: the base fee of the blocks that this node makes, its lowest gas price; those of others have
    /// what theirs is.
    pub fixed_base_fee: Option<u64>,
    /// GoQuorum's `isQuorum`.
    pub quorum: Option<Quorum>,
    /// Hash of the genesis block, if it is known beforehand.
    pub genesis_hash: Option<B256>,
    /// Besu's `discovery`: where the genesis file says that the first peers are.
    pub first_peers: FirstPeers,
}

/// Mainnet's EIP-6110 deposit contract.
pub(crate) const DEPOSIT_CONTRACT: Address = address!("00000000219ab540356cbb839cbe05303d7705fa");
const WITHDRAWAL_REQUESTS: Address = address!("00000961ef480eb55e80d19ad83579a64c007002");
const CONSOLIDATION_REQUESTS: Address = address!("0000bbddc7ce488642fb579f8b00f3a590007251");

impl ChainSpec {
    /// A chain with Frontier rules, without seal and without further forks.
    pub fn frontier(chain_id: u64) -> Self {
        let mut blob_schedule = [None; Fork::ALL.len()];
        blob_schedule[Fork::Cancun as usize] = Some(BlobParams::CANCUN);
        blob_schedule[Fork::Prague as usize] = Some(BlobParams::PRAGUE);
        blob_schedule[Fork::Bpo1 as usize] = Some(BlobParams::BPO1);
        blob_schedule[Fork::Bpo2 as usize] = Some(BlobParams::BPO2);
        let mut activations = [Activation::Never; Fork::ALL.len()];
        activations[Fork::Frontier as usize] = Activation::Block(0);
        Self {
            chain_id,
            network_id: chain_id,
            activations,
            terminal_total_difficulty: None,
            merge_netsplit_block: None,
            dao_fork: None,
            blob_schedule,
            deposit_contract: DEPOSIT_CONTRACT,
            withdrawal_request_contract: WITHDRAWAL_REQUESTS,
            consolidation_request_contract: CONSOLIDATION_REQUESTS,
            seal: SealKind::None,
            contract_size_limits: Vec::new(),
            bft_rules: Vec::new(),
            zero_base_fee: false,
            fixed_base_fee: None,
            quorum: None,
            genesis_hash: None,
            first_peers: FirstPeers::default(),
        }
    }

    /// A chain that runs `fork` from genesis on, and no later one. The DAO fork is left out, as
    /// the spec tests do, unless it is `fork` itself.
    pub fn single(chain_id: u64, fork: Fork) -> Self {
        let mut spec = Self::frontier(chain_id);
        for f in Fork::ALL {
            if f <= fork && f != Fork::Frontier && (f != Fork::DaoFork || fork == f) {
                spec.activate_at_genesis(f);
            }
        }
        spec
    }

    /// Activates `fork` at genesis: by block, time or total difficulty.
    pub fn activate_at_genesis(&mut self, fork: Fork) {
        let activation = match fork {
            Fork::Paris => {
                self.terminal_total_difficulty = Some(U256::ZERO);
                Activation::TotalDifficulty
            }
            f if f > Fork::Paris => Activation::Time(0),
            _ => Activation::Block(0),
        };
        if fork == Fork::DaoFork {
            self.dao_fork = Some(DaoFork {
                block: 0,
                support: true,
            });
        }
        self.activations[fork as usize] = activation;
    }

    /// Sets when `fork` activates.
    pub fn set(&mut self, fork: Fork, activation: Activation) {
        self.activations[fork as usize] = activation;
    }

    /// When `fork` activates.
    pub const fn activation(&self, fork: Fork) -> Activation {
        self.activations[fork as usize]
    }

    /// The fork of a block: the latest one that is active. `merged` is whether the parent had
    /// reached the terminal total difficulty.
    pub fn fork_at(&self, number: u64, timestamp: u64, merged: bool) -> Fork {
        let begun = |fork: &Fork| match self.activation(*fork) {
            Activation::Never => false,
            Activation::Block(b) => number >= b,
            Activation::TotalDifficulty => merged,
            Activation::Time(t) => timestamp >= t,
        };
        Fork::ALL
            .into_iter()
            .rev()
            .find(begun)
            .unwrap_or(Fork::Frontier)
    }

    /// The fork of a block whose header has been checked, or is about to be.
    ///
    /// On a chain with a terminal total difficulty, a header of difficulty zero is proof of stake;
    /// [`crate::check_header`] checks that it does not appear too early.
    pub fn fork_of(&self, header: &Header) -> Fork {
        self.fork_at(header.number, header.timestamp, self.is_merged(header))
    }

    /// Whether a header of this difficulty is proof of stake.
    pub fn is_merged(&self, header: &Header) -> bool {
        self.terminal_total_difficulty
            .is_some_and(|ttd| ttd.is_zero() || header.difficulty.is_zero())
    }

    /// Whether a child of a block with this total difficulty is proof of stake.
    pub fn is_terminal(&self, total_difficulty: U256) -> bool {
        self.terminal_total_difficulty
            .is_some_and(|ttd| total_difficulty >= ttd)
    }

    /// Whether a block with this header is of Paris or later: it pays neither ommers nor a block reward.
    pub fn is_proof_of_stake(&self, header: &Header) -> bool {
        self.fork_of(header) >= Fork::Paris
    }

    /// Whether the protocol itself calls contracts at the edges of a block, and collects requests (EIP-2935, 4788, 7685). Besu does neither
    /// where signers seal: a chain without a Merge, whatever its forks.
    pub fn has_system_calls(&self) -> bool {
        match self.seal {
            SealKind::Bft => false,
            SealKind::Clique { .. } => self.terminal_total_difficulty.is_some(),
            SealKind::Ethash { .. } | SealKind::None => true,
        }
    }

    /// The base reward of a block of `fork`, wei; `None` pays nothing and touches no account. A BFT
    /// chain pays its own reward at every fork, a Clique chain none (EIP-225), others the fork's.
    pub fn base_reward(&self, header: &Header, fork: Fork) -> Option<U256> {
        match self.seal {
            SealKind::Bft => self
                .bft_rules_of(header)
                .map(|rules| rules.reward)
                .filter(|reward| !reward.is_zero()),
            SealKind::Clique { .. } => None,
            SealKind::Ethash { .. } | SealKind::None => base_reward(fork),
        }
    }

    /// The chain's own limit on deployed code in a block of `fork`, bytes, from Spurious Dragon on (EIP-170 introduced
    /// the limit).
    pub fn max_code_bytes(&self, number: u64, fork: Fork) -> Option<usize> {
        let limit = self
            .contract_size_limit(number)
            .filter(|_| fork >= Fork::SpuriousDragon)?;
        Some(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// The chain's own limit on deployed code in a block, bytes.
    pub fn contract_size_limit(&self, number: u64) -> Option<u64> {
        let mut latest_first = self.contract_size_limits.iter().rev();
        let limit = latest_first.find(|limit| limit.from_block <= number)?;
        Some(limit.bytes)
    }

    /// The base fee of the child of `parent`, from London on.
    pub fn next_base_fee(&self, parent: &Header) -> u64 {
        match self.fixed_base_fee {
            _ if self.zero_base_fee => 0,
            Some(fee) => fee,
            None => fees::next_base_fee(parent),
        }
    }

    /// The highest gas limit of a transaction of a block of `fork`: that of the fork (EIP-7825, EIP-8037), or from Osaka on that of the
    /// BFT chain (Besu's `perTxGasLimit`).
    pub fn max_gas_limit(&self, number: u64, timestamp: u64, fork: Fork) -> u64 {
        let own = self
            .bft_rules_at(number, timestamp)
            .and_then(|rules| rules.tx_gas_limit);
        match own.filter(|_| fork >= Fork::Osaka) {
            Some(0) => u64::MAX,
            Some(limit) => limit,
            None => fork_gas_limit(fork),
        }
    }

    /// What COINBASE gives in a block: Besu's beneficiary of a BFT chain. GoQuorum's gets the fees and rewards alone.
    pub fn coinbase_of(&self, header: &Header) -> Address {
        match self.quorum {
            Some(_) => header.beneficiary,
            None => self.beneficiary_of(header),
        }
    }

    /// The recipient of a block's fees and reward: the coinbase of its header, or the beneficiary of a BFT chain.
    pub fn beneficiary_of(&self, header: &Header) -> Address {
        self.bft_rules_of(header)
            .and_then(|rules| rules.beneficiary)
            .unwrap_or(header.beneficiary)
    }

    /// The rules of a block of a BFT chain; `None` on other chains.
    pub fn bft_rules_of(&self, header: &Header) -> Option<&BftRules> {
        self.bft_rules_at(header.number, header.timestamp)
    }

    /// The rules by which validators agree on the children of a block, whose time is not known before.
    pub fn bft_rules_after(&self, parent: &Header) -> Option<&BftRules> {
        self.bft_rules_at(parent.number.saturating_add(1), parent.timestamp)
    }

    /// The rules of a block with this number and time.
    pub fn bft_rules_at(&self, number: u64, timestamp: u64) -> Option<&BftRules> {
        let mut latest_first = self.bft_rules.iter().rev();
        latest_first.find(|rules| rules.from.has_begun(number, timestamp))
    }

    /// Whether transactions of a block may have a gas price.
    pub fn has_gas_price(&self, number: u64) -> bool {
        self.quorum
            .is_none_or(|quorum| quorum.gas_price_block.is_some_and(|first| first <= number))
    }

    /// The hash of the block with this header. On a BFT chain round and seals are no part of it; a header whose extra data is malformed
    /// is hashed as it is, and refused by [`crate::check_header`].
    pub fn header_hash(&self, header: &Header) -> B256 {
        let hash = self
            .bft_rules_of(header)
            .and_then(|rules| bft_block_hash(rules.protocol, header).ok());
        hash.unwrap_or_else(|| header.hash_slow())
    }

    /// Blob parameters of a block with this timestamp: those of the latest active fork that has any; `None` before
    /// Cancun.
    pub fn blob_params_at(&self, timestamp: u64) -> Option<BlobParams> {
        let begun = |fork: &Fork| match self.activation(*fork) {
            Activation::Time(t) => timestamp >= t,
            _ => false,
        };
        Fork::ALL
            .into_iter()
            .rev()
            .filter(|f| *f >= Fork::Cancun)
            .filter(begun)
            .find_map(|f| self.blob_schedule[f as usize])
    }

    /// The block numbers at which rules change after genesis, ascending, each once.
    pub fn fork_blocks(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self
            .activations
            .iter()
            .filter_map(|a| match a {
                Activation::Block(b) => Some(*b),
                _ => None,
            })
            .chain(self.dao_fork.map(|dao| dao.block))
            .chain(self.merge_netsplit_block)
            .filter(|b| *b > 0)
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The timestamps after `genesis_time` at which rules change, ascending, each once.
    pub fn fork_times(&self, genesis_time: u64) -> Vec<u64> {
        let mut times: Vec<u64> = self
            .activations
            .iter()
            .filter_map(|a| match a {
                Activation::Time(t) => Some(*t),
                _ => None,
            })
            .filter(|t| *t > genesis_time)
            .collect();
        times.sort_unstable();
        times.dedup();
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_fork_chain_runs_that_fork_from_block_zero() {
        for fork in Fork::ALL {
            let spec = ChainSpec::single(1, fork);
            assert_eq!(spec.fork_at(0, 0, fork >= Fork::Paris), fork);
            assert_eq!(spec.fork_at(1 << 40, 1 << 40, fork >= Fork::Paris), fork);
        }
    }

    #[test]
    fn a_fork_begins_at_its_block_and_not_before() {
        let mut spec = ChainSpec::single(1, Fork::Frontier);
        spec.set(Fork::Homestead, Activation::Block(5));
        assert_eq!(spec.fork_at(4, 0, false), Fork::Frontier);
        assert_eq!(spec.fork_at(5, 0, false), Fork::Homestead);
    }

    #[test]
    fn blob_params_follow_the_latest_entry_of_the_schedule() {
        let mut spec = ChainSpec::single(1, Fork::Shanghai);
        assert_eq!(spec.blob_params_at(u64::MAX), None);
        spec.set(Fork::Cancun, Activation::Time(10));
        spec.set(Fork::Prague, Activation::Time(20));
        spec.set(Fork::Osaka, Activation::Time(30));
        spec.set(Fork::Bpo1, Activation::Time(40));
        assert_eq!(spec.blob_params_at(9), None);
        assert_eq!(spec.blob_params_at(19), Some(BlobParams::CANCUN));
        assert_eq!(spec.blob_params_at(39), Some(BlobParams::PRAGUE));
        assert_eq!(spec.blob_params_at(40), Some(BlobParams::BPO1));
    }

    #[test]
    fn a_header_of_difficulty_zero_is_paris_only_where_there_is_a_terminal_difficulty() {
        let mut spec = ChainSpec::single(1, Fork::London);
        let header = Header::default();
        assert_eq!(spec.fork_of(&header), Fork::London);
        spec.terminal_total_difficulty = Some(U256::from(100));
        spec.set(Fork::Paris, Activation::TotalDifficulty);
        assert_eq!(spec.fork_of(&header), Fork::Paris);
        let work = Header {
            difficulty: U256::from(1),
            ..header
        };
        assert_eq!(spec.fork_of(&work), Fork::London);
        assert!(!spec.is_terminal(U256::from(99)));
        assert!(spec.is_terminal(U256::from(100)));
    }
}
