//! A hundred nodes at a switchboard, with a clock that stands still unless all wait.
//!
//! What holds, whatever the connections suffer: a node has no more peers than it may; it leaves a peer from which nothing useful can
//! come; it does not dial the same node twice within 35 s; each transaction comes to each node once; each job of the router ends. Once
//! the faults have stopped, the nodes are one network again, all pools are equal, and all items come.

use super::gossip::Pool;
use super::switchboard::{Port, Quality, Switchboard};
use super::*;
use crate::discovery::v4::Sockets;
use crate::key::NodeId;
use crate::peers::Candidate;
use crate::router::{Ask, Job, JobEvent, Need, Outcome};
use crate::service::bound::Bound;
use crate::wire::RequestKind;
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::{HashMap, HashSet};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Of how many nodes a network is.
const NODES: u8 = 100;
const MAX_PEERS: usize = 8;
/// Bodies of a job.
const ITEMS: u32 = 300;
/// One node in so many answers no request for bodies.
const MUTE_ONE_IN: u8 = 10;
/// After so long with a fault a connection is no peer's any more: 30 s of silence, and as long for a frame that had begun.
const NOTICED: Duration = Duration::from_secs(75);
/// What the router allows a job without progress, and a little.
const JOB_ENDS: Duration = Duration::from_secs(180);

struct Member {
    id: NodeId,
    address: SocketAddr,
    network: Arc<Network>,
    pool: Pool,
    serving: JoinHandle<()>,
    _chain: watch::Sender<LocalChain>,
}

impl Member {
    async fn start(board: &Switchboard, number: u8) -> Self {
        let address = SocketAddr::from(([8, 8, number, 1], 30303));
        let config = NetworkConfig {
            max_peers: MAX_PEERS,
            ..config(number + 1)
        };
        let id = config.key.id();
        let bound: Bound<Port> = Bound {
            transport: board.plug(address),
            udp: Sockets::default(),
        };
        let (_chain, chain) = watch::channel(chain(1));
        let pool = Pool::default();
        let started = start::start_on(bound, config, chain, pool.view());
        let (network, inbound) = started.await.unwrap();
        let network = Arc::new(network);
        network.gossip().set_syncing(false);
        let is_mute = number.is_multiple_of(MUTE_ONE_IN);
        let serving = tokio::spawn(serve(Arc::clone(&network), pool.clone(), inbound, is_mute));
        Self {
            id,
            address,
            network,
            pool,
            serving,
            _chain,
        }
    }

    fn peers(&self) -> Arc<[Arc<Peer>]> {
        Arc::clone(&self.network.peers().borrow())
    }

    fn job(&self) -> Job {
        let ask = Ask {
            kind: RequestKind::Bodies,
            items: ITEMS,
            need: Need::default(),
        };
        let request = |items: std::ops::Range<u32>| {
            Request::Bodies(items.map(|item| B256::from(U256::from(item))).collect())
        };
        self.network.router().start(ask, request).unwrap()
    }
}

/// Answers peers, and takes their transactions.
async fn serve(network: Arc<Network>, pool: Pool, mut inbound: Inbound, is_mute: bool) {
    loop {
        tokio::select! {
            Some(batch) = inbound.transactions.recv() => drop(pool.take(&network, batch)),
            Some(request) = inbound.requests.recv() => match &request.request {
                Request::Bodies(_) if is_mute => (),
                Request::Bodies(hashes) => {
                    let mut items = Items::default();
                    hashes.iter().for_each(|_| assert!(items.push(&[0xc2, 0xc0, 0xc0])));
                    let message = items.answer(request.id);
                    request.answer(message);
                }
                _ => pool.answer(request),
            },
            else => return,
        }
    }
}

