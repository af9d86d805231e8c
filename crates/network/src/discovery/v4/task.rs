//! Discovery v4 on UDP sockets: moves packets, resolves the names of boot nodes, hands found nodes out.
//!
//! Found nodes go into a channel of 64. While more than half of it is unread, or none are wanted, no look-ups are made: candidates are
//! pulled, not pushed.

use super::machine::{Action, Dropped, Machine};
use super::sockets::Sockets;
use super::wire::{MAX_PACKET_BYTES, PACKET_NAMES, packet_index};
use super::{Contact, DiscoveryEvent, Now};
use crate::key::NodeKey;
use crate::node::{Host, Node};
use crate::record::Record;
use crate::subnet::NetRestrict;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Most events that wait to be read; more are dropped.
const MAX_WAITING_EVENTS: usize = 64;

/// Names of boot nodes are resolved again so often, and sooner while none could be.
const RESOLVE_AGAIN: Duration = Duration::from_secs(30 * 60);
const RESOLVE_FAILED: Duration = Duration::from_secs(30);

/// After an error of a socket, the task rests so long.
const SOCKET_ERROR_PAUSE: Duration = Duration::from_millis(100);

/// What discovery needs to begin.
#[derive(Debug)]
pub struct DiscoveryConfig {
    /// The node's key.
    pub key: NodeKey,
    /// The node's record, and each later one.
    pub record: watch::Receiver<Record>,
    /// Nodes to ask first. Those without a port for discovery are passed over.
    pub boot_nodes: Vec<Node>,
    /// With which networks this node deals.
    pub net_restrict: NetRestrict,
    /// Whether nodes are looked for.
    pub is_wanting: watch::Receiver<bool>,
}

/// What a task counts, for reports: no order with anything else is needed.
#[derive(Debug, Default)]
struct Figures {
    table_len: AtomicUsize,
    in_flight: AtomicUsize,
    /// Of all packets that were read.
    bytes: AtomicU64,
    /// In the order of [`PACKET_NAMES`]: received, sent.
    packets: [[AtomicU64; 2]; PACKET_NAMES.len()],
    /// In the order of [`Dropped::ALL`].
    dropped: [AtomicU64; Dropped::ALL.len()],
}

/// What discovery v4 has counted.
#[derive(Clone, Debug)]
pub struct V4Figures(Arc<Figures>);

impl V4Figures {
    /// How many nodes are in the table.
    pub fn table_len(&self) -> usize {
        self.0.table_len.load(Ordering::Relaxed)
    }

