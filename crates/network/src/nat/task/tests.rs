//! The task with routers on loopback. The clock jumps; while packets are on their way it runs.

use super::*;
use crate::nat::tests::gateway::{Asked, Conduct, Gateway};
use crate::nat::tests::igd::{Conduct as IgdConduct, Igd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const PORTS: Ports = Ports {
    tcp: 30303,
    udp: 30304,
};

const OUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

const SECOND: Duration = Duration::from_secs(1);

fn config(pmp: Option<SocketAddr>, ssdp: Option<SocketAddr>) -> NatConfig {
    NatConfig {
        asks_pmp: pmp.is_some(),
        asks_upnp: ssdp.is_some(),
        takes_any_device: false,
        skips_public: true,
        ports: PORTS,
        network: LocalNetwork {
            local: Box::new(|| Some(Ipv4Addr::LOCALHOST)),
            gateway: Box::new(move || pmp),
            ssdp: ssdp.unwrap_or(SSDP),
        },
    }
}

async fn jump(by: Duration) {
    tokio::time::pause();
    tokio::time::advance(by).await;
    tokio::time::resume();
}

/// Waits until a gateway was asked so often and its answers, which are in the sockets by then, are read. Returns what it was asked.
async fn asked(gateway: &Gateway, count: usize) -> Vec<Asked> {
    while gateway.asked.lock().unwrap().len() < count {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    gateway.take_asked()
}

fn opening(is_tcp: bool, outer: u16) -> Asked {
    Asked {
        is_tcp,
        inner: if is_tcp { PORTS.tcp } else { PORTS.udp },
        outer,
        lease_s: 1200,
    }
}

/// What the gateway is asked to close that.
fn closing(opening: Asked) -> Asked {
    Asked {
        outer: 0,
        lease_s: 0,
        ..opening
    }
}

/// What a gateway was asked to close, TCP first.
fn closed(gateway: &Gateway) -> Vec<Asked> {
    let mut closed = gateway.take_asked();
    closed.retain(|asked| asked.lease_s == 0);
    closed.sort_by_key(|asked| !asked.is_tcp);
    closed
}

fn mapping(gateway: &Gateway) -> PortMapping {
    let pmp = pmp::Pmp::new(gateway.address, Ipv4Addr::LOCALHOST);
    PortMapping::new(Router::Pmp(pmp))
}

#[tokio::test]
async fn both_ports_are_opened_renewed_at_half_of_their_time_and_closed_at_the_end() {
    let gateway = Gateway::start(Conduct::default()).await;
    let mut nat = start(config(Some(gateway.address), None));
    assert_eq!(
        nat.events.recv().await,
        Some(NatEvent::Mapped(OUTER, PORTS))
    );
    let both = [opening(true, PORTS.tcp), opening(false, PORTS.udp)];
    assert_eq!(gateway.take_asked(), both);

    // A renewal that changes nothing is not told, one with another address is.
    jump(LEASE / 2 + SECOND).await;
    assert_eq!(asked(&gateway, 2).await, both);
    let moved = [203, 0, 113, 8].into();
    gateway.set(|conduct| conduct.ip = moved);
    jump(LEASE / 2 + SECOND).await;
    assert_eq!(
        nat.events.recv().await,
        Some(NatEvent::Mapped(moved, PORTS))
    );
    gateway.take_asked();

    nat.handle.stop().await;
    assert_eq!(closed(&gateway), both.map(closing));
    assert_eq!(nat.events.recv().await, None);
}

#[tokio::test]
async fn outer_ports_may_differ_and_are_asked_for_again() {
    let gateway = Gateway::start(Conduct {
        shift: 7,
        ..Conduct::default()
    });
    let gateway = gateway.await;
    let mut nat = start(config(Some(gateway.address), None));
    let outer = Ports {
        tcp: 30310,
        udp: 30311,
    };
    assert_eq!(
        nat.events.recv().await,
        Some(NatEvent::Mapped(OUTER, outer))
    );
    gateway.take_asked();
    gateway.set(|conduct| conduct.shift = 0);
    jump(LEASE / 2 + SECOND).await;
    let again = [opening(true, outer.tcp), opening(false, outer.udp)];
    assert_eq!(asked(&gateway, 2).await, again);
}

#[tokio::test]
async fn what_a_router_no_longer_renews_is_lost_when_its_time_is_over() {
    let gateway = Gateway::start(Conduct::default()).await;
    let mut nat = start(config(Some(gateway.address), None));
    assert!(nat.events.recv().await.is_some());
    gateway.take_asked();
    gateway.set(|conduct| conduct.result = 4);
    jump(LEASE / 2 + SECOND).await;
    asked(&gateway, 1).await;
    assert!(nat.events.try_recv().is_err(), "it has time left");
    jump(LEASE / 2 - RENEW_AGAIN / 2).await;
    assert_eq!(nat.events.recv().await, Some(NatEvent::Lost));
    // The last renewal, two closings, and the next search, which it refuses too.
    asked(&gateway, 4).await;
    gateway.set(|conduct| conduct.result = 0);
    jump(LOOK_AGAIN + SECOND).await;
    assert_eq!(
        nat.events.recv().await,
        Some(NatEvent::Mapped(OUTER, PORTS))
    );
}

#[tokio::test]
async fn a_private_outer_address_and_a_refusal_open_nothing() {
    let gateway = Gateway::start(Conduct::default()).await;
    for (ip, result) in [
        ([10, 0, 0, 1], 0),
        ([100, 64, 0, 1], 0),
        ([203, 0, 113, 7], 2),
    ] {
        gateway.set(|conduct| (conduct.ip, conduct.result) = (ip.into(), result));
        let error = mapping(&gateway).open(PORTS).await.unwrap_err();
        let is_behind = matches!(error, NatError::BehindAnotherRouter(_));
        assert_eq!(is_behind, result == 0, "{error}");
    }
}

#[tokio::test]
async fn at_a_new_address_of_this_machine_ports_are_closed_for_the_old_one_and_opened_again() {
    let gateway = Gateway::start(Conduct::default()).await;
    let last = Arc::new(AtomicU8::new(1));
    let mut config = config(Some(gateway.address), None);
    let told = Arc::clone(&last);
    config.network.local =
        Box::new(move || Some(Ipv4Addr::new(127, 0, 0, told.load(Ordering::Relaxed))));
    let mut nat = start(config);
    assert_eq!(
        nat.events.recv().await,
        Some(NatEvent::Mapped(OUTER, PORTS))
    );
    gateway.take_asked();
    last.store(2, Ordering::Relaxed);
    jump(POLL + SECOND).await;
    let local = Ipv4Addr::new(127, 0, 0, 2);
    for expected in [
        NatEvent::Local(local),
        NatEvent::Lost,
        NatEvent::Mapped(OUTER, PORTS),
    ] {
        assert_eq!(nat.events.recv().await, Some(expected));
    }
    let both = [opening(true, PORTS.tcp), opening(false, PORTS.udp)];
    assert_eq!(closed(&gateway), both.map(closing));
}

#[tokio::test]
async fn a_renewal_that_fails_for_one_port_closes_neither() {
    let gateway = Gateway::start(Conduct::default()).await;
    let mut mapping = mapping(&gateway);
    mapping.open(PORTS).await.unwrap();
    gateway.set(|conduct| conduct.refuses_udp = true);
    mapping.open(PORTS).await.unwrap_err();
    assert_eq!((mapping.outer, closed(&gateway)), (PORTS, vec![]));
}

#[tokio::test]
async fn a_port_without_the_other_is_closed_again() {
    let gateway = Gateway::start(Conduct {
        refuses_udp: true,
        ..Conduct::default()
    });
    let gateway = gateway.await;
    let mut mapping = mapping(&gateway);
    mapping.open(PORTS).await.unwrap_err();
    assert_eq!(mapping.outer, Ports::default());
    assert_eq!(closed(&gateway), [closing(opening(true, PORTS.tcp))]);
}

#[tokio::test]
async fn a_port_that_a_renewal_moved_is_closed_where_it_was() {
    let igd = Igd::start(IgdConduct::default()).await;
    let upnp = upnp::Upnp::find(igd.ssdp, Ipv4Addr::LOCALHOST, None);
    let mut mapping = PortMapping::new(Router::Upnp(Box::new(upnp.await.unwrap())));
    mapping.open(PORTS).await.unwrap();
    igd.conduct.lock().unwrap().add_error = Some(718);
    mapping.open(PORTS).await.unwrap();
    let moved = Ports {
        tcp: 40404,
        udp: 40404,
    };
    assert_eq!(mapping.outer, moved);
    assert_eq!(igd_closed(&igd), ["TCP 30303", "UDP 30304"]);

    // By NAT-PMP the new port is in the place of the old one, and closing would close it.
    let gateway = Gateway::start(Conduct::default()).await;
    let mut mapping = self::mapping(&gateway);
    mapping.open(PORTS).await.unwrap();
    gateway.set(|conduct| conduct.shift = 7);
    mapping.open(PORTS).await.unwrap();
    assert_eq!(mapping.outer.tcp, PORTS.tcp + 7);
    assert_eq!(closed(&gateway), []);
}

#[tokio::test]
async fn a_stop_while_the_ports_are_being_opened_closes_what_is_open() {
    let gateway = Gateway::start(Conduct {
        ignores: Some(false),
        ..Conduct::default()
    });
    let gateway = gateway.await;
    let nat = start(config(Some(gateway.address), None));
    asked(&gateway, 2).await;
    nat.handle.stop().await;
    assert_eq!(closed(&gateway), [closing(opening(true, PORTS.tcp))]);
}

#[tokio::test]
async fn a_closing_without_an_answer_does_not_keep_the_other_port_open() {
    let gateway = Gateway::start(Conduct::default()).await;
    let mut nat = start(config(Some(gateway.address), None));
    assert!(nat.events.recv().await.is_some());
    gateway.set(|conduct| conduct.ignores = Some(true));
    nat.handle.stop().await;
    let udp = closing(opening(false, PORTS.udp));
    assert!(closed(&gateway).contains(&udp));
}

#[tokio::test]
async fn a_lease_is_believed_between_a_minute_and_what_was_asked_for() {
    let gateway = Gateway::start(Conduct::default()).await;
    for (said_s, believed) in [
        (1, MIN_LEASE),
        (600, Duration::from_secs(600)),
        (u32::MAX, LEASE),
    ] {
        gateway.set(|conduct| conduct.fixed_lease_s = Some(said_s));
        let mut mapping = mapping(&gateway);
        mapping.open(PORTS).await.unwrap();
        assert_eq!(mapping.ends_at - mapping.renew_at, believed / 2);
    }
}

#[test]
fn with_a_public_address_no_router_is_looked_for_unless_upnp_was_chosen() {
    let public = Ipv4Addr::new(8, 8, 8, 8);
    let private = Ipv4Addr::new(192, 168, 1, 5);
    assert!(is_behind_router(private, true) && is_behind_router(private, false));
    assert!(!is_behind_router(public, true) && is_behind_router(public, false));
}

#[tokio::test]
async fn upnp_opens_both_ports_and_closes_them_and_only_what_it_opened() {
    let igd = Igd::start(IgdConduct::default()).await;
    let mut nat = start(config(None, Some(igd.ssdp)));
    assert_eq!(
        nat.events.recv().await,
        Some(NatEvent::Mapped(OUTER, PORTS))
    );
    igd.take_asked();
    nat.handle.stop().await;
    assert_eq!(igd_closed(&igd), ["TCP 30303", "UDP 30304"]);

    let upnp = upnp::Upnp::find(igd.ssdp, Ipv4Addr::LOCALHOST, None);
    let mapping = PortMapping::new(Router::Upnp(Box::new(upnp.await.unwrap())));
    mapping.close(PORTS, Ports { tcp: 7, udp: 0 }).await;
    assert_eq!(igd_closed(&igd), ["TCP 7"]);
}

/// What a router was asked to close, TCP first.
fn igd_closed(igd: &Igd) -> Vec<String> {
    let asked = igd.take_asked().into_iter();
    let closed =
        asked.filter_map(|asked| asked.strip_prefix("DeletePortMapping ").map(str::to_owned));
    let mut closed: Vec<String> = closed.collect();
    closed.sort();
    closed
}

#[tokio::test]
async fn of_two_ways_that_answer_the_one_that_opens_is_taken() {
    let gateway = Gateway::start(Conduct {
        result: 2,
        ..Conduct::default()
    });
    let gateway = gateway.await;
    let igd = Igd::start(IgdConduct::default()).await;
    let mut nat = start(config(Some(gateway.address), Some(igd.ssdp)));
    assert_eq!(
        nat.events.recv().await,
        Some(NatEvent::Mapped(OUTER, PORTS))
    );
    assert_eq!(gateway.take_asked().len(), 1);
    assert_eq!(igd.take_asked().len(), 2);
}
