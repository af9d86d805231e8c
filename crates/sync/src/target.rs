//! What the node has to reach: the block that its consensus client chose and that is missing, or one that the operator or peers
//! named.

use niwaki_chain::Consensus;
use niwaki_primitives::{B256, Fault};

/// Who named a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetSource {
    /// The consensus client, by newPayload and forkchoiceUpdated.
    Consensus,
    /// The operator, at the command line. It counts while no consensus client has chosen a head.
    Operator,
    /// Peers of a chain that no consensus client drives.
    Peers,
}

/// A block to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) hash: B256,
    /// Its number, if a child of it is here.
    pub(crate) number: Option<u64>,
    /// The number of the chosen head, if that is here: blocks above the target wait for it.
    pub(crate) highest: Option<u64>,
    pub(crate) source: TargetSource,
}

impl Target {
    /// The present target. One that the operator or peers named is none any more once it is the head or below it.
    pub(crate) fn current(
        consensus: &Consensus,
        named: Option<(B256, TargetSource)>,
    ) -> Result<Option<Self>, Fault> {
        if let Some(missing) = consensus.missing_block() {
            return Ok(Some(Self {
                hash: missing.hash,
                number: missing.number,
                highest: missing.head.number,
                source: TargetSource::Consensus,
            }));
        }
        let Some((hash, source)) = named else {
            return Ok(None);
        };
        if consensus.missing_head().is_some()
            || consensus.has_followed()
            || consensus.is_rejected(&hash)
        {
            return Ok(None);
        }
        let chain = consensus.chain();
        let stored = chain.number_of(&hash)?;
        if let Some(number) = stored
            && chain.canonical_hash(number)? == Some(hash)
        {
            return Ok(None);
        }
        Ok(Some(Self {
            hash,
            number: stored,
            highest: stored,
            source,
        }))
    }
}
