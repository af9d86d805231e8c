//! The task that looks for a router, has it open the ports, renews that, and closes them at the end.

use super::{ANSWER, NatError, Opened, Router, SSDP, Transport, pmp, route, upnp};
use crate::address::is_public;
use crate::discovery::reach::{Ports, local_ip};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info};

/// For how long a router is asked to open a port.
const LEASE: Duration = Duration::from_secs(20 * 60);
/// Ports that are open without an end count as open for so long: the router may forget them.
const PERMANENT: Duration = Duration::from_secs(40 * 60);
/// After a renewal that failed.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// So often this machine's address is looked at.
const POLL: Duration = Duration::from_secs(3 * 60);
/// Without a router, it is looked for again so often.
const LOOK_AGAIN: Duration = Duration::from_secs(30 * 60);
/// How long the closing may take at the end.
const CLOSE: Duration = Duration::from_secs(1);
/// Reports that may wait.
const MAX_EVENTS: usize = 8;

/// What the task reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NatEvent {
    /// A router opened ports at this address.
    Mapped(Ipv4Addr, Ports),
    /// What a router opened is no longer open.
    Lost,
    /// This machine has another address.
    Local(Ipv4Addr),
}

/// What the task finds around it.
pub(super) struct Surroundings {
    /// The address of this machine.
    pub(super) local: Box<dyn Fn() -> Option<Ipv4Addr> + Send + Sync>,
    /// Where NAT-PMP is answered.
    pub(super) pmp: Box<dyn Fn() -> Option<SocketAddr> + Send + Sync>,
    /// Where UPnP is answered.
    pub(super) ssdp: SocketAddr,
}

impl Surroundings {
    /// Those of a node that listens on this interface.
    pub(super) fn of_this_machine(interface: Ipv4Addr) -> Self {
        let routed = || match local_ip(false) {
            Some(IpAddr::V4(ip)) => Some(ip),
            _ => None,
        };
        let gateway = || Some(SocketAddr::new(route::default_gateway()?.into(), pmp::PORT));
        Self {
            local: match interface.is_unspecified() {
                true => Box::new(routed),
                false => Box::new(move || Some(interface)),
            },
            pmp: Box::new(gateway),
            ssdp: SSDP,
        }
    }
}

/// How the task is started.
pub(super) struct NatConfig {
    /// Whether NAT-PMP is tried, and before UPnP.
    pub(super) asks_pmp: bool,
    /// Whether UPnP is tried.
    pub(super) asks_upnp: bool,
    /// Whether no router is looked for while this machine has a public address.
    pub(super) skips_public: bool,
    /// Ours; 0 is not opened.
    pub(super) ports: Ports,
    pub(super) surroundings: Surroundings,
}

/// The task as its owner has it.
#[derive(Debug)]
pub(crate) struct Nat {
    /// What it reports.
    pub(crate) events: mpsc::Receiver<NatEvent>,
    /// What ends it.
    pub(crate) handle: NatHandle,
}

/// Ends the task. Dropped, it ends at once, and what is open closes when its time is over.
#[derive(Debug)]
pub(crate) struct NatHandle {
    stop: mpsc::Sender<()>,
    task: AbortHandle,
}

impl NatHandle {
    /// Closes what is open, which takes a second at most.
    pub(crate) async fn stop(&self) {
        let _ = self.stop.try_send(());
        let _ = timeout(2 * CLOSE, self.stop.closed()).await;
    }
}

impl Drop for NatHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts the task.
///
/// # Panics
/// Outside of a tokio runtime.
pub(super) fn start(config: NatConfig) -> Nat {
    let (report, events) = mpsc::channel(MAX_EVENTS);
    let (stop, stopped) = mpsc::channel(1);
    let task = Task {
        local: (config.surroundings.local)(),
        config,
        report,
        held: None,
        look_at: Some(Instant::now()),
        has_said: false,
    };
    let task = tokio::spawn(task.run(stopped)).abort_handle();
    Nat {
        events,
        handle: NatHandle { stop, task },
    }
}

