//! One peer that lies beside two honest ones: the state that comes is right, none but the liar is caught, and it costs less than as much
//! again.

use super::state::{Direct, Lie, source, start, wait_until};
use super::*;
use niwaki_chain::Chain;
use niwaki_network::wire::{Entries, SnapAnswer, SnapRequest};
use niwaki_primitives::{Bytes, U256, rlp};

/// How a peer changes what it gives of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeLie {
    Accounts(EntryLie),
    /// Of the first storage of an answer.
    Slots(EntryLie),
    /// Proofs of accounts and slots.
    Proof(ProofLie),
    /// The first two storages are exchanged.
    OtherStorages,
    /// Everything is of the state of the block before.
    OtherRoot,
    /// Each code is another one.
    OtherCodes,
    /// Codes are in another order: each is still one that was asked for.
    SwappedCodes,
    /// Half of the codes.
    FewCodes,
    /// Each second answer is empty, as of a root that is not known.
    Moody,
    /// Slots above the last one that was asked for.
    BeyondLimit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryLie {
    /// The first two values are exchanged.
    OtherValue,
    WithoutFirst,
    WithoutMiddle,
    WithoutLast,
    WithoutAll,
    OneMore,
    Unsorted,
    Double,
    /// The first value, as an RLP string, begins with a zero.
    LeadingZero,
    EmptyValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProofLie {
    Surplus,
    WithoutFirst,
    WithoutLast,
    WithoutAll,
}

/// Each of them proves that the peer lies.
const PROVABLE: [RangeLie; 23] = {
    use EntryLie::{
        Double, EmptyValue, LeadingZero, OneMore, OtherValue, Unsorted, WithoutAll, WithoutFirst,
        WithoutLast, WithoutMiddle,
    };
    use RangeLie::{Accounts, OtherCodes, OtherRoot, OtherStorages, Proof, Slots};
    [
        Accounts(OtherValue),
        Accounts(WithoutFirst),
        Accounts(WithoutMiddle),
        Accounts(WithoutLast),
        Accounts(WithoutAll),
        Accounts(OneMore),
        Accounts(Unsorted),
        Accounts(Double),
        Slots(OtherValue),
        Slots(WithoutFirst),
        Slots(WithoutMiddle),
        Slots(WithoutLast),
        Slots(OneMore),
        Slots(Unsorted),
        Slots(Double),
        Slots(LeadingZero),
        Slots(EmptyValue),
        Proof(ProofLie::WithoutFirst),
        Proof(ProofLie::WithoutLast),
        Proof(ProofLie::WithoutAll),
        OtherStorages,
        OtherRoot,
        OtherCodes,
    ]
};

/// Key and value: an account as its RLP list, or the RLP of a slot's value.
type Entry = (B256, Vec<u8>);

impl EntryLie {
    fn change(self, entries: &mut Vec<Entry>) {
        let middle = entries.len() / 2;
        match self {
            Self::OtherValue if entries.len() > 1 => {
                let second = entries[1].1.clone();
                entries[1].1 = std::mem::replace(&mut entries[0].1, second);
            }
            Self::WithoutFirst if !entries.is_empty() => drop(entries.remove(0)),
            Self::WithoutMiddle if !entries.is_empty() => drop(entries.remove(middle)),
            Self::WithoutLast => drop(entries.pop()),
            Self::WithoutAll => entries.clear(),
            Self::OneMore if !entries.is_empty() => {
                let (key, value) = entries[middle].clone();
                let next = U256::from_be_bytes(key.0).saturating_add(U256::ONE);
                entries.insert(middle + 1, (B256::from(next), value));
            }
            Self::Unsorted if entries.len() > 1 => entries.swap(0, 1),
            Self::Double if !entries.is_empty() => {
                let first = entries[0].clone();
                entries.insert(0, first);
            }
            Self::LeadingZero if !entries.is_empty() => entries[0].1 = vec![0x82, 0, 1],
            Self::EmptyValue if !entries.is_empty() => entries[0].1 = vec![0x80],
            _ => {}
        }
    }

    fn changed(self, entries: &Entries, is_list: bool) -> Entries {
        let mut all: Vec<Entry> = entries.iter().map(|(k, v)| (k, v.to_vec())).collect();
        self.change(&mut all);
        if !is_list {
            let values = all.iter_mut().map(|(_, value)| value);
            values.for_each(|value| *value = rlp::encode(&value[..]));
        }
        Entries::of(all.iter().map(|(key, value)| (*key, &value[..])))
    }
}

impl ProofLie {
    fn change(self, proof: &mut Vec<Bytes>) {
        match self {
            Self::Surplus => proof.push(Bytes::from_static(b"no node of any trie at all")),
            Self::WithoutFirst if !proof.is_empty() => drop(proof.remove(0)),
            Self::WithoutLast => drop(proof.pop()),
            Self::WithoutAll => proof.clear(),
            Self::WithoutFirst => {}
        }
    }
}

impl RangeLie {
    /// What the peer takes a request for.
    pub(super) fn change_request(self, request: &mut SnapRequest, chain: &Chain) {
        match (self, request) {
            (
                Self::OtherRoot,
                SnapRequest::AccountRange { root, .. } | SnapRequest::StorageRanges { root, .. },
            ) => {
                let head = chain.head().id.number;
                let headers = (1..=head).filter_map(|number| chain.header_at(number).unwrap());
                let mut headers = headers.skip_while(|header| header.header.state_root != *root);
                let parent = headers.next().map(|header| header.header.parent_hash);
                let parent = parent.and_then(|hash| chain.header(&hash).unwrap());
                *root = parent.map_or(*root, |parent| parent.header.state_root);
            }
            (Self::BeyondLimit, SnapRequest::StorageRanges { limit, .. }) => {
                *limit = B256::repeat_byte(0xff);
            }
            _ => {}
        }
    }

    pub(super) fn change(self, answer: &mut SnapAnswer, requests: u64) {
        match (self, answer) {
            (Self::Accounts(lie), SnapAnswer::AccountRange { accounts, .. }) => {
                *accounts = lie.changed(accounts, true);
            }
            (Self::Slots(lie), SnapAnswer::StorageRanges { slots, .. }) => {
                let first = slots.iter_mut().take(1);
                first.for_each(|first| *first = lie.changed(first, false));
            }
            (
                Self::Proof(lie),
                SnapAnswer::AccountRange { proof, .. } | SnapAnswer::StorageRanges { proof, .. },
            ) => lie.change(proof),
            (Self::OtherStorages, SnapAnswer::StorageRanges { slots, .. }) if slots.len() > 1 => {
                slots.swap(0, 1);
            }
            (Self::OtherCodes, SnapAnswer::ByteCodes(codes)) => {
                codes.fill(Bytes::from_static(b"other"));
            }
            (Self::SwappedCodes, SnapAnswer::ByteCodes(codes)) => codes.reverse(),
            (Self::FewCodes, SnapAnswer::ByteCodes(codes)) => {
                codes.truncate(codes.len().div_ceil(2));
            }
            (Self::Moody, SnapAnswer::AccountRange { accounts, proof })
                if requests.is_multiple_of(2) =>
            {
                (*accounts, *proof) = (Entries::default(), Vec::new());
            }
            (Self::Moody, SnapAnswer::StorageRanges { slots, proof })
                if requests.is_multiple_of(2) =>
            {
                (*slots, *proof) = (Vec::new(), Vec::new());
            }
            _ => {}
        }
    }
}

/// A sync from these peers, to the end. Returns how many requests it took, and whether the liar was caught.
fn sync_from(source: &Arc<Chain>, lies: [Lie; 3]) -> (u64, bool) {
    let peers = Direct::new(source, &lies, 2_000, u64::MAX);
    let chain = empty_chain(None);
    let sync = start(&chain, &peers);
    wait_until(&sync, "the head", || chain.head().id == source.head().id);
    let status = sync.status();
    assert!(status.failures.is_empty(), "{lies:?}: {status:?}");
    sync.stop();
    assert_clean(&chain);
    let caught = lock(&peers.0.caught);
    let is_liar = |(by, _): &(Lie, _)| *by == lies[0] && *by != Lie::None;
    assert!(caught.iter().all(is_liar), "{caught:?}");
    let requests = peers.0.requests.load(Ordering::Relaxed);
    (requests, !caught.is_empty())
}

#[test]
fn a_liar_beside_two_honest_peers_is_caught_and_costs_less_than_as_much_again() {
    let source = source();
    let (honest, _) = sync_from(&source, [Lie::None; 3]);
    for lie in PROVABLE {
        let sync = || {
            let (requests, is_caught) = sync_from(&source, [Lie::Of(lie), Lie::None, Lie::None]);
            assert!(requests < 2 * honest, "{lie:?}: {requests} of {honest}");
            is_caught
        };
        // It is not asked for each kind of thing in each sync.
        assert!((0..20).any(|_| sync()), "{lie:?} was never caught");
    }
}

#[test]
fn what_proves_nothing_costs_less_than_as_much_again() {
    let source = source();
    let (honest, _) = sync_from(&source, [Lie::None; 3]);
    let odd = [
        RangeLie::Moody,
        RangeLie::BeyondLimit,
        RangeLie::FewCodes,
        RangeLie::SwappedCodes,
        RangeLie::Proof(ProofLie::Surplus),
    ];
    for lie in odd {
        let (requests, _) = sync_from(&source, [Lie::Of(lie), Lie::None, Lie::None]);
        assert!(requests < 2 * honest, "{lie:?}: {requests} of {honest}");
    }
}
