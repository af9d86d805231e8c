//! The consensus rules, pure: what may be a block, a header, a transaction.
//!
//! Everything here is a function of its arguments. There is no state, no file, no clock and no
//! log; checks that need an account (nonce, balance, code) are named here, in
//! [`InvalidTransaction`], and made by the execution crate.
//!
//! | file | what |
//! |---|---|
//! | `chain_spec` | fork activations, blob schedule, special addresses of one chain |
//! | `networks` | the chains that are built in |
//! | `genesis` | genesis files as geth and Besu write them |
//! | `rule_changes` | what another configuration changes about blocks that are there |
//! | `header`, `difficulty`, `fees` | a header against its parent |
//! | `body`, `ommers` | a body against its header |
//! | `access_list` | a block access list by itself |
//! | `transaction`, `block_rules` | a transaction against its block |
//! | `requests`, `rewards` | what a block pays and asks for |
//! | `payload` | an Engine API payload into a block |
//! | `invalid` | every refusal, named as the spec tests name it |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod access_list;
mod block_rules;
mod body;
mod chain_spec;
mod difficulty;
mod fees;
mod fork_id;
mod genesis;
mod header;
mod invalid;
mod json;
mod networks;
mod ommers;
mod payload;
mod requests;
mod rewards;
mod rule_changes;
mod signer;
mod transaction;

pub use access_list::{
    access_list_hash, check_access_list, decode_access_list, decode_access_list_of,
    encode_access_list,
};
pub use block_rules::BlockRules;
pub use body::{BodyRoots, MAX_RLP_BLOCK_BYTES, check_body};
pub use chain_spec::{
    Activation, BftPayment, BlobParams, ChainSpec, DaoFork, GAS_PER_BLOB, SealKind,
};
pub use difficulty::block_difficulty;
pub use fees::{
    INITIAL_BASE_FEE, blob_base_fee, fake_exponential, next_base_fee, next_excess_blob_gas,
};
pub use fork_id::{ForkId, fork_filter, fork_id};
pub use genesis::{
    AllocItem, AllocSink, Genesis, GenesisAccount, GenesisError, GenesisHead, NO_ALLOC, ReadError,
    decode_alloc, encode_alloc, read_genesis,
};
pub use header::{Parent, check_header, toward_gas_limit};
pub use invalid::{
    InvalidAccessList, InvalidBlock, InvalidBody, InvalidHeader, InvalidTransaction,
};
pub use networks::{DEV_ACCOUNTS, Network};
pub use ommers::{Ancestor, MAX_OMMER_DEPTH, check_ommers};
pub use payload::{
    Payload, PayloadError, PayloadInput, PayloadVersion, decode_payload, decode_payload_with,
};
pub use requests::requests_hash;
pub use rewards::{BlockReward, base_reward, ommer_reward};
pub use rule_changes::{RuleChange, rule_changes};
pub use signer::{recover_authority, recover_sender, recover_senders};
pub use transaction::{
    GasRoom, IntrinsicGas, TX_MAX_GAS_LIMIT, blob_gas_of, check_transaction, check_unsigned,
    effective_gas_price, intrinsic_gas, max_gas_limit, max_init_code_bytes, reason_without_sender,
    upfront_cost,
};
