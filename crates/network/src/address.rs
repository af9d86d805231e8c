//! Addresses by where they hold: everywhere, in a private network, on this machine.

use std::net::IpAddr;

/// Whether an address may be reached from everywhere: no loopback, private or link-local one.
pub(crate) fn is_public(ip: IpAddr) -> bool {
    !is_special(ip) && !is_private(ip)
}

/// Whether no host has it: unspecified, multicast, broadcast.
fn is_special(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    ip.is_unspecified() || ip.is_multicast() || is_broadcast
}

/// Whether it holds on this machine or in a private network only.
fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
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
