//! Conformance fixtures: the JSON files of execution-spec-tests and ethereum-tests.
//!
//! A file holds many named cases. Their keys tell the four kinds apart: state, blockchain, engine and
//! VM tests. The parser accepts every generation of the format, but a field that is present and
//! malformed is an error, since ignoring it could let a failing case pass.
//!
//! | file | what it is |
//! |---|---|
//! | `block` | blockchain and engine tests |
//! | `state` | state tests and the older VM tests |
//! | `values` | numbers, bytes and addresses |

mod block;
mod state;
mod values;

pub use block::{BlockCase, BlockExpectation, ChainTest, PayloadCase};
pub use state::{
    AuthorizationFields, Indexes, StateEnv, StatePost, StateTest, TransactionFields, VmExec, VmTest,
};
pub use values::{Data, FixtureAddress, Quantity, Wide};

use crate::MemoryAccount;
use niwaki_primitives::{Address, U256};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The accounts of a fixture's state.
pub type FixtureAlloc = BTreeMap<Address, MemoryAccount>;

/// Why a fixture file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    /// The file can't be read.
    #[error("can't read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file is not an object of cases.
    #[error("{path} is not a fixture file: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A case is malformed.
    #[error("{path}: case {name}: {reason}")]
    Case {
        /// The file.
        path: PathBuf,
        /// The case.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// One named case of any kind.
#[derive(Clone, Debug)]
pub enum Fixture {
    /// One transaction on a state, under several forks.
    State(Box<StateTest>),
    /// A chain of blocks as RLP.
    Block(Box<ChainTest<BlockCase>>),
    /// A chain of blocks as Engine API payloads.
    Engine(Box<ChainTest<PayloadCase>>),
    /// Bytecode run without a transaction, by Frontier's rules (the oldest format).
    Vm(Box<VmTest>),
}

impl Fixture {
    /// Name of the case.
    pub fn name(&self) -> &str {
        match self {
            Self::State(test) => &test.name,
            Self::Block(test) => &test.name,
            Self::Engine(test) => &test.name,
            Self::Vm(test) => &test.name,
        }
    }
}

/// Chain parameters, in newer fixtures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixtureConfig {
    /// Chain id; `None` means 1.
    pub chain_id: Option<u64>,
    /// Per fork name: target, max, base fee update fraction.
    pub blob_schedule: BTreeMap<String, [u64; 3]>,
}

/// Loads every case of a file.
///
/// # Errors
/// [`FixtureError`] if the file can't be read or a case is malformed.
pub fn load_fixtures(path: &Path) -> Result<Vec<Fixture>, FixtureError> {
    let text = std::fs::read_to_string(path).map_err(|source| FixtureError::Io {
        path: path.to_owned(),
        source,
    })?;
    parse_fixtures(path, &text)
}

/// Parses every case of a file's text; `path` names it in errors.
///
/// # Errors
/// [`FixtureError`] if a case is malformed.
pub fn parse_fixtures(path: &Path, text: &str) -> Result<Vec<Fixture>, FixtureError> {
    let cases: BTreeMap<String, &RawValue> =
        serde_json::from_str(text).map_err(|error| FixtureError::File {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    cases
        .into_iter()
        .map(|(name, raw)| {
            parse_case(&name, raw.get()).map_err(|error| FixtureError::Case {
                path: path.to_owned(),
                name,
                reason: error.to_string(),
            })
        })
        .collect()
}

/// The keys by which the kinds differ.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KindKeys<'a> {
    #[serde(borrow)]
    transaction: Option<&'a RawValue>,
    #[serde(borrow)]
    blocks: Option<&'a RawValue>,
    #[serde(borrow)]
    engine_new_payloads: Option<&'a RawValue>,
    #[serde(borrow)]
    exec: Option<&'a RawValue>,
}

fn parse_case(name: &str, text: &str) -> Result<Fixture, serde_json::Error> {
    let kind: KindKeys<'_> = serde_json::from_str(text)?;
    if kind.engine_new_payloads.is_some() {
        return block::parse_payloads(name, text).map(|t| Fixture::Engine(Box::new(t)));
    }
    if kind.blocks.is_some() {
        return block::parse_blocks(name, text).map(|t| Fixture::Block(Box::new(t)));
    }
    if kind.transaction.is_some() {
        return state::parse_state(name, text).map(|t| Fixture::State(Box::new(t)));
    }
    if kind.exec.is_some() {
        return state::parse_vm(name, text).map(|t| Fixture::Vm(Box::new(t)));
    }
    Err(serde::de::Error::custom(
        "has none of transaction, blocks, engineNewPayloads and exec",
    ))
}

/// An account in a fixture's format.
#[derive(Deserialize)]
struct RawAccount {
    #[serde(default)]
    nonce: values::Quantity,
    #[serde(default)]
    balance: values::Quantity,
    #[serde(default)]
    code: values::Data,
    #[serde(default)]
    storage: BTreeMap<values::Quantity, values::Quantity>,
}

type RawAlloc = BTreeMap<values::FixtureAddress, Option<RawAccount>>;

/// Parses an alloc: accounts by address.
///
/// # Errors
/// If `text` is not an alloc.
pub fn parse_alloc(text: &str) -> Result<FixtureAlloc, serde_json::Error> {
    alloc_of(serde_json::from_str(text)?)
}

fn alloc_of(raw: RawAlloc) -> Result<FixtureAlloc, serde_json::Error> {
    raw.into_iter()
        .filter_map(|(address, account)| Some((address, account?)))
        .map(|(address, account)| {
            let storage = account
                .storage
                .into_iter()
                .map(|(slot, value)| (slot.0, value.0))
                .filter(|(_, value)| *value != U256::ZERO)
                .collect();
            let account = MemoryAccount {
                nonce: account.nonce.u64()?,
                balance: account.balance.0,
                code: account.code.0.into(),
                storage,
            };
            Ok((address.0, account))
        })
        .collect()
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawConfig {
    chainid: Option<values::Quantity>,
    #[serde(default)]
    blob_schedule: BTreeMap<String, RawBlobParams>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBlobParams {
    target: values::Quantity,
    max: values::Quantity,
    base_fee_update_fraction: values::Quantity,
}

fn config_of(raw: Option<RawConfig>) -> Result<FixtureConfig, serde_json::Error> {
    let raw = raw.unwrap_or_default();
    let schedule = raw.blob_schedule.into_iter().map(|(fork, params)| {
        let numbers = [
            params.target.u64()?,
            params.max.u64()?,
            params.base_fee_update_fraction.u64()?,
        ];
        Ok((fork, numbers))
    });
    Ok(FixtureConfig {
        chain_id: raw.chainid.map(|id| id.u64()).transpose()?,
        blob_schedule: schedule.collect::<Result<_, serde_json::Error>>()?,
    })
}

#[cfg(test)]
mod tests;
