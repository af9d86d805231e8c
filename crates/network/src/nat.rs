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
use crate::discovery::reach::{Origin, Ports, Reach};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tracing::warn;

pub(crate) use task::{Nat, NatEvent, NatHandle};
use task::{NatConfig, Surroundings};

/// How long a router may take to answer one question.
const ANSWER: Duration = Duration::from_secs(3);

/// How this node finds the address that others see, if the operator gives none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NatMethod {
    /// It asks no router.
    None,
    /// In a container as `Docker`. Else, behind a private address, it asks the router by UPnP and by NAT-PMP.
    #[default]
    Auto,
    /// It asks the router by UPnP.
    Upnp,
    /// The name `HOST_IP` has the address of the container's host, and the variable `HOST_PORT_30303` the host's port for 30303.
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
    Inner(IpAddr),
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
    fn name(&self) -> &'static str {
        match self {
            Self::Pmp(_) => "NAT-PMP",
            Self::Upnp(_) => "UPnP",
        }
    }

    /// The address that others see, if they can see it.
    async fn address(&self) -> Result<Ipv4Addr, NatError> {
        let ip = match self {
            Self::Pmp(pmp) => pmp.address().await,
            Self::Upnp(upnp) => upnp.address().await,
        }?;
        // Shared addresses (RFC 6598) are those behind a provider's router.
        let is_shared = matches!(ip.octets(), [100, 64..=127, ..]);
        match is_public(ip.into()) && !is_shared {
            true => Ok(ip),
            false => Err(NatError::Inner(ip.into())),
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
pub(crate) async fn begin(
    method: NatMethod,
    interface: Option<Ipv4Addr>,
    reach: &mut Reach,
) -> Option<Nat> {
    let interface = interface.filter(|ip| !ip.is_loopback())?;
    let ports = reach.bound(false)?;
    let is_docker =
        method == NatMethod::Docker || method == NatMethod::Auto && docker::is_container();
    if is_docker {
        learn_of_host(method, ports, reach).await;
    }
    let is_given = reach
        .best(false)
        .is_some_and(|(origin, _)| origin == Origin::Given);
    let asks = match method {
        NatMethod::None | NatMethod::Docker => false,
        NatMethod::Auto => !is_given,
        NatMethod::Upnp => true,
    };
    asks.then(|| {
        task::start(NatConfig {
            asks_pmp: method == NatMethod::Auto,
            asks_upnp: true,
            // Who asks for UPnP has a router, whatever the addresses look like.
            skips_public: method == NatMethod::Auto,
            ports,
            surroundings: Surroundings::of_this_machine(interface),
        })
    })
}

/// Learns the address and the ports of a container's host. An address that the operator gave stays.
async fn learn_of_host(method: NatMethod, ports: Ports, reach: &mut Reach) {
    let given = reach
        .best(false)
        .filter(|(origin, _)| *origin == Origin::Given);
    let ip = match given {
        Some((_, given)) => Some(given.ip),
        None => docker::host_ip().await,
    };
    match ip {
        Some(ip) => reach.learn(Origin::Given, ip, docker::outer_ports(ports)),
        None if method == NatMethod::Docker => warn!(
            "No address of the container's host: the name HOST_IP has none. Start the container with \
             --add-host=HOST_IP:<address>, or set --p2p-host"
        ),
        None => {}
    }
}

/// Where UPnP routers listen.
const SSDP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 255, 255, 250)), 1900);

#[cfg(test)]
mod tests;