/// What a router opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    ip: Ipv4Addr,
    /// The router's ports; 0 where ours is 0.
    outer: Ports,
    lease: Option<Duration>,
}

/// A router with what it has open for us.
#[derive(Debug)]
struct Held {
    router: Router,
    terms: Terms,
    renew_at: Instant,
    /// When it closes by itself.
    ends_at: Instant,
}

impl Held {
    fn new(router: Router, terms: Terms) -> Self {
        let now = Instant::now();
        let lease = terms.lease.unwrap_or(PERMANENT);
        Self {
            router,
            terms,
            renew_at: now + lease / 2,
            ends_at: now + lease,
        }
    }
}

struct Task {
    config: NatConfig,
    report: mpsc::Sender<NatEvent>,
    local: Option<Ipv4Addr>,
    held: Option<Held>,
    /// When a router is looked for; `None` while there is one.
    look_at: Option<Instant>,
    /// That there is no router is said once.
    has_said: bool,
}

impl Task {
    async fn run(mut self, mut stop: mpsc::Receiver<()>) {
        loop {
            tokio::select! {
                _ = stop.recv() => break,
                () = self.wait_and_act() => {}
            }
        }
        if let Some(held) = &self.held {
            let _ = timeout(
                CLOSE,
                close(&held.router, self.config.ports, held.terms.outer),
            )
            .await;
        }
    }

    async fn wait_and_act(&mut self) {
        let renew_at = self.held.as_ref().map(|held| held.renew_at);
        let due = renew_at.into_iter().chain(self.look_at).min();
        let poll_at = Instant::now() + POLL;
        sleep_until(due.map_or(poll_at, |due| due.min(poll_at))).await;
        self.follow_local().await;
        let now = Instant::now();
        if self.look_at.is_some_and(|at| at <= now) {
            self.look().await;
        } else if self.held.as_ref().is_some_and(|held| held.renew_at <= now) {
            self.renew().await;
        }
    }

    async fn send(&self, event: NatEvent) {
        let _ = self.report.send(event).await;
    }

    /// Another address means another place: what was open leads to the old one.
    async fn follow_local(&mut self) {
        let local = (self.config.surroundings.local)();
        let Some(ip) = local.filter(|_| local != self.local) else {
            return;
        };
        self.local = local;
        self.send(NatEvent::Local(ip)).await;
        self.lose().await;
    }

    async fn lose(&mut self) {
        if self.held.take().is_some() {
            self.send(NatEvent::Lost).await;
        }
        self.look_at = Some(Instant::now());
    }

    /// Looks for a router and has it open the ports.
    async fn look(&mut self) {
        self.look_at = Some(Instant::now() + LOOK_AGAIN);
        let Some(local) = self.local else {
            return;
        };
        if !is_behind_router(local, self.config.skips_public) {
            return;
        }
        let mut reasons = Vec::new();
        for (name, router) in self.routers(local).await {
            let opened = match router {
                Ok(router) => {
                    let ports = self.config.ports;
                    let terms = open(&router, ports, ports).await;
                    terms.map(|terms| Held::new(router, terms))
                }
                Err(error) => Err(error),
            };
            match opened {
                Ok(held) => {
                    let Terms { ip, outer, .. } = held.terms;
                    debug!(%ip, ?outer, "The router opened this node's ports by {}", held.router.name());
                    self.held = Some(held);
                    self.look_at = None;
                    self.send(NatEvent::Mapped(ip, outer)).await;
                    return;
                }
                Err(error) => reasons.push(format!("{name}: {error}")),
            }
        }
        let reasons = reasons.join("; ");
        match std::mem::replace(&mut self.has_said, true) {
            false => info!(
                "No router opened this node's ports ({reasons}); other nodes tell its address"
            ),
            true => debug!(reasons, "No router opened this node's ports"),
        }
    }

