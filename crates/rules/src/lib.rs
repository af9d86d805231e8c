//! The consensus rules as pure functions: which blocks, headers and transactions are valid.
//!
//! Everything here is a function of its arguments: no state, no file, no clock, no log. Checks that need an account
//! (nonce, balance, code) are named here, in [`InvalidTransaction`], and made by the execution crate.
//!
//! | file | what it is |
//! |---|---|
//! | `chain_spec` | the parameters of a chain: fork activations, blob schedule, special addresses |
//! | `networks` | the built-in chains |
//! | `genesis`, `json` | genesis files of geth and Besu, and their lenient JSON |
//! | `rule_changes` | what a changed configuration means for existing blocks |
//! | `fork_id` | fork identifiers (EIP-2124) |
//! | `header`, `difficulty`, `fees` | a header against its parent |
//! | `bft` | headers that validators agree on: extra data, hashes, validators |
//! | `body`, `ommers` | a body against its header, ommers against ancestors |
//! | `access_list` | block access lists, without execution |
//! | `transaction`, `block_rules` | a transaction against its block |
//! | `signer` | recovery of senders and authorities |
//! | `requests`, `rewards` | the requests hash, block rewards |
//! | `payload` | an Engine API payload into a block |
//! | `invalid` | the reasons why a block is invalid, with their names in the spec tests |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod access_list;
mod bft;
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
    access_list_hash, check_access_list, decode_access_list, decode_bounded_access_list,
    encode_access_list,
};
pub use bft::{
    BFT_MIX_HASH, BadSeal, BftExtra, BftExtraError, BftProtocol, BftRules, BftStart, Seal,
    VANITY_BYTES, ValidatorSet, ValidatorSource, Vote, VoteTally, bft_block_hash, bft_seal_hash,
    check_bft_proposal, check_bft_validators, recover_seal,
};
pub use block_rules::BlockRules;
pub use body::{BodyRoots, MAX_RLP_BLOCK_BYTES, check_body};
pub use chain_spec::{
    Activation, BlobParams, ChainSpec, ContractSizeLimit, DaoFork, GAS_PER_BLOB, Quorum, SealKind,
};
pub use difficulty::block_difficulty;
pub use fees::{
    INITIAL_BASE_FEE, blob_base_fee, fake_exponential, next_base_fee, next_excess_blob_gas,
};
pub use fork_id::{ForkFilter, ForkId, fork_filter, fork_id};
pub use genesis::{
    AllocItem, AllocSink, FirstPeers, Genesis, GenesisAccount, GenesisError, GenesisHead, NO_ALLOC,
    ReadError, decode_alloc, encode_alloc, read_genesis,
};
pub use header::{Parent, check_header, next_gas_limit};
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
    GasAvailable, IntrinsicGas, SimulationLimits, TX_MAX_GAS_LIMIT, blob_gas_of, check_transaction,
    check_unsigned, effective_gas_price, intrinsic_gas, max_init_code_bytes, reason_without_sender,
    upfront_cost,
};
