//! The owner's filter of nodes.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn only_nodes_that_the_filter_permits_are_peers_also_when_it_changes() {
    let permitted = Arc::new(AtomicU64::new(1));
    let mut bench = Bench::new(50);
    let known = Arc::clone(&permitted);
    bench.roster.config.filter = NodeFilter::new(move |remote| {
        let number = known.load(Ordering::Relaxed);
        remote.id == id(number) && remote.ip == address(number).ip()
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

#[test]
fn the_filter_gets_the_port_that_a_hello_names_or_that_is_dialled() {
    let mut bench = Bench::new(50);
    bench.roster.config.filter = NodeFilter::new(|remote| match remote.is_dialled {
        true => remote.port == candidate(2).address.port(),
        false => remote.port == 30_303,
    });
    let offers = Offers::default();
    let mut join = |number, port| {
        let (conn, _) = bench.incoming_from(address(number));
        let id = id(number);
        let actions = bench.step(Event::Greeted {
            conn,
            id,
            offers,
            port,
        });
        refused(&actions).map(|()| conn)
    };
    assert_eq!(join(1, 0), Err(Refusal::NotPermitted));
    let conn = join(3, 30_303).unwrap();
    let up = Event::Up { conn, offers };
    bench.step(up);
    assert!(disconnects(&bench.step(Event::FilterChanged)).is_empty());
    let actions = bench.step(Event::AddTrusted(candidate(2)));
    assert_eq!(dials(&actions).len() + dials(&bench.after(1)).len(), 1);
}
