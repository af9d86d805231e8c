//! How often a host may connect: once in 30 s.

use crate::subnet::{Subnet, Width};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// A host may connect again after this time.
const AGAIN_MS: u64 = 30_000;
/// Most hosts that are remembered; beyond, the one that connected first is forgotten early.
const MAX_HOSTS: usize = 4096;

/// The hosts that connected in the last 30 s.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    last: HashMap<Subnet, u64>,
    pub(super) order: VecDeque<(u64, Subnet)>,
}

impl Throttle {
    /// Whether a host may connect now. Local ones always may.
    pub(super) fn allows(&mut self, ip: IpAddr, now_ms: u64) -> bool {
        while let Some((at_ms, host)) = self.order.front().copied() {
            if now_ms.saturating_sub(at_ms) < AGAIN_MS && self.order.len() < MAX_HOSTS {
                break;
            }
            self.order.pop_front();
            self.last.remove(&host);
        }
        Subnet::of(ip, Width::HOST).is_none_or(|host| !self.last.contains_key(&host))
    }

    /// Notes that a host has connected, which was allowed.
    pub(super) fn note(&mut self, ip: IpAddr, now_ms: u64) {
        if let Some(host) = Subnet::of(ip, Width::HOST)
            && self.last.insert(host, now_ms).is_none()
        {
            self.order.push_back((now_ms, host));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_connects_once_in_30_seconds_and_a_local_one_at_will() {
        let mut throttle = Throttle::default();
        let (public, local) = ("8.8.8.8".parse().unwrap(), "127.0.0.1".parse().unwrap());
        for (now_ms, expected) in [(0, true), (29_999, false), (30_000, true), (30_001, false)] {
            assert_eq!(throttle.allows(public, now_ms), expected);
            if expected {
                throttle.note(public, now_ms);
            }
            assert!(throttle.allows(local, now_ms));
            throttle.note(local, now_ms);
        }
    }

    #[test]
    fn of_5000_hosts_the_first_are_forgotten_early() {
        let mut throttle = Throttle::default();
        let ip = |number: u32| std::net::Ipv4Addr::from_bits(0x0800_0000 + number).into();
        for number in 0..5000 {
            assert!(throttle.allows(ip(number), 0));
            throttle.note(ip(number), 0);
        }
        assert_eq!(throttle.order.len(), MAX_HOSTS);
        assert!(throttle.allows(ip(0), 0) && !throttle.allows(ip(4999), 0));
    }
}
