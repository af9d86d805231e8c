//! Access lists: a pivot that gets old while its state comes is led to a later block by them, and a node that has its state and is far
//! behind applies them.

use super::state::{Direct, Lie, wait_until};
use super::*;
use crate::tests::{chain_of, testdata_of};
use niwaki_chain::{BlockTemplate, DownloadedBlock, ImportRequest};
use niwaki_primitives::{Address, Withdrawal};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// The head when a sync begins, and when it ends.
const FIRST: usize = 200;
const LAST: usize = 330;

fn empty() -> Arc<Chain> {
    chain_of(&testdata_of("amsterdam", "genesis.json"), None)
}

/// The main branch.
fn blocks() -> &'static [Block] {
    static BLOCKS: OnceLock<Vec<Block>> = OnceLock::new();
    BLOCKS.get_or_init(|| build(&empty(), LAST, 1))
}

/// The main branch up to a block, then others up to block [`FIRST`].
fn side_branch(fork: usize) -> Vec<Block> {
    let chain = empty();
    let common = &blocks()[..fork];
    import(&chain, common);
    [common, &build(&chain, FIRST, 2)].concat()
}

/// Blocks of Amsterdam upon a head, each with withdrawals to old and new accounts; system contracts write slots in each.
fn build(chain: &Chain, last: usize, amount: u64) -> Vec<Block> {
    let mut blocks = Vec::new();
    for number in chain.head().id.number + 1..=last as u64 {
        let withdrawal = |index: u64| Withdrawal {
            index,
            address: Address::from_word(B256::from(keccak(number * index))),
            amount,
            ..Withdrawal::default()
        };
        let template = BlockTemplate {
            parent: chain.head().id.hash,
            timestamp: number * 12,
            withdrawals: (1..5).map(withdrawal).collect(),
            parent_beacon_block_root: B256::from(keccak(number)),
            slot_number: number,
            ..BlockTemplate::default()
        };
        let block = chain.build(template, Vec::new()).unwrap().block;
        chain.import(block.clone()).unwrap();
        blocks.push(block);
    }
    blocks
}

fn keccak(number: u64) -> [u8; 32] {
    niwaki_crypto::keccak256(number.to_be_bytes()).0
}

fn import(chain: &Chain, blocks: &[Block]) {
    for block in blocks {
        let request = ImportRequest::with_hash(block.clone(), hash_of(block));
        chain.import(request).unwrap();
    }
}

/// A node that is driven by a consensus client.
struct Driven {
    source: Arc<Chain>,
    peers: Direct,
    consensus: Arc<Consensus>,
    sync: Sync,
}

impl Driven {
    /// Syncs to block [`FIRST`] from peers that give so many answers.
    fn start(lies: &[Lie], answers: u64) -> Self {
        Self::start_to(&blocks()[..FIRST], lies, answers)
    }

    /// Syncs to the last of these blocks.
    fn start_to(blocks: &[Block], lies: &[Lie], answers: u64) -> Self {
        let source = empty();
        import(&source, blocks);
        let peers = Direct::new(&source, lies, 500, answers);
        let consensus = Arc::new(Consensus::new(empty()));
        let settings = Settings {
            consensus: Arc::clone(&consensus),
            folder: None,
            mode: SyncMode::Snap,
            history: HistoryFloor::State,
            history_files: None,
            is_driven: true,
            follows_peers: None,
            target: None,
        };
        let sync = Sync::start_with(settings, Box::new(peers.clone())).unwrap();
        let driven = Self {
            source,
            peers,
            consensus,
            sync,
        };
        driven.choose(&blocks[blocks.len() - 1]);
        driven
    }

    fn choose(&self, block: &Block) {
        let hash = hash_of(block);
        let hints = PayloadHints::default();
        let verdict = self.consensus.new_payload(block.clone(), hash, hints);
        assert!(!matches!(verdict, Ok(Verdict::Invalid(_)) | Err(_)));
        let choice = ForkChoice {
            head: hash,
            safe: B256::ZERO,
            finalized: B256::ZERO,
        };
        let verdict = self.consensus.fork_choice(choice);
        assert!(!matches!(verdict, Ok(Verdict::Invalid(_)) | Err(_)));
    }

