//! Whether others reach this node by TCP: one line, five minutes after the start.

use super::Shared;
use crate::address::is_public;
use crate::peer::Peer;
use crate::record::Record;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// When it is said.
const AFTER: Duration = Duration::from_secs(5 * 60);

/// What can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// A node connected from a public address.
    Reached,
    /// None did, although this node has peers there.
    NotReached,
    /// This node has no peers there, as in a private network.
    Unknown,
}

fn verdict(is_reached: bool, has_public_peers: bool) -> Verdict {
    match (is_reached, has_public_peers) {
        (true, _) => Verdict::Reached,
        (false, true) => Verdict::NotReached,
        (false, false) => Verdict::Unknown,
    }
}

/// Waits, and says it.
pub(super) async fn tell(
    shared: Arc<Shared>,
    peers: watch::Receiver<Arc<[Arc<Peer>]>>,
    record: watch::Receiver<Record>,
) {
    tokio::time::sleep(AFTER).await;
    let is_reached = shared.is_reached.load(Ordering::Relaxed);
    let peers = peers.borrow().clone();
    let has_public_peers = peers
        .iter()
        .any(|peer| is_public(peer.info.origin.remote.ip()));
    match verdict(is_reached, has_public_peers) {
        Verdict::Reached => info!("Reachable by TCP: nodes connect to this one from outside"),
        Verdict::NotReached => {
            let entries = record.borrow().entries();
            warn!(
                "Not reachable by TCP: no node connected from outside in 5 minutes; open TCP {} and UDP {} in the router \
                 and the firewall, and set --p2p-host if the address above is wrong",
                entries.tcp, entries.udp
            );
        }
        Verdict::Unknown => info!(
            "Whether others reach this node is not known: in 5 minutes it had no peer with a public address"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_called_unreachable_only_if_it_has_peers_outside() {
        for (is_reached, has_public_peers, expected) in [
            (true, true, Verdict::Reached),
            (true, false, Verdict::Reached),
            (false, true, Verdict::NotReached),
            (false, false, Verdict::Unknown),
        ] {
            assert_eq!(verdict(is_reached, has_public_peers), expected);
        }
    }
}
