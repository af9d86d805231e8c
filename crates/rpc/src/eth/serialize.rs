//! Serialization of blocks, transactions, receipts and logs for `eth`.
//!
//! Spec: execution-apis `schemas/{block,transaction,receipt}.yaml`.

use crate::blocks::FullBlock;
use crate::json::{self, Object};
use crate::{RpcError, RpcResult};
use niwaki_chain::{BlockId, Chain};
use niwaki_primitives::rlp::Encodable;
use niwaki_primitives::{
    Address, B256, Encodable2718, Header, Log, Receipt, SignedAuthorization, Transaction,
    TxEnvelope, Typed2718, U256, Withdrawal,
};
use niwaki_rules::{ChainSpec, blob_gas_of, effective_gas_price};

/// Writes the fields of a header.
pub(crate) fn header_fields(object: &mut Object<'_>, header: &Header, hash: &B256) {
    object.number("number", header.number);
    object.data("hash", hash.as_slice());
    object.data("parentHash", header.parent_hash.as_slice());
    object.data("nonce", header.nonce.as_slice());
    object.data("mixHash", header.mix_hash.as_slice());
    object.data("sha3Uncles", header.ommers_hash.as_slice());
    object.data("logsBloom", header.logs_bloom.as_slice());
    object.data("transactionsRoot", header.transactions_root.as_slice());
    object.data("stateRoot", header.state_root.as_slice());
    object.data("receiptsRoot", header.receipts_root.as_slice());
    object.data("miner", header.beneficiary.as_slice());
    object.quantity("difficulty", &header.difficulty);
    object.data("extraData", &header.extra_data);
    object.number("gasLimit", header.gas_limit);
    object.number("gasUsed", header.gas_used);
    object.number("timestamp", header.timestamp);
    if let Some(fee) = header.base_fee_per_gas {
        object.number("baseFeePerGas", fee);
    }
    if let Some(root) = &header.withdrawals_root {
        object.data("withdrawalsRoot", root.as_slice());
    }
    if let Some(gas) = header.blob_gas_used {
        object.number("blobGasUsed", gas);
    }
    if let Some(gas) = header.excess_blob_gas {
        object.number("excessBlobGas", gas);
    }
    if let Some(root) = &header.parent_beacon_block_root {
        object.data("parentBeaconBlockRoot", root.as_slice());
    }
    if let Some(hash) = &header.requests_hash {
        object.data("requestsHash", hash.as_slice());
    }
    if let Some(hash) = &header.block_access_list_hash {
        object.data("blockAccessListHash", hash.as_slice());
    }
    if let Some(slot) = header.slot_number {
        object.number("slotNumber", slot);
    }
}

/// Writes a block, with full transactions or their hashes.
pub(crate) fn block(out: &mut Vec<u8>, block: &FullBlock, full: bool) {
    let header = &block.header;
    let mut object = Object::new(out);
    header_fields(&mut object, header, &block.id.hash);
    object.number("size", block.bytes as u64);
    let mut transactions = object.array("transactions");
    for (index, tx) in block.body.transactions.iter().enumerate() {
        if full {
            let sender = block.senders()[index];
            let location = TxLocation::in_block(block, index);
            transaction(transactions.item(), tx, sender, &location);
        } else {
            transactions.data(tx.tx_hash().as_slice());
        }
    }
    drop(transactions);
    let ommers = block.body.ommers.iter();
    object.data_list("uncles", ommers.map(Header::hash_slow));
    if let Some(list) = &block.body.withdrawals {
        withdrawals(&mut object, list);
    }
}

/// Writes an ommer: a block without transactions.
pub(crate) fn ommer(out: &mut Vec<u8>, header: &Header) {
    let mut object = Object::new(out);
    header_fields(&mut object, header, &header.hash_slow());
    object.number("size", header.length() as u64);
    drop(object.array("transactions"));
    drop(object.array("uncles"));
}

/// Writes the member `withdrawals`.
pub(crate) fn withdrawals(object: &mut Object<'_>, withdrawals: &[Withdrawal]) {
    let mut list = object.array("withdrawals");
    for withdrawal in withdrawals {
        let mut object = list.object();
        object.number("index", withdrawal.index);
        object.number("validatorIndex", withdrawal.validator_index);
        object.data("address", withdrawal.address.as_slice());
        object.number("amount", withdrawal.amount);
    }
}

