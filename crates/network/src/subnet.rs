//! Networks: an address and how many of its bits count. By them nodes of one owner are counted together, and an operator says with
//! which networks this node deals at all.
//!
//! An IPv4 address that is written as an IPv6 one (`::ffff:10.0.0.1`) is that IPv4 address everywhere here.

use crate::address::is_public;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

/// Bits before an IPv4 address that is written as an IPv6 one.
const MAPPED_BITS: u8 = 96;

/// A network: all addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subnet {
    /// The bits after the first `bits` are 0.
    ip: IpAddr,
    bits: u8,
}

/// How many bits of a public address are likely to be one owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Width {
    v4: u8,
    v6: u8,
}

impl Width {
    /// What a machine has.
    pub(crate) const HOST: Self = Self { v4: 32, v6: 64 };
    /// What counts together in a table of discovery.
    pub(crate) const TABLE: Self = Self { v4: 24, v6: 64 };
    /// What counts together among peers.
    pub(crate) const PEERS: Self = Self { v4: 24, v6: 48 };
}

impl Subnet {
    /// The network of a public address; `None` for a local one, behind which many owners may be.
    pub(crate) fn of(ip: IpAddr, width: Width) -> Option<Self> {
        let ip = ip.to_canonical();
        let bits = if ip.is_ipv4() { width.v4 } else { width.v6 };
        is_public(ip).then(|| Self {
            ip: masked(ip, bits),
            bits,
        })
    }

    /// Its first address.
    pub(crate) fn ip(self) -> IpAddr {
        self.ip
    }

    /// Whether it has this address.
    pub fn contains(self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.ip.is_ipv4() && masked(ip, self.bits) == self.ip
    }
}

fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(u32::BITS.saturating_sub(bits));
            Ipv4Addr::from_bits(ip.to_bits() & mask.unwrap_or(0)).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(u128::BITS.saturating_sub(bits));
            Ipv6Addr::from_bits(ip.to_bits() & mask.unwrap_or(0)).into()
        }
    }
}

