//! Genesis files, as geth and Besu write them.

mod alloc;
mod bft;
mod config;
mod discovery;
mod quorum;
mod scan;
mod stream;

pub(crate) use config::fork_key;

pub use alloc::{GenesisAccount, decode_alloc, encode_alloc};
pub use discovery::FirstPeers;
pub use stream::{AllocItem, AllocSink, NO_ALLOC, ReadError, read_genesis};

use crate::chain_spec::ChainSpec;
use crate::fees::INITIAL_BASE_FEE;
use crate::json::Object;
use crate::requests::requests_hash;
use alloy_primitives::{Address, B64, B256, Bytes, U256};
use niwaki_crypto::keccak256;
use niwaki_primitives::{EMPTY_ROOT_HASH, Fork, Header};
use std::collections::BTreeMap;
use std::ops::Range;

/// What is wrong with a genesis file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenesisError {
    /// Not JSON, or not an object where one must be.
    #[error("genesis: {at} is not a JSON object: {reason}")]
    Json {
        /// Which part of the file.
        at: String,
        /// What the parser found.
        reason: String,
    },
    /// An object is written twice, perhaps in different letter case.
    #[error("genesis: {at} has both {first} and {second}; keep one of them")]
    DuplicateKey {
        /// Which part of the file.
        at: String,
        /// One of the keys.
        first: String,
        /// The other.
        second: String,
    },
    /// A value does not have the form that its key asks for.
    #[error("genesis: {key} = {value} {reason}")]
    Value {
        /// Path of the key.
        key: String,
        /// The value, shortened.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A key that must be there is not.
    #[error("genesis: {key} is missing; {why}")]
    Missing {
        /// Path of the key.
        key: &'static str,
        /// Why it must be there.
        why: &'static str,
    },
    /// Two keys contradict each other.
    #[error("genesis: {0}")]
    Contradiction(String),
    /// The file asks for something that this client does not do.
    #[error("genesis: {key} is not supported: {why}")]
    Unsupported {
        /// Path of the key.
        key: String,
        /// Why not.
        why: &'static str,
    },
    /// The compact form of an alloc is damaged.
    #[error("genesis: the compact alloc is damaged: {0}")]
    Alloc(String),
}

/// A genesis without its alloc: the chain's parameters and the fields of its first header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenesisHead {
    /// The chain's parameters.
    pub spec: ChainSpec,
    template: Header,
    text: String,
    alloc_bytes: Option<Range<u64>>,
}

impl GenesisHead {
    /// Parses the text of a genesis file in which the alloc, the bytes `alloc_bytes`, was replaced by `null`. An alloc
    /// that is there nevertheless is ignored.
    ///
    /// # Errors
    /// [`GenesisError`] naming the key that is malformed, missing or not supported.
    pub fn parse(text: String, alloc_bytes: Option<Range<u64>>) -> Result<Self, GenesisError> {
        let root = Object::parse("", &text)?;
        let Some(config) = root.object("config")? else {
            return Err(GenesisError::Missing {
                key: "config",
                why: "it holds the chain id and the forks",
            });
        };
        let spec = config::parse_config(&config)?;
        let template = parse_header(&root, &spec)?;
        check_tx_gas_limits(&spec, template.gas_limit)?;
        Ok(Self {
            spec,
            template,
            text,
            alloc_bytes,
        })
    }

    /// The file with `null` instead of its alloc.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The position of the alloc in the file; `None` if there is none.
    pub fn alloc_bytes(&self) -> Option<Range<u64>> {
        self.alloc_bytes.clone()
    }

    /// The genesis header, given the root of the state that the alloc makes.
    pub fn header(&self, state_root: B256) -> Header {
        Header {
            state_root,
            ..self.template.clone()
        }
    }
}

/// A genesis: the chain's parameters, the fields of its first header and its first state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genesis {
    /// The chain's parameters.
    pub spec: ChainSpec,
    /// Accounts of the first state.
    pub alloc: BTreeMap<Address, GenesisAccount>,
    template: Header,
}

impl Genesis {
    /// Parses a genesis file in geth's or Besu's form. Keys may be in any letter case, and of duplicate keys the last
    /// one counts, as in both clients; keys that change consensus in neither client are ignored. [`read_genesis`] does
    /// not hold the alloc in memory.
    ///
    /// # Errors
    /// [`GenesisError`] naming the key that is malformed, missing or not supported.
    pub fn from_json(text: &str) -> Result<Self, GenesisError> {
        let (head, alloc) = Self::parts_from_json(text.as_bytes())?;
        Ok(Self::new(head, alloc))
    }

