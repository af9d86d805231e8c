//! States from peers that answer at once, in real time: each peer has a chain, and a script that changes what it says.

use super::liars::RangeLie;
use super::*;
use crate::serve::{RecentStates, Sources, answer};
use crate::source::{Download, JobEvent, MakeRequest, Offer};
use crate::tests::sealed_header;
use niwaki_network::peers::{Conduct, ConnId};
use niwaki_network::router::{Ask, GivenUp, JobError, Outcome, Try, TryEnd};
use niwaki_network::wire::{Answer, Entries, EthVersion, SnapAnswer, SnapRequest};
use niwaki_primitives::{Bytes, Withdrawal};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// What a peer does with what it is asked for by `snap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    None,
    /// See there.
    Of(RangeLie),
    /// It says that it has no state.
    Stateless,
    /// It has no access lists.
    NoLists,
    /// The access lists are of other blocks.
    OtherLists,
    /// Each access list is empty.
    EmptyLists,
    /// It has no access lists, and each node is another one.
    OtherNodes,
    /// It has neither access lists nor nodes.
    NoNodes,
    /// The last receipt of each block is left out.
    DropsReceipts,
    /// Each body is another one.
    OtherBodies,
    /// It gives no headers of blocks below [`OLD`].
    NoOldBlocks,
}

/// Blocks below this one are old to [`Lie::NoOldBlocks`]: all that do not come with the state.
pub(super) const OLD: u64 = BLOCKS - 32 - 255;

struct Peer {
    lie: Lie,
    states: RecentStates,
}

pub(super) struct Inner {
    chain: Arc<Chain>,
    peers: Vec<Peer>,
    start: Instant,
    /// Bytes of an answer at most, whatever is asked for.
    most_bytes: u64,
    /// Answers that are given until the peers fall silent.
    pub(super) answers: AtomicU64,
    pub(super) requests: AtomicU64,
    /// Whether they give nodes of tries.
    has_nodes: bool,
    pub(super) caught: Mutex<Vec<(Lie, Conduct)>>,
}

/// Peers that answer at once.
#[derive(Clone)]
pub(super) struct Direct(pub(super) Arc<Inner>);

/// A chain with all blocks of the main branch.
pub(super) fn source() -> Arc<Chain> {
    let chain = empty_chain(None);
    for block in main_branch() {
        chain.import(block.clone()).unwrap();
    }
    chain
}

impl Direct {
    /// Peers with lies of their own, which give so many answers of so many bytes at most.
    pub(super) fn new(chain: &Arc<Chain>, lies: &[Lie], most_bytes: u64, answers: u64) -> Self {
        let peer = |lie: &Lie| Peer {
            lie: *lie,
            states: RecentStates::default(),
        };
        Self(Arc::new(Inner {
            chain: Arc::clone(chain),
            peers: lies.iter().map(peer).collect(),
            start: Instant::now(),
            most_bytes,
            answers: AtomicU64::new(answers),
            requests: AtomicU64::new(0),
            has_nodes: !lies.contains(&Lie::NoNodes),
            caught: Mutex::default(),
        }))
    }
}

impl Inner {
    fn answer(&self, peer: &Peer, mut request: Request) -> Answer {
        if let Request::Snap(
            SnapRequest::AccountRange { bytes, .. } | SnapRequest::StorageRanges { bytes, .. },
        ) = &mut request
        {
            *bytes = self.most_bytes.min(*bytes);
        }
        if let (Lie::Of(lie), Request::Snap(request)) = (peer.lie, &mut request) {
            lie.change_request(request, &self.chain);
        }
        let sources = Sources {
            chain: &self.chain,
            states: &peer.states,
            transaction: &|_, _| None,
            cells: &|_, _| None,
        };
        let version = EthVersion::Eth72;
        let message = answer(sources, &request, version, 1).unwrap();
        let (_, answer) = Answer::decode(request.kind(), &message, version).unwrap();
        match answer {
            Answer::Snap(mut answer) => {
                if let Lie::Of(lie) = peer.lie {
                    lie.change(&mut answer, self.requests.load(Ordering::Relaxed));
                }
                Answer::Snap(changed(peer.lie, answer))
            }
            Answer::AccessLists(lists) => Answer::AccessLists(changed_lists(peer.lie, lists)),
            other => changed_blocks(peer.lie, other),
        }
    }
}

