//! The messages of `eth`, versions 66 to 72, and of `snap` as values: written and read, each within its limits.
//!
//! | file | what it is |
//! |---|---|
//! | `fields` | reads an RLP list field by field |
//! | `footprint` | how much memory an answer will take |
//! | `limits` | how much a message may hold |
//! | `status` | versions; the first message, and how far a peer's chain reaches |
//! | `request` | what is asked: headers, bodies, receipts, transactions, access lists, cells |
//! | `response` | the answers |
//! | `gossip` | transactions, and announcements of them |
//! | `new_blocks` | blocks that are made known unasked |
//! | `snap` | the messages of `snap` |
//!
//! Spec: devp2p `caps/eth.md`; EIP-2481 (66), EIP-4938 (67), EIP-5793 (68), EIP-7642 (69), EIP-7975 (70), EIP-8159 (71), EIP-8070 (72).

pub(crate) mod fields;
mod footprint;
mod gossip;
pub mod limits;
mod new_blocks;
mod request;
mod response;
mod snap;
mod status;

pub(crate) use footprint::footprint;
pub(crate) use gossip::decode_transactions;
pub use gossip::{Announced, Announcement, encode_item, encode_transactions};
pub(crate) use new_blocks::{highest_of_hashes, new_block, new_block_header};
pub(crate) use request::no_node_data;
pub use request::{BlockId, CellMask, Request, RequestKind};
pub use response::{Answer, Items, cells_answer, put_receipt};
pub(crate) use snap::message_name as snap_message_name;
pub use snap::{
    Entries, SlotItems, SnapAnswer, SnapItems, SnapKind, SnapRequest, SnapVersion, TriePaths,
};
pub use status::{BlockRange, EthVersion, Status, StatusError};

/// The name of the message of `eth` with this number.
///
/// Spec: devp2p `caps/eth.md`.
pub(crate) fn message_name(number: u8) -> &'static str {
    const NAMES: [&str; 22] = [
        "Status",
        "NewBlockHashes",
        "Transactions",
        "GetBlockHeaders",
        "BlockHeaders",
        "GetBlockBodies",
        "BlockBodies",
        "NewBlock",
        "NewPooledTransactionHashes",
        "GetPooledTransactions",
        "PooledTransactions",
        "",
        "",
        "GetNodeData",
        "NodeData",
        "GetReceipts",
        "Receipts",
        "BlockRangeUpdate",
        "GetBlockAccessLists",
        "BlockAccessLists",
        "GetCells",
        "Cells",
    ];
    NAMES.get(usize::from(number)).copied().unwrap_or_default()
}

/// Numbers of the messages of `eth`, from the protocol's first.
pub(crate) mod number {
    pub(crate) const STATUS: u8 = 0x00;
    pub(crate) const NEW_BLOCK_HASHES: u8 = 0x01;
    pub(crate) const TRANSACTIONS: u8 = 0x02;
    pub(crate) const GET_BLOCK_HEADERS: u8 = 0x03;
    pub(crate) const GET_BLOCK_BODIES: u8 = 0x05;
    pub(crate) const NEW_BLOCK: u8 = 0x07;
    pub(crate) const NEW_POOLED_TRANSACTION_HASHES: u8 = 0x08;
    pub(crate) const GET_POOLED_TRANSACTIONS: u8 = 0x09;
    pub(crate) const GET_NODE_DATA: u8 = 0x0d;
    pub(crate) const NODE_DATA: u8 = 0x0e;
    pub(crate) const GET_RECEIPTS: u8 = 0x0f;
    pub(crate) const BLOCK_RANGE_UPDATE: u8 = 0x11;
    pub(crate) const GET_BLOCK_ACCESS_LISTS: u8 = 0x12;
    pub(crate) const GET_CELLS: u8 = 0x14;
}
