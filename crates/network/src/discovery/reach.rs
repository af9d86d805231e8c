//! Where other nodes reach this one: of what is known of it, the most reliable, which its record says.
//!
//! | origin | the address is |
//! |---|---|
//! | given | the operator's choice |
//! | mapped | what a router opened for this node |
//! | voted | where most other nodes see it |
//! | local | that of its interface, which holds in a private network or without a router in between |

use crate::record::RecordEntries;
use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// How an address is known, the most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Given,
    Mapped,
    Voted,
    Local,
}

impl Origin {
    const COUNT: usize = 4;
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given => "as configured",
            Self::Mapped => "opened by the router",
            Self::Voted => "as most other nodes see it",
            Self::Local => "of the local interface",
        })
    }
}

/// The ports of one family; 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
}

/// An address with its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reachable {
    pub(crate) ip: IpAddr,
    pub(crate) ports: Ports,
}

/// What is known of one family.
#[derive(Clone, Debug, Default)]
struct Family {
    /// Where this node listens; `None` if it does not on this family.
    bound: Option<Ports>,
    known: [Option<Reachable>; Origin::COUNT],
}

impl Family {
    fn best(&self) -> Option<(Origin, Reachable)> {
        self.bound?;
        let all = [Origin::Given, Origin::Mapped, Origin::Voted, Origin::Local];
        let mut known = all.into_iter().zip(self.known);
        let (origin, best) = known.find_map(|(origin, known)| Some((origin, known?)))?;
        Some((origin, self.mapped_for(best).unwrap_or(best)))
    }

    /// What a router opened at the same address, if no other ports than our own are known there.
    fn mapped_for(&self, known: Reachable) -> Option<Reachable> {
        let mapped = self.known.get(Origin::Mapped as usize).copied()??;
        (mapped.ip == known.ip && self.bound == Some(known.ports)).then_some(mapped)
    }
}

/// What is known of both families.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    ipv4: Family,
    ipv6: Family,
}

impl Reach {
    fn family_mut(&mut self, is_ipv6: bool) -> &mut Family {
        match is_ipv6 {
            true => &mut self.ipv6,
            false => &mut self.ipv4,
        }
    }

    fn family(&self, is_ipv6: bool) -> &Family {
        match is_ipv6 {
            true => &self.ipv6,
            false => &self.ipv4,
        }
    }

    /// Where this node listens.
    pub(crate) fn bind(&mut self, is_ipv6: bool, ports: Ports) {
        self.family_mut(is_ipv6).bound = Some(ports);
    }

    /// An address at which the ports are those on which this node listens; an outer port that is known replaces its own.
    pub(crate) fn learn(&mut self, origin: Origin, ip: IpAddr, outer: Ports) {
        let ip = ip.to_canonical();
        let family = self.family_mut(ip.is_ipv6());
        let bound = family.bound.unwrap_or_default();
        let or = |outer: u16, own: u16| if outer == 0 || own == 0 { own } else { outer };
        let ports = Ports {
            tcp: or(outer.tcp, bound.tcp),
            udp: or(outer.udp, bound.udp),
        };
        let known = Reachable { ip, ports };
        if let Some(slot) = family.known.get_mut(origin as usize) {
            *slot = Some(known);
        }
    }

    /// Forgets what is known of a family in one way.
    pub(crate) fn forget(&mut self, origin: Origin, is_ipv6: bool) {
        let family = self.family_mut(is_ipv6);
        if let Some(slot) = family.known.get_mut(origin as usize) {
            *slot = None;
        }
    }

    /// The ports on which this node listens; `None` if it does not on this family.
    pub(crate) fn bound(&self, is_ipv6: bool) -> Option<Ports> {
        self.family(is_ipv6).bound
    }

    /// The most reliable address of a family.
    pub(crate) fn best(&self, is_ipv6: bool) -> Option<(Origin, Reachable)> {
        self.family(is_ipv6).best()
    }

    /// Whether the operator gave an address.
    pub(crate) fn is_given(&self) -> bool {
        let families = [&self.ipv4, &self.ipv6];
        let best = families.iter().filter_map(|family| family.best());
        best.into_iter().any(|(origin, _)| origin == Origin::Given)
    }

    /// The TCP addresses of this node.
    pub(crate) fn tcp_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let both = [self.best(false), self.best(true)].into_iter().flatten();
        both.map(|(_, known)| SocketAddr::new(known.ip, known.ports.tcp))
    }

    /// Addresses and ports as the record has them. The ports of IPv6 are always written out: not every client takes the shared
    /// ones.
    pub(crate) fn entries(&self) -> RecordEntries {
        let (ipv4, ipv6) = (self.best(false), self.best(true));
        let own = self.ipv4.bound.or(self.ipv6.bound).unwrap_or_default();
        let shared = ipv4.map_or(own, |(_, known)| known.ports);
        let mut entries = RecordEntries {
            tcp: shared.tcp,
            udp: shared.udp,
            ..RecordEntries::default()
        };
        if let Some((
            _,
            Reachable {
                ip: IpAddr::V4(ip), ..
            },
        )) = ipv4
        {
            entries.ip = Some(ip);
        }
        if let Some((
            _,
            Reachable {
                ip: IpAddr::V6(ip),
                ports,
            },
        )) = ipv6
        {
            entries.ip6 = Some(ip);
            (entries.tcp6, entries.udp6) = (ports.tcp, ports.udp);
        }
        entries
    }
}