/// The block and index of a transaction, if it is in a block, and the base fee that prices it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxLocation {
    block: Option<(BlockId, u64, usize)>,
    base_fee: Option<u64>,
}

impl TxLocation {
    pub(crate) fn in_block(block: &FullBlock, index: usize) -> Self {
        Self {
            block: Some((block.id, block.header.timestamp, index)),
            base_fee: block.header.base_fee_per_gas,
        }
    }

    /// In no block, but in the pool.
    pub(crate) const PENDING: Self = Self {
        block: None,
        base_fee: None,
    };
}

/// Writes a transaction.
pub(crate) fn transaction(
    out: &mut Vec<u8>,
    tx: &TxEnvelope,
    sender: Address,
    location: &TxLocation,
) {
    let mut object = Object::new(out);
    match location.block {
        Some((id, timestamp, index)) => {
            object.data("blockHash", id.hash.as_slice());
            object.number("blockNumber", id.number);
            object.number("blockTimestamp", timestamp);
            object.number("transactionIndex", index as u64);
        }
        None => {
            object.null("blockHash");
            object.null("blockNumber");
            object.null("blockTimestamp");
            object.null("transactionIndex");
        }
    }
    object.data("from", sender.as_slice());
    object.number("gas", tx.gas_limit());
    // In a block, the price that was paid; in the pool, the most that may be.
    let price = match location.block {
        Some(_) => effective_gas_price(tx, location.base_fee),
        None => tx.max_fee_per_gas(),
    };
    object.quantity("gasPrice", &U256::from(price));
    if let Some(tip) = tx.max_priority_fee_per_gas() {
        object.quantity("maxFeePerGas", &U256::from(tx.max_fee_per_gas()));
        object.quantity("maxPriorityFeePerGas", &U256::from(tip));
    }
    if let Some(fee) = tx.max_fee_per_blob_gas() {
        object.quantity("maxFeePerBlobGas", &U256::from(fee));
    }
    object.data("hash", tx.tx_hash().as_slice());
    object.data("input", tx.input());
    object.number("nonce", tx.nonce());
    object.data_or_null("to", tx.to());
    object.quantity("value", &tx.value());
    object.number("type", u64::from(tx.ty()));
    if let Some(list) = tx.access_list() {
        access_list(object.field("accessList"), list);
    }
    if let Some(id) = tx.chain_id() {
        object.number("chainId", id);
    }
    if let Some(hashes) = tx.blob_versioned_hashes() {
        object.data_list("blobVersionedHashes", hashes);
    }
    if let Some(list) = tx.authorization_list() {
        authorizations(object.field("authorizationList"), list);
    }
    signature(&mut object, tx);
}

/// Legacy transactions carry the chain id in `v`; the others have the parity twice.
fn signature(object: &mut Object<'_>, tx: &TxEnvelope) {
    let signature = tx.signature();
    object.quantity("v", &signature_v(tx));
    object.quantity("r", &signature.r());
    object.quantity("s", &signature.s());
    if tx.ty() != 0 {
        object.number("yParity", u64::from(signature.v()));
    }
}

/// The member `v` of a transaction's signature.
pub(crate) fn signature_v(tx: &TxEnvelope) -> U256 {
    let parity = u64::from(tx.signature().v());
    match (tx.ty(), tx.chain_id()) {
        (0, Some(id)) => U256::from(id)
            .saturating_mul(U256::from(2))
            .saturating_add(U256::from(35 + parity)),
        (0, None) => U256::from(27 + parity),
        _ => U256::from(parity),
    }
}

pub(crate) fn access_list(out: &mut Vec<u8>, list: &niwaki_primitives::AccessList) {
    let mut items = json::Array::new(out);
    for item in list.iter() {
        let mut object = items.object();
        object.data("address", item.address.as_slice());
        object.data_list("storageKeys", &item.storage_keys);
    }
}

pub(crate) fn authorizations(out: &mut Vec<u8>, list: &[SignedAuthorization]) {
    let mut items = json::Array::new(out);
    for signed in list {
        let mut object = items.object();
        object.quantity("chainId", &signed.chain_id);
        object.data("address", signed.address.as_slice());
        object.number("nonce", signed.nonce);
        object.number("yParity", u64::from(signed.y_parity()));
        object.quantity("r", &signed.r());
        object.quantity("s", &signed.s());
    }
}