    fn head(&self) -> u64 {
        self.consensus.chain().head().id.number
    }

    fn answers(&self) -> &AtomicU64 {
        &self.peers.0.answers
    }

    /// The chain goes on to [`LAST`] while the peers are silent; then they answer, and the node gets there.
    fn go_on(&self) {
        self.go_on_with(&blocks()[FIRST..]);
    }

    fn go_on_with(&self, blocks: &[Block]) {
        self.grow(blocks, u64::MAX);
        wait_until(&self.sync, "the head", || self.head() == LAST as u64);
    }

    /// The chain gets these blocks while the peers are silent, or not needed any more; then they give so many answers.
    fn grow(&self, blocks: &[Block], answers: u64) {
        wait_until(&self.sync, "silence", || {
            let is_silent = self.answers().load(Ordering::Relaxed) == 0;
            is_silent || self.consensus.missing_head().is_none()
        });
        for block in blocks {
            import(&self.source, std::slice::from_ref(block));
            self.choose(block);
        }
        self.answers().store(answers, Ordering::Relaxed);
    }

    /// Ends the sync, and checks the database. Returns the first block that is there.
    fn end(self) -> u64 {
        let status = self.sync.status();
        assert!(status.failures.is_empty(), "{status:?}");
        self.sync.stop();
        let chain = self.consensus.chain();
        assert_clean(chain);
        chain.first_block().unwrap()
    }
}

/// How many requests a sync to a block makes.
fn needed(head: usize) -> u64 {
    let driven = Driven::start_to(&blocks()[..head], &[Lie::None], u64::MAX);
    wait_until(&driven.sync, "the head", || driven.head() == head as u64);
    let needed = driven.peers.0.requests.load(Ordering::Relaxed);
    // The pivot is 32 blocks below the head, and comes with its ancestors.
    assert_eq!(driven.end(), (head as u64 - 32).saturating_sub(255).max(1));
    needed
}

#[test]
fn a_state_that_comes_while_the_chain_goes_on_is_led_to_a_later_block() {
    let (needed, later) = (needed(FIRST), needed(LAST));
    for eighths in [1, 3, 5, 7] {
        let driven = Driven::start(&[Lie::None, Lie::None], needed * eighths / 8);
        driven.go_on();
        let requests = driven.peers.0.requests.load(Ordering::Relaxed);
        assert!(
            requests < later * 3 / 2,
            "{requests} requests instead of {later}"
        );
        let lists = (1..=LAST as u64).filter(|number| {
            let chain = driven.consensus.chain();
            let hash = chain.canonical_hash(*number).unwrap();
            hash.is_some_and(|hash| chain.block_access_list(&hash).unwrap().is_some())
        });
        let lists = lists.count() as u64;
        let status = driven.sync.status();
        assert_eq!((status.pivots, status.healed_nodes), (2, 0));
        // Blocks that come with the state have theirs too.
        assert_eq!(lists, LAST as u64 - driven.end() + 1);
    }
}

#[test]
fn without_access_lists_what_came_of_the_old_pivot_is_healed() {
    let needed = needed(FIRST);
    for eighths in [1, 4, 7] {
        let driven = Driven::start(&[Lie::NoLists, Lie::NoLists], needed * eighths / 8);
        driven.go_on();
        let status = driven.sync.status();
        assert_eq!(status.pivots, 2);
        assert!(status.healed_nodes > 0, "{eighths}");
        driven.end();
    }
}

