//! For tests: linked headers, chains of blocks, and scripted peers behind the real router, in their own time.
#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use crate::header_window::SealedHeader;
use crate::source::{Download, JobEvent, MakeRequest, Offer, Peers};
use niwaki_chain::{BlockTemplate, Chain, ChainConfig, ImportRequest};
use niwaki_network::peers::{Conduct, ConnId};
use niwaki_network::router::{Abilities, Ask, AskAction, JobError, JobId, Outcome, Router};
use niwaki_network::wire::{Answer, BlockId, Request, RequestKind};
use niwaki_primitives::{B256, Block, BlockBody, Header, Withdrawal, rlp};
use niwaki_rules::Genesis;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// A header of a chain that is not BFT.
pub(crate) fn sealed_header(header: Header) -> SealedHeader {
    let hash = header.hash_slow();
    SealedHeader { hash, header }
}

/// Linked headers `first`, `first + 1`, ..., lowest first. `salt` tells branches apart.
pub(crate) fn headers_upon(parent: B256, first: u64, count: u64, salt: u8) -> Vec<SealedHeader> {
    let mut parent_hash = parent;
    let header = |number| {
        let header = sealed_header(Header {
            number,
            parent_hash,
            extra_data: vec![salt].into(),
            ..Header::default()
        });
        parent_hash = header.hash;
        header
    };
    (first..first + count).map(header).collect()
}

fn testdata(name: &str) -> Vec<u8> {
    testdata_of("chain", name)
}

pub(crate) fn testdata_of(folder: &str, name: &str) -> Vec<u8> {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    std::fs::read(folders.join(folder).join(name)).unwrap()
}

/// The chain of the testdata with its genesis block only, on the disk if there is a path.
pub(crate) fn empty_chain(path: Option<&Path>) -> Arc<Chain> {
    chain_of(&testdata("genesis.json"), path)
}

/// A chain with its genesis block only.
pub(crate) fn chain_of(genesis: &[u8], path: Option<&Path>) -> Arc<Chain> {
    let genesis = Genesis::from_json(std::str::from_utf8(genesis).unwrap()).unwrap();
    let chain = Chain::open(ChainConfig {
        data_path: path.map(Path::to_owned),
        spec: Arc::new(genesis.spec.clone()),
        genesis: (&genesis).into(),
        storage: Default::default(),
        state: Default::default(),
    });
    Arc::new(chain.unwrap())
}

/// Makes `count` blocks upon `parent`, each with a withdrawal, and imports them as side blocks.
pub(crate) fn grow(chain: &Chain, mut parent: B256, count: u64, salt: u8) -> Vec<Block> {
    let mut blocks = Vec::new();
    for _ in 0..count {
        let above = chain.header(&parent).unwrap().unwrap();
        let template = BlockTemplate {
            parent,
            timestamp: above.header.timestamp + 10,
            extra_data: vec![salt].into(),
            withdrawals: vec![Withdrawal {
                index: above.id.number,
                validator_index: u64::from(salt),
                amount: 1,
                ..Withdrawal::default()
            }],
            ..BlockTemplate::default()
        };
        let block = chain.build(template, Vec::new()).unwrap().block;
        parent = block.header.hash_slow();
        let request = ImportRequest {
            canonicalize: salt == 0,
            ..ImportRequest::with_hash(block.clone(), parent)
        };
        chain.import(request).unwrap();
        blocks.push(block);
    }
    blocks
}

/// How many blocks [`main_branch`] has.
pub(crate) const BLOCKS: u64 = 400;
/// Where the other branch leaves the main one, and how many blocks it has.
pub(crate) const FORK: u64 = 350;
pub(crate) const SIDE_BLOCKS: u64 = 45;

struct Branches {
    main: Vec<Block>,
    side: Vec<Block>,
}

