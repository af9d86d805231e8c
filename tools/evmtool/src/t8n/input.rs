//! The input of a transition: pre-state, block and transactions.
//!
//! The formats are those of go-ethereum's `evm t8n`, which Besu's tool shares. Numbers are hex or decimal, in
//! strings or, up to 64 bits, not.

use super::transactions::{Signed, from_json, from_rlp};
use super::{Failure, parse};
use niwaki_primitives::{B256, Bytes, Fork, Header, U256, Withdrawal};
use niwaki_rules::{BlobParams, ChainSpec, block_difficulty, next_base_fee, next_excess_blob_gas};
use niwaki_testkit::fixtures::{Data, FixtureAddress, FixtureAlloc, Quantity, parse_alloc};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The block environment.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Env {
    current_coinbase: FixtureAddress,
    current_gas_limit: Quantity,
    pub(super) current_number: Quantity,
    current_timestamp: Quantity,
    pub(super) current_difficulty: Option<Quantity>,
    current_random: Option<Quantity>,
    current_base_fee: Option<Quantity>,
    current_excess_blob_gas: Option<Quantity>,
    slot_number: Option<Quantity>,
    current_slot_number: Option<Quantity>,
    parent_difficulty: Option<Quantity>,
    parent_base_fee: Option<Quantity>,
    parent_gas_used: Option<Quantity>,
    parent_gas_limit: Option<Quantity>,
    parent_timestamp: Option<Quantity>,
    parent_uncle_hash: Option<B256>,
    parent_excess_blob_gas: Option<Quantity>,
    parent_blob_gas_used: Option<Quantity>,
    parent_beacon_block_root: Option<B256>,
    parent_hash: Option<Data>,
    previous_hash: Option<Data>,
    #[serde(default)]
    pub(super) block_hashes: BTreeMap<Quantity, B256>,
    #[serde(default)]
    ommers: Vec<Ommer>,
    withdrawals: Option<Vec<RawWithdrawal>>,
}

#[derive(Debug, Deserialize)]
struct Ommer {
    /// Its distance below the block's number.
    delta: Quantity,
    address: FixtureAddress,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawWithdrawal {
    index: Quantity,
    validator_index: Quantity,
    address: FixtureAddress,
    /// Gwei.
    amount: Quantity,
}

/// Addresses of system contracts that differ from mainnet's.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Config {
    pub(super) deposit_contract_address: Option<FixtureAddress>,
    pub(super) withdrawal_request_contract_address: Option<FixtureAddress>,
    pub(super) consolidation_request_contract_address: Option<FixtureAddress>,
}

/// Everything that a transition needs but its rules.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) alloc: FixtureAlloc,
    pub(super) env: Env,
    pub(super) config: Config,
    pub(super) transactions: Vec<Signed>,
}

/// The documents as unparsed JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Documents {
    pub(super) alloc: Option<Box<RawValue>>,
    pub(super) env: Option<Box<RawValue>>,
    pub(super) config: Option<Box<RawValue>>,
    /// Transactions as objects, or all of them as RLP in hex.
    pub(super) txs: Option<Box<RawValue>>,
    pub(super) txs_rlp: Option<String>,
}

impl Documents {
    /// Reads the documents for a chain of `chain_id`.
    ///
    /// # Errors
    /// [`Failure`] that names the document.
    pub(super) fn read(&self, chain_id: u64) -> Result<Input, Failure> {
        let missing = |what: &str| Failure::json(what, "it is missing");
        let alloc = self.alloc.as_ref().ok_or_else(|| missing("alloc"))?;
        let env = self.env.as_ref().ok_or_else(|| missing("env"))?;
        let config = self.config.as_ref().map(|raw| parse("config", raw));
        Ok(Input {
            alloc: parse_alloc(alloc.get()).map_err(|error| Failure::json("alloc", error))?,
            env: parse("env", env)?,
            config: config.transpose()?.unwrap_or_default(),
            transactions: self.transactions(chain_id)?,
        })
    }

    fn transactions(&self, chain_id: u64) -> Result<Vec<Signed>, Failure> {
        if let Some(rlp) = &self.txs_rlp {
            return from_rlp(rlp);
        }
        let Some(raw) = &self.txs else {
            return Ok(Vec::new());
        };
        // A string is RLP.
        match serde_json::from_str::<String>(raw.get()) {
            Ok(rlp) => from_rlp(&rlp),
            Err(_) => Ok(from_json(&parse::<Vec<_>>("txs", raw)?, chain_id)),
        }
    }
}

impl Env {
    /// The header of the block by the rules of `fork`, as far as it is known before execution.
    ///
    /// # Errors
    /// [`Failure`] with what is missing for the fork.
    pub(super) fn header(&self, fork: Fork, spec: &ChainSpec) -> Result<Header, Failure> {
        let since = |from: Fork| fork >= from;
        let number = number_of("currentNumber", self.current_number)?;
        // Limits beyond 64 bits, and none at all: no transaction can tell them apart.
        let gas_limit = match u64::try_from(self.current_gas_limit.0) {
            Ok(0) | Err(_) => u64::MAX,
            Ok(limit) => limit,
        };
        let timestamp = number_of("currentTimestamp", self.current_timestamp)?;
        let difficulty = self.difficulty(fork, number, timestamp)?;
        let random = self.current_random.unwrap_or_default();
        let blobs = spec.blob_params_at(timestamp);
        let excess = blobs.map(|params| self.excess_blob_gas(fork, &params));
        let slot = optional("slotNumber", self.slot_number.or(self.current_slot_number))?;
        Ok(Header {
            parent_hash: self.parent_hash(number)?,
            number,
            timestamp,
            beneficiary: self.current_coinbase.0,
            gas_limit,
            difficulty,
            mix_hash: B256::from(random.0),
            base_fee_per_gas: since(Fork::London).then(|| self.base_fee()).transpose()?,
            excess_blob_gas: excess.transpose()?,
            blob_gas_used: since(Fork::Cancun).then_some(0),
            parent_beacon_block_root: self.parent_beacon_block_root,
            slot_number: since(Fork::Amsterdam).then_some(slot.unwrap_or(0)),
            ..Header::default()
        })
    }

