//! JSON files of blocks to build: transactions, and the secret keys that sign them.
//!
//! The format is Besu's: `{"blocks": [{"number", "parentHash", "coinbase", "extraData",
//! "transactions": [{"secretKey", "gasLimit", "gasPrice", "value", "to", "data"}]}]}`. Keys are
//! case-insensitive; only the transactions and their secret keys are required. A block's timestamp is 12 s
//! after its parent's, so that a file always gives the same blocks.

mod fields;

use super::import::BlockImport;
use alloy_consensus::SignableTransaction;
use alloy_primitives::Signature;
use eyre::{Context, Result, eyre};
use fields::{Fields, ObjectKeys};
use niwaki_chain::{BlockTemplate, Chain, StoredHeader};
use niwaki_crypto::{address_of_secret_key, sign};
use niwaki_primitives::{
    Address, B256, Bytes, Fork, StateView, TxEnvelope, TxKind, TxLegacy, U256,
};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const SECONDS_BETWEEN_BLOCKS: u64 = 12;

struct BlockData {
    number: Option<u64>,
    parent_hash: Option<B256>,
    coinbase: Address,
    extra_data: Bytes,
    transactions: Vec<TransactionData>,
}

struct TransactionData {
    secret_key: B256,
    gas_limit: u64,
    gas_price: u128,
    value: U256,
    to: Option<Address>,
    data: Bytes,
}

