//! The namespace `eth`.

mod access_list;
pub(crate) mod answers;
mod block_access_list;
mod blocks;
mod call;
mod config;
mod estimate;
mod fees;
mod fill;
mod logs;
mod send;
mod simulate;
mod state;

use crate::methods::{Lane, Method, row};

pub(crate) use block_access_list::raw as raw_block_access_list;
pub(crate) use blocks::{find, null};
pub(crate) use call::Asked;
pub(crate) use logs::{LogFilter, each_log, write_logs_of};
pub(crate) use send::many as send_many;

pub(crate) const METHODS: &[Method] = &[
    row("eth_accounts", Lane::Inline, config::accounts),
    row("eth_baseFee", Lane::Inline, fees::base_fee),
    row("eth_blobBaseFee", Lane::Inline, fees::blob_base_fee),
    row("eth_blockNumber", Lane::Inline, blocks::block_number),
    row("eth_capabilities", Lane::Inline, config::capabilities),
    row("eth_call", Lane::Call, call::call),
    row("eth_chainId", Lane::Inline, config::chain_id),
    row("eth_coinbase", Lane::Inline, config::coinbase),
    row("eth_config", Lane::Inline, config::config),
    row("eth_createAccessList", Lane::Call, access_list::create),
    row("eth_estimateGas", Lane::Call, estimate::estimate),
    row("eth_feeHistory", Lane::Call, fees::fee_history),
    row("eth_fillTransaction", Lane::Call, fill::fill),
    row("eth_gasPrice", Lane::Call, fees::gas_price),
    row("eth_getBalance", Lane::Inline, state::balance),
    row(
        "eth_getBlockAccessList",
        Lane::Call,
        block_access_list::by_block,
    ),
    row("eth_getBlockByHash", Lane::Inline, blocks::by_hash),
    row("eth_getBlockByNumber", Lane::Inline, blocks::by_number),
    row("eth_getBlockReceipts", Lane::Call, blocks::receipts),
    row(
        "eth_getBlockTransactionCountByHash",
        Lane::Inline,
        blocks::transaction_count,
    ),
    row(
        "eth_getBlockTransactionCountByNumber",
        Lane::Inline,
        blocks::transaction_count,
    ),
    row("eth_getCode", Lane::Inline, state::code),
    row("eth_getFilterChanges", Lane::Heavy, crate::filters::changes),
    row("eth_getFilterLogs", Lane::Heavy, crate::filters::logs),
    row("eth_getHeaderByHash", Lane::Inline, blocks::header),
    row("eth_getHeaderByNumber", Lane::Inline, blocks::header),
    row("eth_getLogs", Lane::Heavy, logs::logs).short_if(logs::are_of_one_block),
    row("eth_getProof", Lane::Call, state::proof),
    row(
        "eth_getRawTransactionByHash",
        Lane::Inline,
        blocks::raw_transaction,
    ),
    row("eth_getStorageAt", Lane::Inline, state::storage_at),
    row("eth_getStorageValues", Lane::Call, state::storage_values),
    row(
        "eth_getTransactionByBlockHashAndIndex",
        Lane::Inline,
        blocks::transaction_in_block,
    ),
    row(
        "eth_getTransactionByBlockNumberAndIndex",
        Lane::Inline,
        blocks::transaction_in_block,
    ),
    row(
        "eth_getTransactionByHash",
        Lane::Inline,
        blocks::transaction,
    ),
    row("eth_getTransactionCount", Lane::Inline, state::nonce),
    row("eth_getTransactionReceipt", Lane::Inline, blocks::receipt),
    row(
        "eth_getUncleByBlockHashAndIndex",
        Lane::Inline,
        blocks::ommer,
    ),
    row(
        "eth_getUncleByBlockNumberAndIndex",
        Lane::Inline,
        blocks::ommer,
    ),
    row(
        "eth_getUncleCountByBlockHash",
        Lane::Inline,
        blocks::ommer_count,
    ),
    row(
        "eth_getUncleCountByBlockNumber",
        Lane::Inline,
        blocks::ommer_count,
    ),
    row(
        "eth_maxPriorityFeePerGas",
        Lane::Call,
        fees::max_priority_fee,
    ),
    row("eth_mining", Lane::Inline, config::mining),
    row(
        "eth_newBlockFilter",
        Lane::Inline,
        crate::filters::new_block,
    ),
    row("eth_newFilter", Lane::Inline, crate::filters::new_logs),
    row(
        "eth_newPendingTransactionFilter",
        Lane::Inline,
        crate::filters::new_pending,
    ),
    row(
        "eth_protocolVersion",
        Lane::Inline,
        config::protocol_version,
    ),
    row("eth_sendRawTransaction", Lane::Call, send::raw),
    row("eth_sendTransaction", Lane::Inline, send::unsigned),
    row("eth_sign", Lane::Inline, send::unsigned),
    row("eth_simulateV1", Lane::Heavy, simulate::simulate),
    row("eth_syncing", Lane::Inline, config::syncing),
    row(
        "eth_uninstallFilter",
        Lane::Inline,
        crate::filters::uninstall,
    ),
];
