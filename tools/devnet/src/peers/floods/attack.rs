//! Attackers: connections and packets that no good node makes, by the library's own sessions.

use crate::peers::raw_peer::{
    ANNOUNCEMENT, PING, PONG, RawPeer, TRANSACTIONS, Target, VERSION, read,
};
use clap::ValueEnum;
use eyre::{Result, ensure, eyre};
use niwaki_network::fuzz::targets;
use niwaki_network::wire::{Announced, Announcement, Request, RequestKind, SnapKind, SnapRequest};
use niwaki_primitives::B256;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// What floods the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Flood {
    /// 50 peers announce 100,000 new hashes a second.
    Hashes,
    /// 50 peers send messages of 10 MiB that Snappy makes 500 KB of, and come back when they are cut.
    Bombs,
    /// 1,000 TCP connections a second, half of them closed at once, half held for 5 s.
    Connects,
    /// 50,000 packets a second: discovery v4, signed, and noise.
    Udp,
    /// 50 peers ask for all they can and never read.
    Deaf,
    /// 500 node ids from one address.
    Ids,
    /// 10 peers ask for ranges of the newest state and read all that comes: no attackers, but nodes that sync.
    Askers,
}

impl Flood {
    /// The percentile of newPayload that is compared, and most percent of that in peace.
    pub(super) fn allowed(self, p99_percent: u32) -> (usize, u32) {
        match self {
            Self::Askers => (50, ASKERS_PERCENT),
            _ => (99, p99_percent),
        }
    }
}

/// Most percent of its time that an import takes while others sync from the node.
const ASKERS_PERCENT: u32 = 105;

/// Peers that flood together.
const PEERS: usize = 50;
/// How long an attacker waits before it connects again.
const AGAIN: Duration = Duration::from_millis(500);

/// What the attackers did.
#[derive(Debug, Default)]
struct Counts {
    sessions: AtomicU64,
    refused: AtomicU64,
    sent: AtomicU64,
    /// Bytes of answers.
    read: AtomicU64,
}

/// A flood that runs.
pub(super) struct Attack {
    runtime: Runtime,
    counts: Arc<Counts>,
    /// The state root of the head.
    root: watch::Sender<B256>,
}

/// Attackers are on other machines: the processors of this one are the node's, as far as it wants them.
fn yield_to_the_node() {
    // On Linux this is the calling thread only.
    let _ = rustix::process::nice(19);
}

impl Attack {
    /// Starts a flood of the node.
    pub(super) fn start(flood: Flood, enode: &str) -> Result<Self> {
        let target = Target::of(enode)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(yield_to_the_node)
            .enable_all()
            .build()?;
        let counts = Arc::new(Counts::default());
        let root = watch::Sender::new(B256::ZERO);
        let peers = match flood {
            Flood::Connects | Flood::Udp => 1,
            Flood::Askers => 10,
            Flood::Ids => 500,
            Flood::Hashes | Flood::Bombs | Flood::Deaf => PEERS,
        };
        for _ in 0..peers {
            let (counts, root) = (Arc::clone(&counts), root.subscribe());
            runtime.spawn(async move {
                match flood {
                    Flood::Askers => ask(target, &counts, &root).await,
                    Flood::Connects => connects(target, &counts).await,
                    Flood::Udp => packets(target, &counts).await,
                    _ => peer(flood, target, &counts).await,
                }
            });
        }
        // A flood that reaches nothing measures nothing.
        std::thread::sleep(Duration::from_secs(1));
        let began = counts.sent.load(Ordering::Relaxed) + counts.sessions.load(Ordering::Relaxed);
        ensure!(began > 0, "the flood {flood:?} does not begin");
        Ok(Self {
            runtime,
            counts,
            root,
        })
    }

    /// The head has this state root.
    pub(super) fn head_moved(&self, root: B256) {
        self.root.send_replace(root);
    }

    /// Ends it. Returns what the attackers did.
    pub(super) fn stop(self) -> Vec<(&'static str, u64)> {
        self.runtime.shutdown_background();
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        vec![
            ("sessions of attackers", count(&self.counts.sessions)),
            ("connections that became none", count(&self.counts.refused)),
            ("messages or packets of attackers", count(&self.counts.sent)),
            ("MiB that they got", count(&self.counts.read) >> 20),
        ]
    }
}