/// Builds, signs and imports the blocks of `files`.
pub(crate) fn import(files: &[PathBuf], run: &mut BlockImport) -> Result<()> {
    for path in files {
        let blocks = read(path)?;
        // The latest block of each number that this file gave, on any branch.
        let mut built_blocks: HashMap<u64, B256> = HashMap::new();
        let mut latest = None;
        for (index, block) in blocks.iter().enumerate() {
            if run.stop.is_requested() {
                return Ok(());
            }
            let at = || format!("blocks[{index}] of {}", path.display());
            let parent = parent_of(&run.chain, block, &built_blocks, latest).wrap_err_with(at)?;
            let (template, transactions) =
                template(&run.chain, block, &parent).wrap_err_with(at)?;
            let built = run.chain.build(template, transactions).wrap_err_with(at)?;
            let block = built.block;
            let imported = run.chain.import(block);
            let id = imported.as_ref().ok().map(|imported| imported.id);
            run.record(imported).wrap_err_with(at)?;
            if let Some(id) = id {
                built_blocks.insert(id.number, id.hash);
                latest = Some(id.hash);
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<BlockData>> {
    let text = std::fs::read(path).wrap_err_with(|| format!("can't read {}", path.display()))?;
    let json = serde_json::from_slice(&text)
        .wrap_err_with(|| format!("{} is not JSON", path.display()))?;
    parse(&json).wrap_err_with(|| format!("{} is not a file of blocks to make", path.display()))
}

fn parse(json: &serde_json::Value) -> Result<Vec<BlockData>> {
    let keys = ObjectKeys {
        name: "the file",
        keys: &["blocks"],
    };
    let file = Fields::new(json, "", &keys)?;
    file.list("blocks", parse_block)
}

fn parse_block(json: &serde_json::Value, path: &str) -> Result<BlockData> {
    let keys = ObjectKeys {
        name: "a block",
        keys: &[
            "number",
            "parentHash",
            "coinbase",
            "extraData",
            "transactions",
        ],
    };
    let block = Fields::new(json, path, &keys)?;
    Ok(BlockData {
        number: block.u64("number")?,
        parent_hash: block.b256("parentHash")?,
        coinbase: block.address("coinbase")?.unwrap_or_default(),
        extra_data: block.bytes("extraData")?.unwrap_or_default(),
        transactions: block.list("transactions", parse_transaction)?,
    })
}

fn parse_transaction(json: &serde_json::Value, path: &str) -> Result<TransactionData> {
    let keys = ObjectKeys {
        name: "a transaction",
        keys: &["secretKey", "gasLimit", "gasPrice", "value", "to", "data"],
    };
    let transaction = Fields::new(json, path, &keys)?;
    let missing = |key: &str| eyre!("{path}.{key} is missing");
    let gas_price = transaction.u256("gasPrice")?.unwrap_or_default();
    Ok(TransactionData {
        secret_key: transaction
            .b256("secretKey")?
            .ok_or_else(|| missing("secretKey"))?,
        gas_limit: transaction
            .u64("gasLimit")?
            .ok_or_else(|| missing("gasLimit"))?,
        gas_price: u128::try_from(gas_price)
            .map_err(|_| eyre!("{path}.gasPrice = {gas_price} does not fit in 128 bits"))?,
        value: transaction.u256("value")?.unwrap_or_default(),
        to: transaction.address("to")?,
        data: transaction.bytes("data")?.unwrap_or_default(),
    })
}

/// The parent: given by hash, or by number, else the block built last; the first block follows genesis.
fn parent_of(
    chain: &Chain,
    block: &BlockData,
    built_blocks: &HashMap<u64, B256>,
    latest: Option<B256>,
) -> Result<StoredHeader> {
    let hash = match (block.parent_hash, block.number) {
        (Some(hash), _) => hash,
        (None, Some(0)) => return Err(eyre!("block 0 is the genesis; begin with number 1")),
        (None, Some(number)) => {
            let parent = number - 1;
            let canonical = chain.canonical_hash(parent)?;
            built_blocks
                .get(&parent)
                .copied()
                .or(canonical)
                .ok_or_else(|| eyre!("there is no block {parent} for block {number} to follow"))?
        }
        (None, None) => latest.unwrap_or(chain.genesis_hash()),
    };
    chain
        .header(&hash)?
        .ok_or_else(|| eyre!("its parent {hash} is not known; import that first"))
}

fn template(
    chain: &Chain,
    block: &BlockData,
    parent: &StoredHeader,
) -> Result<(BlockTemplate, Vec<TxEnvelope>)> {
    let view = chain
        .view_at(&parent.id.hash)?
        .ok_or_else(|| eyre!("the state after its parent is no longer within reach"))?;
    let timestamp = parent
        .header
        .timestamp
        .saturating_add(SECONDS_BETWEEN_BLOCKS);
    let spec = chain.spec();
    let merged = spec.is_terminal(parent.total_difficulty);
    let fork = spec.fork_at(parent.id.number + 1, timestamp, merged);
    let chain_id = (fork >= Fork::SpuriousDragon).then_some(spec.chain_id);

    let mut nonces: HashMap<Address, u64> = HashMap::new();
    let mut transactions = Vec::with_capacity(block.transactions.len());
    for (index, data) in block.transactions.iter().enumerate() {
        let at = || format!("transactions[{index}].secretKey");
        let sender = address_of_secret_key(&data.secret_key).wrap_err_with(at)?;
        let nonce = match nonces.get(&sender) {
            Some(nonce) => *nonce,
            None => view.account(&sender)?.map_or(0, |account| account.nonce),
        };
        nonces.insert(sender, nonce.saturating_add(1));
        transactions.push(signed(data, nonce, chain_id).wrap_err_with(at)?);
    }
    let template = BlockTemplate {
        parent: parent.id.hash,
        coinbase: block.coinbase,
        timestamp,
        extra_data: block.extra_data.clone(),
        ..BlockTemplate::default()
    };
    Ok((template, transactions))
}

fn signed(data: &TransactionData, nonce: u64, chain_id: Option<u64>) -> Result<TxEnvelope> {
    let transaction = TxLegacy {
        chain_id,
        nonce,
        gas_price: data.gas_price,
        gas_limit: data.gas_limit,
        to: data.to.map_or(TxKind::Create, TxKind::Call),
        value: data.value,
        input: data.data.clone(),
    };
    let (r, s, y_parity) = sign(&transaction.signature_hash(), &data.secret_key)?;
    let signature = Signature::new(r, s, y_parity);
    Ok(transaction.into_signed(signature).into())
}
