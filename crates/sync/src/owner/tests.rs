//! Whole syncs from scripted peers, in their own time.

mod history;
mod liars;
mod pivot;
mod restart;
mod state;

use super::*;
use crate::tests::{
    BLOCKS, FORK, LIARS, SIDE_BLOCKS, Script, World, empty_chain, hash_of, main_branch,
    other_genesis, side_branch,
};
use niwaki_chain::{Chain, ForkChoice, PayloadHints, RejectedBlock};
use niwaki_network::wire::Request;
use niwaki_primitives::Block;

/// A node under test.
struct Node {
    consensus: Arc<Consensus>,
    world: World,
    shared: Shared,
    operator: Option<B256>,
}

impl Node {
    fn new(chain: Arc<Chain>, world: World) -> Self {
        Self {
            consensus: Arc::new(Consensus::new(chain)),
            world,
            shared: Shared {
                progress: Mutex::new(Progress::new(SyncMode::Full)),
                is_stopped: AtomicBool::new(false),
            },
            operator: None,
        }
    }

    fn owner(&self) -> Owner<'_> {
        Owner {
            context: Context {
                chain: self.consensus.chain(),
                consensus: &self.consensus,
                peers: &self.world,
                progress: &self.shared.progress,
                is_stopped: &self.shared.is_stopped,
                named: Cell::new(self.operator.map(|hash| (hash, TargetSource::Operator))),
                attempts: Cell::new(0),
            },
            folder: None,
            mode: SyncMode::Full,
            history: History::new(HistoryFloor::State, HistoryFiles::default()),
            is_driven: true,
            followed: None,
            stored: Skeleton::of_chain(Arc::clone(self.consensus.chain())).unwrap(),
            in_memory: Skeleton::in_memory(),
            located: None,
            failed: None,
            pause: None,
        }
    }

    fn choose(&self, head: B256) -> Verdict {
        let choice = ForkChoice {
            head,
            safe: B256::ZERO,
            finalized: B256::ZERO,
        };
        self.consensus.fork_choice(choice).unwrap()
    }

    fn payload(&self, block: &Block) -> Verdict {
        let hints = PayloadHints::default();
        let verdict = self
            .consensus
            .new_payload(block.clone(), hash_of(block), hints);
        verdict.unwrap()
    }

    fn head(&self) -> u64 {
        self.consensus.chain().head().id.number
    }

    fn status(&self) -> SyncStatus {
        lock(&self.shared.progress).status().clone()
    }

    /// Runs until `is_there`, for an hour of the world's time at most.
    fn run(&self, owner: &mut Owner<'_>, mut is_there: impl FnMut(&Self) -> bool) {
        while !is_there(self) {
            let _ = owner.step();
            assert!(self.world.now_ms() < 3_600_000, "{:?}", self.status());
        }
    }
}

fn last(blocks: &[Block]) -> B256 {
    hash_of(&blocks[blocks.len() - 1])
}

/// A node whose consensus client chose the end of the main branch.
fn behind(scripts: &[Script], seed: u64) -> Node {
    let world = World::new(seed);
    for script in scripts {
        world.connect(*script, main_branch());
    }
    let node = Node::new(empty_chain(None), world);
    assert!(matches!(node.choose(last(main_branch())), Verdict::Syncing));
    node
}

fn assert_clean(chain: &Chain) {
    let mut problems = Vec::new();
    chain.check(&mut |problem| problems.push(problem)).unwrap();
    assert_eq!(problems, []);
}

#[test]
fn a_node_follows_the_chosen_head_once_an_honest_peer_has_given_the_blocks() {
    let node = behind(&[Script::Honest], 1);
    let mut owner = node.owner();
    node.run(&mut owner, |node| node.head() == BLOCKS);
    assert_eq!(node.consensus.chain().head().id.hash, last(main_branch()));
    node.run(&mut owner, |node| node.status().state == SyncState::Idle);
    let status = node.status();
    assert_eq!((status.reached, status.imported), (1, BLOCKS));
    assert!(status.failures.is_empty(), "{:?}", status.failures);
    assert!(node.consensus.has_followed() && node.consensus.missing_head().is_none());
    assert!(owner.in_memory.is_empty() && owner.stored.is_empty());
    assert_clean(node.consensus.chain());
}

