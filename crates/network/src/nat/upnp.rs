//! UPnP: a router that answers a multicast, and is told by HTTP what to open. The module that wraps the crate `igd-next`, which takes
//! pages of at most 1 MiB, and only from the host that answered.
//!
//! Spec: UPnP Device Architecture 1.1, 1.3 (search).

use super::{ANSWER, NatError, Opened, Transport};
use igd_next::aio::Gateway;
use igd_next::aio::tokio::{Tokio, search_gateway};
use igd_next::{AddPortError, GatewayIpVersion, PortMappingProtocol, SearchError, SearchOptions};
use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

/// What the router's list of opened ports says of ours.
const DESCRIPTION: &str = "niwaki";

/// Most characters of what a router says that an error repeats.
const MAX_QUOTED_CHARS: usize = 120;

/// What is searched for: routers, and the services of routers.
const TARGETS: [&str; 3] = [
    "device:InternetGatewayDevice:1",
    "service:WANIPConnection:1",
    "service:WANPPPConnection:1",
];

/// How long a device may take to tell what it is.
const DEVICE: Duration = Duration::from_secs(2);
/// So many answers of one device are followed, as it may be more than a router, and so many of all at the same time.
const MAX_ANSWERS: usize = 8;
const MAX_FOLLOWED: usize = 32;

/// A router.
#[derive(Debug)]
pub(super) struct Upnp {
    gateway: Gateway<Tokio>,
    local: Ipv4Addr,
}

impl Upnp {
    /// The first router that answers at `ssdp`, asked from an address of this machine. It must be at the address `only`, if there is
    /// one.
    pub(super) async fn find(
        ssdp: SocketAddr,
        local: Ipv4Addr,
        only: Option<IpAddr>,
    ) -> Result<Self, NatError> {
        let socket = UdpSocket::bind((local, 0)).await?;
        for target in TARGETS {
            let search = format!(
                "M-SEARCH * HTTP/1.1\r\nHOST: {ssdp}\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\n\
                 ST: urn:schemas-upnp-org:{target}\r\n\r\n"
            );
            socket.send_to(search.as_bytes(), ssdp).await?;
        }
        let mut other = None;
        match timeout(ANSWER, first_router(&socket, only, &mut other)).await {
            Ok(gateway) => Ok(Self {
                gateway: gateway?,
                local,
            }),
            Err(_late) => Err(other.map_or(NatError::Silent, NatError::NotTheGateway)),
        }
    }

    /// The address that others see.
    pub(super) async fn address(&self) -> Result<Ipv4Addr, NatError> {
        match in_time(self.gateway.get_external_ip()).await? {
            IpAddr::V4(ip) => Ok(ip),
            IpAddr::V6(ip) => Err(NatError::Malformed(format!("{ip} is no IPv4 address"))),
        }
    }

    /// Opens a port: another one if `outer` is another machine's. Some routers open ports for ever only.
    pub(super) async fn open(
        &self,
        transport: Transport,
        inner: u16,
        outer: u16,
        lease: Duration,
    ) -> Result<Opened, NatError> {
        let lease_s = u32::try_from(lease.as_secs()).unwrap_or(u32::MAX);
        let local = SocketAddr::new(self.local.into(), inner);
        let protocol = protocol(transport);
        let add = |lease_s| {
            self.gateway
                .add_port(protocol, outer, local, lease_s, DESCRIPTION)
        };
        let (added, lease) = match timeout(ANSWER, add(lease_s)).await {
            Ok(Err(AddPortError::OnlyPermanentLeasesSupported)) => {
                (timeout(ANSWER, add(0)).await, None)
            }
            added => (added, Some(lease)),
        };
        let port = match added.map_err(|_late| NatError::Silent)? {
            Ok(()) => outer,
            Err(AddPortError::PortInUse) => {
                let lease_s = lease.map_or(0, |_| lease_s);
                let any = self
                    .gateway
                    .add_any_port(protocol, local, lease_s, DESCRIPTION);
                in_time(any).await?
            }
            Err(error) => return Err(NatError::Refused(quoted(&error))),
        };
        match port {
            0 => Err(NatError::Refused("it opened nothing".into())),
            port => Ok(Opened { port, lease }),
        }
    }

    /// Closes a port of the router.
    pub(super) async fn close(&self, transport: Transport, outer: u16) -> Result<(), NatError> {
        in_time(self.gateway.remove_port(protocol(transport), outer)).await
    }
}

/// Waits for the answers to a search and follows them side by side, until one leads to a router. `other` is then the last device
/// that answered from elsewhere than from `only`.
async fn first_router(
    socket: &UdpSocket,
    only: Option<IpAddr>,
    other: &mut Option<IpAddr>,
) -> Result<Gateway<Tokio>, NatError> {
    let mut followed = JoinSet::new();
    let mut answers: HashMap<IpAddr, usize> = HashMap::new();
    let mut buffer = [0; 1500];
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                let (length, from) = received?;
                let device = from.ip();
                if only.is_some_and(|only| only != device) {
                    *other = Some(device);
                    continue;
                }
                if followed.len() >= MAX_FOLLOWED {
                    continue;
                }
                let count = answers.entry(device).or_default();
                if *count < MAX_ANSWERS {
                    *count += 1;
                    let answer = buffer.get(..length).unwrap_or_default().to_vec();
                    followed.spawn(follow(answer, device));
                }
            }
            Some(end) = followed.join_next() => match end {
                Ok(Ok(gateway)) => return Ok(gateway),
                Ok(Err(error)) => {
                    debug!(error = quoted(&error), "An answer by UPnP leads to no router");
                }
                Err(error) => debug!(%error, "An answer by UPnP can't be followed"),
            },
        }
    }
}

/// The router to which a device's answer leads. `igd-next` searches by itself and takes what comes first, so its search goes to a
/// socket of ours, which has this answer alone. Pages are read from the device's address only.
async fn follow(answer: Vec<u8>, device: IpAddr) -> Result<Gateway<Tokio>, SearchError> {
    let relay = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let mut options = SearchOptions::default();
    options.bind_addr = (Ipv4Addr::LOCALHOST, 0).into();
    options.broadcast_address = relay.local_addr()?;
    options.timeout = Some(DEVICE);
    options.single_search_timeout = Some(DEVICE);
    options.gateway_ip_version = GatewayIpVersion::V4;
    options.allowed_gateway_ips.push(device);
    let relayed = async {
        let (_, searcher) = relay.recv_from(&mut [0; 512]).await?;
        relay.send_to(&answer, searcher).await?;
        std::future::pending().await
    };
    tokio::select! {
        found = search_gateway(options) => found,
        failed = relayed => failed,
    }
}

fn protocol(transport: Transport) -> PortMappingProtocol {
    match transport {
        Transport::Tcp => PortMappingProtocol::TCP,
        Transport::Udp => PortMappingProtocol::UDP,
    }
}

async fn in_time<T, E: Display>(
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, NatError> {
    match timeout(ANSWER, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(NatError::Refused(quoted(&error))),
        Err(_late) => Err(NatError::Silent),
    }
}

/// An error, which may hold a whole page of the router.
fn quoted(error: &impl Display) -> String {
    let text = error.to_string();
    text.escape_debug().take(MAX_QUOTED_CHARS).collect()
}

#[cfg(test)]
mod tests;
