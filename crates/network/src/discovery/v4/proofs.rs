//! Endpoint proofs: which nodes answered our ping from which address, and when they last pinged us.
//!
//! Two generations of at most 8,192 entries each bound the memory: when the younger one is full, the older one is forgotten. Only a
//! node that answered has an entry, so that pings with forged addresses can't push the others out.

use crate::key::NodeId;
use crate::record::Record;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// How long a proof holds.
pub(crate) const PROOF_MS: u64 = 24 * 60 * 60 * 1000;

/// Most entries of a generation.
const MAX_ENTRIES: usize = 8192;

/// What is known of a node at an address.
#[derive(Clone, Debug)]
struct Proof {
    /// When it last answered our ping.
    answered_ms: u64,
    /// When it last pinged us: then it got our answer, so that it has our proof.
    pinged_ms: Option<u64>,
    record: Option<Arc<Record>>,
}

type Key = (NodeId, IpAddr);

/// The proofs.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    young: HashMap<Key, Proof>,
    old: HashMap<Key, Proof>,
}

impl Proofs {
    fn get(&self, id: NodeId, ip: IpAddr) -> Option<&Proof> {
        let key = (id, ip);
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    /// The entry, moved to the young generation.
    fn get_mut(&mut self, id: NodeId, ip: IpAddr) -> Option<&mut Proof> {
        let key = (id, ip);
        if let Some(proof) = self.old.remove(&key) {
            self.put(key, proof);
        }
        self.young.get_mut(&key)
    }

    fn put(&mut self, key: Key, proof: Proof) {
        if self.young.len() >= MAX_ENTRIES && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, proof);
    }

    /// Whether a node proved itself at this address within the last 24 h.
    pub(crate) fn is_proved(&self, id: NodeId, ip: IpAddr, now_ms: u64) -> bool {
        self.get(id, ip)
            .is_some_and(|proof| now_ms.saturating_sub(proof.answered_ms) < PROOF_MS)
    }

    /// Whether a node is likely to have our proof: it pinged us from this address within the last 24 h.
    pub(crate) fn has_ours(&self, id: NodeId, ip: IpAddr, now_ms: u64) -> bool {
        let pinged_ms = self.get(id, ip).and_then(|proof| proof.pinged_ms);
        pinged_ms.is_some_and(|at| now_ms.saturating_sub(at) < PROOF_MS)
    }

    /// A node answered our ping; `pinged_ms` is when it pinged us meanwhile.
    pub(crate) fn answered(&mut self, id: NodeId, ip: IpAddr, now_ms: u64, pinged_ms: Option<u64>) {
        match self.get_mut(id, ip) {
            Some(proof) => {
                proof.answered_ms = now_ms;
                proof.pinged_ms = pinged_ms.or(proof.pinged_ms);
            }
            None => {
                let proof = Proof {
                    answered_ms: now_ms,
                    pinged_ms,
                    record: None,
                };
                self.put((id, ip), proof);
            }
        }
    }

    /// A node pinged us. Without an entry nothing is kept.
    pub(crate) fn pinged(&mut self, id: NodeId, ip: IpAddr, now_ms: u64) {
        if let Some(proof) = self.get_mut(id, ip) {
            proof.pinged_ms = Some(now_ms);
        }
    }

    /// The record that a node at this address gave.
    pub(crate) fn record(&self, id: NodeId, ip: IpAddr) -> Option<Arc<Record>> {
        self.get(id, ip).and_then(|proof| proof.record.clone())
    }

    /// Keeps a node's record, unless a newer one is there.
    pub(crate) fn set_record(&mut self, ip: IpAddr, record: Arc<Record>) {
        if let Some(proof) = self.get_mut(record.id(), ip) {
            let known = proof.record.as_ref().map_or(0, |known| known.seq());
            if known <= record.seq() {
                proof.record = Some(record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::FixedBytes;

    fn id(number: usize) -> NodeId {
        let mut bytes = FixedBytes::ZERO;
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        NodeId(bytes)
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn a_proof_holds_for_24_hours_and_for_one_id_at_one_address() {
        let mut proofs = Proofs::default();
        assert!(!proofs.is_proved(id(1), ip(1), 0));
        proofs.answered(id(1), ip(1), 1000, None);
        assert!(proofs.is_proved(id(1), ip(1), 1000));
        assert!(proofs.is_proved(id(1), ip(1), 999 + PROOF_MS));
        assert!(!proofs.is_proved(id(1), ip(1), 1000 + PROOF_MS));
        assert!(!proofs.is_proved(id(1), ip(2), 1000));
        assert!(!proofs.is_proved(id(2), ip(1), 1000));
    }

    #[test]
    fn a_ping_counts_only_from_a_node_that_answered() {
        let mut proofs = Proofs::default();
        proofs.pinged(id(1), ip(1), 5);
        assert!(!proofs.has_ours(id(1), ip(1), 5));
        proofs.answered(id(1), ip(1), 6, None);
        assert!(!proofs.has_ours(id(1), ip(1), 6));
        proofs.pinged(id(1), ip(1), 7);
        assert!(proofs.has_ours(id(1), ip(1), 8));
        assert!(!proofs.has_ours(id(1), ip(1), 7 + PROOF_MS));
        proofs.answered(id(2), ip(1), 9, Some(8));
        assert!(proofs.has_ours(id(2), ip(1), 9));
    }

    #[test]
    fn at_most_16384_nodes_are_known_and_those_in_use_stay() {
        let mut proofs = Proofs::default();
        for number in 0..10 * MAX_ENTRIES {
            proofs.answered(id(number), ip(1), 1, None);
            proofs.pinged(id(7), ip(1), 1);
            assert!(proofs.young.len() <= MAX_ENTRIES && proofs.old.len() <= MAX_ENTRIES);
        }
        assert!(proofs.is_proved(id(7), ip(1), 1));
        assert!(!proofs.is_proved(id(8), ip(1), 1));
    }
}