/// Writes the receipt of transaction `index`.
pub(crate) fn receipt(
    out: &mut Vec<u8>,
    chain: &Chain,
    block: &FullBlock,
    receipts: &[Receipt],
    index: usize,
) -> RpcResult {
    let (Some(tx), Some(receipt)) = (block.body.transactions.get(index), receipts.get(index))
    else {
        return Err(RpcError::internal("a transaction without receipt"));
    };
    let before = index.checked_sub(1).and_then(|before| receipts.get(before));
    let gas_before = before.map_or(0, |before| before.cumulative_gas_used);
    let first_log: usize = receipts[..index].iter().map(|each| each.logs.len()).sum();
    let sender = block.sender(index);
    let hash = tx.tx_hash();

    let mut object = Object::new(out);
    object.data("blockHash", block.id.hash.as_slice());
    object.number("blockNumber", block.id.number);
    let created = tx.to().is_none().then(|| sender.create(tx.nonce()));
    object.data_or_null("contractAddress", created);
    object.number("cumulativeGasUsed", receipt.cumulative_gas_used);
    let price = effective_gas_price(tx, block.header.base_fee_per_gas);
    object.quantity("effectiveGasPrice", &U256::from(price));
    object.data("from", sender.as_slice());
    let gas_used = receipt.cumulative_gas_used.saturating_sub(gas_before);
    object.number("gasUsed", gas_used);
    if blob_gas_of(tx) > 0 {
        object.number("blobGasUsed", blob_gas_of(tx));
        let price = blob_base_fee(chain.spec(), &block.header);
        object.quantity("blobGasPrice", &U256::from(price));
    }
    let mut logs = object.array("logs");
    for (number, each) in receipt.logs.iter().enumerate() {
        let location = LogLocation::new(block, index, first_log + number);
        log(logs.item(), each, &location);
    }
    drop(logs);
    object.data("logsBloom", receipt.bloom().as_slice());
    match (&receipt.post_state, receipt.status) {
        (Some(root), _) => object.data("root", root.as_slice()),
        (None, status) => object.number("status", u64::from(status == Some(true))),
    }
    object.data_or_null("to", tx.to());
    object.data("transactionHash", hash.as_slice());
    object.number("transactionIndex", index as u64);
    object.number("type", u64::from(tx.ty()));
    Ok(())
}

/// The price of blob gas in the block of `header`, wei.
pub(crate) fn blob_base_fee(spec: &ChainSpec, header: &Header) -> u128 {
    niwaki_rules::BlockRules::new(spec, header).blob_base_fee
}

/// Where a log is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLocation {
    pub(crate) block: BlockId,
    pub(crate) timestamp: u64,
    pub(crate) transaction: B256,
    pub(crate) transaction_index: usize,
    pub(crate) log_index: usize,
    /// Whether its block is no longer canonical.
    pub(crate) removed: bool,
}

impl LogLocation {
    /// That of log `log_index` of a canonical block, by its transaction `transaction_index`.
    pub(crate) fn new(block: &FullBlock, transaction_index: usize, log_index: usize) -> Self {
        Self {
            block: block.id,
            timestamp: block.header.timestamp,
            transaction: *block.body.transactions[transaction_index].tx_hash(),
            transaction_index,
            log_index,
            removed: false,
        }
    }
}

/// Writes a log.
pub(crate) fn log(out: &mut Vec<u8>, log: &Log, location: &LogLocation) {
    let mut object = Object::new(out);
    object.data("address", log.address.as_slice());
    object.data_list("topics", log.data.topics());
    object.data("data", &log.data.data);
    object.number("blockNumber", location.block.number);
    object.data("transactionHash", location.transaction.as_slice());
    object.number("transactionIndex", location.transaction_index as u64);
    object.data("blockHash", location.block.hash.as_slice());
    object.number("blockTimestamp", location.timestamp);
    object.number("logIndex", location.log_index as u64);
    object.boolean("removed", location.removed);
}

/// The consensus encoding of a transaction.
pub(crate) fn encoded(tx: &TxEnvelope) -> Vec<u8> {
    tx.encoded_2718()
}
