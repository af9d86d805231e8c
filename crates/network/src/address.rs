//! Addresses by where they hold: everywhere, in a private network, on this machine.

use crate::subnet::Subnet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address may be reached from everywhere: no loopback, private or link-local one.
pub(crate) fn is_public(ip: IpAddr) -> bool {
    !is_special(ip) && !is_private(ip)
}

/// Whether no host has it: unspecified, multicast, broadcast.
pub(crate) fn is_special(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    ip.is_unspecified() || ip.is_multicast() || is_broadcast
}

/// Whether it holds on this machine or in a private network only.
fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            // Behind a provider's router (RFC 6598).
            let is_shared = matches!(ip.octets(), [100, 64..=127, ..]);
            ip.is_loopback() || ip.is_private() || ip.is_link_local() || is_shared
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

impl Subnet {
    /// Whether some address of it may be reached from everywhere.
    pub fn has_public_address(self) -> bool {
        // A network that is larger than a private one has also the address that differs in the last bit that all of the private one
        // share. So one changed bit of the first address is enough.
        let is_public_part = |ip: IpAddr| self.contains(ip) && is_public(ip);
        let has_other = match self.ip() {
            IpAddr::V4(ip) => (0..32).any(|bit| {
                let changed = Ipv4Addr::from_bits(ip.to_bits() ^ (1 << bit));
                is_public_part(changed.into())
            }),
            IpAddr::V6(ip) => (0..128).any(|bit| {
                let changed = Ipv6Addr::from_bits(ip.to_bits() ^ (1 << bit));
                is_public_part(changed.into())
            }),
        };
        is_public_part(self.ip()) || has_other
    }
}

/// Whether the node at `teller` can mean a host of ours when it names `ip`, and the other way round: loopback addresses pass between
/// nodes of one machine only, private ones between nodes of private networks. Otherwise a stranger could have us send packets into
/// our own network.
pub(crate) fn may_be_named_by(ip: IpAddr, teller: IpAddr) -> bool {
    let (ip, teller) = (ip.to_canonical(), teller.to_canonical());
    if is_special(ip) || (ip.is_loopback() && !teller.is_loopback()) {
        return false;
    }
    !is_private(ip) || is_private(teller)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_behind_a_providers_router_are_private() {
        for (address, expected) in [
            ("100.63.255.255", true),
            ("100.64.0.0", false),
            ("100.127.255.255", false),
            ("100.128.0.0", true),
            ("::ffff:100.64.0.1", false),
        ] {
            assert_eq!(is_public(ip(address)), expected, "{address}");
        }
    }

    #[test]
    fn a_network_has_a_public_address_unless_all_of_it_is_private() {
        for (network, expected) in [
            ("10.0.0.0/8", false),
            ("10.1.0.0/16", false),
            ("10.0.0.0/7", true),
            ("172.16.0.0/12", false),
            ("172.16.0.0/11", true),
            ("192.168.0.0/16", false),
            ("192.168.0.0/15", true),
            ("100.64.0.0/10", false),
            ("100.64.0.0/9", true),
            ("127.0.0.1/32", false),
            ("8.8.8.8/32", true),
            ("0.0.0.0/0", true),
            ("fd00::/8", false),
            ("fc00::/7", false),
            ("fc00::/6", true),
            ("::1/128", false),
            ("::/0", true),
        ] {
            let subnet: Subnet = network.parse().unwrap();
            assert_eq!(subnet.has_public_address(), expected, "{network}");
        }
    }

    #[test]
    fn loopback_is_named_on_one_machine_and_private_addresses_in_private_networks() {
        for (named, teller, expected) in [
            ("8.8.8.8", "9.9.9.9", true),
            ("8.8.8.8", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", true),
            ("127.0.0.1", "192.168.1.1", false),
            ("::1", "9.9.9.9", false),
            ("::ffff:127.0.0.1", "9.9.9.9", false),
            ("192.168.1.1", "10.0.0.1", true),
            ("192.168.1.1", "127.0.0.1", true),
            ("192.168.1.1", "9.9.9.9", false),
            ("100.64.0.1", "192.168.1.1", true),
            ("100.64.0.1", "9.9.9.9", false),
            ("fd00::1", "2600::1", false),
            ("0.0.0.0", "127.0.0.1", false),
            ("::", "::1", false),
            ("224.0.0.1", "9.9.9.9", false),
            ("255.255.255.255", "127.0.0.1", false),
        ] {
            assert_eq!(
                may_be_named_by(ip(named), ip(teller)),
                expected,
                "{named} by {teller}"
            );
        }
    }
}