fn branches() -> &'static Branches {
    static BRANCHES: OnceLock<Branches> = OnceLock::new();
    BRANCHES.get_or_init(|| {
        let chain = empty_chain(None);
        let file = testdata("chain.rlp");
        let mut rest = &file[..];
        let mut main = Vec::new();
        while !rest.is_empty() {
            let block: Block = rlp::Decodable::decode(&mut rest).unwrap();
            chain.import(block.clone()).unwrap();
            main.push(block);
        }
        let head = chain.head().id;
        main.extend(grow(&chain, head.hash, BLOCKS - head.number, 0));
        let fork = main[FORK as usize - 1].header.hash_slow();
        let side = grow(&chain, fork, SIDE_BLOCKS, 1);
        Branches { main, side }
    })
}

/// Blocks 1 to [`BLOCKS`], those of the testdata first.
pub(crate) fn main_branch() -> &'static [Block] {
    &branches().main
}

/// The main branch up to block [`FORK`], then [`SIDE_BLOCKS`] others.
pub(crate) fn side_branch() -> Vec<Block> {
    let Branches { main, side } = branches();
    main.iter()
        .take(FORK as usize)
        .chain(side)
        .cloned()
        .collect()
}

pub(crate) fn hash_of(block: &Block) -> B256 {
    block.header.hash_slow()
}

/// A genesis block that is not the one of the testdata.
pub(crate) fn other_genesis() -> Block {
    let mut block = Block::default();
    block.header.extra_data = vec![7].into();
    block
}

/// What a scripted peer does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Honest,
    /// A transaction or withdrawal of each body is another one.
    ChangedBodies,
    /// Each answer lacks its second body.
    LeavesOutBodies,
    /// Each header names another parent.
    UnlinkedHeaders,
    /// Each answer lacks its second header.
    GapInHeaders,
    /// Headers upwards.
    ReversedHeaders,
    /// Headers of blocks that do not exist, linked with each other.
    MadeUpHeaders,
    Empty,
    /// The first half of what was asked for.
    Half,
    /// All headers and no body.
    NoBodies,
    /// Answers after 14 s.
    Late,
    Silent,
}

pub(crate) const LIARS: [Script; 5] = [
    Script::ChangedBodies,
    Script::UnlinkedHeaders,
    Script::GapInHeaders,
    Script::ReversedHeaders,
    Script::MadeUpHeaders,
];

struct ScriptedPeer {
    script: Script,
    /// By number from 1 on.
    blocks: Vec<Block>,
    /// The last block that it says it has.
    latest: u64,
}

impl ScriptedPeer {
    fn position(&self, hash: &B256) -> Option<usize> {
        self.blocks.iter().position(|block| hash_of(block) == *hash)
    }

    fn headers(&self, start: BlockId, limit: u64) -> Vec<Header> {
        let genesis = other_genesis();
        let position = match start {
            BlockId::Number(number) => Some(number as usize),
            BlockId::Hash(hash) => self.position(&hash).map(|position| position + 1),
        };
        let Some(top) = position.filter(|top| *top <= self.blocks.len()) else {
            return Vec::new();
        };
        // The genesis block is that of another chain: ours is never asked for.
        let up = std::iter::once(&genesis).chain(&self.blocks);
        let up: Vec<_> = up.take(top + 1).collect();
        let down = up.into_iter().rev().map(|block| block.header.clone());
        down.take(limit as usize).collect()
    }

    fn answer(&self, request: &Request) -> Option<Answer> {
        let mut answer = match request {
            Request::Headers { start, limit, .. } => Answer::Headers(self.headers(*start, *limit)),
            Request::Bodies(hashes) => {
                let positions = hashes.iter().filter_map(|hash| self.position(hash));
                Answer::Bodies(positions.map(|at| self.blocks[at].body.clone()).collect())
            }
            other => panic!("{other:?}"),
        };
        match &mut answer {
            Answer::Headers(headers) => change_headers(self.script, headers),
            Answer::Bodies(bodies) => change_bodies(self.script, bodies),
            _ => {}
        }
        (self.script != Script::Silent).then_some(answer)
    }
}

