//! NAT: the router between this node and everyone else opens this node's ports, so that others reach it.
//!
//! ```text
//!   this node 192.168.1.5        router 203.0.113.7            others
//!   TCP, UDP 30303 <------------ TCP 30303, UDP 30303 <------- the record says 203.0.113.7
//!        \------ "open these ports, for 20 minutes" ---^
//! ```
//!
//! A router is asked by UPnP (its address is found by multicast) and by NAT-PMP (it is the default gateway), side by side. What it
//! opened is renewed at half of its time and closed when the node stops. Only IPv4 is translated so. Nothing is asked if the node
//! listens on loopback only.
//!
//! | file | what it is |
//! |---|---|
//! | `task` | when to look for a router, to renew, to close |
//! | `pmp` | NAT-PMP |
//! | `upnp` | UPnP, by the crate `igd-next` |
//! | `route` | the default gateway |
//! | `docker` | the address of a container's host, which needs no asking |
//!
//! Spec: RFC 6886; UPnP Internet Gateway Device, WANIPConnection.

mod docker;
mod pmp;
mod route;
mod task;
mod upnp;

use crate::address::is_public;
use crate::discovery::reach::{Origin, Reach};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tracing::{info, warn};

use task::{LocalNetwork, NatConfig};
pub(crate) use task::{Nat, NatEvent, NatHandle};

/// How long a router may take to answer one question.
const ANSWER: Duration = Duration::from_secs(3);

/// How this node finds the address that others see, if the operator gives none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NatMethod {
    /// It asks no router.
    None,
    /// In a container it takes a public address of the name `HOST_IP`, as `Docker` does. Without one, and outside of containers, it
    /// asks the router by UPnP and by NAT-PMP if this machine's address is private.
    #[default]
    Auto,
    /// It asks the router by UPnP: the first device that says it is one.
    Upnp,
    /// The name `HOST_IP` in `/etc/hosts` has the address of the container's host, and the variable `HOST_PORT_30303` the host's port
    /// for 30303.
    Docker,
}

/// A transport of which a port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

/// What a router opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opened {
    /// The router's port.
    port: u16,
    /// For how long; `None` until it is closed.
    lease: Option<Duration>,
}

/// Why a router opens nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NatError {
    #[error("there is no answer")]
    Silent,
    #[error("the answer can't be read: {0}")]
    Malformed(String),
    #[error("the router refuses: {0}")]
    Refused(String),
    #[error("the router's own address {0} is no public one: another router is in front of it")]
    BehindAnotherRouter(Ipv4Addr),
    #[error("{0} answers, which is not the default gateway; --nat-method=UPNP takes any device")]
    NotTheGateway(IpAddr),
    #[error("{0}")]
    Io(String),
}

impl From<std::io::Error> for NatError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

/// A router that opens ports.
#[derive(Debug)]
enum Router {
    Pmp(pmp::Pmp),
    Upnp(Box<upnp::Upnp>),
}

impl Router {
    /// The address that others see, if they can see it.
    async fn address(&self) -> Result<Ipv4Addr, NatError> {
        let ip = match self {
            Self::Pmp(pmp) => pmp.address().await,
            Self::Upnp(upnp) => upnp.address().await,
        }?;
        match is_public(ip.into()) {
            true => Ok(ip),
            false => Err(NatError::BehindAnotherRouter(ip)),
        }
    }

    /// Has it open a port of its own, if it can `outer`, for one of ours.
    async fn open(
        &self,
        transport: Transport,
        inner: u16,
        outer: u16,
        lease: Duration,
    ) -> Result<Opened, NatError> {
        match self {
            Self::Pmp(pmp) => pmp.open(transport, inner, outer, lease).await,
            Self::Upnp(upnp) => upnp.open(transport, inner, outer, lease).await,
        }
    }

    /// Has it close a port that it opened.
    async fn close(&self, transport: Transport, inner: u16, outer: u16) -> Result<(), NatError> {
        match self {
            Self::Pmp(pmp) => pmp.close(transport, inner).await,
            Self::Upnp(upnp) => upnp.close(transport, outer).await,
        }
    }
}

/// Begins what the method says. `interface` is where this node listens on IPv4. What is known at once, `reach` has afterwards; `None`
/// if no router is asked.
///
/// # Panics
/// Outside of a tokio runtime.
pub(crate) fn begin(
    method: NatMethod,
    interface: Option<Ipv4Addr>,
    reach: &mut Reach,
) -> Option<Nat> {
    let interface = interface.filter(|ip| !ip.is_loopback())?;
    let ports = reach.bound(false)?;
    let is_told = method == NatMethod::Docker || docker::is_container();
    let host = is_told.then(|| docker::Host::read(ports));
    asks_router(method, host, reach).then(|| {
        task::start(NatConfig {
            asks_pmp: method == NatMethod::Auto,
            asks_upnp: true,
            takes_any_device: method == NatMethod::Upnp,
            // With UPNP the operator says that there is a router, whatever the addresses look like.
            skips_public: method == NatMethod::Auto,
            ports,
            network: LocalNetwork::of_this_machine(interface),
        })
    })
}

/// Learns what a container tells of its host, if the method says so, and decides whether a router is asked.
fn asks_router(method: NatMethod, host: Option<docker::Host>, reach: &mut Reach) -> bool {
    match method {
        NatMethod::None => false,
        NatMethod::Upnp => true,
        NatMethod::Docker => {
            learn_of_host(method, host.unwrap_or_default(), reach);
            false
        }
        NatMethod::Auto => {
            if let Some(host) = host {
                learn_of_host(method, host, reach);
            }
            given_ip(reach).is_none()
        }
    }
}

fn given_ip(reach: &Reach) -> Option<IpAddr> {
    let best = reach.best(false);
    let given = best.filter(|(origin, _)| *origin == Origin::Given)?;
    Some(given.1.ip)
}

/// Learns the address and the ports of a container's host. An address that the operator gave stays. Unless DOCKER was chosen, only
/// a public address is taken.
fn learn_of_host(method: NatMethod, host: docker::Host, reach: &mut Reach) {
    let is_chosen = method == NatMethod::Docker;
    let told = host.ip.map(IpAddr::V4);
    let taken = told.filter(|ip| is_chosen || is_public(*ip));
    if let Some(ip) = given_ip(reach).or(taken) {
        reach.learn(Origin::Given, ip, host.ports);
    } else if let Some(ip) = told {
        info!(
            "The name HOST_IP has the address {ip}, which is no public one: --nat-method=DOCKER takes it, AUTO does not"
        );
    } else if is_chosen {
        warn!(
            "No address of the container's host: /etc/hosts has none with the name HOST_IP. Start the container with \
             --add-host=HOST_IP:<address>, or set --p2p-host"
        );
    }
}

/// Where UPnP routers listen.
const SSDP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 255, 255, 250)), 1900);

#[cfg(test)]
mod tests;
