//! The types that cross crate borders.
//!
//! Types of the `alloy` family are re-exported here once, so that the workspace has one source for them; [`Fork`],
//! [`Account`], [`StateView`], [`StateDiff`] and [`Fault`] are ours. There is no IO and no consensus
//! rule here.
//!
//! | file | what it is |
//! |---|---|
//! | `account` | [`Account`]: nonce, balance and code hash |
//! | `block` | [`Block`], [`RecoveredBlock`], [`Receipt`] |
//! | `diff` | [`StateDiff`]: what a block or transaction changed |
//! | `fault` | [`Fault`]: the machine failed |
//! | `fork` | [`Fork`]: the forks of mainnet, in order |
//! | `view` | [`StateView`]: the read side of the world state |

mod account;
mod block;
mod diff;
mod fault;
mod fork;
mod view;

pub use account::{Account, EMPTY_CODE_HASH, EMPTY_ROOT_HASH};
pub use alloy_consensus::{
    EMPTY_OMMER_ROOT_HASH, Header, SignableTransaction, Signed, Transaction, TxType, Typed2718,
    transaction::{TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy},
};
pub use alloy_eips::{
    eip2718::{Decodable2718, Encodable2718},
    eip2930::{AccessList, AccessListItem},
    eip4844::{BlobAndProofV1, BlobAndProofV2},
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
pub use diff::{AccountDiff, DirtyState, SlotDiff, StateDiff};
pub use fault::Fault;
pub use fork::Fork;
pub use view::StateView;
