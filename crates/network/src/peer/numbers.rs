//! Where this node's own protocols are among the message numbers of a connection.

use crate::rlpx::SharedProtocol;
use crate::wire::{EthVersion, RequestKind, SnapVersion};

/// The versions of `eth` and `snap` on a connection, and the first number of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) eth: EthVersion,
    eth_first: u8,
    snap: Option<(SnapVersion, u8)>,
}

impl Numbers {
    /// `None` if both sides speak no version of `eth` that this node knows.
    pub(super) fn of(protocols: &[SharedProtocol]) -> Option<Self> {
        let find = |name: &str| {
            let mut all = protocols.iter();
            all.find(|protocol| protocol.capability.name == name)
        };
        let (eth, snap) = (find("eth")?, find("snap"));
        let snap = snap.and_then(|snap| {
            let version = SnapVersion::from_number(snap.capability.version)?;
            Some((version, snap.offset))
        });
        Some(Self {
            eth: EthVersion::from_number(eth.capability.version)?,
            eth_first: eth.offset,
            snap,
        })
    }

    pub(super) fn snap(&self) -> Option<SnapVersion> {
        self.snap.map(|(version, _)| version)
    }

    /// The connection's number of a message of `eth`.
    pub(super) fn of_eth(&self, number: u8) -> u8 {
        self.eth_first + number
    }

    /// The number of a message of `eth` from the protocol's first; `None` if it is of another protocol.
    pub(super) fn in_eth(&self, id: u8) -> Option<u8> {
        id.checked_sub(self.eth_first)
            .filter(|number| *number < self.eth.length())
    }

    /// The connection's number of a request's message; the answer's is one higher. `None` if no protocol has it here.
    pub(super) fn of_request(&self, kind: RequestKind) -> Option<u8> {
        let first = match kind {
            RequestKind::Snap(kind) => {
                let spoken = self.snap.filter(|(version, _)| kind.is_spoken(*version));
                spoken?.1
            }
            kind => kind.is_spoken(self.eth).then_some(self.eth_first)?,
        };
        Some(first + kind.number())
    }

    /// What the message with this number of the connection asks for; `None` if it is no request.
    pub(super) fn request(&self, id: u8) -> Option<RequestKind> {
        let mut kinds = RequestKind::ALL.into_iter();
        kinds.find(|kind| self.of_request(*kind) == Some(id))
    }

    /// What the message with this number of the connection answers; `None` if it is no answer.
    pub(super) fn answer(&self, id: u8) -> Option<RequestKind> {
        self.request(id.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rlpx::Protocol;
    use crate::rlpx::hello::shared_protocols;
    use crate::wire::SnapKind;

    fn numbers(snap: Option<SnapVersion>) -> Numbers {
        let eth = EthVersion::Eth72;
        let mut ours = vec![Protocol::new("eth", eth.number(), eth.length())];
        ours.extend(snap.map(|snap| Protocol::new("snap", snap.number(), snap.length())));
        let theirs: Vec<_> = ours.iter().map(|one| one.capability.clone()).collect();
        Numbers::of(&shared_protocols(&ours, &theirs)).unwrap()
    }

    #[test]
    fn each_kind_has_the_number_that_only_it_is_found_by() {
        for snap in [None, Some(SnapVersion::Snap1), Some(SnapVersion::Snap2)] {
            let numbers = numbers(snap);
            let spoken = RequestKind::ALL.into_iter();
            let spoken: Vec<_> = spoken
                .filter_map(|kind| Some((kind, numbers.of_request(kind)?)))
                .collect();
            assert_eq!(spoken.len(), 6 + if snap.is_some() { 4 } else { 0 });
            for (kind, id) in spoken {
                assert_eq!(numbers.request(id), Some(kind));
                assert_eq!(numbers.answer(id + 1), Some(kind));
                let is_snap = matches!(kind, RequestKind::Snap(_));
                assert_eq!(numbers.in_eth(id).is_none(), is_snap);
            }
        }
    }

    #[test]
    fn nodes_of_tries_are_of_version_1_and_access_lists_of_version_2() {
        let of = |snap, kind| numbers(Some(snap)).of_request(RequestKind::Snap(kind));
        // eth/72 has 22 numbers, from 16 on.
        assert_eq!(of(SnapVersion::Snap1, SnapKind::TrieNodes), Some(44));
        assert_eq!(of(SnapVersion::Snap2, SnapKind::TrieNodes), None);
        assert_eq!(of(SnapVersion::Snap1, SnapKind::AccessLists), None);
        assert_eq!(of(SnapVersion::Snap2, SnapKind::AccessLists), Some(46));
    }
}