    /// The given difficulty, or the one computed from the parent; zero from Paris on.
    fn difficulty(&self, fork: Fork, number: u64, timestamp: u64) -> Result<U256, Failure> {
        if fork >= Fork::Paris {
            return Ok(U256::ZERO);
        }
        if let Some(given) = self.current_difficulty {
            return Ok(given.0);
        }
        let (Some(difficulty), Some(parent_timestamp)) =
            (self.parent_difficulty, self.parent_timestamp)
        else {
            return Err(Failure::config(
                "env has no currentDifficulty, and no parentDifficulty and parentTimestamp that it \
                 could be made of",
            ));
        };
        let parent = Header {
            difficulty: difficulty.0,
            timestamp: number_of("parentTimestamp", parent_timestamp)?,
            ommers_hash: self
                .parent_uncle_hash
                .unwrap_or(Header::default().ommers_hash),
            ..Header::default()
        };
        Ok(block_difficulty(fork, number, timestamp, &parent))
    }

    fn base_fee(&self) -> Result<u64, Failure> {
        if let Some(given) = self.current_base_fee {
            return number_of("currentBaseFee", given);
        }
        let Some(parent_fee) = self.parent_base_fee else {
            return Err(Failure::config(
                "env has no currentBaseFee, and no parentBaseFee that it could be made of",
            ));
        };
        Ok(next_base_fee(&Header {
            base_fee_per_gas: Some(number_of("parentBaseFee", parent_fee)?),
            gas_used: optional("parentGasUsed", self.parent_gas_used)?.unwrap_or(0),
            gas_limit: optional("parentGasLimit", self.parent_gas_limit)?.unwrap_or(0),
            ..Header::default()
        }))
    }

    fn excess_blob_gas(&self, fork: Fork, params: &BlobParams) -> Result<u64, Failure> {
        if let Some(given) = self.current_excess_blob_gas {
            return number_of("currentExcessBlobGas", given);
        }
        let parent = Header {
            base_fee_per_gas: optional("parentBaseFee", self.parent_base_fee)?,
            excess_blob_gas: optional("parentExcessBlobGas", self.parent_excess_blob_gas)?,
            blob_gas_used: optional("parentBlobGasUsed", self.parent_blob_gas_used)?,
            ..Header::default()
        };
        Ok(next_excess_blob_gas(&parent, fork, params))
    }

    /// The given parent hash, or the hash of the previous block.
    fn parent_hash(&self, number: u64) -> Result<B256, Failure> {
        if let Some(hash) = self.parent_hash.as_ref().or(self.previous_hash.as_ref()) {
            return B256::try_from(hash.0.as_ref())
                .map_err(|_| Failure::json("env", "parentHash is not of 32 bytes"));
        }
        let before = number
            .checked_sub(1)
            .map(|before| Quantity(U256::from(before)));
        let hash = before.and_then(|before| self.block_hashes.get(&before));
        Ok(hash.copied().unwrap_or_default())
    }

    /// Ommer headers with the fields that rewards depend on.
    pub(super) fn ommers(&self, number: u64) -> Result<Vec<Header>, Failure> {
        let header = |ommer: &Ommer| {
            Ok(Header {
                number: number.saturating_sub(number_of("delta", ommer.delta)?),
                beneficiary: ommer.address.0,
                ..Header::default()
            })
        };
        self.ommers.iter().map(header).collect()
    }

    /// The withdrawals; no list at all before Shanghai, an empty one if it is missing after that.
    pub(super) fn withdrawals(&self, fork: Fork) -> Result<Option<Vec<Withdrawal>>, Failure> {
        if fork < Fork::Shanghai {
            return Ok(None);
        }
        let withdrawal = |raw: &RawWithdrawal| {
            Ok(Withdrawal {
                index: number_of("index", raw.index)?,
                validator_index: number_of("validatorIndex", raw.validator_index)?,
                address: raw.address.0,
                amount: number_of("amount", raw.amount)?,
            })
        };
        let given = self.withdrawals.iter().flatten();
        given.map(withdrawal).collect::<Result<_, _>>().map(Some)
    }
}

fn number_of(what: &str, quantity: Quantity) -> Result<u64, Failure> {
    u64::try_from(quantity.0)
        .map_err(|_| Failure::json("env", format!("{what} {} is beyond 64 bits", quantity.0)))
}

fn optional(what: &str, quantity: Option<Quantity>) -> Result<Option<u64>, Failure> {
    quantity
        .map(|quantity| number_of(what, quantity))
        .transpose()
}

/// Bytes of hex digits, with `0x` or without.
pub(super) fn bytes_of(what: &str, text: &str) -> Result<Bytes, Failure> {
    hex::decode(text.trim())
        .map(Bytes::from)
        .map_err(|error| Failure::json(what, format!("no hex: {error}")))
}
