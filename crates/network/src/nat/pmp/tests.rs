//! NAT-PMP against a gateway on loopback.

use super::*;
use crate::nat::tests::gateway::{Asked, Conduct, Gateway};
use proptest::prelude::*;

const LEASE: Duration = Duration::from_secs(1200);

async fn pmp(gateway: &Gateway) -> Pmp {
    Pmp::new(gateway.address, Ipv4Addr::LOCALHOST)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_gateway_says_its_address_and_opens_the_port_that_it_chooses() {
    let gateway = Gateway::start(Conduct {
        shift: 5,
        lease_s: 600,
        ..Conduct::default()
    });
    let gateway = gateway.await;
    let pmp = pmp(&gateway).await;
    assert_eq!(pmp.address().await, Ok([203, 0, 113, 7].into()));
    let opened = pmp.open(Transport::Tcp, 30303, 30303, LEASE).await;
    let expected = Opened {
        port: 30308,
        lease: Some(Duration::from_secs(600)),
    };
    assert_eq!(opened, Ok(expected));
    assert_eq!(pmp.close(Transport::Udp, 30303).await, Ok(()));
    let asked = |is_tcp, outer, lease_s| Asked {
        is_tcp,
        inner: 30303,
        outer,
        lease_s,
    };
    assert_eq!(
        gateway.take_asked(),
        [asked(true, 30303, 1200), asked(false, 0, 0)]
    );
}

#[tokio::test]
async fn a_refusal_says_why() {
    let gateway = Gateway::start(Conduct::default()).await;
    let pmp = pmp(&gateway).await;
    for (result, reason) in [
        (2, "not authorized"),
        (4, "no room"),
        (5, "no ports"),
        (77, "77"),
    ] {
        gateway.set(|conduct| conduct.result = result);
        let refused = pmp.open(Transport::Udp, 1, 1, LEASE).await.unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
    }
    gateway.set(|conduct| (conduct.result, conduct.lease_s) = (0, 0));
    let refused = pmp.open(Transport::Udp, 1, 1, LEASE).await;
    assert!(matches!(refused, Err(NatError::Refused(_))), "{refused:?}");
}

// The clock of the timers is paused: it moves on when every task waits.
#[tokio::test(start_paused = true)]
async fn silence_ends_after_three_questions() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let gateway = silent.local_addr().unwrap();
    let pmp = Pmp::new(gateway, Ipv4Addr::LOCALHOST).await.unwrap();
    assert_eq!(pmp.address().await, Err(NatError::Silent));
    for _ in 0..3 {
        assert_eq!(silent.recv(&mut [0; 32]).await.unwrap(), 2);
    }
    assert!(silent.try_recv(&mut [0; 32]).is_err());
}

#[tokio::test]
async fn where_nothing_listens_nothing_is_opened() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let pmp = Pmp::new(address, Ipv4Addr::LOCALHOST).await.unwrap();
    assert!(pmp.address().await.is_err());
}

proptest! {
    #[test]
    fn any_packet_is_an_answer_a_refusal_or_ignored(packet: Vec<u8>, code in 0_u8..3, inner: u16) {
        if let Some(Ok(body)) = read_answer(&packet, code) {
            prop_assert_eq!(&packet[8..], body);
            let mapping = read_mapping(body, inner);
            prop_assert!(mapping.is_err() || body.len() == 8);
        }
    }
}
