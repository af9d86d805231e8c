//! What comes with a block, beside the block.

use niwaki_primitives::{Address, BlockAccessList};

/// What is known of a block before it is judged, and spares work. None of it decides anything but the
/// senders.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The senders that are known, one place for each transaction; those are not recovered again.
    pub senders: Vec<Option<Address>>,
    /// The block access list that the block has brought (EIP-7928).
    pub access_list: Option<BlockAccessList>,
}

impl From<Vec<Option<Address>>> for Known {
    fn from(senders: Vec<Option<Address>>) -> Self {
        Self {
            senders,
            access_list: None,
        }
    }
}
