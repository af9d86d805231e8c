//! `niwaki-evm b11r`: builds a block from its parts.
//!
//! Options and documents are those of go-ethereum's `evm b11r`. A block is sealed by proof of authority (EIP-225) on
//! request; proof of work is not supported.

use crate::t8n::{Failure, parse, read_json, read_rlp, read_stdin, write};
use alloy_primitives::keccak256;
use clap::Args;
use niwaki_primitives::{
    Address, B64, B256, Bloom, Bytes, EMPTY_OMMER_ROOT_HASH, EMPTY_ROOT_HASH, Header, Withdrawal,
    hex, rlp,
};
use niwaki_testkit::fixtures::{Data, FixtureAddress, Quantity};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Options of `b11r`.
#[derive(Debug, Args)]
pub(crate) struct B11rOptions {
    /// The header: a file, or `stdin`.
    #[arg(
        long = "input.header",
        value_name = "FILE",
        default_value = "header.json"
    )]
    header: String,
    /// The ommers' headers, each in RLP in hex: a file, or `stdin`.
    #[arg(long = "input.ommers", value_name = "FILE")]
    ommers: Option<String>,
    /// The withdrawals: a file, or `stdin`.
    #[arg(long = "input.withdrawals", value_name = "FILE")]
    withdrawals: Option<String>,
    /// The transactions, a list in RLP in hex: a file, or `stdin`.
    #[arg(long = "input.txs", value_name = "FILE", default_value = "txs.rlp")]
    txs: String,
    /// The key to seal with by proof of authority, and a vote: a file, or `stdin`.
    #[arg(long = "seal.clique", value_name = "FILE")]
    clique: Option<String>,
    /// Where files are written that are not absolute.
    #[arg(long = "output.basedir", value_name = "DIR", default_value = ".")]
    basedir: PathBuf,
    /// The block: a file, or `stdout`.
    #[arg(
        long = "output.block",
        value_name = "FILE",
        default_value = "block.json"
    )]
    block: String,
}

/// The documents, unparsed.
#[derive(Debug, Default, Deserialize)]
struct Documents {
    header: Option<Box<RawValue>>,
    #[serde(alias = "ommers")]
    uncles: Option<Box<RawValue>>,
    withdrawals: Option<Box<RawValue>>,
    txs: Option<String>,
    clique: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawHeader {
    #[serde(default)]
    parent_hash: B256,
    sha3_uncles: Option<B256>,
    ommers_hash: Option<B256>,
    miner: Option<FixtureAddress>,
    coinbase: Option<FixtureAddress>,
    state_root: B256,
    transactions_root: Option<B256>,
    receipts_root: Option<B256>,
    #[serde(default)]
    logs_bloom: Bloom,
    #[serde(default)]
    difficulty: Quantity,
    number: Quantity,
    gas_limit: Quantity,
    #[serde(default)]
    gas_used: Quantity,
    timestamp: Quantity,
    #[serde(default)]
    extra_data: Data,
    #[serde(default)]
    mix_hash: B256,
    nonce: Option<B64>,
    base_fee_per_gas: Option<Quantity>,
    withdrawals_root: Option<B256>,
    blob_gas_used: Option<Quantity>,
    excess_blob_gas: Option<Quantity>,
    parent_beacon_block_root: Option<B256>,
    requests_hash: Option<B256>,
    block_access_list_hash: Option<B256>,
    slot_number: Option<Quantity>,
}

/// Input of a proof-of-authority seal (EIP-225).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Clique {
    secret_key: B256,
    /// The account that is voted on.
    voted: Option<FixtureAddress>,
    /// Whether the vote is to add it as a signer.
    authorize: Option<bool>,
    /// The signer's vanity data, 32 bytes.
    vanity: Option<B256>,
}

/// Builds the block from the documents that the options name.
///
/// # Errors
/// [`Failure`].
pub(crate) fn run(options: &B11rOptions) -> Result<(), Failure> {
    let documents = options.read()?;
    let header = documents.header.as_ref();
    let header = header.ok_or_else(|| Failure::json("header", "it is missing"))?;
    let block = build(parse("header", header)?, &documents)?;
    match options.block.as_str() {
        "stdout" => println!("{block:#}"),
        file => {
            std::fs::create_dir_all(&options.basedir)
                .map_err(|error| Failure::io(&options.basedir, &error))?;
            write(&options.basedir.join(file), &block)?;
        }
    }
    Ok(())
}

impl B11rOptions {
    fn read(&self) -> Result<Documents, Failure> {
        let ommers = self.ommers.as_deref();
        let withdrawals = self.withdrawals.as_deref();
        let clique = self.clique.as_deref();
        let names = [
            Some(&*self.header),
            ommers,
            withdrawals,
            Some(&self.txs),
            clique,
        ];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        let mut documents: Documents = read_stdin(&names)?;
        for (what, name, document) in [
            ("header", Some(&*self.header), &mut documents.header),
            ("ommers", ommers, &mut documents.uncles),
            ("withdrawals", withdrawals, &mut documents.withdrawals),
            ("clique", clique, &mut documents.clique),
        ] {
            match name {
                None => *document = None,
                Some("stdin") => {}
                Some(file) => *document = Some(read_json(what, file)?),
            }
        }
        if self.txs != "stdin" {
            documents.txs = Some(read_rlp(&self.txs)?);
        }
        Ok(documents)
    }
}

