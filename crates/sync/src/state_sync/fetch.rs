//! One part of the state at a time: peers are asked for it, another one after each that fails, until an answer is proved.

use crate::session::reasons;
use crate::source::{JobEvent, MakeRequest, Peers};
use niwaki_crypto::keccak256_batch;
use niwaki_network::peers::Conduct;
use niwaki_network::router::{Ask, GivenUp, JobError, Need, Outcome, TryEnd};
use niwaki_network::wire::{
    Answer, Entries, Request, RequestKind, SnapAnswer, SnapKind, SnapRequest, TriePaths,
};
use niwaki_primitives::rlp::Decodable;
use niwaki_primitives::{B256, Bytes, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_state::{
    DifferingNode, HealError, KeyRange, RangeError, TrieAccount, TrieRows, decode_account,
    verify_accounts, verify_slots,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::debug;

/// Bytes of an answer that are asked for.
const ANSWER_BYTES: u64 = 512 << 10;
/// A part is asked for so often,
const TRIES: usize = 3;
/// with this pause.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// How long a worker waits for an answer before it looks whether the attempt is over.
const POLL: Duration = Duration::from_millis(50);

/// Why a part did not come.
#[derive(Debug)]
pub(super) enum FetchError {
    /// The attempt is over.
    Over,
    /// All peers that were asked failed, so.
    GivenUp(String),
    NoJob(JobError),
    Fault(Fault),
}

impl From<Fault> for FetchError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What has come of a range.
#[derive(Debug)]
pub(super) struct Part<V> {
    /// Keys and values, ascending.
    pub(super) items: Vec<(B256, V)>,
    /// All keys from here to here are among the items.
    pub(super) came: KeyRange,
    /// What is left.
    pub(super) rest: Option<KeyRange>,
    /// The nodes of the trie between the ends.
    pub(super) rows: TrieRows,
}

impl<V> Part<V> {
    /// Items that are proved to be all from the first key of `range` to the last of them; `has_more` if others follow.
    fn of(mut items: Vec<(B256, V)>, has_more: bool, range: KeyRange, rows: TrieRows) -> Self {
        let last = items.last().map(|(key, _)| *key);
        let last = last.filter(|_| has_more);
        let rest = last.and_then(|last| range.after(&last));
        let came = KeyRange {
            first: range.first,
            last: match (last, rest) {
                (Some(last), Some(_)) => last,
                _ => range.last,
            },
        };
        // One may be beyond the range.
        items.retain(|(key, _)| range.contains(key));
        Self {
            items,
            came,
            rest,
            rows,
        }
    }
}

/// Slots of one of several accounts.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) slots: Vec<(B256, U256)>,
    /// Slots that did not fit into the answer.
    pub(super) rest: Option<KeyRange>,
    /// The nodes of its trie between the ends,
    pub(super) rows: TrieRows,
    /// all of them.
    pub(super) has_all_rows: bool,
}

/// Takes a node with its bytes.
type TakeNode<'t> = dyn FnMut(&DifferingNode, &[u8]) -> Result<(), HealError> + 't;

/// Asks peers for parts of the state with this root.
#[derive(Clone, Copy)]
pub(super) struct Fetcher<'f> {
    pub(super) peers: &'f dyn Peers,
    pub(super) root: B256,
    /// It orders nothing: a worker that sees it late asks once more.
    pub(super) is_over: &'f AtomicBool,
}

