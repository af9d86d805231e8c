//! NAT-PMP: two questions over UDP, to the default gateway.
//!
//! ```text
//! address   0, 0                                             -> 0, 128, result 2, time 4, address 4
//! open      0, 1 (UDP) or 2 (TCP), 0, 0, inner 2, outer 2,   -> 0, 129 or 130, result 2, time 4, inner 2, outer 2, lease_s 4
//!           lease_s 4
//! ```
//!
//! A lease of 0 closes. Numbers are big-endian.
//!
//! Spec: RFC 6886, 3.

use super::{NatError, Opened, Transport};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// Where gateways listen.
pub(super) const PORT: u16 = 5351;

/// A question is sent so often; the first answer may take 250 ms, each later one twice as long.
const TRIES: u32 = 3;
const FIRST_ANSWER: Duration = Duration::from_millis(250);

/// An answer's code is that of its question and this.
const IS_ANSWER: u8 = 128;

/// A gateway that may speak NAT-PMP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pmp {
    gateway: SocketAddr,
    local: Ipv4Addr,
}

impl Pmp {
    /// A gateway, asked from an address of this machine.
    pub(super) fn new(gateway: SocketAddr, local: Ipv4Addr) -> Self {
        Self { gateway, local }
    }

    /// The address that others see.
    pub(super) async fn address(&self) -> Result<Ipv4Addr, NatError> {
        let answer = self.ask(&[0, 0]).await?;
        match answer[..] {
            [a, b, c, d] => Ok([a, b, c, d].into()),
            _ => Err(NatError::Malformed("an address of another length".into())),
        }
    }

    /// Opens a port.
    pub(super) async fn open(
        &self,
        transport: Transport,
        inner: u16,
        outer: u16,
        lease: Duration,
    ) -> Result<Opened, NatError> {
        let lease_s = u32::try_from(lease.as_secs()).unwrap_or(u32::MAX);
        let request = mapping(transport, inner, outer, lease_s);
        let (port, lease_s) = read_mapping(&self.ask(&request).await?, inner)?;
        match (port, lease_s) {
            (0, _) | (_, 0) => Err(NatError::Refused("it opened nothing".into())),
            _ => Ok(Opened {
                port,
                lease: Some(Duration::from_secs(lease_s.into())),
            }),
        }
    }

    /// Closes what was opened for a port of ours.
    pub(super) async fn close(&self, transport: Transport, inner: u16) -> Result<(), NatError> {
        let answer = self.ask(&mapping(transport, inner, 0, 0)).await?;
        read_mapping(&answer, inner).map(|_| ())
    }

    /// Sends a question until its answer comes. Returns what follows the answer's time. Each question has a socket of its own, which
    /// takes packets of the gateway alone: a late answer to an earlier question reaches none.
    async fn ask(&self, request: &[u8]) -> Result<Vec<u8>, NatError> {
        let code = request.get(1).copied().unwrap_or_default();
        let socket = UdpSocket::bind((self.local, 0)).await?;
        socket.connect(self.gateway).await?;
        for number in 0..TRIES {
            socket.send(request).await?;
            let answer = timeout(FIRST_ANSWER * 2_u32.pow(number), receive(&socket, code));
            match answer.await {
                Ok(answered) => return answered,
                Err(_late) => {}
            }
        }
        Err(NatError::Silent)
    }
}

/// The next packet that answers the question with this code.
async fn receive(socket: &UdpSocket, code: u8) -> Result<Vec<u8>, NatError> {
    let mut buffer = [0; 32];
    loop {
        let length = match socket.recv(&mut buffer).await {
            Ok(length) => length,
            // Nothing listens there.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Err(NatError::Silent);
            }
            Err(error) => return Err(error.into()),
        };
        let packet = buffer.get(..length).unwrap_or_default();
        if let Some(answer) = read_answer(packet, code) {
            return answer.map(<[u8]>::to_vec);
        }
    }
}

fn mapping(transport: Transport, inner: u16, outer: u16, lease_s: u32) -> [u8; 12] {
    let code = match transport {
        Transport::Udp => 1,
        Transport::Tcp => 2,
    };
    let ([a, b], [c, d]) = (inner.to_be_bytes(), outer.to_be_bytes());
    let [e, f, g, h] = lease_s.to_be_bytes();
    [0, code, 0, 0, a, b, c, d, e, f, g, h]
}

/// What an answer has after its time, or why the gateway refuses; `None` if it answers another question.
fn read_answer(packet: &[u8], code: u8) -> Option<Result<&[u8], NatError>> {
    let [_version, answers, high, low, rest @ ..] = packet else {
        return None;
    };
    if *answers != code | IS_ANSWER {
        return None;
    }
    let refused = match u16::from_be_bytes([*high, *low]) {
        0 => {
            let body = rest.get(4..);
            return Some(body.ok_or_else(|| NatError::Malformed("it ends early".into())));
        }
        1 => "it speaks another version".to_owned(),
        2 => "not authorized".to_owned(),
        3 => "it has no address itself".to_owned(),
        4 => "it has no room".to_owned(),
        5 => "it opens no ports".to_owned(),
        other => format!("code {other}"),
    };
    Some(Err(NatError::Refused(refused)))
}

/// The outer port and the lease in seconds.
fn read_mapping(body: &[u8], inner: u16) -> Result<(u16, u32), NatError> {
    let [a, b, c, d, e, f, g, h] = *body else {
        return Err(NatError::Malformed("a mapping of another length".into()));
    };
    if u16::from_be_bytes([a, b]) != inner {
        return Err(NatError::Malformed("the mapping of another port".into()));
    }
    Ok((u16::from_be_bytes([c, d]), u32::from_be_bytes([e, f, g, h])))
}

#[cfg(test)]
mod tests;
