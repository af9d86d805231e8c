//! The nouns that cross crate borders.
//!
//! What the `alloy` family already names well is re-exported here once, so that the rest of the
//! workspace names one source for it; the rest ([`Fork`], [`Account`], [`StateView`],
//! [`StateDiff`], [`Fault`]) is ours. This crate holds values and two traits' worth of vocabulary:
//! it does no IO and knows no consensus rule.

mod account;
mod block;
mod diff;
mod fault;
mod fork;
mod senders;
mod view;

pub use account::{Account, EMPTY_CODE_HASH, EMPTY_ROOT_HASH};
pub use alloy_consensus::{
    EMPTY_OMMER_ROOT_HASH, Header, SignableTransaction, Signed, Transaction, TxType, Typed2718,
    transaction::{TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy},
};
pub use alloy_eips::{
    eip2718::{Decodable2718, Encodable2718},
    eip2930::{AccessList, AccessListItem},
    eip4895::{Withdrawal, Withdrawals},
    eip7685::Requests,
    eip7702::{Authorization, SignedAuthorization},
    eip7928::{
        AccountChanges, BalanceChange, BlockAccessIndex, BlockAccessList, CodeChange, NonceChange,
        SlotChanges, StorageChange,
    },
    eip8282::{
        BUILDER_DEPOSIT_CONTRACT_ADDRESS, BUILDER_DEPOSIT_REQUEST_TYPE,
        BUILDER_EXIT_CONTRACT_ADDRESS, BUILDER_EXIT_REQUEST_TYPE,
    },
};
pub use alloy_primitives::{
    Address, B64, B256, Bloom, BloomInput, Bytes, FixedBytes, Log, LogData, Signature, TxKind,
    U256, U512, address, b256, bytes, hex, map, uint,
};
pub use alloy_rlp as rlp;
pub use block::{Block, BlockBody, Receipt, RecoveredBlock, TxEnvelope};
pub use diff::{AccountDiff, SlotDiff, StateDiff};
pub use fault::Fault;
pub use fork::Fork;
pub use senders::Senders;
pub use view::StateView;