/// Waits until a job ends. Returns how many of its items are not there.
async fn missing(mut job: Job) -> u32 {
    let ended = async {
        loop {
            match job.recv().await {
                Some(JobEvent::Answer(delivery)) => {
                    let Answer::Bodies(bodies) = &delivery.answer else {
                        panic!("{:?}", delivery.answer);
                    };
                    let came = u32::try_from(bodies.len()).unwrap();
                    let missing = delivery.items.start + came..delivery.items.end;
                    let missing = Some(missing).filter(|missing| !missing.is_empty());
                    let missing = missing.into_iter().collect();
                    job.outcome(&delivery.id, Outcome::Items { missing });
                }
                Some(JobEvent::Done(given_up)) => {
                    return given_up.iter().map(|one| one.items.len()).sum::<usize>();
                }
                None => panic!("the job was lost"),
            }
        }
    };
    let ended = tokio::time::timeout(JOB_ENDS, ended).await;
    u32::try_from(ended.expect("a job did not end")).unwrap()
}

struct Hundred {
    board: Switchboard,
    members: Vec<Member>,
    rng: SmallRng,
    sent: u32,
}

impl Hundred {
    async fn start(seed: u64, quality: Quality) -> Self {
        let board = Switchboard::new(seed, quality);
        let mut members = Vec::new();
        for number in 0..NODES {
            members.push(Member::start(&board, number).await);
        }
        Self {
            board,
            members,
            rng: SmallRng::seed_from_u64(!seed),
            sent: 0,
        }
    }

    /// Lets a second pass. In it each node finds another one, and some connections get a fault.
    async fn second(&mut self, faults: usize) {
        for member in &self.members {
            let found = self.members.iter().choose(&mut self.rng).unwrap();
            let candidate = Candidate {
                id: found.id,
                address: found.address,
                udp_port: 0,
            };
            let source = Source::V4;
            member.network.send(Event::Found { source, candidate });
        }
        self.board.disturb(faults);
        sleep(Duration::from_secs(1)).await;
        self.check();
    }

    fn check(&self) {
        for member in &self.members {
            let peers = member.peers();
            let inbound = peers.iter().filter(|peer| peer.info.origin.is_inbound);
            assert!(inbound.count() <= MAX_PEERS / 2);
            assert!(peers.len() <= MAX_PEERS);
            for peer in peers.iter() {
                let origin = peer.info.origin;
                let dialled_from = match origin.is_inbound {
                    true => origin.remote,
                    false => origin.local.unwrap(),
                };
                let faulty_for = self.board.faulty_for(dialled_from);
                assert!(faulty_for < Some(NOTICED), "{faulty_for:?} {origin:?}");
            }
        }
    }

    fn submit(&mut self) {
        let [_, a, b, c] = self.sent.to_be_bytes();
        self.sent += 1;
        let transaction = Bytes::from(vec![2, 0xc5, c % 0x80, 0x83, a, b, c]);
        let member = self.members.iter().choose(&mut self.rng).unwrap();
        member.pool.submit(&member.network, &[transaction]);
    }

    /// Whether each node is reached from each other one over peers that both sides see.
    fn is_whole(&self) -> bool {
        let peers_of = |member: &Member| -> HashSet<NodeId> {
            let peers = member.peers();
            peers.iter().map(|peer| peer.info.origin.node).collect()
        };
        let peers: HashMap<NodeId, HashSet<NodeId>> = {
            let all = self.members.iter();
            all.map(|member| (member.id, peers_of(member))).collect()
        };
        let (mut reached, mut next) = (HashSet::new(), vec![self.members[0].id]);
        while let Some(id) = next.pop() {
            if reached.insert(id) {
                let both = peers[&id]
                    .iter()
                    .filter(|other| peers[*other].contains(&id));
                next.extend(both);
            }
        }
        reached.len() == self.members.len()
    }

    /// Lets seconds pass without faults until something holds. Returns how many.
    async fn until(&mut self, most: u32, holds: impl Fn(&Self) -> bool) -> u32 {
        for second in 0..most {
            if holds(self) {
                return second;
            }
            self.second(0).await;
        }
        panic!("what is waited for did not happen within {most} s");
    }

