//! UPnP: a router that answers a multicast, and is told by HTTP what to open. The module that wraps the crate `igd-next`, which takes
//! pages of at most 1 MiB, and only from the host that answered.

use super::{ANSWER, NatError, Opened, Transport};
use igd_next::aio::Gateway;
use igd_next::aio::tokio::{Tokio, search_gateway};
use igd_next::{AddPortError, GatewayIpVersion, PortMappingProtocol, SearchError, SearchOptions};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;

/// What the router's list of opened ports says of ours.
const DESCRIPTION: &str = "niwaki";

/// Most characters of what a router says that an error repeats.
const MAX_QUOTED_CHARS: usize = 120;

/// A router.
#[derive(Debug)]
pub(super) struct Upnp {
    gateway: Gateway<Tokio>,
    local: Ipv4Addr,
}

impl Upnp {
    /// The first router that answers at `ssdp`, asked from an address of this machine.
    pub(super) async fn find(ssdp: SocketAddr, local: Ipv4Addr) -> Result<Self, NatError> {
        let mut options = SearchOptions::default();
        options.bind_addr = (local, 0).into();
        options.broadcast_address = ssdp;
        options.timeout = Some(ANSWER);
        options.single_search_timeout = Some(ANSWER);
        options.gateway_ip_version = GatewayIpVersion::V4;
        if local.is_loopback() {
            // Then the router is on this machine; else it never is.
            options.allowed_gateway_ips.push(local.into());
        }
        let gateway = search_gateway(options).await.map_err(|error| match error {
            SearchError::NoResponseWithinTimeout => NatError::Silent,
            error => NatError::Malformed(quoted(&error)),
        })?;
        Ok(Self { gateway, local })
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
        Ok(Opened { port, lease })
    }

    /// Closes a port of the router.
    pub(super) async fn close(&self, transport: Transport, outer: u16) -> Result<(), NatError> {
        in_time(self.gateway.remove_port(protocol(transport), outer)).await
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
