//! Ranges of addresses that count together, so that one owner of many addresses does not get many slots.

use crate::address::is_public;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: 24 bits of an IPv4 address, 48 of an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Subnet(IpAddr);

impl Subnet {
    /// The network of an address; `None` for a local one, which no limit counts.
    pub(crate) fn of(ip: IpAddr) -> Option<Self> {
        let ip = ip.to_canonical();
        is_public(ip).then(|| Self(masked(ip, 24, 48)))
    }
}

/// What one machine has: an IPv4 address, or 64 bits of an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Host(IpAddr);

impl Host {
    /// The host of an address; `None` for a local one, behind which many nodes may be.
    pub(crate) fn of(ip: IpAddr) -> Option<Self> {
        let ip = ip.to_canonical();
        is_public(ip).then(|| Self(masked(ip, 32, 64)))
    }

    /// Its address, the lower bits of an IPv6 one zero.
    pub(crate) fn ip(self) -> IpAddr {
        self.0
    }
}

fn masked(ip: IpAddr, v4_bits: u32, v6_bits: u32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - v4_bits).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - v6_bits).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Option<Subnet> {
        Subnet::of(text.parse().unwrap())
    }

    fn host(text: &str) -> Option<Host> {
        Host::of(text.parse().unwrap())
    }

    #[test]
    fn a_subnet_is_24_bits_of_ipv4_and_48_of_ipv6() {
        assert_eq!(subnet("8.8.8.1"), subnet("8.8.8.254"));
        assert_ne!(subnet("8.8.8.1"), subnet("8.8.9.1"));
        assert_eq!(subnet("2001:db8:1::1"), subnet("2001:db8:1:ffff::1"));
        assert_ne!(subnet("2001:db8:1::1"), subnet("2001:db8:2::1"));
        assert_eq!(subnet("::ffff:8.8.8.1"), subnet("8.8.8.1"));
    }

    #[test]
    fn a_host_is_an_ipv4_address_and_64_bits_of_an_ipv6_one() {
        assert_ne!(host("8.8.8.1"), host("8.8.8.2"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::2"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
    }

    #[test]
    fn local_addresses_belong_to_no_subnet() {
        for local in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert_eq!(subnet(local), None, "{local}");
            assert_eq!(host(local), None, "{local}");
        }
    }
}