    /// As [`Genesis::from_json`], but in two parts.
    ///
    /// # Errors
    /// The same.
    pub fn parts_from_json(
        mut text: &[u8],
    ) -> Result<(GenesisHead, BTreeMap<Address, GenesisAccount>), GenesisError> {
        let mut collected = stream::CollectedAlloc::default();
        let outcome = read_genesis(&mut text, &mut |item| {
            collected.add(item);
            true
        });
        collected.finish(outcome)
    }

    /// A genesis from its two parts.
    pub fn new(head: GenesisHead, alloc: BTreeMap<Address, GenesisAccount>) -> Self {
        Self {
            spec: head.spec,
            alloc,
            template: head.template,
        }
    }

    /// The genesis header, given the root of the state that [`Self::alloc`] makes.
    pub fn header(&self, state_root: B256) -> Header {
        Header {
            state_root,
            ..self.template.clone()
        }
    }
}

/// The fields of the genesis header. Fields of forks that are active at genesis are present even if the file lacks
/// them, with the defaults of both clients.
/// A transaction may not have more gas than the genesis block, as Besu has it.
fn check_tx_gas_limits(spec: &ChainSpec, of_block: u64) -> Result<(), GenesisError> {
    let limits = spec.bft_rules.iter().filter_map(|rules| rules.tx_gas_limit);
    match limits.max().filter(|most| *most > of_block) {
        Some(most) => Err(GenesisError::Contradiction(format!(
            "perTxGasLimit = {most} is above gasLimit = {of_block}; make it at most as high, or 0 for no limit"
        ))),
        None => Ok(()),
    }
}

fn parse_header(root: &Object<'_>, spec: &ChainSpec) -> Result<Header, GenesisError> {
    let timestamp = root.u64("timestamp")?.unwrap_or(0);
    let number = root.u64("number")?.unwrap_or(0);
    let difficulty = root.hex_u256("difficulty")?.unwrap_or_default();
    // gasTarget is Besu's other name for it.
    let Some(gas_limit) = root.first_u64("gasLimit", "gasTarget")? else {
        return Err(GenesisError::Missing {
            key: "gasLimit",
            why: "blocks after genesis derive theirs from it",
        });
    };
    let mix_hash = match root.b256("mixHash")? {
        Some(hash) => hash,
        None => root.b256("mixDigest")?.unwrap_or_default(),
    };
    // The genesis header is of Paris only if the chain starts merged.
    let merged = spec.terminal_total_difficulty == Some(U256::ZERO);
    let fork = spec.fork_at(number, timestamp, merged);
    let since = |f: Fork| fork >= f;
    // With zeroBaseFee too: it holds from block 1 on.
    let base_fee = root.u64("baseFeePerGas")?.unwrap_or(INITIAL_BASE_FEE);
    Ok(Header {
        parent_hash: root.b256("parentHash")?.unwrap_or_default(),
        beneficiary: root.address("coinbase")?.unwrap_or_default(),
        transactions_root: EMPTY_ROOT_HASH,
        receipts_root: EMPTY_ROOT_HASH,
        difficulty,
        number,
        gas_limit,
        gas_used: root.u64("gasUsed")?.unwrap_or(0),
        timestamp,
        extra_data: root.bytes("extraData")?.unwrap_or_default(),
        mix_hash,
        nonce: B64::from(root.hex_u64("nonce")?.unwrap_or(0)),
        base_fee_per_gas: since(Fork::London).then_some(base_fee),
        withdrawals_root: since(Fork::Shanghai).then_some(EMPTY_ROOT_HASH),
        blob_gas_used: since(Fork::Cancun).then_some(root.hex_u64("blobGasUsed")?.unwrap_or(0)),
        excess_blob_gas: since(Fork::Cancun).then_some(root.hex_u64("excessBlobGas")?.unwrap_or(0)),
        parent_beacon_block_root: since(Fork::Cancun)
            .then_some(root.b256("parentBeaconBlockRoot")?.unwrap_or_default()),
        requests_hash: since(Fork::Prague).then(|| requests_hash(&[])),
        block_access_list_hash: since(Fork::Amsterdam).then(|| keccak256([0xc0])),
        slot_number: since(Fork::Amsterdam).then_some(root.hex_u64("slotNumber")?.unwrap_or(0)),
        ..Header::default()
    })
}

/// The parts of a genesis that are built in: everything but the alloc as JSON, the alloc compact.
pub(crate) fn from_parts(json: &str, alloc: &[u8]) -> Result<Genesis, GenesisError> {
    let mut genesis = Genesis::from_json(json)?;
    genesis.alloc = decode_alloc(&Bytes::copy_from_slice(alloc))?;
    Ok(genesis)
}

#[cfg(test)]
mod tests;
