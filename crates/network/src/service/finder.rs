//! Discovery as the network uses it: it runs the protocols on shared sockets, checks which chain the found nodes are of, hands
//! candidates to the roster, and keeps this node's record.
//!
//! ```text
//!   roster -- are candidates wanted? --> v4, v5, DNS lists (they pause while none are)
//!                                        |  found nodes, and where they see this one
//!   chain -- fork id --> [ finder ] <----+---- records of boot nodes ---> v5
//!                         |      \--> record: to v4 in turn, to the file, to the operator
//!                         +--> Found, to the roster
//! ```

use super::actor::Input;
use crate::address::{is_public, may_be_named_by};
use crate::discovery::dns::Dns;
use crate::discovery::reach::{Origin, Ports, Reach};
use crate::discovery::sieve::{Sieve, Verdict};
use crate::discovery::v4::{self, DiscoveryEvent};
use crate::discovery::v5::V5;
use crate::discovery::votes::Votes;
use crate::nat::NatEvent;
use crate::node::Node;
use crate::peer::LocalChain;
use crate::peers::{Candidate, Event, Source};
use crate::record::{LocalRecord, Record, RecordEntries};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// What the finder counts, for reports: no order with anything else is needed.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) found: AtomicU64,
    pub(super) other_chain: AtomicU64,
    pub(super) unchecked: AtomicU64,
}

/// What the finder needs.
pub(super) struct FinderConfig {
    pub(super) reach: Reach,
    pub(super) local: LocalRecord,
    pub(super) record: watch::Sender<Record>,
    pub(super) chain: watch::Receiver<LocalChain>,
    pub(super) inputs: mpsc::Sender<Input>,
    pub(super) v4: Option<v4::Discovery>,
    pub(super) v5: Option<V5>,
    pub(super) nat: Option<mpsc::Receiver<NatEvent>>,
    pub(super) dns: Option<Dns>,
    pub(super) checks_forks: bool,
    pub(super) counts: Arc<Counts>,
}

/// The finder.
pub(super) struct Finder {
    config: FinderConfig,
    sieve: Sieve,
    votes: Votes,
    started: Instant,
}

/// The next value; never, without a channel. A channel that has ended is taken out.
async fn next<T, E>(channel: &mut Option<T>, event: impl AsyncFn(&mut T) -> Option<E>) -> E {
    loop {
        let Some(open) = channel else {
            return std::future::pending().await;
        };
        match event(open).await {
            Some(event) => return event,
            None => *channel = None,
        }
    }
}

impl Finder {
    pub(super) fn new(config: FinderConfig) -> Self {
        Self {
            config,
            sieve: Sieve::default(),
            votes: Votes::default(),
            started: Instant::now(),
        }
    }