impl Fetcher<'_> {
    /// Accounts from the beginning of a range.
    pub(super) fn accounts(&self, range: KeyRange) -> Result<Part<TrieAccount>, FetchError> {
        let root = self.root;
        let request = move |_| {
            Request::Snap(SnapRequest::AccountRange {
                root,
                origin: range.first,
                limit: range.last,
                bytes: ANSWER_BYTES,
            })
        };
        let mut got = None;
        self.run(SnapKind::AccountRange, 1, request, |_, answer| {
            keep(&mut got, read_accounts(root, range, answer))
        })?;
        got.ok_or_else(nothing)
    }

    /// The root of an account's storage.
    pub(super) fn storage_root(&self, account: B256) -> Result<B256, FetchError> {
        let range = KeyRange {
            first: account,
            last: account,
        };
        let got = self.accounts(range)?;
        let root = got.items.first().map(|(_, account)| account.storage_root);
        Ok(root.unwrap_or(EMPTY_ROOT_HASH))
    }

    /// Slots of an account from the beginning of a range.
    pub(super) fn slots(
        &self,
        account: B256,
        storage_root: B256,
        range: KeyRange,
    ) -> Result<Part<U256>, FetchError> {
        if storage_root == EMPTY_ROOT_HASH {
            return Ok(Part::of(Vec::new(), false, range, TrieRows::default()));
        }
        let root = self.root;
        let request = move |_| {
            Request::Snap(SnapRequest::StorageRanges {
                root,
                accounts: vec![account],
                origin: range.first,
                limit: range.last,
                bytes: ANSWER_BYTES,
            })
        };
        let mut got = None;
        self.run(SnapKind::StorageRanges, 1, request, |_, answer| {
            keep(&mut got, read_slots(account, storage_root, range, answer))
        })?;
        got.ok_or_else(nothing)
    }

    /// The storage of accounts, each with its root, from the beginning. `take` gets the index of each with what came.
    pub(super) fn storages(
        &self,
        accounts: &[(B256, B256)],
        take: &mut dyn FnMut(usize, Storage),
    ) -> Result<(), FetchError> {
        let Ok(count @ 1..) = u32::try_from(accounts.len()) else {
            return Ok(());
        };
        let (root, all): (B256, Arc<[(B256, B256)]>) = (self.root, accounts.into());
        let asked = Arc::clone(&all);
        let request = move |items: Range<u32>| {
            let accounts = asked.get(indices(&items)).unwrap_or_default();
            Request::Snap(SnapRequest::StorageRanges {
                root,
                accounts: accounts.iter().map(|(account, _)| *account).collect(),
                origin: KeyRange::WHOLE.first,
                limit: KeyRange::WHOLE.last,
                bytes: ANSWER_BYTES,
            })
        };
        let mut has_come = vec![false; accounts.len()];
        self.run(SnapKind::StorageRanges, count, request, |items, answer| {
            let first = items.start as usize;
            let asked = all.get(indices(&items)).unwrap_or_default();
            let storages = match read_storages(asked, answer) {
                Ok(Some(storages)) => storages,
                Ok(None) => return Outcome::Stateless,
                Err(conduct) => return Outcome::Wrong(conduct),
            };
            let end = first + storages.len();
            for (index, storage) in (first..).zip(storages) {
                // A piece may come twice, of two peers.
                if !std::mem::replace(&mut has_come[index], true) {
                    take(index, storage);
                }
            }
            missing(end, &items)
        })
    }

    /// Codes by hash.
    pub(super) fn codes(
        &self,
        hashes: &[B256],
        take: &mut dyn FnMut(&B256, &[u8]),
    ) -> Result<(), FetchError> {
        let Ok(count @ 1..) = u32::try_from(hashes.len()) else {
            return Ok(());
        };
        let all: Arc<[B256]> = hashes.into();
        let asked = Arc::clone(&all);
        let request = move |items: Range<u32>| {
            Request::Snap(SnapRequest::ByteCodes {
                hashes: asked.get(indices(&items)).unwrap_or_default().to_vec(),
                bytes: ANSWER_BYTES,
            })
        };
        self.run(SnapKind::ByteCodes, count, request, |items, answer| {
            let Answer::Snap(SnapAnswer::ByteCodes(codes)) = answer else {
                return Outcome::Wrong(Conduct::BadMessage);
            };
            let asked = all.get(indices(&items)).unwrap_or_default();
            match match_codes(asked, &codes) {
                Some(found) => {
                    let mut missing = Vec::new();
                    for (at, hash) in (items.start..).zip(asked) {
                        match found.iter().find(|(own, _)| own == hash) {
                            Some((_, code)) => take(hash, code),
                            None => missing.push(at..at + 1),
                        }
                    }
                    Outcome::Items { missing }
                }
                None => Outcome::Wrong(Conduct::Lie),
            }
        })
    }

    /// Nodes of tries. `take` compares each with its bytes.
    pub(super) fn nodes(
        &self,
        nodes: &[DifferingNode],
        take: &mut TakeNode<'_>,
    ) -> Result<(), FetchError> {
        let Ok(count @ 1..) = u32::try_from(nodes.len()) else {
            return Ok(());
        };
        let (root, all): (B256, Arc<[DifferingNode]>) = (self.root, nodes.into());
        let request = move |items: Range<u32>| {
            Request::Snap(SnapRequest::TrieNodes {
                root,
                paths: trie_paths(all.get(indices(&items)).unwrap_or_default()),
                bytes: ANSWER_BYTES,
            })
        };
        let mut has_come = vec![false; nodes.len()];
        let mut fault = None;
        self.run(SnapKind::TrieNodes, count, request, |items, answer| {
            let Answer::Snap(SnapAnswer::TrieNodes(came)) = answer else {
                return Outcome::Wrong(Conduct::BadMessage);
            };
            if came.is_empty() {
                return Outcome::Stateless;
            }
            let mut missing = Vec::new();
            for (at, place) in items.zip(0..) {
                let (index, rlp) = (at as usize, came.get(place));
                let Some(rlp) = rlp.filter(|rlp| !rlp.is_empty()) else {
                    missing.push(at..at + 1);
                    continue;
                };
                // A piece may come twice, of two peers.
                if std::mem::replace(&mut has_come[index], true) {
                    continue;
                }
                match take(&nodes[index], rlp) {
                    Ok(()) => {}
                    Err(HealError::OtherNode) => {
                        has_come[index] = false;
                        return Outcome::Wrong(Conduct::Lie);
                    }
                    Err(HealError::Fault(error)) => fault = Some(error),
                }
            }
            Outcome::Items { missing }
        })?;
        match fault {
            Some(fault) => Err(FetchError::Fault(fault)),
            None => Ok(()),
        }
    }

    /// Asks again a little later if all peers failed, but not for want of the state: one that sends nonsense or breaks off once may be
    /// the only one.
    fn run(
        &self,
        kind: SnapKind,
        items: u32,
        request: impl Fn(Range<u32>) -> Request + Send + Sync + 'static,
        mut take: impl FnMut(Range<u32>, Answer) -> Outcome,
    ) -> Result<(), FetchError> {
        let request = Arc::new(request);
        let mut tries_left = TRIES;
        loop {
            let request = Arc::clone(&request);
            let request = Box::new(move |items| request(items));
            let given_up = self.run_once(kind, items, request, &mut take)?;
            tries_left -= 1;
            if given_up.is_empty() {
                return Ok(());
            }
            let mut tries = given_up.iter().flat_map(|piece| &piece.tries);
            if tries_left == 0 || tries.any(|one| one.end == TryEnd::Stateless) {
                return Err(FetchError::GivenUp(reasons(&given_up)));
            }
            self.peers.wait(RETRY_PAUSE);
        }
    }

    fn run_once(
        &self,
        kind: SnapKind,
        items: u32,
        request: MakeRequest,
        take: &mut dyn FnMut(Range<u32>, Answer) -> Outcome,
    ) -> Result<Vec<GivenUp>, FetchError> {
        let need = Need {
            root: (kind != SnapKind::ByteCodes).then_some(self.root),
            ..Need::default()
        };
        let kind = RequestKind::Snap(kind);
        let ask = Ask { kind, items, need };
        let mut job = self.peers.start(ask, request).map_err(FetchError::NoJob)?;
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return Err(FetchError::Over);
            }
            match job.next(POLL) {
                None => {}
                Some(JobEvent::Answer { id, items, answer }) => {
                    let outcome = take(items, answer);
                    job.outcome(id, outcome);
                }
                Some(JobEvent::Done(given_up)) => return Ok(given_up),
            }
        }
    }
}