#[test]
fn each_kind_of_bad_peer_costs_time_and_never_the_right_chain() {
    use Script::{Empty, Half, Late, LeavesOutBodies, Silent};
    let others = [LeavesOutBodies, Empty, Half, Late, Silent];
    for (seed, script) in (1_u64..).zip(LIARS.into_iter().chain(others)) {
        for order in [[script, Script::Honest], [Script::Honest, script]] {
            let node = behind(&order, seed);
            let mut owner = node.owner();
            node.run(&mut owner, |node| node.head() == BLOCKS);
            assert_eq!(node.consensus.chain().head().id.hash, last(main_branch()));
            // Silence and empty answers prove nothing.
            let is_liar = LIARS.contains(&script);
            let cut = node.world.liars();
            assert!(cut.iter().all(|cut| is_liar && *cut == script), "{cut:?}");
            let needs = node.world.now_ms();
            assert!(needs < 180_000, "{script:?}: {needs} ms");
        }
    }
}

#[test]
fn a_liar_that_is_asked_is_cut() {
    for script in LIARS {
        // Alone it is asked for everything; the honest one comes when it is gone.
        let node = behind(&[script], 7);
        let mut owner = node.owner();
        node.run(&mut owner, |node| !node.world.liars().is_empty());
        assert_eq!(node.world.liars(), [script]);
        node.run(&mut owner, |node| node.status().waiting_for.is_some());
        node.world.connect(Script::Honest, main_branch());
        node.run(&mut owner, |node| node.head() == BLOCKS);
    }
}

#[test]
fn many_bad_peers_and_one_honest_one_end_with_the_right_chain() {
    use Script::{Empty, Half, Honest, Late, LeavesOutBodies, Silent};
    for seed in 1..6 {
        let mut scripts = vec![Empty, Half, Late, LeavesOutBodies, Silent, Honest];
        scripts.extend(LIARS);
        let node = behind(&scripts, seed);
        let mut owner = node.owner();
        node.run(&mut owner, |node| node.head() == BLOCKS);
        assert_eq!(node.consensus.chain().head().id.hash, last(main_branch()));
    }
}

#[test]
fn peers_on_another_branch_do_not_lead_astray_and_are_not_cut() {
    let world = World::new(3);
    for _ in 0..3 {
        world.connect(Script::Honest, &side_branch());
    }
    world.connect(Script::Honest, main_branch());
    let node = Node::new(empty_chain(None), world);
    node.choose(last(main_branch()));
    let mut owner = node.owner();
    node.run(&mut owner, |node| node.head() == BLOCKS);
    assert_eq!(node.consensus.chain().head().id.hash, last(main_branch()));
    assert_eq!(node.world.liars(), []);
}

#[test]
fn a_peer_that_claims_more_blocks_than_there_are_is_not_the_only_one_that_is_asked() {
    for script in [Script::Silent, Script::Empty, Script::MadeUpHeaders] {
        let world = World::new(15);
        world.connect_with_latest(script, main_branch(), u64::MAX);
        // What the others announced is a bit old.
        for behind in [5, 20, 31] {
            world.connect_with_latest(Script::Honest, main_branch(), BLOCKS - behind);
        }
        let node = Node::new(empty_chain(None), world);
        node.choose(last(main_branch()));
        let mut owner = node.owner();
        node.run(&mut owner, |node| node.head() == BLOCKS);
        assert!(node.world.now_ms() < 60_000, "{script:?}");
    }
}

#[test]
fn a_target_that_one_peer_of_20_has_is_located() {
    let world = World::new(16);
    for _ in 0..19 {
        world.connect(Script::Honest, &main_branch()[..390]);
    }
    world.connect(Script::Honest, main_branch());
    let node = Node::new(empty_chain(None), world);
    node.choose(last(main_branch()));
    let mut owner = node.owner();
    node.run(&mut owner, |node| node.head() == BLOCKS);
}

#[test]
fn a_reorganisation_asks_for_the_other_branch_only() {
    let node = behind(&[Script::Honest], 4);
    let mut owner = node.owner();
    node.run(&mut owner, |node| node.head() == BLOCKS);
    let side = side_branch();
    node.world.connect(Script::Honest, &side);
    node.world.take_requests();
    node.choose(last(&side));
    node.run(&mut owner, |node| node.head() == FORK + SIDE_BLOCKS);
    assert_eq!(node.consensus.chain().head().id.hash, last(&side));
    let requests = node.world.take_requests();
    let bodies = requests.iter().map(|request| match request {
        Request::Bodies(hashes) => hashes.len() as u64,
        _ => 0,
    });
    assert!(bodies.sum::<u64>() <= 2 * SIDE_BLOCKS, "{requests:?}");
    assert_clean(node.consensus.chain());
}

