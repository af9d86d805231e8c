//! The task that looks for a router, has it open the ports, renews that, and closes them at the end.

use super::{NatError, Router, SSDP, Transport, pmp, route, upnp};
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
/// What is open counts as open for at least so long and at most [`LEASE`], whatever the router says.
const MIN_LEASE: Duration = Duration::from_secs(60);
/// Ports that are open without an end count as open for so long: the router may forget them.
const PERMANENT: Duration = Duration::from_secs(40 * 60);
/// After a renewal that failed.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// So often this machine's address is looked at.
const POLL: Duration = Duration::from_secs(3 * 60);
/// Without a router, it is looked for again so often.
const LOOK_AGAIN: Duration = Duration::from_secs(30 * 60);
/// How long the closing of a port may take.
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

/// The network in which this machine is.
pub(super) struct LocalNetwork {
    /// The address of this machine.
    pub(super) local: Box<dyn Fn() -> Option<Ipv4Addr> + Send + Sync>,
    /// The default gateway, with its port for NAT-PMP.
    pub(super) gateway: Box<dyn Fn() -> Option<SocketAddr> + Send + Sync>,
    /// Where UPnP is answered.
    pub(super) ssdp: SocketAddr,
}

impl LocalNetwork {
    /// That of a node that listens on this interface.
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
            gateway: Box::new(gateway),
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
    /// Whether any device may answer by UPnP; else the default gateway alone, where it is known.
    pub(super) takes_any_device: bool,
    /// Whether no router is looked for while this machine has a public address.
    pub(super) skips_public: bool,
    /// Ours; 0 is not opened.
    pub(super) ports: Ports,
    pub(super) network: LocalNetwork,
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
    /// Closes what is open, which takes two seconds at most.
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
        local: (config.network.local)(),
        config,
        report,
        mapping: None,
        look_at: Some(Instant::now()),
        has_said: false,
    };
    let task = tokio::spawn(task.run(stopped)).abort_handle();
    Nat {
        events,
        handle: NatHandle { stop, task },
    }
}

/// The ports that a router opens for us, or has open.
#[derive(Debug)]
struct PortMapping {
    router: Router,
    /// The address that others see.
    ip: Ipv4Addr,
    /// The router's ports that are open; 0 for none.
    outer: Ports,
    renew_at: Instant,
    /// When the router closes them by itself.
    ends_at: Instant,
}

impl PortMapping {
    /// A router that has opened nothing yet.
    fn new(router: Router) -> Self {
        let now = Instant::now();
        Self {
            router,
            ip: Ipv4Addr::UNSPECIFIED,
            outer: Ports::default(),
            renew_at: now,
            ends_at: now,
        }
    }

    fn event(&self) -> NatEvent {
        NatEvent::Mapped(self.ip, self.outer)
    }

    /// Has the router open ports for ours, or open them again. If one can't be opened, those that were open before stay so and
    /// no other.
    async fn open(&mut self, inner: Ports) -> Result<(), NatError> {
        let before = self.outer;
        let opened = self.open_each(inner).await;
        let (kept, other) = match opened {
            Ok(()) => (self.outer, before),
            Err(_) => (before, self.outer),
        };
        self.close(inner, self.beside(kept, other)).await;
        self.outer = kept;
        opened
    }

    /// Each port counts as open as soon as the router says so: a stop may come in between.
    async fn open_each(&mut self, inner: Ports) -> Result<(), NatError> {
        let ip = self.router.address().await?;
        let mut lease = None;
        for transport in [Transport::Tcp, Transport::Udp] {
            let (inner, outer) = match transport {
                Transport::Tcp => (inner.tcp, &mut self.outer.tcp),
                Transport::Udp => (inner.udp, &mut self.outer.udp),
            };
            if inner == 0 {
                continue;
            }
            let wanted = if *outer == 0 { inner } else { *outer };
            let opened = self.router.open(transport, inner, wanted, LEASE).await?;
            *outer = opened.port;
            lease = lease.into_iter().chain(opened.lease).min();
        }
        let lease = lease.map_or(PERMANENT, |lease| lease.clamp(MIN_LEASE, LEASE));
        let now = Instant::now();
        (self.ip, self.renew_at, self.ends_at) = (ip, now + lease / 2, now + lease);
        Ok(())
    }

    /// Those of the `other` ports that are open besides the `kept` ones. For each of our ports NAT-PMP has one of the router's: a new
    /// one replaces the old one.
    fn beside(&self, kept: Ports, other: Ports) -> Ports {
        let has_one = matches!(self.router, Router::Pmp(_));
        let beside = |kept: u16, other: u16| match other == kept || (has_one && kept != 0) {
            true => 0,
            false => other,
        };
        Ports {
            tcp: beside(kept.tcp, other.tcp),
            udp: beside(kept.udp, other.udp),
        }
    }