fn nothing() -> FetchError {
    FetchError::GivenUp("no answer was kept".to_owned())
}

fn indices(items: &Range<u32>) -> Range<usize> {
    items.start as usize..items.end as usize
}

/// Items from `end` on did not come.
fn missing(end: usize, items: &Range<u32>) -> Outcome {
    let end = u32::try_from(end).unwrap_or(u32::MAX);
    let missing = (end < items.end).then_some(end..items.end);
    let missing = missing.into_iter().collect();
    Outcome::Items { missing }
}

/// Where nodes are, as the wire has it: those of one storage together.
fn trie_paths(nodes: &[DifferingNode]) -> Vec<TriePaths> {
    let mut paths: Vec<TriePaths> = Vec::new();
    for node in nodes {
        let path = Bytes::from(node.compact_path());
        let Some(owner) = node.owner else {
            paths.push(TriePaths {
                account: path,
                slots: Vec::new(),
            });
            continue;
        };
        match paths.last_mut() {
            Some(last) if last.account == owner[..] && !last.slots.is_empty() => {
                last.slots.push(path);
            }
            _ => paths.push(TriePaths {
                account: Bytes::copy_from_slice(owner.as_slice()),
                slots: vec![path],
            }),
        }
    }
    paths
}

/// The answer of a peer is not proved, so. A range without anything is no lie: nothing of it could be taken for a part of the state.
fn unproved(error: &RangeError) -> Conduct {
    debug!(%error, "A part of a state is not proved");
    match error {
        RangeError::NotEmpty => Conduct::Empty,
        _ => Conduct::Unproved,
    }
}

