//! A switchboard: it joins nodes over memory, and makes the cables between them as bad as they can be.
//!
//! ```text
//!   node --duplex--> carrier: read -> [ queue: when it is due ] -> deliver --duplex--> node       (and the same back)
//! ```
//!
//! What a TCP connection does holds here too: bytes come in order and none are missing, so a lost segment comes late and holds up
//! those behind it; what the other side does not read is held up at last; a write to a side that has gone breaks the connection.
//! The seed fixes the faults. It does not fix which of two tasks that are ready at the same time runs first.

use crate::service::transport::{Socket, SocketOf, Transport};
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes that wait on either side of a cable, as in a socket's buffers.
const BUFFER_BYTES: usize = 64 << 10;
/// Most bytes of a segment, and segments on their way.
const SEGMENT_BYTES: usize = 16 << 10;
const SEGMENTS: usize = 64;
/// When a segment that was lost is sent again.
const RESEND: Duration = Duration::from_millis(200);
/// Connections that wait to be taken.
const BACKLOG: usize = 64;
const FIRST_EPHEMERAL: u16 = 40_000;

/// How a cable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It carries.
    Up,
    /// It carries one byte a second.
    Slow,
    /// It swallows everything; neither side is told: the connection is half-open, for one direction or for both.
    Silent,
    /// It has ended.
    Cut,
}

/// How long bytes take, and how many segments of a hundred are lost on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quality {
    pub(super) latency_ms: [u64; 2],
    pub(super) loss_percent: u32,
}

/// A cable: one connection.
struct Cable {
    /// The side that dialled, at a port that no other connection has.
    from: SocketAddr,
    /// The other one.
    to: SocketAddr,
    /// The state of either direction, from the side that dialled first.
    states: [watch::Sender<State>; 2],
    /// When it stopped to carry as it should.
    faulty_since: Option<Instant>,
}

struct Board {
    rng: SmallRng,
    quality: Quality,
    ports: HashMap<SocketAddr, mpsc::Sender<SocketOf<Port>>>,
    cables: Vec<Cable>,
    opened: u64,
    /// The nodes below this address do not reach those from it on, nor these those.
    divided_at: Option<SocketAddr>,
    /// When a node dialled another one the last time.
    dialled: HashMap<(IpAddr, SocketAddr), Instant>,
    shortest_redial: Option<Duration>,
}

/// The switchboard.
#[derive(Clone)]
pub(super) struct Switchboard(Arc<Mutex<Board>>);

impl Switchboard {
    pub(super) fn new(seed: u64, quality: Quality) -> Self {
        Self(Arc::new(Mutex::new(Board {
            rng: SmallRng::seed_from_u64(seed),
            quality,
            ports: HashMap::new(),
            cables: Vec::new(),
            opened: 0,
            divided_at: None,
            dialled: HashMap::new(),
            shortest_redial: None,
        })))
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap()
    }

    /// The shortest time between two dials from one node to another.
    pub(super) fn shortest_redial(&self) -> Option<Duration> {
        self.board().shortest_redial
    }

    /// A place for a node.
    pub(super) fn plug(&self, address: SocketAddr) -> Port {
        let (sender, incoming) = mpsc::channel(BACKLOG);
        self.board().ports.insert(address, sender);
        Port {
            address,
            board: self.clone(),
            incoming: incoming.into(),
        }
    }

    /// Gives so many connections a fault. Of the silent ones half are so in one direction alone.
    pub(super) fn disturb(&self, count: usize) {
        let board = &mut *self.board();
        // A faulty one stays known after its end: a node may still count it.
        board
            .cables
            .retain(|cable| cable.faulty_since.is_some() || cable.is_open());
        let sound = board.cables.iter_mut();
        let sound = sound.filter(|cable| cable.faulty_since.is_none());
        for cable in sound.choose_multiple(&mut board.rng, count) {
            cable.faulty_since = Some(Instant::now());
            let [there, back] = match board.rng.random_range(0..4) {
                0 => [State::Cut; 2],
                1 => [State::Slow; 2],
                2 => [State::Silent; 2],
                _ if board.rng.random() => [State::Up, State::Silent],
                _ => [State::Silent, State::Up],
            };
            cable.states[0].send_replace(there);
            cable.states[1].send_replace(back);
        }
    }

    /// Divides the nodes: what goes between those below the address and the others is swallowed.
    pub(super) fn divide(&self, at: SocketAddr) {
        let board = &mut *self.board();
        board.divided_at = Some(at);
        let across = board.cables.iter_mut();
        for cable in across.filter(|cable| (cable.from < at) != (cable.to < at)) {
            cable.faulty_since.get_or_insert_with(Instant::now);
            for state in &cable.states {
                state.send_replace(State::Silent);
            }
        }
    }

    /// Lets all nodes reach each other again, by new connections.
    pub(super) fn unite(&self) {
        self.board().divided_at = None;
    }

    /// Since when the connection from this port has had a fault.
    pub(super) fn faulty_for(&self, from: SocketAddr) -> Option<Duration> {
        let board = self.board();
        let cable = board.cables.iter().find(|cable| cable.from == from)?;
        Some(cable.faulty_since?.elapsed())
    }
}

impl Cable {
    /// Whether one of its directions is still carried.
    fn is_open(&self) -> bool {
        self.states.iter().any(|state| state.receiver_count() > 0)
    }
}

/// The place of a node at the switchboard.
pub(super) struct Port {
    address: SocketAddr,
    board: Switchboard,
    incoming: tokio::sync::Mutex<mpsc::Receiver<SocketOf<Self>>>,
}