    /// Runs until the actor ends.
    pub(super) async fn run(mut self) {
        let inputs = self.config.inputs.clone();
        let (mut v4, mut v5) = (self.config.v4.take(), self.config.v5.take());
        let mut nat = self.config.nat.take();
        let mut dns = self.config.dns.take();
        let mut may_change = true;
        self.say_own_addresses();
        loop {
            tokio::select! {
                () = inputs.closed() => return,
                event = next(&mut v4, async |v4| v4.events.recv().await) => {
                    if let (DiscoveryEvent::BootRecord(record), Some(v5)) = (&event, &v5) {
                        v5.begin_with(record);
                    }
                    self.take(Source::V4, event);
                }
                event = next(&mut v5, async |v5| v5.events.recv().await) => self.take(Source::V5, event),
                event = next(&mut nat, async |nat| nat.recv().await) => self.routed(event),
                event = next(&mut dns, async |dns| dns.events.recv().await) => self.take(Source::Dns, event),
                changed = self.config.chain.changed(), if may_change => match changed {
                    Ok(()) => self.renew(),
                    Err(_) => may_change = false,
                },
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, source: Source, event: DiscoveryEvent) {
        match event {
            DiscoveryEvent::Found(found) => {
                self.found(source, &found.node, found.record.as_deref());
            }
            DiscoveryEvent::Observed { by, address } => self.observed(by, address),
            DiscoveryEvent::Decided(address) => self.voted(address),
            // It is for the other protocol.
            DiscoveryEvent::BootRecord(_) => {}
        }
    }

    /// A node was found: it becomes a candidate if it is, or may be, of this chain.
    fn found(&mut self, source: Source, node: &Node, record: Option<&Record>) {
        let address = node.tcp_address();
        let Some(address) = address.filter(|at| may_be_dialled(at.ip(), &self.config.reach)) else {
            return;
        };
        let now_ms = self.now_ms();
        let verdict = match self.config.checks_forks {
            true => {
                let chain = self.config.chain.borrow();
                self.sieve.judge(node.id, record, &chain.forks, now_ms)
            }
            false => Verdict::Dial,
        };
        let counts = &self.config.counts;
        let (count, source) = match verdict {
            Verdict::Dial => (&counts.found, source),
            Verdict::DialLast => (&counts.unchecked, Source::Unchecked),
            Verdict::OtherChain => {
                counts.other_chain.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        let candidate = Candidate {
            id: node.id,
            address,
            udp_port: node.udp,
        };
        let event = Event::Found { source, candidate };
        // With a full queue the roster has enough to do; the node is found again.
        let _ = self.config.inputs.try_send(Input::Roster(event));
    }

    /// Another node says where it sees this one.
    fn observed(&mut self, by: SocketAddr, address: SocketAddr) {
        let now_ms = self.now_ms();
        self.votes.add(by, address, now_ms);
        let is_ipv6 = address.ip().to_canonical().is_ipv6();
        if let Some(winner) = self.votes.winner(is_ipv6, now_ms) {
            self.voted(winner);
        }
    }

    fn voted(&mut self, address: SocketAddr) {
        let outer = Ports {
            tcp: 0,
            udp: address.port(),
        };
        self.change(|reach| reach.learn(Origin::Voted, address.ip(), outer));
    }

    /// A router opened ports, or closed them, or this machine has another address.
    fn routed(&mut self, event: NatEvent) {
        self.change(|reach| match event {
            NatEvent::Mapped(ip, outer) => reach.learn(Origin::Mapped, ip.into(), outer),
            NatEvent::Lost => reach.forget(Origin::Mapped, false),
            NatEvent::Local(ip) => reach.learn(Origin::Local, ip.into(), Ports::default()),
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Reach)) {
        let best = |reach: &Reach| [false, true].map(|is_ipv6| reach.best(is_ipv6));
        let before = best(&self.config.reach);
        change(&mut self.config.reach);
        if best(&self.config.reach) != before {
            self.say_own_addresses();
            self.renew();
        }
    }

    /// Tells the operator and the roster where this node is reached.
    fn say_own_addresses(&self) {
        for is_ipv6 in [false, true] {
            let Some((origin, known)) = self.config.reach.best(is_ipv6) else {
                continue;
            };
            let Ports { tcp, udp } = known.ports;
            info!(address = %known.ip, tcp, udp, "This node's address is {} ({origin})", known.ip);
        }
        for address in self.config.reach.tcp_addresses() {
            let event = Event::OwnAddress(address);
            let _ = self.config.inputs.try_send(Input::Roster(event));
        }
    }

    /// Makes the record say what holds now, and publishes it if it did not.
    fn renew(&mut self) {
        let config = &mut self.config;
        let entries = RecordEntries {
            serves_snap: config.local.record().entries().serves_snap,
            ..entries(&config.reach, &config.chain.borrow_and_update())
        };
        match self.config.local.update(&entries) {
            Ok(true) => {
                let record = self.config.local.record().clone();
                debug!(%record, seq = record.seq(), "This node's record has changed");
                self.config.record.send_replace(record);
            }
            Ok(false) => {}
            Err(error) => warn!(%error, "Can't change this node's record"),
        }
    }
}

/// Whether a found node's address is one for a node that is reached so: a private one only from a private network, one of this machine
/// only from this machine. Otherwise the signer of a record could have this node knock at the doors of its operator's own network.
fn may_be_dialled(ip: IpAddr, reach: &Reach) -> bool {
    let mut own = reach.tcp_addresses();
    is_public(ip) || own.any(|own| may_be_named_by(ip, own.ip()))
}

/// What the record of a node says that is reached so and has this chain.
pub(super) fn entries(reach: &Reach, chain: &LocalChain) -> RecordEntries {
    RecordEntries {
        fork_id: Some(chain.forks.current()),
        ..reach.entries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_dialled_in_a_private_network_alone_and_loopback_on_one_machine() {
        for (found, own, expected) in [
            ("8.8.8.8", None, true),
            ("8.8.8.8", Some("9.9.9.9"), true),
            ("10.0.0.2", None, false),
            ("10.0.0.2", Some("9.9.9.9"), false),
            ("127.0.0.1", Some("9.9.9.9"), false),
            ("::ffff:127.0.0.1", Some("9.9.9.9"), false),
            ("::1", Some("2600::1"), false),
            ("10.0.0.2", Some("192.168.1.1"), true),
            ("127.0.0.1", Some("192.168.1.1"), false),
            ("127.0.0.1", Some("127.0.0.1"), true),
            ("0.0.0.0", Some("127.0.0.1"), false),
            ("224.0.0.1", Some("9.9.9.9"), false),
        ] {
            let mut reach = Reach::default();
            for is_ipv6 in [false, true] {
                reach.bind(is_ipv6, Ports { tcp: 1, udp: 1 });
            }
            if let Some(own) = own {
                reach.learn(Origin::Local, own.parse().unwrap(), Ports::default());
            }
            let is_dialled = may_be_dialled(found.parse().unwrap(), &reach);
            assert_eq!(is_dialled, expected, "{found} from {own:?}");
        }
    }
}
