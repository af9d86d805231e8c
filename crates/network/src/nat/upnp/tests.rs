//! UPnP against a router on loopback.

use super::*;
use crate::nat::tests::igd::{Conduct, Igd};

const LEASE: Duration = Duration::from_secs(1200);

async fn find(igd: &Igd) -> Result<Upnp, NatError> {
    Upnp::find(igd.ssdp, Ipv4Addr::LOCALHOST).await
}

#[tokio::test]
async fn a_router_is_found_says_its_address_and_opens_and_closes_a_port() {
    let igd = Igd::start(Conduct::default()).await;
    let upnp = find(&igd).await.unwrap();
    assert_eq!(upnp.address().await, Ok([203, 0, 113, 7].into()));
    let opened = upnp.open(Transport::Udp, 30303, 30303, LEASE).await;
    let lease = Some(LEASE);
    assert_eq!(opened, Ok(Opened { port: 30303, lease }));
    assert_eq!(upnp.close(Transport::Udp, 30303).await, Ok(()));
    assert_eq!(
        igd.take_asked(),
        [
            "AddPortMapping UDP 30303 1200",
            "DeletePortMapping UDP 30303"
        ]
    );
}

#[tokio::test]
async fn a_router_without_leases_opens_for_ever_and_a_taken_port_becomes_another_one() {
    let igd = Igd::start(Conduct {
        is_permanent: true,
        ..Conduct::default()
    });
    let igd = igd.await;
    let upnp = find(&igd).await.unwrap();
    let opened = upnp
        .open(Transport::Tcp, 30303, 30303, LEASE)
        .await
        .unwrap();
    assert_eq!((opened.port, opened.lease), (30303, None));

    igd.conduct.lock().unwrap().is_permanent = false;
    igd.conduct.lock().unwrap().add_error = Some(718);
    let opened = upnp
        .open(Transport::Tcp, 30303, 30303, LEASE)
        .await
        .unwrap();
    assert_eq!((opened.port, opened.lease), (40404, Some(LEASE)));
}

#[tokio::test]
async fn refusals_are_told_and_an_address_that_is_none_is_refused() {
    let igd = Igd::start(Conduct {
        ip: "somewhere",
        ..Conduct::default()
    });
    let igd = igd.await;
    let upnp = find(&igd).await.unwrap();
    assert!(upnp.address().await.is_err());
    for (code, words) in [(606, "not authorized"), (501, "501"), (402, "402")] {
        igd.conduct.lock().unwrap().add_error = Some(code);
        let refused = upnp.open(Transport::Tcp, 1, 1, LEASE).await.unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
}

#[tokio::test]
async fn garbage_is_an_error_of_few_words() {
    let deep = "<a>".repeat(100_000);
    for garbage in [
        "",
        "<",
        "\u{0}\u{1}",
        deep.as_str(),
        "<root/>",
        "<a>&b;</a>",
    ] {
        let igd = Igd::start(Conduct::default()).await;
        let upnp = find(&igd).await.unwrap();
        igd.conduct.lock().unwrap().garbage = Some(garbage.as_bytes().to_vec());
        let errors = [
            upnp.address().await.unwrap_err(),
            upnp.open(Transport::Tcp, 1, 1, LEASE).await.unwrap_err(),
            upnp.close(Transport::Tcp, 1).await.unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().len() < 200, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_no_router_answers_none_is_found() {
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let found = Upnp::find(silent.local_addr().unwrap(), Ipv4Addr::LOCALHOST).await;
    assert_eq!(found.unwrap_err(), NatError::Silent);
}