/// The block's RLP and hash.
fn build(raw: RawHeader, documents: &Documents) -> Result<Value, Failure> {
    let ommers: Vec<Data> = match &documents.uncles {
        Some(raw) => parse("ommers", raw)?,
        None => Vec::new(),
    };
    let ommers: Vec<Bytes> = ommers.into_iter().map(|ommer| ommer.0).collect();
    let withdrawals: Option<Vec<Withdrawal>> = match &documents.withdrawals {
        Some(raw) => parse("withdrawals", raw)?,
        None => None,
    };
    for ommer in &ommers {
        check_list("ommers", ommer)?;
    }
    let transactions = list_of(documents.txs.as_deref().unwrap_or_default())?;
    let ommers = list(&ommers);
    let mut header = raw.header(keccak256(&ommers))?;
    if let Some(raw) = documents.clique.as_ref().filter(|raw| raw.get() != "null") {
        seal(&mut header, &parse("clique", raw)?)?;
    }
    let mut fields = vec![rlp::encode(&header).into(), transactions, ommers];
    fields.extend(withdrawals.map(|list| rlp::encode(&list).into()));
    Ok(json!({
        "rlp": hex::encode_prefixed(list(&fields)),
        "hash": header.hash_slow(),
    }))
}

/// The RLP list of encoded items.
fn list(items: &[Bytes]) -> Bytes {
    let payload = items.concat();
    let mut out = Vec::new();
    let header = alloy_rlp::Header {
        list: true,
        payload_length: payload.len(),
    };
    header.encode(&mut out);
    out.extend_from_slice(&payload);
    out.into()
}

/// The transactions of the block as an RLP list; an empty text is an empty list.
fn list_of(text: &str) -> Result<Bytes, Failure> {
    let bytes = hex::decode(text.trim()).map_err(|error| Failure::json("txs", error))?;
    if bytes.is_empty() {
        return Ok(list(&[]));
    }
    check_list("txs", &bytes)?;
    Ok(bytes.into())
}

fn check_list(what: &str, mut bytes: &[u8]) -> Result<(), Failure> {
    let header = alloy_rlp::Header::decode(&mut bytes)
        .map_err(|error| Failure::rlp(format!("{what}: no RLP: {error}")))?;
    if !header.list || header.payload_length != bytes.len() {
        return Err(Failure::rlp(format!("{what}: not one list in RLP")));
    }
    Ok(())
}

impl RawHeader {
    /// The header; its ommers hash is `ommers_hash` unless it has one.
    fn header(self, ommers_hash: B256) -> Result<Header, Failure> {
        let number = |what: &str, quantity: Quantity| {
            u64::try_from(quantity.0)
                .map_err(|_| Failure::json("header", format!("{what} is beyond 64 bits")))
        };
        let optional = |what: &str, quantity: Option<Quantity>| {
            quantity.map(|quantity| number(what, quantity)).transpose()
        };
        let given = self
            .sha3_uncles
            .or(self.ommers_hash)
            .filter(|hash| *hash != EMPTY_OMMER_ROOT_HASH);
        Ok(Header {
            parent_hash: self.parent_hash,
            ommers_hash: given.unwrap_or(ommers_hash),
            beneficiary: self
                .miner
                .or(self.coinbase)
                .map_or(Address::ZERO, |miner| miner.0),
            state_root: self.state_root,
            transactions_root: self.transactions_root.unwrap_or(EMPTY_ROOT_HASH),
            receipts_root: self.receipts_root.unwrap_or(EMPTY_ROOT_HASH),
            logs_bloom: self.logs_bloom,
            difficulty: self.difficulty.0,
            number: number("number", self.number)?,
            gas_limit: number("gasLimit", self.gas_limit)?,
            gas_used: number("gasUsed", self.gas_used)?,
            timestamp: number("timestamp", self.timestamp)?,
            extra_data: self.extra_data.0,
            mix_hash: self.mix_hash,
            nonce: self.nonce.unwrap_or_default(),
            base_fee_per_gas: optional("baseFeePerGas", self.base_fee_per_gas)?,
            withdrawals_root: self.withdrawals_root,
            blob_gas_used: optional("blobGasUsed", self.blob_gas_used)?,
            excess_blob_gas: optional("excessBlobGas", self.excess_blob_gas)?,
            parent_beacon_block_root: self.parent_beacon_block_root,
            requests_hash: self.requests_hash,
            block_access_list_hash: self.block_access_list_hash,
            slot_number: optional("slotNumber", self.slot_number)?,
        })
    }
}

/// Seals `header` with the key of `clique` (EIP-225): sets the vote, and signs the rest of the header at the end of the
/// extra data.
fn seal(header: &mut Header, clique: &Clique) -> Result<(), Failure> {
    let both = |what: &str, part: &str| {
        Failure::config(format!(
            "the header has {what}, which clique's {part} says too; leave one out"
        ))
    };
    if !header.extra_data.is_empty() {
        return Err(both("extraData", "vanity"));
    }
    if let Some(voted) = clique.voted {
        if !header.beneficiary.is_zero() {
            return Err(both("a miner", "voted"));
        }
        header.beneficiary = voted.0;
    }
    if let Some(authorize) = clique.authorize {
        if !header.nonce.is_zero() {
            return Err(both("a nonce", "authorize"));
        }
        header.nonce = B64::repeat_byte(if authorize { 0xff } else { 0 });
    }
    let mut extra = clique.vanity.unwrap_or_default().to_vec();
    header.extra_data = extra.clone().into();
    let (r, s, parity) = niwaki_crypto::sign(&header.hash_slow(), &clique.secret_key)
        .map_err(|error| Failure::json("clique", format!("secretKey: {error}")))?;
    extra.extend_from_slice(&r.to_be_bytes::<32>());
    extra.extend_from_slice(&s.to_be_bytes::<32>());
    extra.push(u8::from(parity));
    header.extra_data = extra.into();
    Ok(())
}