#[test]
fn what_came_of_a_reorganised_pivot_is_healed() {
    let side = side_branch(FIRST - 50);
    for eighths in [2, 4, 7] {
        let answers = needed(FIRST) * eighths / 8;
        let driven = Driven::start_to(&side, &[Lie::None, Lie::None], answers);
        driven.go_on_with(&blocks()[FIRST - 50..]);
        let status = driven.sync.status();
        assert!(status.healed_nodes > 0, "{eighths}: {status:?}");
        driven.end();
    }
}

#[test]
fn a_reorganisation_of_any_depth_after_any_answer_ends_at_the_new_head() {
    let needed = needed(FIRST);
    for depth in [1, 31, 33, 100] {
        let side = side_branch(FIRST - depth);
        for answers in (1..needed).step_by(7) {
            let driven = Driven::start_to(&side, &[Lie::None, Lie::None], answers);
            driven.grow(&blocks()[FIRST - depth..], u64::MAX);
            // Two peers may need fewer answers. A node that has got its state has none before it, and says so.
            let is_out_of_reach = || {
                let failures = driven.sync.status().failures;
                depth > 32
                    && failures
                        .iter()
                        .any(|failure| failure.reason.contains("reach"))
            };
            wait_until(&driven.sync, "the head", || {
                driven.head() == LAST as u64 || is_out_of_reach()
            });
            match is_out_of_reach() {
                true => assert!(answers > needed * 3 / 4, "{answers} of {needed}"),
                false => _ = driven.end(),
            }
        }
    }
}

#[test]
fn a_reorganisation_there_and_back_ends_at_the_first_branch() {
    let (needed, side) = (needed(FIRST), side_branch(FIRST - 50));
    for eighths in [1, 3, 5] {
        let answers = needed * eighths / 8;
        let driven = Driven::start_to(&blocks()[..FIRST], &[Lie::None, Lie::None], answers);
        driven.grow(&side[FIRST - 50..], needed / 8);
        driven.go_on_with(&blocks()[FIRST - 50..]);
        driven.end();
    }
}

#[test]
fn a_reorganisation_to_a_branch_without_lists_and_nodes_begins_again() {
    let side = side_branch(FIRST - 50);
    let driven = Driven::start_to(&side, &[Lie::NoNodes, Lie::NoNodes], needed(FIRST) / 2);
    driven.go_on_with(&blocks()[FIRST - 50..]);
    let status = driven.sync.status();
    // A slow machine may need a third one.
    assert!(status.healed_nodes == 0 && status.pivots >= 2, "{status:?}");
    driven.end();
}

#[test]
fn without_lists_and_nodes_the_state_comes_again_from_the_beginning() {
    let driven = Driven::start(&[Lie::NoNodes, Lie::NoNodes], needed(FIRST) / 2);
    driven.go_on();
    let status = driven.sync.status();
    // A slow machine may need a third one.
    assert!(status.healed_nodes == 0 && status.pivots >= 2, "{status:?}");
    driven.end();
}

#[test]
fn nodes_that_are_others_than_asked_for_are_refused() {
    let driven = Driven::start(&[Lie::OtherNodes, Lie::NoLists, Lie::NoLists], 60);
    driven.go_on();
    let caught = lock(&driven.peers.0.caught).clone();
    assert!(!caught.is_empty());
    assert!(caught.iter().all(|(by, _)| *by == Lie::OtherNodes));
    driven.end();
}

#[test]
fn lists_of_other_blocks_are_refused() {
    let driven = Driven::start(&[Lie::OtherLists, Lie::None], 40);
    driven.go_on();
    let caught = lock(&driven.peers.0.caught).clone();
    assert!(!caught.is_empty());
    assert!(caught.iter().all(|(by, _)| *by == Lie::OtherLists));
    driven.end();
}

/// Blocks of a chain that a node is far behind of, and how many it has.
const LONG: usize = 1_300;
const HAS: usize = 150;

/// A node with the first blocks of a chain syncs to its last from peers with these lies. Returns the blocks that it executed.
fn catch_up(mode: SyncMode, lies: &[Lie]) -> u64 {
    catch_up_with(mode, lies, 0).0
}

