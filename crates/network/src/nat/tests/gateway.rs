//! A gateway on loopback that speaks NAT-PMP, with what it was asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::net::UdpSocket;

/// What a gateway does.
#[derive(Clone, Debug)]
pub(in crate::nat) struct Conduct {
    pub(in crate::nat) ip: Ipv4Addr,
    /// The result code of answers about ports.
    pub(in crate::nat) result: u16,
    /// Added to the port that is asked for.
    pub(in crate::nat) shift: u16,
    /// The longest lease.
    pub(in crate::nat) lease_s: u32,
    /// The lease, whatever is asked for.
    pub(in crate::nat) fixed_lease_s: Option<u32>,
    /// So often it sends each answer.
    pub(in crate::nat) answers: usize,
    /// It does not answer about ports of TCP (`true`), of UDP (`false`).
    pub(in crate::nat) ignores: Option<bool>,
    /// It refuses to open ports of UDP.
    pub(in crate::nat) refuses_udp: bool,
}

impl Default for Conduct {
    fn default() -> Self {
        Self {
            ip: [203, 0, 113, 7].into(),
            result: 0,
            shift: 0,
            lease_s: 1200,
            fixed_lease_s: None,
            answers: 1,
            ignores: None,
            refuses_udp: false,
        }
    }
}

/// A port that it was asked to open or, with a lease of 0, to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nat) struct Asked {
    pub(in crate::nat) is_tcp: bool,
    pub(in crate::nat) inner: u16,
    pub(in crate::nat) outer: u16,
    pub(in crate::nat) lease_s: u32,
}

#[derive(Clone, Debug)]
pub(in crate::nat) struct Gateway {
    pub(in crate::nat) address: SocketAddr,
    pub(in crate::nat) conduct: Arc<Mutex<Conduct>>,
    pub(in crate::nat) asked: Arc<Mutex<Vec<Asked>>>,
}

impl Gateway {
    pub(in crate::nat) async fn start(conduct: Conduct) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let gateway = Self {
            address: socket.local_addr().unwrap(),
            conduct: Arc::new(Mutex::new(conduct)),
            asked: Arc::default(),
        };
        tokio::spawn(gateway.clone().run(socket));
        gateway
    }

    pub(in crate::nat) fn set(&self, change: impl FnOnce(&mut Conduct)) {
        change(&mut self.conduct.lock().unwrap());
    }

    pub(in crate::nat) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    async fn run(self, socket: UdpSocket) {
        let mut buffer = [0; 64];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let answer = self.answer(&buffer[..length]);
            let conduct = self.conduct.lock().unwrap().clone();
            let code = buffer[1];
            let is_ignored = conduct.ignores == Some(code == 2) && code != 0;
            let answers = if is_ignored { 0 } else { conduct.answers };
            for _ in 0..answers {
                socket.send_to(&answer, from).await.unwrap();
            }
        }
    }

    fn answer(&self, request: &[u8]) -> Vec<u8> {
        let conduct = self.conduct.lock().unwrap().clone();
        let mut answer = vec![0, request[1] | 128];
        let result = match request[1] {
            0 => 0,
            1 if conduct.refuses_udp => 4,
            _ => conduct.result,
        };
        answer.extend(result.to_be_bytes());
        answer.extend([0, 0, 0, 9]);
        if request[1] == 0 {
            answer.extend(conduct.ip.octets());
            return answer;
        }
        let two = |at: usize| u16::from_be_bytes([request[at], request[at + 1]]);
        let lease_s = u32::from_be_bytes(request[8..12].try_into().unwrap());
        let asked = Asked {
            is_tcp: request[1] == 2,
            inner: two(4),
            outer: two(6),
            lease_s,
        };
        self.asked.lock().unwrap().push(asked);
        answer.extend(asked.inner.to_be_bytes());
        answer.extend((asked.outer + conduct.shift).to_be_bytes());
        let lease_s = conduct
            .fixed_lease_s
            .unwrap_or(lease_s.min(conduct.lease_s));
        answer.extend(lease_s.to_be_bytes());
        answer
    }
}