fn change_headers(script: Script, headers: &mut Vec<Header>) {
    match script {
        Script::UnlinkedHeaders => {
            for header in headers.iter_mut() {
                header.parent_hash = B256::repeat_byte(0xee);
            }
        }
        Script::GapInHeaders if headers.len() > 1 => {
            headers.remove(1);
        }
        Script::ReversedHeaders => headers.reverse(),
        Script::MadeUpHeaders => {
            let mut parent = B256::repeat_byte(0xdd);
            for header in headers.iter_mut().rev() {
                header.parent_hash = parent;
                parent = header.hash_slow();
            }
        }
        Script::Empty => headers.clear(),
        Script::Half => headers.truncate(headers.len().div_ceil(2)),
        _ => {}
    }
}

fn change_bodies(script: Script, bodies: &mut Vec<BlockBody>) {
    match script {
        Script::ChangedBodies => {
            for body in bodies.iter_mut() {
                body.transactions.pop();
                if let Some(withdrawals) = &mut body.withdrawals {
                    withdrawals.push(Withdrawal::default());
                }
            }
        }
        Script::LeavesOutBodies if bodies.len() > 1 => {
            bodies.remove(1);
        }
        Script::Empty | Script::NoBodies => bodies.clear(),
        Script::Half => bodies.truncate(bodies.len().div_ceil(2)),
        _ => {}
    }
}

struct InFlight {
    due_ms: u64,
    conn: ConnId,
    request: u64,
    answer: Answer,
}

struct ScriptedJob {
    make_request: MakeRequest,
    events: VecDeque<JobEvent>,
}

/// The world of a test.
struct Inner {
    now_ms: u64,
    router: Router,
    peers: BTreeMap<ConnId, ScriptedPeer>,
    jobs: HashMap<JobId, ScriptedJob>,
    in_flight: Vec<InFlight>,
    deliveries: BTreeMap<u64, (ConnId, u64)>,
    last_conn: u64,
    last_delivery: u64,
    requests: Vec<Request>,
    liars: Vec<Script>,
}

/// Scripted peers. Clones are the same world.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<Inner>>);

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            now_ms: 0,
            router: Router::new(SmallRng::seed_from_u64(seed)),
            peers: BTreeMap::new(),
            jobs: HashMap::new(),
            in_flight: Vec::new(),
            deliveries: BTreeMap::new(),
            last_conn: 0,
            last_delivery: 0,
            requests: Vec::new(),
            liars: Vec::new(),
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// A peer with these blocks, from 1 on, connects.
    pub(crate) fn connect(&self, script: Script, blocks: &[Block]) {
        self.connect_with_latest(script, blocks, blocks.len() as u64);
    }

    /// The same, of a peer that says that its last block has this number.
    pub(crate) fn connect_with_latest(&self, script: Script, blocks: &[Block], latest: u64) {
        let mut inner = self.inner();
        inner.last_conn += 1;
        let conn = ConnId(inner.last_conn);
        let info = Abilities {
            kinds: vec![RequestKind::Headers, RequestKind::Bodies],
            earliest: 0,
            latest,
        };
        let blocks = blocks.to_vec();
        let peer = ScriptedPeer {
            script,
            blocks,
            latest,
        };
        inner.peers.insert(conn, peer);
        let now_ms = inner.now_ms;
        let actions = inner.router.join(conn, info, now_ms);
        inner.act(actions);
    }

    /// What was asked since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.inner().requests)
    }

    /// The scripts of the peers that were cut for a lie.
    pub(crate) fn liars(&self) -> Vec<Script> {
        self.inner().liars.clone()
    }
}

