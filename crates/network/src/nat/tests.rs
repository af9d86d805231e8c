//! Which method asks a router and learns an address; and routers on loopback, against which the parts of this module are tested.

pub(super) mod gateway;
pub(super) mod igd;

use super::docker::Host;
use super::*;
use crate::discovery::reach::Ports;

const PRIVATE: Ipv4Addr = Ipv4Addr::new(172, 17, 0, 1);
const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const GIVEN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 8);

/// Whether a router is asked, and the address that is given afterwards.
fn asks(
    method: NatMethod,
    host: Option<Ipv4Addr>,
    given: Option<Ipv4Addr>,
) -> (bool, Option<Ipv4Addr>) {
    let mut reach = Reach::default();
    reach.bind(false, Ports { tcp: 1, udp: 2 });
    reach.learn(Origin::Local, [172, 17, 0, 2].into(), Ports::default());
    if let Some(given) = given {
        reach.learn(Origin::Given, given.into(), Ports::default());
    }
    let ports = Ports { tcp: 3, udp: 0 };
    let host = host.map(|ip| Host {
        ip: (!ip.is_unspecified()).then_some(ip),
        ports,
    });
    let asks = asks_router(method, host, &mut reach);
    let ip = given_ip(&reach).map(|ip| match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => panic!("{ip}"),
    });
    (asks, ip)
}

#[test]
fn each_method_asks_a_router_or_not_and_takes_the_hosts_address_or_not() {
    let unnamed = Some(Ipv4Addr::UNSPECIFIED);
    for (method, host, given, expected) in [
        (NatMethod::None, Some(PUBLIC), None, (false, None)),
        (NatMethod::Upnp, None, None, (true, None)),
        (
            NatMethod::Upnp,
            Some(PUBLIC),
            Some(GIVEN),
            (true, Some(GIVEN)),
        ),
        (NatMethod::Docker, unnamed, None, (false, None)),
        (NatMethod::Docker, Some(PUBLIC), None, (false, Some(PUBLIC))),
        (
            NatMethod::Docker,
            Some(PRIVATE),
            None,
            (false, Some(PRIVATE)),
        ),
        (
            NatMethod::Docker,
            Some(PUBLIC),
            Some(GIVEN),
            (false, Some(GIVEN)),
        ),
        // Outside of a container, then in one.
        (NatMethod::Auto, None, None, (true, None)),
        (NatMethod::Auto, None, Some(GIVEN), (false, Some(GIVEN))),
        (NatMethod::Auto, unnamed, None, (true, None)),
        (NatMethod::Auto, Some(PUBLIC), None, (false, Some(PUBLIC))),
        (NatMethod::Auto, Some(PRIVATE), None, (true, None)),
        (
            NatMethod::Auto,
            Some(PUBLIC),
            Some(GIVEN),
            (false, Some(GIVEN)),
        ),
    ] {
        let got = asks(method, host, given);
        assert_eq!(got, expected, "{method:?}, host {host:?}, given {given:?}");
    }
}

#[tokio::test]
async fn no_router_is_asked_from_loopback_or_without_ipv4() {
    let mut reach = Reach::default();
    let interface = Some(Ipv4Addr::UNSPECIFIED);
    assert!(begin(NatMethod::Upnp, interface, &mut reach).is_none());
    reach.bind(false, Ports { tcp: 1, udp: 2 });
    assert!(begin(NatMethod::Upnp, None, &mut reach).is_none());
    let loopback = Some(Ipv4Addr::LOCALHOST);
    assert!(begin(NatMethod::Upnp, loopback, &mut reach).is_none());
}

#[test]
fn the_hosts_ports_are_taken_with_its_address_and_with_a_given_one() {
    for given in [None, Some(GIVEN)] {
        let mut reach = Reach::default();
        reach.bind(false, Ports { tcp: 1, udp: 2 });
        if let Some(given) = given {
            reach.learn(Origin::Given, given.into(), Ports::default());
        }
        let host = Host {
            ip: Some(PUBLIC),
            ports: Ports { tcp: 3, udp: 0 },
        };
        asks_router(NatMethod::Docker, Some(host), &mut reach);
        let (_, best) = reach.best(false).unwrap();
        assert_eq!(best.ports, Ports { tcp: 3, udp: 2 });
    }
}