    /// The routers that may be there, asked side by side.
    async fn routers(&self, local: Ipv4Addr) -> Vec<(&'static str, Result<Router, NatError>)> {
        let around = &self.config.surroundings;
        let pmp = async {
            let gateway = (around.pmp)().ok_or(NatError::Silent)?;
            let pmp = pmp::Pmp::new(gateway, local).await?;
            // Whether anything answers.
            pmp.address().await?;
            Ok(Router::Pmp(pmp))
        };
        let upnp = async {
            let found = timeout(ANSWER, upnp::Upnp::find(around.ssdp, local)).await;
            let upnp = found.map_err(|_late| NatError::Silent)??;
            Ok(Router::Upnp(Box::new(upnp)))
        };
        let (asks_pmp, asks_upnp) = (self.config.asks_pmp, self.config.asks_upnp);
        let (pmp, upnp) = tokio::join!(
            async {
                if asks_pmp {
                    Some(("NAT-PMP", pmp.await))
                } else {
                    None
                }
            },
            async {
                if asks_upnp {
                    Some(("UPnP", upnp.await))
                } else {
                    None
                }
            },
        );
        pmp.into_iter().chain(upnp).collect()
    }

    /// Has the ports opened again. What is open stays until its time is over, even if the router does not answer now.
    async fn renew(&mut self) {
        let Some(held) = &self.held else {
            return;
        };
        let before = held.terms;
        let renewed = open(&held.router, self.config.ports, before.outer).await;
        let Some(held) = self.held.take() else {
            return;
        };
        match renewed {
            Ok(terms) => {
                self.held = Some(Held::new(held.router, terms));
                if (terms.ip, terms.outer) != (before.ip, before.outer) {
                    self.send(NatEvent::Mapped(terms.ip, terms.outer)).await;
                }
            }
            Err(error) => {
                debug!(%error, "The router did not renew this node's ports");
                let renew_at = Instant::now() + RENEW_AGAIN;
                let is_over = held.ends_at <= renew_at;
                self.held = Some(Held { renew_at, ..held });
                if is_over {
                    self.lose().await;
                }
            }
        }
    }
}

/// Whether a router is looked for from this address.
fn is_behind_router(local: Ipv4Addr, skips_public: bool) -> bool {
    !(skips_public && is_public(local.into()))
}

/// Has a router open ports for ours, those of `outer` if it can: both or none.
async fn open(router: &Router, inner: Ports, outer: Ports) -> Result<Terms, NatError> {
    let mut terms = Terms {
        ip: router.address().await?,
        outer: Ports::default(),
        lease: None,
    };
    for (transport, port, wanted) in [
        (Transport::Tcp, inner.tcp, outer.tcp),
        (Transport::Udp, inner.udp, outer.udp),
    ] {
        if port == 0 {
            continue;
        }
        match router.open(transport, port, wanted, LEASE).await {
            Ok(Opened { port, lease }) => {
                let leases = terms.lease.into_iter().chain(lease);
                terms.lease = leases.min();
                match transport {
                    Transport::Tcp => terms.outer.tcp = port,
                    Transport::Udp => terms.outer.udp = port,
                }
            }
            Err(error) => {
                close(router, inner, terms.outer).await;
                return Err(error);
            }
        }
    }
    Ok(terms)
}

/// Has a router close what it opened, one after the other: answers of NAT-PMP come over one socket.
async fn close(router: &Router, inner: Ports, outer: Ports) {
    for (transport, inner, outer) in [
        (Transport::Tcp, inner.tcp, outer.tcp),
        (Transport::Udp, inner.udp, outer.udp),
    ] {
        if outer == 0 {
            continue;
        }
        if let Err(error) = router.close(transport, inner, outer).await {
            debug!(%error, outer, "The router did not close a port");
        }
    }
}

#[cfg(test)]
mod tests;