impl Inner {
    fn act(&mut self, actions: Vec<AskAction>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                AskAction::Send {
                    conn,
                    request,
                    job,
                    items,
                } => self.send(conn, request, job, items),
                AskAction::Abandon { conn, request } => self
                    .in_flight
                    .retain(|one| (one.conn, one.request) != (conn, request)),
                AskAction::Done { job, given_up } => {
                    if let Some(job) = self.jobs.get_mut(&job) {
                        job.events.push_back(JobEvent::Done(given_up));
                    }
                }
                AskAction::Conduct { conn, conduct } => {
                    // The roster cuts a peer for one lie, or two bad messages.
                    if matches!(conduct, Conduct::Lie | Conduct::BadMessage)
                        && let Some(peer) = self.peers.remove(&conn)
                    {
                        self.liars.push(peer.script);
                        actions.extend(self.router.leave(conn, self.now_ms));
                    }
                }
            }
        }
    }

    fn send(&mut self, conn: ConnId, request: u64, job: JobId, items: std::ops::Range<u32>) {
        let (Some(peer), Some(job)) = (self.peers.get(&conn), self.jobs.get(&job)) else {
            return;
        };
        let asked = (job.make_request)(items);
        let delay_ms = match peer.script {
            Script::Late => 14_000,
            _ => 20 + conn.0,
        };
        if let Some(answer) = peer.answer(&asked) {
            self.in_flight.push(InFlight {
                due_ms: self.now_ms + delay_ms,
                conn,
                request,
                answer,
            });
        }
        self.requests.push(asked);
    }

    fn advance(&mut self) {
        self.now_ms += 10;
        let now_ms = self.now_ms;
        let all = std::mem::take(&mut self.in_flight);
        let (due, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.due_ms <= now_ms);
        self.in_flight = rest;
        for one in due {
            let Some(wanted) = self.router.arrived(one.conn, one.request, now_ms) else {
                continue;
            };
            self.last_delivery += 1;
            let id = self.last_delivery;
            self.deliveries.insert(id, (one.conn, one.request));
            if let Some(job) = self.jobs.get_mut(&wanted.job) {
                job.events.push_back(JobEvent::Answer {
                    id,
                    items: wanted.items,
                    answer: one.answer,
                });
            }
        }
        if now_ms.is_multiple_of(100) {
            let actions = self.router.tick(now_ms);
            self.act(actions);
        }
    }
}

impl Peers for World {
    fn offers(&self) -> Vec<Offer> {
        let inner = self.inner();
        let offers = inner.peers.iter().map(|(conn, peer)| Offer {
            conn: *conn,
            latest: peer.latest,
            latest_hash: B256::ZERO,
            has_snap: false,
            has_nodes: false,
        });
        offers.collect()
    }

    fn start(&self, ask: Ask, request: MakeRequest) -> Result<Box<dyn Download>, JobError> {
        let mut inner = self.inner();
        let now_ms = inner.now_ms;
        let (id, actions) = inner.router.ask(ask, now_ms)?;
        let job = ScriptedJob {
            make_request: request,
            events: VecDeque::new(),
        };
        inner.jobs.insert(id, job);
        inner.act(actions);
        Ok(Box::new(ScriptedDownload {
            id,
            world: self.clone(),
        }))
    }

    fn now_ms(&self) -> u64 {
        self.inner().now_ms
    }

    fn wait(&self, time: Duration) {
        let mut inner = self.inner();
        let until_ms = inner.now_ms + time.as_millis() as u64;
        while inner.now_ms < until_ms {
            inner.advance();
        }
    }
}

struct ScriptedDownload {
    id: JobId,
    world: World,
}

impl Download for ScriptedDownload {
    fn next(&mut self, timeout: Duration) -> Option<JobEvent> {
        let mut inner = self.world.inner();
        let until_ms = inner.now_ms + timeout.as_millis() as u64;
        loop {
            let job = inner.jobs.get_mut(&self.id)?;
            if let Some(event) = job.events.pop_front() {
                return Some(event);
            }
            if inner.now_ms >= until_ms {
                return None;
            }
            inner.advance();
        }
    }

    fn outcome(&mut self, id: u64, outcome: Outcome) {
        let mut inner = self.world.inner();
        let (conn, request) = inner.deliveries.remove(&id).unwrap();
        let now_ms = inner.now_ms;
        let actions = inner.router.answer(conn, request, outcome, now_ms);
        inner.act(actions);
    }
}

impl Drop for ScriptedDownload {
    fn drop(&mut self) {
        let mut inner = self.world.inner();
        inner.router.cancel(self.id);
        inner.jobs.remove(&self.id);
    }
}

mod network;
