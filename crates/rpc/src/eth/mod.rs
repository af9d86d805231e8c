//! The namespace `eth`.

mod access_list;
mod block_access_list;
mod blocks;
mod by_sender;
mod call;
mod config;
mod estimate;
mod fees;
mod fill;
mod logs;
mod send;
pub(crate) mod serialize;
mod simulate;
mod state;

use crate::methods::{Lane, Method, row};

pub(crate) use block_access_list::raw as raw_block_access_list;
pub(crate) use blocks::{find, null};
pub(crate) use call::CallRequest;
pub(crate) use config::sync_progress;
pub(crate) use estimate::least_gas;
pub(crate) use fees::{next_fee, suggested_price, suggested_tip};
pub(crate) use logs::{LogFilter, each_log, each_match, write_logs};
pub(crate) use send::{learn_senders, many as send_many, send_raw};
pub(crate) use state::{code_of, nonce_at};

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("eth_accounts", "", Lane::Inline, config::accounts),
    row("eth_baseFee", "", Lane::Inline, fees::base_fee),
    row("eth_blobBaseFee", "", Lane::Inline, fees::blob_base_fee),
    row("eth_blockNumber", "", Lane::Inline, blocks::block_number),
    row("eth_capabilities", "", Lane::Inline, config::capabilities),
    row("eth_call", "transaction block? stateOverrides? blockOverrides?", Lane::Call, call::call),
    row("eth_chainId", "", Lane::Inline, config::chain_id),
    row("eth_coinbase", "", Lane::Inline, config::coinbase),
    row("eth_config", "", Lane::Inline, config::config),
    row("eth_createAccessList", "transaction block? stateOverrides? blockOverrides?", Lane::Call, access_list::create),
    row("eth_estimateGas", "transaction block? stateOverrides? blockOverrides?", Lane::Call, estimate::estimate),
    row("eth_feeHistory", "blockCount newestBlock rewardPercentiles?", Lane::Call, fees::fee_history),
    row("eth_fillTransaction", "transaction", Lane::Call, fill::fill),
    row("eth_gasPrice", "", Lane::Call, fees::gas_price),
    row("eth_getBalance", "address block?", Lane::Inline, state::balance),
    row("eth_getBlockAccessList", "block", Lane::Call, block_access_list::by_block),
    row("eth_getBlockByHash", "hash fullTransactions", Lane::Inline, blocks::by_hash),
    row("eth_getBlockByNumber", "block fullTransactions", Lane::Inline, blocks::by_number),
    row("eth_getBlockReceipts", "block", Lane::Call, blocks::receipts),
    row("eth_getBlockTransactionCountByHash", "hash", Lane::Inline, blocks::transaction_count),
    row("eth_getBlockTransactionCountByNumber", "block", Lane::Inline, blocks::transaction_count),
    row("eth_getCode", "address block?", Lane::Inline, state::code),
    row("eth_getFilterChanges", "filterId", Lane::Heavy, crate::filters::changes),
    row("eth_getFilterLogs", "filterId", Lane::Heavy, crate::filters::logs),
    row("eth_getHeaderByHash", "hash", Lane::Inline, blocks::header),
    row("eth_getHeaderByNumber", "block", Lane::Inline, blocks::header),
    row("eth_getLogs", "filter", Lane::Heavy, logs::logs).short_if(logs::are_of_one_block),
    row("eth_getProof", "address storageKeys block?", Lane::Call, state::proof),
    row("eth_getRawTransactionByHash", "hash", Lane::Inline, blocks::raw_transaction),
    row("eth_getStorageAt", "address slot block?", Lane::Inline, state::storage_at),
    row("eth_getStorageValues", "slots block?", Lane::Call, state::storage_values),
    row("eth_getTransactionByBlockHashAndIndex", "hash index", Lane::Inline, blocks::transaction_in_block),
    row("eth_getTransactionByBlockNumberAndIndex", "block index", Lane::Inline, blocks::transaction_in_block),
    row("eth_getTransactionByHash", "hash", Lane::Inline, blocks::transaction),
    row("eth_getTransactionBySenderAndNonce", "sender nonce", Lane::Call, by_sender::transaction),
    row("eth_getTransactionCount", "address block?", Lane::Inline, state::nonce),
    row("eth_getTransactionReceipt", "hash", Lane::Inline, blocks::receipt),
    row("eth_getUncleByBlockHashAndIndex", "hash index", Lane::Inline, blocks::ommer),
    row("eth_getUncleByBlockNumberAndIndex", "block index", Lane::Inline, blocks::ommer),
    row("eth_getUncleCountByBlockHash", "hash", Lane::Inline, blocks::ommer_count),
    row("eth_getUncleCountByBlockNumber", "block", Lane::Inline, blocks::ommer_count),
    row("eth_maxPriorityFeePerGas", "", Lane::Call, fees::max_priority_fee),
    row("eth_mining", "", Lane::Inline, config::mining),
    row("eth_newBlockFilter", "", Lane::Inline, crate::filters::new_block),
    row("eth_newFilter", "filter", Lane::Inline, crate::filters::new_logs),
    row("eth_newPendingTransactionFilter", "", Lane::Inline, crate::filters::new_pending),
    row("eth_protocolVersion", "", Lane::Inline, config::protocol_version),
    row("eth_sendRawTransaction", "transaction", Lane::Call, send::raw),
    row("eth_sendTransaction", "transaction", Lane::Inline, send::unsigned),
    row("eth_sign", "address message", Lane::Inline, send::unsigned),
    row("eth_simulateV1", "payload block?", Lane::Heavy, simulate::simulate),
    row("eth_syncing", "", Lane::Inline, config::syncing),
    row("eth_uninstallFilter", "filterId", Lane::Inline, crate::filters::uninstall),
];
