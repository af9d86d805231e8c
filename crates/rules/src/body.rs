//! Checks a body against its header.

use crate::block_rules::BlockRules;
use crate::invalid::InvalidBody;
use crate::transaction::blob_gas_of;
use alloy_primitives::B256;
use alloy_rlp::Encodable;
use niwaki_crypto::keccak256;
use niwaki_primitives::{Block, EMPTY_OMMER_ROOT_HASH, Fork, Header};

/// Most bytes of a block's RLP from Osaka on: 10 MiB less 2 MiB for the beacon block (EIP-7934).
pub const MAX_RLP_BLOCK_BYTES: usize = 8 << 20;

/// Roots of the lists of a body, computed by the caller, since this crate has no trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyRoots {
    /// Ordered root of the EIP-2718 encodings of the transactions.
    pub transactions: B256,
    /// Ordered root of the RLP of the withdrawals; `None` where the body has no such list.
    pub withdrawals: Option<B256>,
}

/// Checks that a body matches its header and has the parts that its fork requires. Ommers of a proof-of-work block are
/// checked by [`crate::check_ommers`].
///
/// # Errors
/// The first rule that the body breaks.
///
/// Spec: execution-specs, `state_transition` of each fork's `fork.py`; EIP-7934, EIP-4895.
pub fn check_body(rules: &BlockRules, block: &Block, roots: &BodyRoots) -> Result<(), InvalidBody> {
    let header = &block.header;
    let fork = rules.fork;
    if fork >= Fork::Osaka {
        let (got, max) = (block.length(), MAX_RLP_BLOCK_BYTES);
        if got > max {
            return Err(InvalidBody::RlpTooLong { got, max });
        }
    }

    let got = block.body.ommers.len();
    if fork >= Fork::Paris && got > 0 {
        return Err(InvalidBody::OmmersAfterParis { got });
    }
    let (got, expected) = (ommers_hash(&block.body.ommers), header.ommers_hash);
    if got != expected {
        return Err(InvalidBody::OmmersHash { got, expected });
    }

    let (got, expected) = (roots.transactions, header.transactions_root);
    if got != expected {
        return Err(InvalidBody::TransactionsRoot { got, expected });
    }

    check_withdrawals(fork, block, roots)?;

    if let Some(expected) = header.blob_gas_used {
        let blob_gas = block.body.transactions.iter().map(blob_gas_of);
        let got = blob_gas.fold(0, u64::saturating_add);
        if got != expected {
            return Err(InvalidBody::BlobGasUsed { got, expected });
        }
    }
    Ok(())
}

fn check_withdrawals(fork: Fork, block: &Block, roots: &BodyRoots) -> Result<(), InvalidBody> {
    if fork < Fork::Shanghai {
        if block.body.withdrawals.is_some() {
            return Err(InvalidBody::WithdrawalsUnexpected { fork });
        }
        return Ok(());
    }
    let (Some(_), Some(got)) = (&block.body.withdrawals, roots.withdrawals) else {
        return Err(InvalidBody::WithdrawalsMissing { fork });
    };
    match block.header.withdrawals_root {
        Some(expected) if got != expected => Err(InvalidBody::WithdrawalsRoot { got, expected }),
        _ => Ok(()),
    }
}

/// Keccak-256 of the RLP of a list of ommers.
fn ommers_hash(ommers: &[Header]) -> B256 {
    if ommers.is_empty() {
        return EMPTY_OMMER_ROOT_HASH;
    }
    let mut rlp = Vec::new();
    alloy_rlp::encode_list(ommers, &mut rlp);
    keccak256(rlp)
}

#[cfg(test)]
mod tests;
