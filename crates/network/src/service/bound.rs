//! The sockets of a network: TCP and UDP, of one address family or of both.
//!
//! An IPv6 socket beside an IPv4 one takes no IPv4 packets, so that both may have the same port. Alone it takes those too.

use super::NetworkConfig;
use super::transport::{Tcp, Transport};
use crate::discovery::reach::{Origin, Ports, Reach, local_ip};
use crate::discovery::v4::Sockets;
use socket2::{Domain, Socket, Type};
use std::io::{Error, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use tracing::warn;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// The sockets.
pub(super) struct Bound<T> {
    pub(super) transport: T,
    pub(super) udp: Sockets,
}

impl Bound<Tcp> {
    /// Binds them. The network begins without the second family if that can't be bound.
    pub(super) async fn new(config: &NetworkConfig) -> Result<Self> {
        let settings = config.discovery.as_ref();
        let ipv4 = settings.and_then(|settings| settings.ipv4.map(SocketAddr::V4));
        let ipv6 = settings.and_then(|settings| settings.ipv6.map(SocketAddr::V6));
        let (first_udp, second_udp) = match ipv4 {
            Some(_) => (ipv4, ipv6),
            None => (ipv6, None),
        };
        let mut listeners: Vec<_> = listen(config.listen, false).await?.into_iter().collect();
        let first = bind_udp(first_udp, false).await?;
        let second = async {
            let is_only_v6 = config.listen.is_some();
            let listener = listen(config.listen_also, is_only_v6).await?;
            Ok::<_, Error>((listener, bind_udp(second_udp, true).await?))
        };
        let second = second.await.unwrap_or_else(|error| {
            warn!(%error, "Going on without the second family of addresses");
            (None, None)
        });
        listeners.extend(second.0);
        let (ipv4, ipv6) = match ipv4 {
            Some(_) => (first, second.1),
            None => (None, first),
        };
        let udp = Sockets {
            ipv4,
            ipv6,
            frames: None,
        };
        let transport = Tcp { listeners };
        Ok(Self { transport, udp })
    }
}

impl<T: Transport> Bound<T> {
    /// Where it listens for connections.
    pub(super) fn tcp(&self) -> impl Iterator<Item = SocketAddr> {
        self.transport.addresses().into_iter()
    }

    fn udp(&self) -> impl Iterator<Item = SocketAddr> {
        let sockets = [&self.udp.ipv4, &self.udp.ipv6].into_iter().flatten();
        sockets.filter_map(|socket| socket.local_addr().ok())
    }

    /// Where it listens on IPv4.
    pub(super) fn interface_ipv4(&self) -> Option<Ipv4Addr> {
        let mut all = self.tcp().chain(self.udp()).map(|address| address.ip());
        all.find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        })
    }

    /// Where this node is reached, as far as it knows by itself.
    pub(super) fn reach(&self, advertised: &[IpAddr]) -> Reach {
        let mut reach = Reach::default();
        for is_ipv6 in [false, true] {
            let of_family = |address: &SocketAddr| address.is_ipv6() == is_ipv6;
            let (tcp, udp) = (self.tcp().find(of_family), self.udp().find(of_family));
            let Some(bound) = udp.or(tcp) else {
                continue;
            };
            let port = |address: Option<SocketAddr>| address.map_or(0, |address| address.port());
            let (tcp, udp) = (port(tcp), port(udp));
            reach.bind(is_ipv6, Ports { tcp, udp });
            let local = match bound.ip().is_unspecified() {
                true => local_ip(is_ipv6),
                false => Some(bound.ip()),
            };
            if let Some(ip) = local {
                reach.learn(Origin::Local, ip, Ports::default());
            }
        }
        for ip in advertised {
            reach.learn(Origin::Given, *ip, Ports::default());
        }
        reach
    }
}

async fn listen(address: Option<SocketAddr>, is_only_v6: bool) -> Result<Option<TcpListener>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let listener = match address {
        SocketAddr::V6(_) if is_only_v6 => only_v6(address, Type::STREAM)
            .and_then(|socket| socket.listen(BACKLOG).map(|()| socket))
            .and_then(|socket| TcpListener::from_std(socket.into())),
        _ => TcpListener::bind(address).await,
    };
    let listener = listener.map_err(|error| cannot("listen on TCP", address, &error));
    listener.map(Some)
}

async fn bind_udp(address: Option<SocketAddr>, is_only_v6: bool) -> Result<Option<Arc<UdpSocket>>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let socket = match address {
        SocketAddr::V6(_) if is_only_v6 => {
            only_v6(address, Type::DGRAM).and_then(|socket| UdpSocket::from_std(socket.into()))
        }
        _ => UdpSocket::bind(address).await,
    };
    let socket = socket.map_err(|error| cannot("bind UDP", address, &error))?;
    Ok(Some(Arc::new(socket)))
}

/// A bound socket that takes no IPv4 packets.
fn only_v6(address: SocketAddr, kind: Type) -> Result<Socket> {
    let socket = Socket::new(Domain::IPV6, kind, None)?;
    socket.set_only_v6(true)?;
    socket.set_nonblocking(true)?;
    if kind == Type::STREAM {
        // As tokio does: a node that starts again right after its stop gets its port.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn cannot(what: &str, address: SocketAddr, error: &Error) -> Error {
    let help = "check that no other process has the port, and that this machine has the address";
    Error::new(
        error.kind(),
        format!("can't {what} {address} for peers: {error}; {help}"),
    )
}