    /// Checks what holds in the end, and stops the nodes.
    async fn finish(mut self) {
        // Three peers that don't answer make the router give a piece up, and one peer may be all: a caller asks again.
        let mut asking: Vec<usize> = (0..self.members.len()).collect();
        for _ in 0..20 {
            let jobs = asking.iter().map(|&at| missing(self.members[at].job()));
            let jobs: Vec<_> = jobs.map(tokio::spawn).collect();
            let mut again = Vec::new();
            for (at, job) in asking.into_iter().zip(jobs) {
                if job.await.unwrap() > 0 {
                    again.push(at);
                }
            }
            asking = again;
            if asking.is_empty() {
                break;
            }
            self.second(0).await;
        }
        assert!(asking.is_empty(), "{asking:?} lack items");
        let redial = self.board.shortest_redial().unwrap();
        assert!(redial >= Duration::from_secs(35), "{redial:?}");
        for member in self.members {
            member.network.stop().await;
            let stats = member.network.stats();
            assert_eq!((stats.incomplete(), stats.panics()), (0, 0));
            // Its channels have ended.
            member.serving.await.unwrap();
        }
    }

    fn are_pools_equal(&self) -> bool {
        let mut pools = self.members.iter().map(|member| member.pool.len());
        pools.all(|len| len == self.sent as usize)
    }
}

/// How many networks are tried: 1, or `NIWAKI_SEEDS`.
fn seeds() -> u64 {
    let text = std::env::var("NIWAKI_SEEDS");
    text.map_or(1, |text| text.parse().expect("NIWAKI_SEEDS is a number"))
}

const QUALITY: Quality = Quality {
    latency_ms: [5, 150],
    loss_percent: 2,
};

/// For five minutes up to eleven connections a second get a fault, and transactions and jobs go on.
async fn live_through_faults(seed: u64) {
    let mut hundred = Hundred::start(seed, QUALITY).await;
    let joined = hundred.until(120, Hundred::is_whole).await;
    let mut jobs = Vec::new();
    for _ in 0..300 {
        let faults = hundred.rng.random_range(0..12);
        hundred.second(faults).await;
        hundred.submit();
        let asking = hundred.members.iter().choose(&mut hundred.rng).unwrap();
        jobs.push(tokio::spawn(missing(asking.job())));
    }
    let healed = hundred.until(600, Hundred::is_whole).await;
    let equal = hundred.until(300, Hundred::are_pools_equal).await;
    let mut given_up = 0;
    for job in jobs {
        given_up += job.await.unwrap();
    }
    println!(
        "seed {seed}: one network after {joined} s; during the faults {given_up} of {} items given up; one network \
         again after {healed} s, pools equal {equal} s later",
        300 * ITEMS,
    );
    hundred.finish().await;
}

/// For three minutes one half of the nodes does not reach the other one.
async fn live_through_a_division(seed: u64) {
    let mut hundred = Hundred::start(seed, QUALITY).await;
    hundred.until(120, Hundred::is_whole).await;
    let middle = hundred.members[usize::from(NODES / 2)].address;
    hundred.board.divide(middle);
    for _ in 0..180 {
        hundred.second(0).await;
        hundred.submit();
    }
    assert!(!hundred.is_whole() && !hundred.are_pools_equal());
    hundred.board.unite();
    let united = hundred.until(600, Hundred::is_whole).await;
    let equal = hundred.until(300, Hundred::are_pools_equal).await;
    println!("seed {seed}: one network {united} s after a division, pools equal {equal} s later");
    hundred.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_nodes_live_through_cuts_silence_and_slowness() {
    for seed in 0..seeds() {
        live_through_faults(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_nodes_live_through_a_division() {
    for seed in 0..seeds() {
        live_through_a_division(seed).await;
    }
}