/// The address of the interface over which packets of a family leave this machine; `None` if none does. No packet is sent: the
/// system only chooses the route.
pub(crate) fn local_ip(is_ipv6: bool) -> Option<IpAddr> {
    // Addresses for documentation, which no host has (RFC 5737, RFC 3849).
    let (bind, to) = match is_ipv6 {
        true => ("[::]:0", "[2001:db8::1]:9"),
        false => ("0.0.0.0:0", "192.0.2.1:9"),
    };
    let socket = UdpSocket::bind(bind).ok()?;
    socket.connect(to).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const PORTS: Ports = Ports { tcp: 1, udp: 2 };

    #[test]
    fn the_most_reliable_address_is_said_whatever_comes_later() {
        let mut reach = Reach::default();
        reach.bind(false, PORTS);
        assert_eq!(reach.entries().ip, None);
        assert_eq!((reach.entries().tcp, reach.entries().udp), (1, 2));
        let mut learn = |origin, text| {
            reach.learn(origin, ip(text), Ports::default());
            reach.entries().ip.map(IpAddr::V4)
        };
        assert_eq!(learn(Origin::Local, "10.0.0.1"), Some(ip("10.0.0.1")));
        assert_eq!(learn(Origin::Voted, "8.8.8.8"), Some(ip("8.8.8.8")));
        assert_eq!(learn(Origin::Mapped, "9.9.9.9"), Some(ip("9.9.9.9")));
        assert_eq!(learn(Origin::Voted, "8.8.8.7"), Some(ip("9.9.9.9")));
        assert_eq!(learn(Origin::Given, "7.7.7.7"), Some(ip("7.7.7.7")));
        let (origin, best) = reach.best(false).unwrap();
        assert_eq!((origin, best.ip), (Origin::Given, ip("7.7.7.7")));
        reach.forget(Origin::Given, false);
        reach.forget(Origin::Mapped, false);
        let (origin, best) = reach.best(false).unwrap();
        assert_eq!((origin, best.ip), (Origin::Voted, ip("8.8.8.7")));
    }

    #[test]
    fn the_ports_that_a_router_opened_hold_for_a_given_address_if_it_is_the_same() {
        let outer = Ports { tcp: 5, udp: 6 };
        let ports = |given: Ports, mapped| {
            let mut reach = Reach::default();
            reach.bind(false, PORTS);
            reach.learn(Origin::Given, ip("9.9.9.9"), given);
            reach.learn(Origin::Mapped, ip(mapped), outer);
            let (origin, best) = reach.best(false).unwrap();
            assert_eq!((origin, best.ip), (Origin::Given, ip("9.9.9.9")));
            best.ports
        };
        assert_eq!(ports(Ports::default(), "9.9.9.9"), outer);
        assert_eq!(ports(Ports::default(), "8.8.8.8"), PORTS);
        let given = Ports { tcp: 7, udp: 8 };
        assert_eq!(ports(given, "9.9.9.9"), given);
    }

    #[test]
    fn outer_ports_replace_ours_but_a_port_that_is_closed_stays_so() {
        let mut reach = Reach::default();
        reach.bind(false, Ports { tcp: 0, udp: 2 });
        reach.learn(Origin::Mapped, ip("9.9.9.9"), Ports { tcp: 5, udp: 6 });
        let entries = reach.entries();
        assert_eq!((entries.tcp, entries.udp), (0, 6));
    }

    #[test]
    fn both_families_are_said_with_their_ports_and_none_that_is_not_bound() {
        let mut reach = Reach::default();
        reach.bind(true, PORTS);
        reach.learn(Origin::Given, ip("::ffff:9.9.9.9"), Ports::default());
        reach.learn(Origin::Given, ip("2600::1"), Ports::default());
        let entries = reach.entries();
        assert_eq!(entries.ip, None, "nothing listens there");
        assert_eq!(entries.ip6.map(IpAddr::V6), Some(ip("2600::1")));
        assert_eq!((entries.tcp6, entries.udp6), (1, 2));
        assert_eq!(reach.tcp_addresses().count(), 1);
        reach.bind(false, Ports { tcp: 3, udp: 4 });
        reach.learn(Origin::Given, ip("9.9.9.9"), Ports::default());
        let entries = reach.entries();
        assert_eq!((entries.tcp, entries.udp), (3, 4));
        assert_eq!((entries.tcp6, entries.udp6), (1, 2));
    }
}