/// Keeps the one item of a job.
fn keep<T>(got: &mut Option<T>, read: Result<Option<T>, Conduct>) -> Outcome {
    match read {
        Ok(Some(part)) => {
            *got = Some(part);
            let missing = Vec::new();
            Outcome::Items { missing }
        }
        Ok(None) => Outcome::Stateless,
        Err(conduct) => Outcome::Wrong(conduct),
    }
}

/// `None` if the peer does not have the state.
fn read_accounts(
    root: B256,
    range: KeyRange,
    answer: Answer,
) -> Result<Option<Part<TrieAccount>>, Conduct> {
    let Answer::Snap(SnapAnswer::AccountRange { accounts, proof }) = answer else {
        return Err(Conduct::BadMessage);
    };
    if accounts.is_empty() && proof.is_empty() {
        return Ok(None);
    }
    let decoded = accounts
        .iter()
        .map(|(key, slim)| Some((key, decode_account(slim).ok()?)));
    let decoded: Option<Vec<_>> = decoded.collect();
    let decoded = decoded.ok_or(Conduct::BadMessage)?;
    let mut rows = TrieRows::default();
    let verified = verify_accounts(root, range, &decoded, &proof, &mut rows);
    let has_more = verified.map_err(|error| unproved(&error))?;
    Ok(Some(Part::of(decoded, has_more, range, rows)))
}

fn decode_slots(entries: &Entries) -> Result<Vec<(B256, U256)>, Conduct> {
    let decoded = entries.iter().map(|(key, mut value)| {
        let number = U256::decode(&mut value).ok();
        let number = number.filter(|number| value.is_empty() && !number.is_zero());
        Some((key, number?))
    });
    let decoded: Option<Vec<_>> = decoded.collect();
    decoded.ok_or(Conduct::BadMessage)
}

fn read_slots(
    account: B256,
    storage_root: B256,
    range: KeyRange,
    answer: Answer,
) -> Result<Option<Part<U256>>, Conduct> {
    let Answer::Snap(SnapAnswer::StorageRanges { slots, proof }) = answer else {
        return Err(Conduct::BadMessage);
    };
    if slots.is_empty() && proof.is_empty() {
        return Ok(None);
    }
    let decoded = match &slots[..] {
        [] => Vec::new(),
        [slots] => decode_slots(slots)?,
        _ => return Err(Conduct::BadMessage),
    };
    let mut rows = TrieRows::default();
    let verified = verify_slots(account, storage_root, range, &decoded, &proof, &mut rows);
    let has_more = verified.map_err(|error| unproved(&error))?;
    Ok(Some(Part::of(decoded, has_more, range, rows)))
}

/// The storage of the first of these accounts, as many as came.
fn read_storages(asked: &[(B256, B256)], answer: Answer) -> Result<Option<Vec<Storage>>, Conduct> {
    let Answer::Snap(SnapAnswer::StorageRanges { slots, proof }) = answer else {
        return Err(Conduct::BadMessage);
    };
    if slots.is_empty() {
        return match proof.is_empty() {
            true => Ok(None),
            false => Err(Conduct::BadMessage),
        };
    }
    let last = slots.len() - 1;
    let mut storages = Vec::new();
    for (index, (entries, (account, root))) in slots.iter().zip(asked).enumerate() {
        let decoded = decode_slots(entries)?;
        // Only the last one may be cut, and then has a proof.
        let proof: &[Bytes] = if index == last { &proof } else { &[] };
        let (range, mut rows) = (KeyRange::WHOLE, TrieRows::default());
        let verified = verify_slots(*account, *root, range, &decoded, proof, &mut rows);
        let has_more = verified.map_err(|error| unproved(&error))?;
        let part = Part::of(decoded, has_more, range, rows);
        storages.push(Storage {
            slots: part.items,
            rest: part.rest,
            rows: part.rows,
            has_all_rows: proof.is_empty(),
        });
    }
    Ok(Some(storages))
}

/// Codes with their hashes; `None` if one was not asked for.
fn match_codes<'c>(asked: &[B256], codes: &'c [Bytes]) -> Option<Vec<(B256, &'c Bytes)>> {
    let messages: Vec<&[u8]> = codes.iter().map(AsRef::as_ref).collect();
    let hashes = keccak256_batch(&messages);
    let found: Vec<_> = hashes.into_iter().zip(codes).collect();
    let was_asked = |(hash, _): &(B256, &Bytes)| asked.contains(hash);
    found.iter().all(was_asked).then_some(found)
}