    /// How many requests wait for their answers.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// Bytes of all packets that were read, what could be made of them or not.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// How many packets came and could be read, and how many were sent, by their names.
    pub fn packets(&self) -> [[(&'static str, u64); 2]; PACKET_NAMES.len()] {
        let mut counts = self.0.packets.iter();
        PACKET_NAMES.map(|name| {
            let counts = counts.next().map(|both| both.each_ref());
            let load = |count: &AtomicU64| (name, count.load(Ordering::Relaxed));
            counts.map_or([(name, 0); 2], |both| both.map(load))
        })
    }

    /// How many packets were dropped, by reason.
    pub fn dropped(&self) -> [(Dropped, u64); Dropped::ALL.len()] {
        let counts = self.0.dropped.each_ref();
        let mut counts = counts
            .map(|count| count.load(Ordering::Relaxed))
            .into_iter();
        Dropped::ALL.map(|reason| (reason, counts.next().unwrap_or_default()))
    }
}

/// Discovery that runs. It ends when this is dropped.
#[derive(Debug)]
pub struct Discovery {
    /// What it found.
    pub events: mpsc::Receiver<DiscoveryEvent>,
    /// What it counts.
    pub figures: V4Figures,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Starts discovery on its sockets.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn start(sockets: Sockets, config: DiscoveryConfig) -> Discovery {
    let has_ipv6 = sockets.ipv6.is_some();
    let (report, events) = mpsc::channel(MAX_WAITING_EVENTS);
    let (resolved, resolved_nodes) = mpsc::channel(MAX_WAITING_EVENTS);
    let figures = Arc::new(Figures::default());
    let DiscoveryConfig {
        key,
        mut record,
        boot_nodes,
        net_restrict,
        is_wanting,
    } = config;
    let contacts = boot_nodes.iter().filter_map(contact);
    let mut machine = Machine::new(
        key,
        record.borrow_and_update().clone(),
        contacts.collect(),
        SmallRng::from_os_rng(),
    );
    machine.restrict(net_restrict);
    let task = Task {
        machine,
        sockets,
        started: Instant::now(),
        report,
        record,
        is_wanting,
        figures: Arc::clone(&figures),
    };
    let names = boot_nodes.into_iter().filter(|node| node.udp != 0);
    let names = names.filter(|node| matches!(node.host, Host::Name(_)));
    let tasks = [
        tokio::spawn(task.run(resolved_nodes)),
        tokio::spawn(resolve(names.collect(), has_ipv6, resolved)),
    ];
    Discovery {
        events,
        figures: V4Figures(figures),
        tasks,
    }
}

fn contact(node: &Node) -> Option<Contact> {
    let address = node.udp_address()?;
    Some(Contact::new(node.id, address, node.tcp))
}

/// Resolves the names of nodes, again and again, because the address behind a name may change. Of several addresses it takes an IPv4
/// one if there is one: an IPv6 socket reaches it too.
async fn resolve(nodes: Vec<Node>, has_ipv6: bool, resolved: mpsc::Sender<Contact>) {
    if nodes.is_empty() {
        return;
    }
    loop {
        let mut has_any = false;
        for node in &nodes {
            let Host::Name(name) = &node.host else {
                continue;
            };
            let addresses = tokio::net::lookup_host((name.as_str(), node.udp)).await;
            let usable = addresses.into_iter().flatten();
            let usable = usable.filter(|address| has_ipv6 || address.is_ipv4());
            let address = usable.min_by_key(SocketAddr::is_ipv6);
            if let Some(address) = address {
                has_any = true;
                let contact = Contact::new(node.id, address, node.tcp);
                if resolved.send(contact).await.is_err() {
                    return;
                }
            }
        }
        let pause = if has_any {
            RESOLVE_AGAIN
        } else {
            RESOLVE_FAILED
        };
        tokio::time::sleep(pause).await;
    }
}

/// The machine with its sockets.
struct Task {
    machine: Machine,
    sockets: Sockets,
    started: Instant,
    report: mpsc::Sender<DiscoveryEvent>,
    record: watch::Receiver<Record>,
    is_wanting: watch::Receiver<bool>,
    figures: Arc<Figures>,
}

impl Task {
    fn now(&self) -> Now {
        let ms = self.started.elapsed().as_millis();
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Now {
            ms: u64::try_from(ms).unwrap_or(u64::MAX),
            unix_s: unix.unwrap_or_default().as_secs(),
        }
    }

    async fn run(mut self, mut resolved: mpsc::Receiver<Contact>) {
        // A packet that is longer than allowed is cut to one byte more than allowed, and refused.
        let mut buffer = [0; MAX_PACKET_BYTES + 1];
        let (mut may_resolve, mut may_change, mut may_want) = (true, true, true);
        while !self.report.is_closed() {
            let wake_ms = self.machine.next_wake_ms();
            let wake = self.started + Duration::from_millis(wake_ms);
            tokio::select! {
                received = self.sockets.receive(&mut buffer) => match received {
                    Ok((length, from)) => {
                        let data = buffer.get(..length).unwrap_or_default();
                        self.figures.bytes.fetch_add(length as u64, Ordering::Relaxed);
                        let received = self.machine.receive(from, data, self.now());
                        if received != Err(Dropped::Malformed) {
                            self.count_packet(data, 0);
                        }
                        if let Err(reason) = received {
                            self.count(reason);
                        }
                    }
                    Err(_) => tokio::time::sleep(SOCKET_ERROR_PAUSE).await,
                },
                () = tokio::time::sleep_until(wake) => self.machine.tick(self.now()),
                contact = resolved.recv(), if may_resolve => match contact {
                    Some(contact) => self.machine.add_boot_nodes([contact]),
                    None => may_resolve = false,
                },
                changed = self.record.changed(), if may_change => match changed {
                    Ok(()) => {
                        let record = self.record.borrow_and_update().clone();
                        self.machine.set_record(record);
                    }
                    Err(_) => may_change = false,
                },
                // What follows is done below.
                changed = self.is_wanting.changed(), if may_want => may_want = changed.is_ok(),
            }
            self.act().await;
        }
    }

    async fn act(&mut self) {
        for action in self.machine.take_actions() {
            match action {
                Action::Send { to, packet } => {
                    self.count_packet(&packet, 1);
                    self.sockets.send(to, &packet).await;
                }
                Action::Report(event) => {
                    // What others say of our address may not take the room of found nodes.
                    let is_vote = matches!(event, DiscoveryEvent::Observed { .. });
                    if !is_vote || self.has_room() {
                        let _ = self.report.try_send(event);
                    }
                }
            }
        }
        let is_wanting = self.has_room() && *self.is_wanting.borrow_and_update();
        let now = self.now();
        self.machine.set_wanting(is_wanting, now);
        let length = self.machine.table_len();
        self.figures.table_len.store(length, Ordering::Relaxed);
        let in_flight = self.machine.in_flight();
        self.figures.in_flight.store(in_flight, Ordering::Relaxed);
    }

    fn count(&self, reason: Dropped) {
        let mut counts = Dropped::ALL.into_iter().zip(&self.figures.dropped);
        if let Some((_, count)) = counts.find(|(counted, _)| *counted == reason) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a packet that came (0) or goes (1).
    fn count_packet(&self, packet: &[u8], way: usize) {
        let row = packet_index(packet).and_then(|index| self.figures.packets.get(index));
        if let Some(count) = row.and_then(|row| row.get(way)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn has_room(&self) -> bool {
        self.report.capacity() > MAX_WAITING_EVENTS / 2
    }
}