fn changed_blocks(lie: Lie, mut answer: Answer) -> Answer {
    match (lie, &mut answer) {
        // Who lied of two that gave parts of a block's receipts is not known.
        (
            Lie::DropsReceipts,
            Answer::Receipts {
                blocks,
                is_last_incomplete: false,
            },
        ) => {
            blocks.iter_mut().for_each(|block| {
                block.pop();
            });
        }
        (Lie::OtherBodies, Answer::Bodies(bodies)) => bodies.iter_mut().for_each(|body| {
            body.transactions.pop();
            body.withdrawals = Some(vec![Withdrawal::default(); 3].into());
        }),
        (Lie::NoOldBlocks, Answer::Headers(headers)) => {
            headers.retain(|header| header.number >= OLD);
        }
        _ => {}
    }
    answer
}

fn changed_lists(lie: Lie, mut lists: Vec<Option<Bytes>>) -> Vec<Option<Bytes>> {
    match lie {
        Lie::NoLists | Lie::OtherNodes | Lie::NoNodes => lists.fill(None),
        Lie::OtherLists => lists.rotate_left(1),
        Lie::EmptyLists => lists.fill(Some(Bytes::from_static(&[0xc0]))),
        _ => {}
    }
    lists
}

fn changed(lie: Lie, answer: SnapAnswer) -> SnapAnswer {
    match (lie, answer) {
        (Lie::Stateless, SnapAnswer::AccountRange { .. }) => SnapAnswer::AccountRange {
            accounts: Entries::default(),
            proof: Vec::new(),
        },
        (Lie::Stateless, SnapAnswer::StorageRanges { .. }) => SnapAnswer::StorageRanges {
            slots: Vec::new(),
            proof: Vec::new(),
        },
        (Lie::OtherNodes, SnapAnswer::TrieNodes(mut nodes)) => {
            let flip = |node: &Bytes| {
                let flipped = node.iter().map(|byte| byte ^ 1);
                flipped.collect::<Vec<u8>>().into()
            };
            nodes.iter_mut().for_each(|node| *node = flip(node));
            SnapAnswer::TrieNodes(nodes)
        }
        (lie, SnapAnswer::AccessLists(lists)) => SnapAnswer::AccessLists(changed_lists(lie, lists)),
        (_, answer) => answer,
    }
}

impl Peers for Direct {
    fn offers(&self) -> Vec<Offer> {
        let head = self.0.chain.head().id;
        let offer = |index| Offer {
            conn: ConnId(index),
            latest: head.number,
            latest_hash: head.hash,
            has_snap: true,
            has_nodes: self.0.has_nodes,
        };
        (0..self.0.peers.len() as u64).map(offer).collect()
    }

    fn start(&self, ask: Ask, request: MakeRequest) -> Result<Box<dyn Download>, JobError> {
        Ok(Box::new(DirectJob {
            inner: Arc::clone(&self.0),
            request,
            pieces: VecDeque::from([(0..ask.items, Vec::new())]),
            open: HashMap::new(),
            given_up: Vec::new(),
            is_done: false,
        }))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.0.start.elapsed().as_millis()).unwrap()
    }

    fn wait(&self, time: Duration) {
        thread::sleep(time.min(Duration::from_millis(5)));
    }
}

/// Items, and the peers that failed with them.
type Piece = (Range<u32>, Vec<usize>);

struct DirectJob {
    inner: Arc<Inner>,
    request: MakeRequest,
    pieces: VecDeque<Piece>,
    open: HashMap<u64, (Piece, usize)>,
    given_up: Vec<GivenUp>,
    is_done: bool,
}

