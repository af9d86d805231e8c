//! Which peers get a new transaction in full (the square root of their number), and which its hash (the others). Where all nodes of a
//! network are peers of each other the caller says another thing: all from the node that got it first, and none from the others.
//!
//! Which peers those are depends on a secret, the peer and the sender. So the transactions of one sender take the same way, in the
//! order of their nonces, and no peer can choose to be on it.

use super::BLOB_TYPE;
use crate::key::NodeId;
use niwaki_crypto::Keccak256;
use niwaki_primitives::Address;

/// Larger transactions are announced only.
const MAX_SENT_BYTES: usize = 4096;

/// The secret of this node that decides who gets what in full. Random, new at every start.
#[derive(Clone, Copy)]
pub struct SendSecret(pub [u8; 16]);

impl std::fmt::Debug for SendSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SendSecret")
    }
}

/// To how many peers a transaction goes in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// The square root of their number.
    #[default]
    SquareRoot,
    /// Each of them.
    All,
    /// None: all get its hash.
    Hash,
}

/// A transaction that is new here and valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Who signed it.
    pub sender: Address,
    /// Its EIP-2718 type.
    pub tx_type: u8,
    /// Bytes of its encoding.
    pub bytes: usize,
    /// It is not for the network.
    pub is_private: bool,
    /// To how many it goes in full.
    pub spread: Spread,
}

/// The indices of peers that get a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipients {
    /// In full.
    pub full: Vec<usize>,
    /// Its hash.
    pub hash: Vec<usize>,
}

impl SendSecret {
    /// To which of `peers` a transaction goes. `knows` says whether the peer at an index has it: then it gets nothing, and no other
    /// peer takes its place. While this node is syncing the caller sends nothing. Costs a Keccak of 100 bytes for each peer.
    pub fn recipients(
        &self,
        tx: &Outgoing,
        peers: &[NodeId],
        knows: impl Fn(usize) -> bool,
    ) -> Recipients {
        if tx.is_private {
            return Recipients::default();
        }
        let is_sent = tx.tx_type != BLOB_TYPE && tx.bytes <= MAX_SENT_BYTES;
        let chosen: Vec<usize> = match tx.spread {
            _ if !is_sent => Vec::new(),
            Spread::All => (0..peers.len()).collect(),
            Spread::Hash => Vec::new(),
            Spread::SquareRoot => {
                let ranks = peers.iter().map(|peer| self.rank(peer, &tx.sender));
                let mut ranked: Vec<(u64, usize)> = ranks.zip(0..).collect();
                ranked.sort_unstable();
                ranked.truncate(square_root(peers.len()));
                ranked.into_iter().map(|(_, index)| index).collect()
            }
        };
        let others = (0..peers.len()).filter(|index| !chosen.contains(index));
        let hash = others.filter(|index| !knows(*index)).collect();
        let full = chosen.iter().copied().filter(|index| !knows(*index));
        Recipients {
            full: full.collect(),
            hash,
        }
    }

    fn rank(&self, peer: &NodeId, sender: &Address) -> u64 {
        let mut hasher = Keccak256::new();
        hasher.update(self.0);
        hasher.update(peer.0);
        hasher.update(sender);
        let [a, b, c, d, e, f, g, h, ..] = hasher.finalize().0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Rounded up.
fn square_root(number: usize) -> usize {
    let root = number.isqrt();
    root + usize::from(root * root < number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::FixedBytes;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const SECRET: SendSecret = SendSecret([7; 16]);

    fn peers(count: u8) -> Vec<NodeId> {
        (0..count)
            .map(|number| NodeId(FixedBytes::repeat_byte(number)))
            .collect()
    }

    fn transaction(sender: u8) -> Outgoing {
        Outgoing {
            sender: Address::repeat_byte(sender),
            tx_type: 2,
            bytes: 200,
            is_private: false,
            spread: Spread::SquareRoot,
        }
    }

    #[test]
    fn a_node_of_a_mesh_sends_to_all_what_is_its_own_and_to_none_what_is_not() {
        for (spread, full) in [(Spread::All, 9), (Spread::Hash, 0)] {
            let tx = Outgoing {
                spread,
                ..transaction(1)
            };
            let recipients = SECRET.recipients(&tx, &peers(10), |index| index == 3);
            assert_eq!(recipients.full.len(), full);
            assert_eq!(recipients.hash.len(), 9 - full);
        }
    }

    #[test]
    fn the_square_root_of_the_peers_rounded_up_gets_it_in_full_and_the_others_the_hash() {
        for (count, full) in [(0, 0), (1, 1), (2, 2), (4, 2), (5, 3), (49, 7), (50, 8)] {
            let recipients = SECRET.recipients(&transaction(1), &peers(count), |_| false);
            assert_eq!(recipients.full.len(), full);
            assert_eq!(recipients.hash.len(), usize::from(count) - full);
        }
    }

    #[test]
    fn a_senders_transactions_take_one_way_and_other_senders_take_others() {
        let way = |sender| {
            let all = SECRET.recipients(&transaction(sender), &peers(49), |_| false);
            all.full
        };
        assert_eq!(way(1), way(1));
        let used: BTreeSet<usize> = (0..50).flat_map(way).collect();
        assert!(used.len() > 40, "{}", used.len());
        let other = SendSecret([8; 16]).recipients(&transaction(1), &peers(49), |_| false);
        assert_ne!(other.full, way(1));
    }

    #[test]
    fn blobs_and_more_than_4_kib_are_announced_and_private_ones_are_not() {
        let blob = Outgoing {
            tx_type: 3,
            ..transaction(1)
        };
        let large = Outgoing {
            bytes: 4097,
            ..transaction(1)
        };
        for tx in [blob, large] {
            let recipients = SECRET.recipients(&tx, &peers(9), |_| false);
            assert_eq!((recipients.full.len(), recipients.hash.len()), (0, 9));
        }
        let just = Outgoing {
            bytes: 4096,
            ..transaction(1)
        };
        let recipients = SECRET.recipients(&just, &peers(9), |_| false);
        assert_eq!(recipients.full.len(), 3);
        let private = Outgoing {
            is_private: true,
            ..transaction(1)
        };
        let recipients = SECRET.recipients(&private, &peers(9), |_| false);
        assert_eq!(recipients, Recipients::default());
    }

    proptest! {
        #[test]
        fn no_peer_gets_what_it_knows_and_every_other_peer_gets_it_once(
            known in prop::collection::vec(any::<bool>(), 0..60), sender: u8
        ) {
            let count = u8::try_from(known.len()).unwrap();
            let recipients = SECRET.recipients(&transaction(sender), &peers(count), |i| known[i]);
            let mut all = [recipients.full, recipients.hash].concat();
            all.sort_unstable();
            let expected: Vec<usize> = (0..known.len()).filter(|i| !known[*i]).collect();
            prop_assert_eq!(all, expected);
        }
    }
}