/// The same, where so many of the blocks had come before a kill and were not applied. Returns how many requests it takes, too.
fn catch_up_with(mode: SyncMode, lies: &[Lie], came: usize) -> (u64, u64) {
    static BLOCKS: OnceLock<Vec<Block>> = OnceLock::new();
    let blocks = BLOCKS.get_or_init(|| build(&empty(), LONG, 3));
    let (source, chain) = (empty(), empty());
    import(&source, blocks);
    import(&chain, &blocks[..HAS]);
    let came = blocks[HAS..HAS + came]
        .iter()
        .map(|block| downloaded(&source, block));
    let mut listed = chain.listed_blocks().unwrap();
    listed.add(came.collect()).unwrap();
    drop(listed);
    let peers = Direct::new(&source, lies, u64::MAX, u64::MAX);
    let settings = Settings {
        consensus: Arc::new(Consensus::new(Arc::clone(&chain))),
        folder: None,
        mode,
        history: HistoryFloor::State,
        history_files: None,
        is_driven: false,
        follows_peers: None,
        target: Some(hash_of(&blocks[LONG - 1])),
    };
    let sync = Sync::start_with(settings, Box::new(peers.clone())).unwrap();
    wait_until(&sync, "the head", || {
        chain.head().id == source.head().id && sync.status().state == SyncState::Idle
    });
    let status = sync.status();
    assert!(status.failures.is_empty(), "{status:?}");
    sync.stop();
    let liars = [Lie::OtherLists, Lie::EmptyLists];
    let caught = lock(&peers.0.caught).clone();
    assert_eq!(
        lies.iter().any(|lie| liars.contains(lie)),
        !caught.is_empty()
    );
    assert!(caught.iter().all(|(by, _)| liars.contains(by)));
    assert_clean(&chain);
    for number in 1..=LONG as u64 {
        let hash = source.canonical_hash(number).unwrap().unwrap();
        assert_eq!(chain.canonical_hash(number).unwrap(), Some(hash));
        assert_eq!(
            chain.receipts(&hash).unwrap(),
            source.receipts(&hash).unwrap()
        );
        let list = chain.block_access_list(&hash).unwrap();
        assert_eq!(list, source.block_access_list(&hash).unwrap(), "{number}");
    }
    let requests = peers.0.requests.load(Ordering::Relaxed);
    (status.imported, requests)
}

fn downloaded(source: &Chain, block: &Block) -> DownloadedBlock {
    let hash = hash_of(block);
    DownloadedBlock {
        header: source.header(&hash).unwrap().unwrap(),
        body: block.body.clone(),
        receipts: source.receipts(&hash).unwrap().unwrap(),
        access_list: source.block_access_list(&hash).unwrap(),
    }
}

#[test]
fn what_came_before_a_kill_is_not_asked_for_again() {
    let (executed, all) = catch_up_with(SyncMode::Snap, &[Lie::None], 0);
    assert_eq!(executed, 96);
    // 700 of 1,150 blocks: they end within a window.
    let (executed, rest) = catch_up_with(SyncMode::Snap, &[Lie::None], 700);
    assert_eq!(executed, 96);
    assert!(2 * rest < all + 20, "{rest} of {all}");
}

#[test]
fn a_node_far_behind_applies_access_lists_and_executes_the_last_96_blocks() {
    let behind = (LONG - HAS) as u64;
    assert_eq!(catch_up(SyncMode::Snap, &[Lie::None, Lie::None]), 96);
    // Those who lie are caught by the hash in the header.
    for lie in [Lie::OtherLists, Lie::EmptyLists] {
        assert_eq!(catch_up(SyncMode::Snap, &[Lie::None, Lie::None, lie]), 96);
    }
    // Without lists, and where the operator wants it, all are executed.
    assert_eq!(catch_up(SyncMode::Snap, &[Lie::NoLists]), behind);
    assert_eq!(catch_up(SyncMode::Full, &[Lie::None]), behind);
}