/// Why a text names no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} names no network: {reason}; write 10.0.0.0/8 or fd00::/8")]
pub struct SubnetError {
    /// The text, cut to 60 characters.
    pub input: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FromStr for Subnet {
    type Err = SubnetError;

    /// Reads CIDR: an address, `/`, the number of bits that count. The other bits may be anything.
    fn from_str(text: &str) -> Result<Self, SubnetError> {
        parse(text.trim()).map_err(|reason| SubnetError {
            input: text.chars().take(60).collect(),
            reason,
        })
    }
}

fn parse(text: &str) -> Result<Subnet, String> {
    let (address, bits) = text
        .split_once('/')
        .ok_or("after the address there must be / and a number of bits")?;
    let ip: IpAddr = address
        .parse()
        .map_err(|_| format!("{address:?} is no address"))?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits: Option<u8> = is_number.then(|| bits.parse().ok()).flatten();
    let bits = bits
        .filter(|bits| *bits <= most)
        .ok_or_else(|| format!("after / there must be a number from 0 to {most}"))?;
    let (ip, bits) = match (ip.to_canonical(), bits.checked_sub(MAPPED_BITS)) {
        (IpAddr::V4(inner), Some(inner_bits)) if ip.is_ipv6() => (inner.into(), inner_bits),
        _ => (ip, bits),
    };
    let ip = masked(ip, bits);
    Ok(Subnet { ip, bits })
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

/// The networks with which this node deals: with every address if none is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetRestrict(Arc<[Subnet]>);

impl NetRestrict {
    /// Whether this node deals with this address. Of IPv4 and IPv6, each needs a network of its own.
    pub fn allows(&self, ip: IpAddr) -> bool {
        self.0.is_empty() || self.0.iter().any(|subnet| subnet.contains(ip))
    }

    /// Whether there are addresses with which this node does not deal.
    pub fn is_restricted(&self) -> bool {
        !self.0.is_empty()
    }
}

impl FromIterator<Subnet> for NetRestrict {
    fn from_iter<T: IntoIterator<Item = Subnet>>(subnets: T) -> Self {
        Self(subnets.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[track_caller]
    fn assert_same(width: Width, a: &str, b: &str, expected: bool) {
        let (a, b) = (Subnet::of(ip(a), width), Subnet::of(ip(b), width));
        assert_eq!(a.is_some() && a == b, expected, "{a:?} {b:?}");
    }

    #[test]
    fn a_table_counts_24_bits_of_ipv4_and_64_of_ipv6() {
        let width = Width::TABLE;
        assert_same(width, "8.8.8.8", "8.8.8.200", true);
        assert_same(width, "8.8.8.8", "::ffff:8.8.8.1", true);
        assert_same(width, "8.8.8.8", "8.8.9.8", false);
        assert_same(width, "2600:1:2:3::1", "2600:1:2:3:ffff::2", true);
        assert_same(width, "2600:1:2:3::1", "2600:1:2:4::1", false);
    }

    #[test]
    fn peers_count_24_bits_of_ipv4_and_48_of_ipv6() {
        let width = Width::PEERS;
        assert_same(width, "8.8.8.1", "8.8.8.254", true);
        assert_same(width, "8.8.8.1", "8.8.9.1", false);
        assert_same(width, "2001:db8:1::1", "2001:db8:1:ffff::1", true);
        assert_same(width, "2001:db8:1::1", "2001:db8:2::1", false);
    }

    #[test]
    fn a_host_is_an_ipv4_address_and_64_bits_of_an_ipv6_one() {
        assert_same(Width::HOST, "8.8.8.1", "8.8.8.1", true);
        assert_same(Width::HOST, "8.8.8.1", "8.8.8.2", false);
        assert_same(Width::HOST, "2001:db8::1", "2001:db8::2", true);
        assert_same(Width::HOST, "2001:db8::1", "2001:db8:0:1::1", false);
    }

    #[test]
    fn local_addresses_count_with_no_others() {
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
            for width in [Width::HOST, Width::TABLE, Width::PEERS] {
                assert_eq!(Subnet::of(ip(local), width), None, "{local}");
            }
        }
    }

    #[test]
    fn a_network_of_cidr_has_the_addresses_that_begin_with_its_bits() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.1.2.3/8", "10.255.0.1", "11.0.0.1"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "8.8.8.8", "2001:db8::1"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::/0", "2001:db8::1", "8.8.8.8"),
            ("::1/128", "::1", "::2"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
            ("::ffff:10.0.0.0/104", "10.0.0.1", "11.0.0.1"),
        ] {
            let subnet: Subnet = network.parse().unwrap();
            assert!(subnet.contains(ip(inside)), "{inside} in {network}");
            assert!(!subnet.contains(ip(outside)), "{outside} in {network}");
            assert_eq!(subnet.to_string().parse(), Ok(subnet));
        }
    }

    #[test]
    fn what_is_no_cidr_is_refused_by_name() {
        for (text, reason) in [
            ("10.0.0.1", "there must be / and a number of bits"),
            ("10.0.0.0/33", "a number from 0 to 32"),
            ("fd00::/129", "a number from 0 to 128"),
            ("10.0.0.0/", "a number from 0 to 32"),
            ("10.0.0.0/+8", "a number from 0 to 32"),
            ("10.0.0/8", "\"10.0.0\" is no address"),
            ("host/8", "\"host\" is no address"),
            ("", "there must be /"),
        ] {
            let error = text.parse::<Subnet>().unwrap_err().to_string();
            let is_named = error.starts_with(&format!("{text:?} names no network"));
            assert!(is_named && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn without_a_network_every_address_is_allowed_and_with_some_only_theirs() {
        let all = NetRestrict::default();
        assert!(all.allows(ip("8.8.8.8")) && !all.is_restricted());
        let networks = ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().unwrap());
        let some: NetRestrict = networks.into_iter().collect();
        assert!(some.is_restricted());
        assert!(some.allows(ip("10.1.1.1")) && some.allows(ip("fd00::1")));
        assert!(!some.allows(ip("127.0.0.1")) && !some.allows(ip("::1")));
    }
}
