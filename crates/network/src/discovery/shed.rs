//! A flood of discovery packets: from a rate on, the kernel drops a part of them by chance, before this process wakes up.
//!
//! To read a packet and drop it costs 20 us of processor time, so that 50,000 packets a second take a whole core from the blocks. Which
//! ones matter can't be told before they are read; by chance an honest node's gets through after some tries.
//!
//! Only Linux can do it; elsewhere all packets are read.

use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// More bytes a second are a flood: discovery needs a tenth of it.
const MOST_BYTES_PER_S: u64 = 1 << 20;
/// How often the rate is looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// At most one packet of 1,024 is kept.
const MOST_HALVINGS: u32 = 10;

/// Runs until the sockets are gone. `bytes` are all that were read so far.
pub(crate) async fn shed_floods(
    sockets: Vec<Weak<UdpSocket>>,
    bytes: impl Fn() -> u64 + Send + 'static,
) {
    let mut shedder = Shedder::default();
    let mut before = bytes();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let open: Vec<Arc<UdpSocket>> = sockets.iter().filter_map(Weak::upgrade).collect();
        if open.is_empty() {
            return;
        }
        let now = bytes();
        let changed = shedder.adapt(now.saturating_sub(before));
        before = now;
        let Some((from, to)) = changed else { continue };
        if from == 0 {
            warn!("A flood of discovery packets: the system drops a part of them unread");
        }
        if to == 0 {
            info!("The flood of discovery packets is over");
        }
        for socket in &open {
            // Without it they are read, and dropped here.
            let _ = keep(socket, to);
        }
    }
}

/// How many packets are kept: one of two, four, eight...
#[derive(Debug, Default)]
struct Shedder {
    halvings: u32,
}

impl Shedder {
    /// After a period in which so many bytes were read: how often what is kept was halved, and is from now on; `None` if that is the
    /// same.
    fn adapt(&mut self, bytes: u64) -> Option<(u32, u32)> {
        let most = MOST_BYTES_PER_S / 10;
        let before = self.halvings;
        if bytes > most {
            self.halvings = (before + 1).min(MOST_HALVINGS);
        } else if bytes < most / 4 {
            self.halvings = before.saturating_sub(1);
        }
        (self.halvings != before).then_some((before, self.halvings))
    }
}

/// Has the kernel keep one packet of 2^`halvings`.
#[cfg(target_os = "linux")]
fn keep(socket: &UdpSocket, halvings: u32) -> std::io::Result<()> {
    use socket2::{SockFilter, SockRef};
    // Classic BPF (linux/filter.h): load a random word, drop the packet if it is not below a bound.
    const LOAD_WORD: u16 = 0x20;
    const RANDOM: u32 = 0xffff_f000 + 56;
    const JUMP_IF_NOT_BELOW: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let socket = SockRef::from(socket);
    if halvings == 0 {
        return socket.detach_filter();
    }
    let bound = 1 << (32 - halvings.min(31));
    socket.attach_filter(&[
        SockFilter::new(LOAD_WORD, 0, 0, RANDOM),
        SockFilter::new(JUMP_IF_NOT_BELOW, 1, 0, bound),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ])
}

#[cfg(not(target_os = "linux"))]
fn keep(_: &UdpSocket, _: u32) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u64 = MOST_BYTES_PER_S / 10;

    #[test]
    fn a_steady_flood_is_halved_until_it_fits_and_everything_is_kept_when_it_is_over() {
        let mut shedder = Shedder::default();
        assert_eq!(shedder.adapt(MOST), None);
        let flood = 20 * MOST;
        let mut kept = Vec::new();
        for _ in 0..10 {
            let came = flood >> shedder.halvings;
            kept.extend(shedder.adapt(came));
        }
        assert_eq!(kept, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
        let over: Vec<_> = (0..10).filter_map(|_| shedder.adapt(0)).collect();
        assert_eq!(over, [(5, 4), (4, 3), (3, 2), (2, 1), (1, 0)]);
    }

    proptest! {
        #[test]
        fn what_is_kept_of_a_steady_flood_ends_between_an_eighth_of_the_most_and_the_most(
            flood in MOST..1_000 * MOST
        ) {
            let mut shedder = Shedder::default();
            for _ in 0..20 {
                let came = flood >> shedder.halvings;
                shedder.adapt(came);
            }
            let kept = flood >> shedder.halvings;
            prop_assert!((MOST / 8..=MOST).contains(&kept), "{kept}");
            prop_assert_eq!(shedder.adapt(kept), None);
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_keeps_about_one_packet_of_eight_and_all_afterwards() {
        let reader = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        reader.set_nonblocking(true).unwrap();
        let socket = UdpSocket::from_std(reader.try_clone().unwrap()).unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = reader.local_addr().unwrap();
        let received = |packets: u32| {
            let mut count = 0;
            for _ in 0..packets {
                sender.send_to(&[7; 10], to).unwrap();
                count += u32::from(reader.recv(&mut [0; 10]).is_ok());
            }
            count
        };
        keep(&socket, 3).unwrap();
        let kept = received(8_000);
        assert!((700..1_300).contains(&kept), "{kept}");
        keep(&socket, 0).unwrap();
        assert!(received(100) > 90);
    }
}