impl Download for DirectJob {
    fn next(&mut self, timeout: Duration) -> Option<JobEvent> {
        let peers = self.inner.peers.len();
        while let Some((items, failed)) = self.pieces.pop_front() {
            let id = self.inner.requests.fetch_add(1, Ordering::Relaxed);
            let first = usize::try_from(id).unwrap();
            let mut others = (first..first + peers).map(|peer| peer % peers);
            let Some(peer) = others.find(|peer| !failed.contains(peer)) else {
                let tries = failed.iter().map(|peer| Try {
                    conn: ConnId(*peer as u64),
                    end: TryEnd::Empty,
                });
                let tries = tries.collect();
                self.given_up.push(GivenUp { items, tries });
                continue;
            };
            let took =
                self.inner
                    .answers
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                        left.checked_sub(1)
                    });
            if took.is_err() {
                // Silence.
                self.pieces.push_front((items, failed));
                thread::sleep(timeout);
                return None;
            }
            let answer = self
                .inner
                .answer(&self.inner.peers[peer], (self.request)(items.clone()));
            self.open.insert(id, ((items.clone(), failed), peer));
            return Some(JobEvent::Answer { id, items, answer });
        }
        if self.is_done || !self.open.is_empty() {
            return None;
        }
        self.is_done = true;
        Some(JobEvent::Done(std::mem::take(&mut self.given_up)))
    }

    fn outcome(&mut self, id: u64, outcome: Outcome) {
        let ((items, mut failed), peer) = self.open.remove(&id).unwrap();
        match outcome {
            Outcome::Items { missing } => {
                if missing == [items.clone()] {
                    failed.push(peer);
                }
                let pieces = missing.into_iter().map(|items| (items, failed.clone()));
                self.pieces.extend(pieces);
            }
            Outcome::Stateless => {
                failed.push(peer);
                self.pieces.push_back((items, failed));
            }
            Outcome::Wrong(conduct) => {
                let lie = self.inner.peers[peer].lie;
                lock(&self.inner.caught).push((lie, conduct));
                failed.push(peer);
                self.pieces.push_back((items, failed));
            }
        }
    }
}

/// A sync that was started for the end of the main branch.
pub(super) fn start(chain: &Arc<Chain>, peers: &Direct) -> Sync {
    Sync::start_with(settings(chain), Box::new(peers.clone())).unwrap()
}

fn settings(chain: &Arc<Chain>) -> Settings {
    Settings {
        consensus: Arc::new(Consensus::new(Arc::clone(chain))),
        folder: None,
        mode: SyncMode::Snap,
        history: HistoryFloor::State,
        history_files: None,
        is_driven: false,
        follows_peers: None,
        target: Some(last(main_branch())),
    }
}

pub(super) fn wait_until(sync: &Sync, what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what}: {:?}",
            sync.status()
        );
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_node_gets_the_state_32_blocks_below_the_target_and_executes_only_those_above() {
    let source = source();
    // Small answers cut storages into parts, which a worker holds until their accounts are written.
    for most_bytes in [u64::MAX, 3_000, 400, 400, 400, 400, 400, 400] {
        let peers = Direct::new(&source, &[Lie::None, Lie::None], most_bytes, u64::MAX);
        let chain = empty_chain(None);
        let sync = start(&chain, &peers);
        // A block is counted after it has become the head.
        wait_until(&sync, "the head", || {
            chain.head().id == source.head().id && sync.status().imported == 32
        });
        let status = sync.status();
        assert_eq!((status.imported, &status.failures), (32, &VecDeque::new()));
        sync.stop();
        assert_eq!(chain.first_block().unwrap(), BLOCKS - 32 - 255);
        assert!(!chain.has_state_download().unwrap());
        assert_clean(&chain);
        assert_eq!(*lock(&peers.0.caught), []);
    }
}