/// One attacker with sessions, one after the other, each of a new id.
async fn peer(flood: Flood, target: Target, counts: &Counts) {
    loop {
        match timeout(Duration::from_secs(10), RawPeer::join(target)).await {
            Ok(Ok(session)) => {
                counts.sessions.fetch_add(1, Ordering::Relaxed);
                flood_session(flood, session, counts).await;
            }
            _ => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        sleep(AGAIN).await;
    }
}

/// Floods until the session ends.
async fn flood_session(flood: Flood, session: RawPeer, counts: &Counts) {
    let RawPeer {
        reader,
        mut writer,
        offset,
        ..
    } = session;
    let mut rng = SmallRng::from_os_rng();
    if flood == Flood::Deaf {
        let _not_read = reader;
        let request = Request::Headers {
            start: niwaki_network::wire::BlockId::Number(1),
            limit: 1024,
            skip: 0,
            reverse: false,
        };
        let number = offset + RequestKind::Headers.number();
        while writer
            .send(number, &request.encode(rng.random(), VERSION))
            .await
            .is_ok()
        {
            counts.sent.fetch_add(1, Ordering::Relaxed);
        }
        return;
    }
    let (pings, mut pinged) = mpsc::channel(16);
    let read = tokio::spawn(read(reader, pings));
    let mut ticks = interval(Duration::from_millis(500));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let zeros = vec![0; if flood == Flood::Bombs { 10 << 20 } else { 0 }];
    loop {
        let (number, data) = tokio::select! {
            ping = pinged.recv() => match ping {
                Some(()) => (PONG, vec![0xc0]),
                None => break,
            },
            _ = ticks.tick() => match flood {
                Flood::Hashes => (offset + ANNOUNCEMENT, announcement(1_000, &mut rng)),
                Flood::Bombs => (offset + TRANSACTIONS, zeros.clone()),
                _ => (PING, vec![0xc0]),
            },
        };
        if writer.send(number, &data).await.is_err() {
            break;
        }
        counts.sent.fetch_add(1, Ordering::Relaxed);
    }
    read.abort();
}

/// A node that syncs from the node: one request after the other, all answers read.
async fn ask(target: Target, counts: &Counts, root: &watch::Receiver<B256>) {
    loop {
        if let Ok(Ok(session)) = timeout(Duration::from_secs(10), RawPeer::join(target)).await {
            counts.sessions.fetch_add(1, Ordering::Relaxed);
            // It ends with the session.
            let _ended = ask_session(session, counts, root).await;
        } else {
            counts.refused.fetch_add(1, Ordering::Relaxed);
        }
        sleep(AGAIN).await;
    }
}

async fn ask_session(
    session: RawPeer,
    counts: &Counts,
    root: &watch::Receiver<B256>,
) -> Result<()> {
    let RawPeer {
        mut reader,
        mut writer,
        snap_offset,
        ..
    } = session;
    let offset = snap_offset.ok_or_else(|| eyre!("the node gives no state"))?;
    let number = offset + RequestKind::Snap(SnapKind::AccountRange).number();
    let mut rng = SmallRng::from_os_rng();
    loop {
        let root = *root.borrow();
        let request = Request::Snap(SnapRequest::AccountRange {
            root,
            origin: B256::new(rng.random()),
            limit: B256::repeat_byte(0xff),
            bytes: 2 << 20,
        });
        writer
            .send(number, &request.encode(rng.random(), VERSION))
            .await?;
        counts.sent.fetch_add(1, Ordering::Relaxed);
        loop {
            let message = reader.next().await?;
            match message.id {
                PING => {
                    writer.send(PONG, &[0xc0]).await?;
                }
                id if id == number + 1 => {
                    let bytes = message.data.len() as u64;
                    counts.read.fetch_add(bytes, Ordering::Relaxed);
                    break;
                }
                _ => {}
            }
        }
    }
}

fn announcement(count: usize, rng: &mut SmallRng) -> Vec<u8> {
    let announced = (0..count).map(|_| Announced {
        hash: B256::new(rng.random()),
        tx_type: 2,
        size: 200,
    });
    let announcement = Announcement {
        transactions: announced.collect(),
        columns: None,
    };
    announcement.encode(VERSION)
}

async fn connects(target: Target, counts: &Counts) {
    let mut ticks = interval(Duration::from_millis(10));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.tick().await;
        for index in 0..10 {
            counts.sent.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                if let Ok(Ok(stream)) =
                    timeout(Duration::from_secs(5), TcpStream::connect(target.address)).await
                {
                    sleep(Duration::from_secs(if index % 2 == 0 { 5 } else { 0 })).await;
                    drop(stream);
                }
            });
        }
    }
}

async fn packets(target: Target, counts: &Counts) {
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0").await else {
        return;
    };
    let mut rng = SmallRng::seed_from_u64(1);
    let signed = targets()
        .into_iter()
        .find(|target| target.name == "discovery-v4");
    let mut all: Vec<Vec<u8>> = Vec::new();
    for _ in 0..500 {
        if let Some(signed) = &signed {
            let body = signed.valid(&mut rng);
            all.push(signed.seal(body, &mut rng));
        }
        let length = rng.random_range(1..1280);
        all.push((0..length).map(|_| rng.random()).collect());
    }
    let mut ticks = interval(Duration::from_millis(2));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut next = all.iter().cycle();
    loop {
        ticks.tick().await;
        for packet in next.by_ref().take(100) {
            if socket.send_to(packet, target.address).await.is_ok() {
                counts.sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
