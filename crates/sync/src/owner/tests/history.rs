//! Blocks below the first one that is stored, after a state has come.

use super::state::{Direct, Lie, OLD, source, wait_until};
use super::*;
use crate::history::HistoryFloor;
use niwaki_chain::{ErePart, EreWriter, slim_receipts};
use niwaki_primitives::{Fork, rlp};
use std::collections::VecDeque;
use std::path::Path;

/// A node that gets the state of a block near the end of the main branch, then the blocks down to `floor`.
fn start(chain: &Arc<Chain>, peers: &Direct, floor: HistoryFloor) -> Sync {
    let settings = Settings {
        consensus: Arc::new(Consensus::new(Arc::clone(chain))),
        folder: None,
        mode: SyncMode::Snap,
        history: floor,
        history_files: None,
        is_driven: false,
        follows_peers: None,
        target: Some(last(main_branch())),
    };
    Sync::start_with(settings, Box::new(peers.clone())).unwrap()
}

/// Runs until all wanted blocks are here. Returns how many requests that took.
fn complete(chain: &Arc<Chain>, peers: &Direct, floor: HistoryFloor) -> u64 {
    let sync = start(chain, peers, floor);
    wait_until(&sync, "the history", || sync.status().is_history_complete);
    let requests = peers.0.requests.load(Ordering::Relaxed);
    // Nothing is asked for from now on.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(peers.0.requests.load(Ordering::Relaxed), requests);
    let status = sync.status();
    assert_eq!(status.failures, VecDeque::new());
    assert_eq!(status.first_block, chain.first_block().unwrap());
    sync.stop();
    assert_clean(chain);
    requests
}

/// Each block from `first` on is as the source has it.
fn assert_same(chain: &Chain, source: &Chain, first: u64) {
    for number in first..=BLOCKS {
        let header = source.header_at(number).unwrap().unwrap();
        let hash = header.id.hash;
        assert_eq!(chain.header_at(number).unwrap(), Some(header), "{number}");
        assert_eq!(chain.body(&hash).unwrap(), source.body(&hash).unwrap());
        let receipts = chain.receipts(&hash).unwrap();
        assert_eq!(receipts, source.receipts(&hash).unwrap(), "{number}");
    }
    let below = first.saturating_sub(1).max(1);
    let is_stored = chain.header_at(below).unwrap().is_some();
    assert_eq!(is_stored, below >= first, "{below}");
}

/// The first block of proof of stake.
fn merged(source: &Chain) -> u64 {
    let is_merged = |number: &u64| {
        let header = source.header_at(*number).unwrap().unwrap();
        header.header.difficulty.is_zero()
    };
    (1..BLOCKS).find(is_merged).unwrap()
}

#[test]
fn older_blocks_come_down_to_the_floor_after_the_state() {
    let source = source();
    for (floor, first) in [
        (HistoryFloor::Genesis, 0),
        (HistoryFloor::Fork(Fork::Frontier), 0),
        (HistoryFloor::Fork(Fork::Paris), merged(&source)),
        (HistoryFloor::Block(0), 0),
        (HistoryFloor::Block(1), 0),
        (HistoryFloor::Block(2), 2),
        (HistoryFloor::Block(60), 60),
        (HistoryFloor::Block(OLD), OLD),
        (HistoryFloor::State, OLD),
    ] {
        let peers = Direct::new(&source, &[Lie::None, Lie::None], u64::MAX, u64::MAX);
        let chain = empty_chain(None);
        complete(&chain, &peers, floor);
        assert_eq!(chain.first_block().unwrap(), first, "{floor:?}");
        assert_same(&chain, &source, first);
    }
}

#[test]
fn liars_about_older_blocks_are_caught_and_the_blocks_are_right() {
    let source = source();
    for lie in [Lie::DropsReceipts, Lie::OtherBodies] {
        let peers = Direct::new(&source, &[lie, Lie::None], u64::MAX, u64::MAX);
        let chain = empty_chain(None);
        complete(&chain, &peers, HistoryFloor::Genesis);
        assert_same(&chain, &source, 0);
        let caught = lock(&peers.0.caught).clone();
        assert!(!caught.is_empty(), "{lie:?}");
        assert!(caught.iter().all(|(by, _)| *by == lie));
    }
}

#[test]
fn peers_without_older_blocks_are_asked_seldom_and_the_node_goes_on() {
    let source = source();
    let peers = Direct::new(&source, &[Lie::NoOldBlocks; 2], u64::MAX, u64::MAX);
    let chain = empty_chain(None);
    let sync = start(&chain, &peers, HistoryFloor::Genesis);
    wait_until(&sync, "the head", || chain.head().id == source.head().id);
    thread::sleep(Duration::from_millis(300));
    let requests = peers.0.requests.load(Ordering::Relaxed);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(peers.0.requests.load(Ordering::Relaxed), requests);
    let status = sync.status();
    assert_eq!((status.state, status.first_block), (SyncState::Idle, OLD));
    assert!(!status.is_history_complete && status.failures.is_empty());
    sync.stop();
    assert_clean(&chain);
}

/// Writes an Ere file of blocks of a chain, and returns its folder.
fn folder_with_file(chain: &Chain, numbers: std::ops::Range<u64>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = EreWriter::new(Vec::new(), numbers.start).unwrap();
    for part in [ErePart::Header, ErePart::Body, ErePart::Receipts] {
        for number in numbers.clone() {
            let header = chain.header_at(number).unwrap().unwrap();
            let hash = header.id.hash;
            let data = match part {
                ErePart::Header => rlp::encode(&header.header),
                ErePart::Body => rlp::encode(chain.body(&hash).unwrap().unwrap()),
                _ => slim_receipts(&chain.receipts(&hash).unwrap().unwrap()),
            };
            writer.put(part, &data).unwrap();
        }
    }
    let file = writer.finish(None).unwrap();
    std::fs::write(dir.path().join("blocks.ere"), file).unwrap();
    std::fs::write(dir.path().join("damaged.ere"), b"no such file").unwrap();
    dir
}

