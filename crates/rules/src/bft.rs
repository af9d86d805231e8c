//! Chains whose blocks validators agree on: IBFT 2.0 and QBFT (BFT).
//!
//! A block is final once a quorum of the validators has sealed it. Who they are stands in the headers themselves, or in a contract.
//!
//! | file | what it is |
//! |---|---|
//! | `extra` | what the extra data of a header holds |
//! | `hash` | the hashes of a header: of the block, and what seals sign |
//! | `seal` | signatures of validators |
//! | `header` | what a header says after its parent, and who made and sealed it |
//! | `rules` | the parameters, which may change at given blocks |
//! | `set` | the validators of a block: quorum and proposer |
//! | `tally` | who is voted in and out |
//!
//! Spec: EEA QBFT specification; EIP-650 and IBFT 2.0 (arXiv:1909.10194); Besu's encodings.

mod extra;
mod hash;
mod header;
mod rules;
mod seal;
mod set;
mod tally;

pub use extra::{BftExtra, BftExtraError, Vote};
pub use hash::{bft_block_hash, bft_seal_hash};
pub(crate) use header::check_bft_fields;
pub use header::{BFT_MIX_HASH, VANITY_BYTES, check_bft_proposal, check_bft_validators};
pub use rules::{BftRules, BftStart, ValidatorSource};
pub use seal::{BadSeal, Seal, recover_seal};
pub use set::ValidatorSet;
pub use tally::VoteTally;

#[cfg(test)]
mod tests;

/// How validators agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BftProtocol {
    /// IBFT 2.0.
    Ibft2,
    /// QBFT.
    Qbft,
}

impl BftProtocol {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ibft2 => "IBFT 2.0",
            Self::Qbft => "QBFT",
        }
    }
}