#[test]
fn a_node_that_follows_its_peers_executes_every_block() {
    let source = source();
    let chain = empty_chain(None);
    let peers = Direct::new(&source, &[Lie::None], u64::MAX, u64::MAX);
    let settings = Settings {
        follows_peers: Some(FollowsPeers {
            is_validator: Box::new(|| false),
        }),
        target: None,
        ..settings(&chain)
    };
    let sync = Sync::start_with(settings, Box::new(peers)).unwrap();
    wait_until(&sync, "the head", || {
        chain.head().id == source.head().id && sync.status().imported == BLOCKS
    });
    assert_eq!(sync.status().mode, SyncMode::Full);
    sync.stop();
    assert_eq!(chain.first_block().unwrap(), 0);
    assert_clean(&chain);
}

#[test]
fn headers_that_a_crash_left_below_the_downloaded_state_are_not_followed_down() {
    let (early, source) = (empty_chain(None), source());
    let blocks = &main_branch()[..main_branch().len() - 100];
    for block in blocks {
        early.import(block.clone()).unwrap();
    }
    let chain = empty_chain(None);
    let sync_with = |source: &Arc<Chain>| {
        let peers = Direct::new(source, &[Lie::None], u64::MAX, u64::MAX);
        let settings = Settings {
            target: Some(source.head().id.hash),
            ..settings(&chain)
        };
        let sync = Sync::start_with(settings, Box::new(peers)).unwrap();
        wait_until(&sync, "the head", || chain.head().id == source.head().id);
        assert_eq!(sync.status().failures, VecDeque::new());
        sync.stop();
    };
    sync_with(&early);
    // The removal of the headers whose blocks came with the state was lost, as by a power cut.
    let first = chain.first_block().unwrap();
    let mut skeleton = Skeleton::of_chain(Arc::clone(&chain)).unwrap();
    let numbers = usize::try_from(first).unwrap() - 1..=blocks.len() + 10;
    let headers = numbers
        .rev()
        .map(|number| sealed_header(main_branch()[number - 1].header.clone()));
    let mut headers: Vec<_> = headers.collect();
    skeleton.add_target(headers.remove(0)).unwrap();
    skeleton.extend(0, headers).unwrap();
    drop(skeleton);
    sync_with(&source);
    assert_eq!(chain.first_block().unwrap(), first);
    assert_clean(&chain);
}

#[test]
fn peers_without_the_state_prove_nothing_and_others_are_asked() {
    let source = source();
    let peers = Direct::new(&source, &[Lie::Stateless, Lie::None], 2_000, u64::MAX);
    let chain = empty_chain(None);
    let sync = start(&chain, &peers);
    wait_until(&sync, "the head", || chain.head().id == source.head().id);
    sync.stop();
    assert_eq!(*lock(&peers.0.caught), []);
}

#[test]
fn a_node_that_is_stopped_while_the_state_comes_goes_on_where_it_was() {
    let source = source();
    let all = Direct::new(&source, &[Lie::None], 400, u64::MAX);
    let chain = empty_chain(None);
    let sync = start(&chain, &all);
    wait_until(&sync, "the head", || chain.head().id == source.head().id);
    sync.stop();
    let needed = all.0.requests.load(Ordering::Relaxed);

    let dir = tempfile::tempdir().unwrap();
    let (mut requests, mut stops) = (0, 0);
    loop {
        let peers = Direct::new(&source, &[Lie::None], 400, needed / 8);
        let chain = empty_chain(Some(dir.path()));
        let sync = start(&chain, &peers);
        let is_there = || chain.head().id == source.head().id;
        wait_until(&sync, "the head or silence", || {
            is_there() || peers.0.answers.load(Ordering::Relaxed) == 0
        });
        sync.stop();
        requests += peers.0.requests.load(Ordering::Relaxed);
        if is_there() {
            assert_clean(&chain);
            break;
        }
        stops += 1;
        assert!(stops < 60, "it does not get on");
    }
    assert!(stops > 3, "{stops}");
    assert!(
        requests < 4 * needed,
        "{requests} requests instead of {needed}"
    );
}
