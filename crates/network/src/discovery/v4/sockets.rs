//! The UDP sockets of discovery, which v4 shares with v5: v5 reads them then, and hands over what it can't read.

use std::future::pending;
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// A packet that another protocol read and did not know, with its sender.
pub type Frame = (SocketAddr, Vec<u8>);

/// The sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    /// For IPv4 addresses. Without it they are reached by the IPv6 socket as mapped ones.
    pub ipv4: Option<Arc<UdpSocket>>,
    /// For IPv6 addresses.
    pub ipv6: Option<Arc<UdpSocket>>,
    /// Where packets come from if another protocol reads the sockets.
    pub frames: Option<mpsc::Receiver<Frame>>,
}

impl From<UdpSocket> for Sockets {
    /// One socket, of the family that it is bound to.
    fn from(socket: UdpSocket) -> Self {
        let is_ipv6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
        let socket = Some(Arc::new(socket));
        let (ipv4, ipv6) = match is_ipv6 {
            true => (None, socket),
            false => (socket, None),
        };
        Self {
            ipv4,
            ipv6,
            frames: None,
        }
    }
}

async fn readable(socket: Option<&Arc<UdpSocket>>) -> Result<&Arc<UdpSocket>> {
    match socket {
        Some(socket) => socket.readable().await.map(|()| socket),
        None => pending().await,
    }
}

impl Sockets {
    /// The next packet, cut to the buffer. May be dropped while it waits: no packet is lost by it.
    pub(super) async fn receive(&mut self, buffer: &mut [u8]) -> Result<(usize, SocketAddr)> {
        if let Some(frames) = &mut self.frames {
            let Some((from, data)) = frames.recv().await else {
                return pending().await;
            };
            let length = data.len().min(buffer.len());
            buffer[..length].copy_from_slice(&data[..length]);
            return Ok((length, from));
        }
        loop {
            let socket = tokio::select! {
                socket = readable(self.ipv4.as_ref()) => socket?,
                socket = readable(self.ipv6.as_ref()) => socket?,
            };
            match socket.try_recv_from(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                received => return received,
            }
        }
    }

    /// Sends a packet. An error is that of one address, and as good as a packet that was lost.
    pub(super) async fn send(&self, to: SocketAddr, packet: &[u8]) {
        let (socket, ip) = match (to.ip(), &self.ipv4, &self.ipv6) {
            (IpAddr::V4(_), Some(socket), _) | (IpAddr::V6(_), _, Some(socket)) => {
                (socket, to.ip())
            }
            (IpAddr::V4(ip), None, Some(socket)) => (socket, ip.to_ipv6_mapped().into()),
            _ => return,
        };
        let _ = socket.send_to(packet, (ip, to.port())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn packets_come_from_another_reader_of_the_sockets_if_there_is_one() {
        let (frame, frames) = mpsc::channel(1);
        let mut sockets = Sockets {
            frames: Some(frames),
            ..Sockets::default()
        };
        let from: SocketAddr = ([127, 0, 0, 1], 7).into();
        frame.send((from, vec![1; 100])).await.unwrap();
        let mut buffer = [0; 10];
        assert_eq!(sockets.receive(&mut buffer).await.unwrap(), (10, from));
        assert_eq!(buffer, [1; 10]);
    }

    #[tokio::test]
    async fn both_sockets_are_read_and_each_address_has_its_own() {
        let bind = async |address| UdpSocket::bind(address).await.map(Arc::new);
        let v4 = bind("127.0.0.1:0").await.unwrap();
        // Without IPv6 on this machine there is one socket to test.
        let v6 = bind("[::1]:0").await.ok();
        let addresses: Vec<_> = [Some(&v4), v6.as_ref()]
            .into_iter()
            .flatten()
            .map(|socket| socket.local_addr().unwrap())
            .collect();
        let mut sockets = Sockets {
            ipv4: Some(v4),
            ipv6: v6,
            frames: None,
        };
        for address in addresses {
            sockets.send(address, b"packet").await;
            let mut buffer = [0; 10];
            let received = sockets.receive(&mut buffer).await.unwrap();
            assert_eq!(received, (6, address));
            assert_eq!(buffer, *b"packet\0\0\0\0");
        }
    }
}
