//! What comes with a block, beside the block.

use niwaki_primitives::{Address, BlockAccessList};
use niwaki_rules::BodyRoots;

/// What is known of a block before it is judged, and spares work. Senders and roots are taken at their word.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The senders that are known, one place for each transaction; those are not recovered again.
    pub senders: Vec<Option<Address>>,
    /// The roots of the body, for whoever has made them.
    pub roots: Option<BodyRoots>,
    /// The block access list that the block has brought (EIP-7928).
    pub access_list: Option<BlockAccessList>,
}

impl From<Vec<Option<Address>>> for Known {
    fn from(senders: Vec<Option<Address>>) -> Self {
        Self {
            senders,
            ..Self::default()
        }
    }
}