impl Transport for Port {
    type Reader = ReadHalf<DuplexStream>;
    type Writer = WriteHalf<DuplexStream>;

    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    async fn connect(&self, addresses: &[SocketAddr]) -> Result<SocketOf<Self>> {
        let remote = *addresses.first().ok_or(ErrorKind::InvalidInput)?;
        let (socket, far, target) = self.board.board().lay(self.address, remote);
        let (round_trip, is_reached) = self.board.board().route(self.address, remote);
        if !is_reached {
            std::future::pending::<()>().await;
        }
        sleep(round_trip).await;
        let refused = || Error::from(ErrorKind::ConnectionRefused);
        let target = target.ok_or_else(refused)?;
        target.send(far).await.map_err(|_| refused())?;
        Ok(socket)
    }

    async fn accept(&self) -> Result<SocketOf<Self>> {
        let socket = self.incoming.lock().await.recv().await;
        Ok(socket.expect("the switchboard holds the other end"))
    }
}

type Target = Option<mpsc::Sender<SocketOf<Port>>>;

impl Board {
    fn latency(&mut self) -> Duration {
        let [least, most] = self.quality.latency_ms;
        Duration::from_millis(self.rng.random_range(least..=most))
    }

    /// How long a round trip takes, and whether there is a way at all.
    fn route(&mut self, from: SocketAddr, to: SocketAddr) -> (Duration, bool) {
        let divided = |at| (from < at) != (to < at);
        (2 * self.latency(), !self.divided_at.is_some_and(divided))
    }

    /// Lays a cable between two nodes, and returns its two ends and where the second one goes.
    fn lay(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
    ) -> (SocketOf<Port>, SocketOf<Port>, Target) {
        let ports = u64::from(u16::MAX - FIRST_EPHEMERAL);
        let port = FIRST_EPHEMERAL + u16::try_from(self.opened % ports).unwrap();
        let from = SocketAddr::new(from.ip(), port);
        self.opened += 1;
        if let Some(before) = self.dialled.insert((from.ip(), to), Instant::now()) {
            let shortest = self.shortest_redial.unwrap_or(Duration::MAX);
            self.shortest_redial = Some(shortest.min(before.elapsed()));
        }
        let (near, near_board) = duplex(BUFFER_BYTES);
        let (far, far_board) = duplex(BUFFER_BYTES);
        let states = [(); 2].map(|()| watch::Sender::new(State::Up));
        let latency = self.latency();
        let (near_reader, near_writer) = split(near_board);
        let (far_reader, far_writer) = split(far_board);
        let ends = [(near_reader, far_writer), (far_reader, near_writer)];
        for ((reader, writer), state) in ends.into_iter().zip(&states) {
            let line = Line {
                latency,
                loss_percent: self.quality.loss_percent,
                state: state.subscribe(),
                rng: SmallRng::from_rng(&mut self.rng),
            };
            tokio::spawn(line.carry(reader, writer, states.clone()));
        }
        self.cables.push(Cable {
            from,
            to,
            states,
            faulty_since: None,
        });
        let target = self.ports.get(&to).cloned();
        (socket(near, from, to), socket(far, to, from), target)
    }
}

fn socket(stream: DuplexStream, local: SocketAddr, remote: SocketAddr) -> SocketOf<Port> {
    let (reader, writer) = split(stream);
    Socket {
        reader,
        writer,
        local: Some(local),
        remote,
    }
}

/// One direction of a cable.
struct Line {
    latency: Duration,
    loss_percent: u32,
    state: watch::Receiver<State>,
    rng: SmallRng,
}

impl Line {
    /// Carries until one of its ends is gone, or it is cut.
    async fn carry(
        mut self,
        reader: ReadHalf<DuplexStream>,
        writer: WriteHalf<DuplexStream>,
        both: [watch::Sender<State>; 2],
    ) {
        let (sender, segments) = mpsc::channel(SEGMENTS);
        let mut cut = self.state.clone();
        let mut state = self.state.clone();
        let carried = async {
            tokio::join!(
                self.send(reader, sender),
                deliver(segments, writer, &mut state)
            )
        };
        let is_broken = tokio::select! {
            ((), delivered) = carried => delivered.is_err(),
            _ = cut.wait_for(|state| *state == State::Cut) => false,
        };
        if is_broken {
            for state in &both {
                state.send_replace(State::Cut);
            }
        }
    }

    /// Takes what the node sends, and says when it is due.
    async fn send(
        &mut self,
        mut reader: ReadHalf<DuplexStream>,
        segments: mpsc::Sender<(Instant, Vec<u8>)>,
    ) {
        let mut last = Instant::now();
        let mut buffer = vec![0; SEGMENT_BYTES];
        while let Ok(bytes @ 1..) = reader.read(&mut buffer).await {
            let mut late = Duration::ZERO;
            while self.rng.random_range(0..100) < self.loss_percent {
                late = 2 * late + RESEND;
            }
            last = last.max(Instant::now() + self.latency + late);
            if segments
                .send((last, buffer[..bytes].to_vec()))
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

/// Gives the other node what is due.
async fn deliver(
    mut segments: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut writer: WriteHalf<DuplexStream>,
    state: &mut watch::Receiver<State>,
) -> Result<()> {
    while let Some((due, segment)) = segments.recv().await {
        sleep_until(due).await;
        let mut left = segment.as_slice();
        while !left.is_empty() {
            let now = *state.borrow_and_update();
            match now {
                State::Up => {
                    writer.write_all(left).await?;
                    left = &[];
                }
                State::Slow => {
                    sleep(Duration::from_secs(1)).await;
                    writer.write_all(&left[..1]).await?;
                    left = &left[1..];
                }
                State::Silent | State::Cut => _ = state.changed().await,
            }
        }
    }
    writer.shutdown().await
}
