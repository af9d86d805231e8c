//! Checks the ommers of a proof-of-work block against its ancestors.

use crate::chain_spec::ChainSpec;
use crate::header::{Parent, check_header};
use crate::invalid::InvalidBody;
use alloy_primitives::{B256, U256};
use niwaki_primitives::Header;

/// Generations between a block and the oldest ommer that it may include.
pub const MAX_OMMER_DEPTH: u64 = 6;

const MAX_OMMERS: usize = 2;

/// An ancestor of the block whose ommers are checked.
#[derive(Clone, Debug)]
pub struct Ancestor {
    /// Its header.
    pub header: Header,
    /// Its hash.
    pub hash: B256,
    /// Total difficulty up to and including it, where known.
    pub total_difficulty: Option<U256>,
    /// Hashes of the ommers that it includes.
    pub ommers: Vec<B256>,
}

/// Checks the ommers of the block `header`. `ancestors` are its ancestors, nearest first: the
/// nearest `MAX_OMMER_DEPTH + 1` of them, or all if there are fewer.
///
/// # Errors
/// The first rule that an ommer breaks.
///
/// Spec: execution-specs `frontier/fork.py`, `validate_ommers`.
pub fn check_ommers(
    spec: &ChainSpec,
    header: &Header,
    ommers: &[Header],
    ancestors: &[Ancestor],
) -> Result<(), InvalidBody> {
    if ommers.is_empty() {
        return Ok(());
    }
    if ommers.len() > MAX_OMMERS {
        return Err(InvalidBody::TooManyOmmers { got: ommers.len() });
    }

    let depth = MAX_OMMER_DEPTH.wrapping_add(1);
    let generations = usize::try_from(depth).expect("seven");
    let ancestors = ancestors.get(..generations).unwrap_or(ancestors);
    let hashes: Vec<B256> = ommers.iter().map(Header::hash_slow).collect();
    for (index, (ommer, hash)) in ommers.iter().zip(&hashes).enumerate() {
        let hash = *hash;
        if hashes.iter().take(index).any(|earlier| *earlier == hash) {
            return Err(InvalidBody::OmmerInChain { hash });
        }
        if ancestors.iter().any(|a| a.hash == hash) {
            return Err(InvalidBody::OmmerIsAncestor { hash });
        }
        if ancestors.iter().any(|a| a.ommers.contains(&hash)) {
            return Err(InvalidBody::OmmerInChain { hash });
        }
        if ommer.parent_hash == header.parent_hash {
            return Err(InvalidBody::OmmerIsBrother { hash });
        }
        let Some(parent) = ancestors.iter().find(|a| a.hash == ommer.parent_hash) else {
            return Err(InvalidBody::OmmerParent { hash, depth });
        };

        let parent = Parent {
            header: &parent.header,
            hash: parent.hash,
            total_difficulty: parent.total_difficulty,
        };
        check_header(spec, ommer, &parent)
            .map_err(|reason| InvalidBody::OmmerHeader { hash, reason })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