/// Syncs with files beside a peer that lies so, down to block `first`.
fn complete_with_files(source: &Arc<Chain>, folder: &Path, lie: Lie, first: u64) {
    let peers = Direct::new(source, &[lie], u64::MAX, u64::MAX);
    let chain = empty_chain(None);
    let settings = Settings {
        consensus: Arc::new(Consensus::new(Arc::clone(&chain))),
        folder: None,
        mode: SyncMode::Snap,
        history: HistoryFloor::Block(first),
        history_files: Some(folder.to_owned()),
        is_driven: false,
        follows_peers: None,
        target: Some(last(main_branch())),
    };
    let sync = Sync::start_with(settings, Box::new(peers)).unwrap();
    wait_until(&sync, "the history", || sync.status().is_history_complete);
    sync.stop();
    assert_clean(&chain);
    assert_same(&chain, source, first);
}

#[test]
fn older_blocks_come_from_files_and_where_those_are_wrong_from_peers() {
    let source = source();
    let whole = folder_with_file(&source, 0..OLD + 9);
    complete_with_files(&source, whole.path(), Lie::NoOldBlocks, 0);
    complete_with_files(&source, whole.path(), Lie::NoOldBlocks, 20);
    // Peers have what is below and above a file.
    let part = folder_with_file(&source, 30..60);
    complete_with_files(&source, part.path(), Lie::None, 0);
    let other = empty_chain(None);
    crate::tests::grow(&other, other.genesis_hash(), OLD + 9, 0);
    let wrong = folder_with_file(&other, 1..OLD + 9);
    complete_with_files(&source, wrong.path(), Lie::None, 0);
    complete_with_files(&source, Path::new("/does/not/exist"), Lie::None, 0);
}

#[test]
fn a_node_that_is_stopped_while_older_blocks_come_goes_on_below_them() {
    let source = source();
    let peers = Direct::new(&source, &[Lie::None], u64::MAX, u64::MAX);
    let needed = complete(&empty_chain(None), &peers, HistoryFloor::Genesis);

    let dir = tempfile::tempdir().unwrap();
    let (mut requests, mut stops) = (0, 0);
    while !run_for(dir.path(), &source, 10, &mut requests) {
        stops += 1;
        assert!(stops < 60, "it does not get on");
    }
    assert!(stops > 1, "{stops}");
    assert!(requests < 5 * needed, "{requests} instead of {needed}");
    let chain = empty_chain(Some(dir.path()));
    assert_same(&chain, &source, 0);
    // Another start finds nothing to do.
    let peers = Direct::new(&source, &[Lie::None], u64::MAX, u64::MAX);
    assert_eq!(complete(&chain, &peers, HistoryFloor::Genesis), 0);
}

/// Runs a node for so many answers. Returns whether its history is complete.
fn run_for(path: &Path, source: &Arc<Chain>, answers: u64, requests: &mut u64) -> bool {
    let peers = Direct::new(source, &[Lie::None], u64::MAX, answers);
    let chain = empty_chain(Some(path));
    let sync = start(&chain, &peers, HistoryFloor::Genesis);
    let is_complete = || sync.status().is_history_complete;
    wait_until(&sync, "the history or silence", || {
        is_complete() || peers.0.answers.load(Ordering::Relaxed) == 0
    });
    let is_done = is_complete();
    sync.stop();
    *requests += peers.0.requests.load(Ordering::Relaxed);
    assert_clean(&chain);
    is_done
}

#[test]
fn a_new_head_comes_before_older_blocks() {
    let source = source();
    let early = &main_branch()[..main_branch().len() - 20];
    let consensus = Arc::new(Consensus::new(empty_chain(None)));
    let chain = Arc::clone(consensus.chain());
    let peers = Direct::new(&source, &[Lie::None], u64::MAX, u64::MAX);
    let settings = Settings {
        consensus: Arc::clone(&consensus),
        folder: None,
        mode: SyncMode::Snap,
        history: HistoryFloor::Genesis,
        history_files: None,
        is_driven: true,
        follows_peers: None,
        target: None,
    };
    let choose = |head| {
        let choice = ForkChoice {
            head,
            safe: B256::ZERO,
            finalized: B256::ZERO,
        };
        consensus.fork_choice(choice).unwrap();
    };
    choose(last(early));
    let sync = Sync::start_with(settings, Box::new(peers.clone())).unwrap();
    wait_until(&sync, "the first head", || {
        chain.head().id.hash == last(early)
    });
    // The peers fall silent while older blocks are asked for, or will be.
    peers.0.answers.store(0, Ordering::Relaxed);
    choose(last(main_branch()));
    let is_located = || sync.status().target == Some(last(main_branch()));
    wait_until(&sync, "the second target", is_located);
    assert!(!sync.status().is_history_complete);
    peers.0.answers.store(u64::MAX, Ordering::Relaxed);
    wait_until(&sync, "the second head", || {
        chain.head().id == source.head().id
    });
    wait_until(&sync, "the history", || sync.status().is_history_complete);
    sync.stop();
    assert_clean(&chain);
    assert_same(&chain, &source, 0);
}
