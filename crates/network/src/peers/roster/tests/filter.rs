//! The owner's filter of nodes.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn only_nodes_that_the_filter_permits_are_peers_also_when_it_changes() {
    let permitted = Arc::new(AtomicU64::new(1));
    let mut bench = Bench::new(50);
    let known = Arc::clone(&permitted);
    bench.roster.config.filter = NodeFilter::new(move |node, ip, _| {
        let number = known.load(Ordering::Relaxed);
        *node == id(number) && ip == address(number).ip()
    });
    let conn = bench.join(1).unwrap();
    assert_eq!(bench.join(2), Err(Refusal::NotPermitted));
    // The operator's own nodes too.
    let actions = bench.step(Event::AddTrusted(candidate(2)));
    assert!(dials(&actions).is_empty() && dials(&bench.after(1)).is_empty());
    permitted.store(2, Ordering::Relaxed);
    let actions = bench.step(Event::FilterChanged);
    assert_eq!(disconnects(&actions), [(conn, DisconnectReason::Requested)]);
    assert_eq!(dials(&bench.after(60)).len(), 1);
}