#[test]
fn payloads_that_wait_are_imported_and_not_asked_for() {
    let node = behind(&[], 5);
    let (asked, waiting) = main_branch().split_at(300);
    node.world.connect(Script::Honest, asked);
    for block in waiting {
        assert!(matches!(node.payload(block), Verdict::Syncing));
    }
    let mut owner = node.owner();
    node.run(&mut owner, |node| node.head() == BLOCKS);
    for request in node.world.take_requests() {
        let Request::Bodies(hashes) = request else {
            continue;
        };
        assert!(
            waiting
                .iter()
                .all(|block| !hashes.contains(&hash_of(block)))
        );
    }
}

#[test]
fn a_head_that_moves_while_blocks_come_is_reached_in_the_same_sync() {
    let world = World::new(6);
    world.connect(Script::Honest, main_branch());
    let node = Node::new(empty_chain(None), world);
    let mut chosen = 300;
    node.choose(hash_of(&main_branch()[chosen - 1]));
    let mut owner = node.owner();
    node.run(&mut owner, |node| {
        // Each step of the sync the consensus client has a new block.
        if chosen < main_branch().len() {
            chosen += 1;
            let block = &main_branch()[chosen - 1];
            node.payload(block);
            node.choose(hash_of(block));
        }
        node.head() == BLOCKS
    });
    assert!(node.status().failures.is_empty());
}

#[test]
fn two_targets_in_turn_cost_their_headers_once() {
    let node = behind(&[Script::Honest], 8);
    let side = side_branch();
    node.world.connect(Script::Honest, &side);
    let owner = node.owner();
    let mut skeleton = Skeleton::in_memory();
    let (main, side) = (last(main_branch()), last(&side));
    let mut down = |hash| {
        node.choose(hash);
        let header = owner.context.locate(hash).unwrap();
        node.world.take_requests();
        let target = niwaki_chain::BlockId {
            number: header.header.number,
            hash,
        };
        skeleton.add_target(header).unwrap();
        owner
            .context
            .download_headers(&mut skeleton, target, None)
            .unwrap();
        node.world.take_requests().len()
    };
    assert!(down(main) > 0 && down(side) > 0);
    for _ in 0..3 {
        assert_eq!((down(main), down(side)), (0, 0));
    }
}

#[test]
fn a_target_is_late_unless_a_peer_says_that_it_does_not_have_it() {
    use Script::{Empty, Silent};
    for (scripts, is_late) in [([Silent, Silent], true), ([Silent, Empty], false)] {
        let node = behind(&scripts, 19);
        let owner = node.owner();
        let ended = owner.context.locate(last(main_branch()));
        let Err(Interrupt::Failed(Failure::NoTarget { is_late: got, .. })) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(got, is_late);
    }
}

#[test]
fn a_gap_that_is_too_long_for_memory_ends_after_so_many_headers_and_a_full_sync_follows() {
    let node = behind(&[Script::Honest], 18);
    let mut owner = node.owner();
    let header = owner.context.locate(last(main_branch())).unwrap();
    let target = niwaki_chain::BlockId {
        number: BLOCKS,
        hash: header.hash,
    };
    let mut skeleton = Skeleton::in_memory();
    skeleton.add_target(header).unwrap();
    let ended = owner
        .context
        .download_headers(&mut skeleton, target, Some(100));
    let Err(Interrupt::Failed(failure @ Failure::TooLong { headers: 100 })) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(skeleton.path(target).unwrap().unwrap().count(), 100);
    let current = owner.context.target().unwrap().unwrap();
    owner.note_failure(Way::Backward, &current, &failure);
    assert!(owner.paused(&current).is_none());
    node.run(&mut owner, |node| node.status().state == SyncState::Idle);
    assert_eq!((node.head(), node.status().imported), (BLOCKS, BLOCKS));
}

#[test]
fn a_peer_that_gives_headers_and_no_bodies_is_waited_for_with_a_reason() {
    let node = behind(&[Script::NoBodies], 19);
    let mut owner = node.owner();
    node.run(&mut owner, |node| node.status().waiting_for.is_some());
    let status = node.status();
    let reason = &status.failures.back().unwrap().reason;
    assert!(reason.contains("bodies from block 1 on"), "{reason}");
    assert!(status.waiting_for.unwrap().contains("30 s"));
    // A new peer ends the pause at once.
    let (now_ms, world) = (node.world.now_ms(), &node.world);
    world.connect(Script::Honest, main_branch());
    node.run(&mut owner, |node| node.head() == BLOCKS);
    assert!(world.now_ms() < now_ms + 20_000);
}