    /// Has the router close ports, TCP and UDP at the same time.
    async fn close(&self, inner: Ports, outer: Ports) {
        tokio::join!(
            self.close_one(Transport::Tcp, inner.tcp, outer.tcp),
            self.close_one(Transport::Udp, inner.udp, outer.udp),
        );
    }

    async fn close_one(&self, transport: Transport, inner: u16, outer: u16) {
        if outer == 0 {
            return;
        }
        let closed = timeout(CLOSE, self.router.close(transport, inner, outer)).await;
        if let Err(error) = closed.unwrap_or(Err(NatError::Silent)) {
            debug!(%error, outer, "The router did not close a port");
        }
    }
}

struct Task {
    config: NatConfig,
    report: mpsc::Sender<NatEvent>,
    local: Option<Ipv4Addr>,
    mapping: Option<PortMapping>,
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
        self.close().await;
    }

    async fn wait_and_act(&mut self) {
        let renew_at = self.mapping.as_ref().map(|mapping| mapping.renew_at);
        let due = renew_at.into_iter().chain(self.look_at).min();
        let poll_at = Instant::now() + POLL;
        sleep_until(due.map_or(poll_at, |due| due.min(poll_at))).await;
        self.follow_local().await;
        let now = Instant::now();
        if self.look_at.is_some_and(|at| at <= now) {
            self.look().await;
        } else if renew_at.is_some_and(|at| at <= now) {
            self.renew().await;
        }
    }

    async fn send(&self, event: NatEvent) {
        let _ = self.report.send(event).await;
    }

    /// Another address means another place: what was open leads to the old one.
    async fn follow_local(&mut self) {
        let local = (self.config.network.local)();
        let Some(ip) = local.filter(|_| local != self.local) else {
            return;
        };
        self.local = local;
        self.send(NatEvent::Local(ip)).await;
        self.lose().await;
    }

    /// What is open is of no use any more. The router, if it still answers, closes it.
    async fn lose(&mut self) {
        if self.mapping.is_some() {
            self.send(NatEvent::Lost).await;
            self.close().await;
            self.mapping = None;
        }
        self.look_at = Some(Instant::now());
    }

    async fn close(&self) {
        if let Some(mapping) = &self.mapping {
            mapping.close(self.config.ports, mapping.outer).await;
        }
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
                Ok(router) => self.open(router).await,
                Err(error) => Err(error),
            };
            match opened {
                Ok(event) => {
                    debug!(?event, "The router opened this node's ports by {name}");
                    self.look_at = None;
                    self.send(event).await;
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

    /// Has a router open the ports. The mapping is kept from the beginning, so that a stop meanwhile closes what is open.
    async fn open(&mut self, router: Router) -> Result<NatEvent, NatError> {
        let mapping = self.mapping.insert(PortMapping::new(router));
        let opened = mapping.open(self.config.ports).await;
        let event = mapping.event();
        if opened.is_err() {
            self.mapping = None;
        }
        opened.map(|()| event)
    }

    /// The routers that may be there, asked side by side.
    async fn routers(&self, local: Ipv4Addr) -> Vec<(&'static str, Result<Router, NatError>)> {
        let network = &self.config.network;
        let gateway = (network.gateway)();
        let pmp = async {
            let pmp = pmp::Pmp::new(gateway.ok_or(NatError::Silent)?, local);
            // Whether anything answers.
            pmp.address().await?;
            Ok(Router::Pmp(pmp))
        };
        let only = gateway.filter(|_| !self.config.takes_any_device);
        let only = only.map(|gateway| gateway.ip());
        let upnp = async {
            let upnp = upnp::Upnp::find(network.ssdp, local, only).await?;
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
        let Some(mapping) = &mut self.mapping else {
            return;
        };
        let before = mapping.event();
        let renewed = mapping.open(self.config.ports).await;
        let event = mapping.event();
        let mut is_over = false;
        if let Err(error) = &renewed {
            debug!(%error, "The router did not renew this node's ports");
            mapping.renew_at = Instant::now() + RENEW_AGAIN;
            is_over = mapping.ends_at <= mapping.renew_at;
        }
        if is_over {
            self.lose().await;
        } else if event != before {
            self.send(event).await;
        }
    }
}

/// Whether a router is looked for from this address.
fn is_behind_router(local: Ipv4Addr, skips_public: bool) -> bool {
    !(skips_public && is_public(local.into()))
}

#[cfg(test)]
mod tests;
