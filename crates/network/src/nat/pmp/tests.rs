//! NAT-PMP against a gateway on loopback.

use super::*;
use crate::nat::tests::gateway::{Asked, Conduct, Gateway};
use proptest::prelude::*;

const LEASE: Duration = Duration::from_secs(1200);

fn pmp(gateway: &Gateway) -> Pmp {
    Pmp::new(gateway.address, Ipv4Addr::LOCALHOST)
}

#[tokio::test]
async fn a_gateway_says_its_address_and_opens_the_port_that_it_chooses() {
    let gateway = Gateway::start(Conduct {
        shift: 5,
        lease_s: 600,
        ..Conduct::default()
    });
    let gateway = gateway.await;
    let pmp = pmp(&gateway);
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
    let pmp = pmp(&gateway);
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
    let pmp = Pmp::new(gateway, Ipv4Addr::LOCALHOST);
    assert_eq!(pmp.address().await, Err(NatError::Silent));
    for _ in 0..3 {
        assert_eq!(silent.recv(&mut [0; 32]).await.unwrap(), 2);
    }
    assert!(silent.try_recv(&mut [0; 32]).is_err());
}

#[tokio::test]
async fn a_second_answer_to_one_question_answers_no_later_one() {
    let gateway = Gateway::start(Conduct {
        answers: 2,
        ..Conduct::default()
    });
    let gateway = gateway.await;
    let pmp = pmp(&gateway);
    for last in 1..20 {
        let ip = [203, 0, 113, last].into();
        gateway.set(|conduct| conduct.ip = ip);
        assert_eq!(pmp.address().await, Ok(ip));
        gateway.set(|conduct| conduct.shift = last.into());
        let opened = pmp.open(Transport::Udp, 30303, 30303, LEASE).await;
        assert_eq!(opened.unwrap().port, 30303 + u16::from(last));
    }
}

#[tokio::test]
async fn where_nothing_listens_nothing_is_opened() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let pmp = Pmp::new(address, Ipv4Addr::LOCALHOST);
    assert!(pmp.address().await.is_err());
}

proptest! {
    #[test]
    fn an_answer_to_the_question_is_what_follows_its_time_or_a_refusal(
        code in 0_u8..3,
        other_code in 0_u8..3,
        result in prop_oneof![Just(0_u16), any::<u16>()],
        rest in proptest::collection::vec(any::<u8>(), 0..20),
        inner: u16,
    ) {
        let mut packet = vec![0, code | IS_ANSWER];
        packet.extend(result.to_be_bytes());
        packet.extend(&rest);
        let answers_another = read_answer(&packet, other_code).is_none();
        prop_assert_eq!(answers_another, code != other_code);
        match read_answer(&packet, code).unwrap() {
            Ok(body) => {
                prop_assert!(result == 0);
                prop_assert_eq!(body, &rest[4..]);
                let is_mapping = body.len() == 8 && body.starts_with(&inner.to_be_bytes());
                prop_assert_eq!(read_mapping(body, inner).is_ok(), is_mapping);
            }
            Err(NatError::Malformed(_)) => prop_assert!(result == 0 && rest.len() < 4),
            Err(error) => prop_assert!(result != 0 && matches!(error, NatError::Refused(_))),
        }
    }

    #[test]
    fn a_mapping_is_read_for_its_own_port_alone(inner: u16, other: u16, outer: u16, lease_s: u32) {
        let body: Vec<u8> = [&inner.to_be_bytes()[..], &outer.to_be_bytes(), &lease_s.to_be_bytes()].concat();
        prop_assert_eq!(read_mapping(&body, inner), Ok((outer, lease_s)));
        prop_assert_eq!(read_mapping(&body, other).is_ok(), inner == other);
    }
}