#[test]
fn descendants_of_a_block_that_fails_are_invalid_for_the_consensus_client() {
    // A block whose state root is wrong, and blocks upon it that only headers can tell.
    let mut blocks = main_branch()[..320].to_vec();
    blocks[309].header.state_root = B256::repeat_byte(7);
    for index in 310..320 {
        blocks[index].header.parent_hash = hash_of(&blocks[index - 1]);
    }
    let world = World::new(9);
    world.connect(Script::Honest, &blocks);
    let node = Node::new(empty_chain(None), world);
    let latest_valid = Some(hash_of(&blocks[308]));
    assert!(matches!(node.payload(&blocks[319]), Verdict::Syncing));
    assert!(matches!(node.choose(last(&blocks)), Verdict::Syncing));
    let mut owner = node.owner();
    node.run(&mut owner, |node| !node.status().failures.is_empty());
    assert_eq!(node.head(), 309);
    let reason = &node.status().failures[0].reason;
    assert!(
        reason.contains("block 310") && reason.contains("state root"),
        "{reason}"
    );
    let is_invalid = |verdict| match verdict {
        Verdict::Invalid(RejectedBlock {
            latest_valid: found,
            ..
        }) => found == latest_valid,
        _ => false,
    };
    assert!(is_invalid(node.choose(last(&blocks))));
    assert!(is_invalid(node.payload(&blocks[319])));
    assert!(is_invalid(node.payload(&blocks[315])));
    // The peer could not know, and nothing more is asked of it.
    assert_eq!(node.world.liars(), []);
    node.world.take_requests();
    for _ in 0..100 {
        let _ = owner.step();
    }
    assert_eq!(node.world.take_requests(), []);
}

#[test]
fn a_target_of_another_chain_is_given_up_with_a_reason() {
    let world = World::new(10);
    // Down to another genesis block.
    let mut blocks: Vec<Block> = main_branch()[..20].to_vec();
    let mut parent = hash_of(&other_genesis());
    for block in &mut blocks {
        block.header.parent_hash = parent;
        parent = hash_of(block);
    }
    world.connect(Script::Honest, &blocks);
    let node = Node::new(empty_chain(None), world);
    node.choose(last(&blocks));
    let mut owner = node.owner();
    node.run(&mut owner, |node| node.status().failures.len() == 1);
    let reason = node.status().failures[0].reason.clone();
    assert!(
        reason.contains("does not descend from the genesis block"),
        "{reason}"
    );
    assert_eq!((node.head(), node.world.liars()), (0, vec![]));
    // It is not tried again for 10 minutes.
    let since_ms = node.world.now_ms();
    node.world.take_requests();
    while node.world.now_ms() < since_ms + 590_000 {
        let _ = owner.step();
    }
    assert_eq!(node.world.take_requests(), []);
    let waiting_for = node.status().waiting_for.unwrap();
    assert!(waiting_for.contains("another chain"), "{waiting_for}");
}

#[test]
fn a_head_that_the_consensus_client_chooses_again_once_it_is_stored_counts_as_reached() {
    let node = behind(&[Script::Honest], 1);
    let mut owner = node.owner();
    let target = last(main_branch());
    let chain = Arc::clone(node.consensus.chain());
    node.run(&mut owner, |_| chain.header(&target).unwrap().is_some());
    assert!(matches!(node.choose(target), Verdict::Valid(_)));
    node.run(&mut owner, |node| node.status().state == SyncState::Idle);
    assert_eq!((node.status().reached, node.head()), (1, BLOCKS));
    let _ = owner.step();
    assert_eq!(node.status().reached, 1);
}

#[test]
fn a_target_that_the_operator_names_is_reached_without_a_consensus_client() {
    let world = World::new(11);
    world.connect(Script::Honest, main_branch());
    let mut node = Node::new(empty_chain(None), world);
    node.operator = Some(hash_of(&main_branch()[199]));
    let mut owner = node.owner();
    node.run(&mut owner, |node| node.head() == 200);
    node.run(&mut owner, |node| node.status().waiting_for.is_some());
    assert_eq!(node.head(), 200);
}

#[test]
fn a_stopped_sync_ends_and_another_one_goes_on() {
    let world = World::new(14);
    world.connect(Script::Honest, main_branch());
    let consensus = Arc::new(Consensus::new(empty_chain(None)));
    let settings = || Settings {
        consensus: Arc::clone(&consensus),
        folder: None,
        mode: SyncMode::Full,
        history: HistoryFloor::State,
        history_files: None,
        is_driven: false,
        follows_peers: None,
        target: Some(last(main_branch())),
    };
    for _ in 0..3 {
        let sync = Sync::start_with(settings(), Box::new(world.clone())).unwrap();
        sync.stop();
    }
    let sync = Sync::start_with(settings(), Box::new(world)).unwrap();
    while sync.status().current_block < BLOCKS {
        thread::yield_now();
    }
    sync.stop();
    assert_eq!(consensus.chain().head().id.hash, last(main_branch()));
}
