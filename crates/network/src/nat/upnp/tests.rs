//! UPnP against a router on loopback.

use super::*;
use crate::nat::tests::igd::{Conduct, Igd, search_answer};
use tokio::net::TcpListener;

const LEASE: Duration = Duration::from_secs(1200);

async fn find(igd: &Igd) -> Result<Upnp, NatError> {
    Upnp::find(igd.ssdp, Ipv4Addr::LOCALHOST, None).await
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
async fn a_router_that_names_port_0_has_opened_nothing() {
    let igd = Igd::start(Conduct {
        add_error: Some(718),
        any_port: 0,
        ..Conduct::default()
    });
    let igd = igd.await;
    let upnp = find(&igd).await.unwrap();
    let opened = upnp.open(Transport::Tcp, 30303, 30303, LEASE).await;
    assert!(matches!(opened, Err(NatError::Refused(_))), "{opened:?}");
}

#[tokio::test]
async fn answers_of_other_devices_garbage_and_silence_keep_no_router_from_being_found() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for first in [
        search_answer(silent.local_addr().unwrap()),
        Vec::new(),
        vec![0xff; 1400],
        b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nLocation: http://\r\n\r\n".to_vec(),
        b"Location: ftp://127.0.0.1:1/\r\n".to_vec(),
        b"Location: http://127.0.0.1:0/\r\n".to_vec(),
    ] {
        let igd = Igd::start(Conduct {
            first_answer: Some(first.clone()),
            ..Conduct::default()
        });
        let found = find(&igd.await).await;
        assert!(found.is_ok(), "{first:?}: {found:?}");
    }
}

#[tokio::test]
async fn a_description_on_another_host_is_not_read() {
    let other = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let igd = Igd::start(Conduct {
        location: Some(other.local_addr().unwrap()),
        ..Conduct::default()
    });
    assert_eq!(find(&igd.await).await.unwrap_err(), NatError::Silent);
    let other = other.into_std().unwrap();
    assert!(other.accept().is_err(), "nothing connected to it");
}

#[tokio::test]
async fn of_the_devices_that_answer_only_the_one_that_is_named_may_be_the_router() {
    let igd = Igd::start(Conduct::default()).await;
    let find = |only: [u8; 4]| Upnp::find(igd.ssdp, Ipv4Addr::LOCALHOST, Some(only.into()));
    assert!(find([127, 0, 0, 1]).await.is_ok());
    let other = find([127, 0, 0, 2]).await.unwrap_err();
    assert_eq!(other, NatError::NotTheGateway([127, 0, 0, 1].into()));
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
    let found = Upnp::find(silent.local_addr().unwrap(), Ipv4Addr::LOCALHOST, None).await;
    assert_eq!(found.unwrap_err(), NatError::Silent);
}
