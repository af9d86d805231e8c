//! Many machines on a network in memory: packets take 1 to 100 ms, and some are lost. Seeded, and repeatable to the packet.

use super::*;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};

struct Network {
    machines: BTreeMap<SocketAddr, Machine>,
    found: BTreeMap<SocketAddr, BTreeSet<NodeId>>,
    /// By arrival, then in the order of sending.
    packets: BTreeMap<(u64, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    sent: u64,
    now_ms: u64,
    rng: SmallRng,
    lost_percent: u32,
}

fn address(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    ([10, 0, high, low], 30303).into()
}

fn key_of(number: u16) -> NodeKey {
    NodeKey::new(B256::left_padding_from(&(number + 1).to_be_bytes())).unwrap()
}

impl Network {
    /// So many nodes; all but the first know the first.
    fn new(nodes: u16, seed: u64, lost_percent: u32) -> Self {
        let boot = Contact::new(key_of(0).id(), address(0), 30303);
        let machines = (0..nodes).map(|number| {
            let key = key_of(number);
            let record = record(&key, 1);
            let rng = SmallRng::seed_from_u64(seed + u64::from(number));
            let boot = vec![boot.clone()];
            (address(number), Machine::new(key, record, boot, rng))
        });
        Self {
            machines: machines.collect(),
            found: BTreeMap::new(),
            packets: BTreeMap::new(),
            sent: 0,
            now_ms: 0,
            rng: SmallRng::seed_from_u64(seed),
            lost_percent,
        }
    }

    fn act(&mut self, from: SocketAddr) {
        let actions = self.machines.get_mut(&from).unwrap().take_actions();
        for action in actions {
            match action {
                Action::Send { to, packet } => {
                    self.sent += 1;
                    let arrival = self.now_ms + self.rng.random_range(1..100);
                    if self.rng.random_range(0..100) >= self.lost_percent {
                        let packet = (from, to, packet);
                        self.packets.insert((arrival, self.sent), packet);
                    }
                }
                Action::Report(DiscoveryEvent::Found(node)) => {
                    self.found.entry(from).or_default().insert(node.node.id);
                }
                Action::Report(DiscoveryEvent::Observed { address, .. }) => {
                    assert_eq!(address, from);
                }
                Action::Report(DiscoveryEvent::BootRecord(record)) => {
                    assert_eq!(record.entries().udp, 30303);
                }
                Action::Report(DiscoveryEvent::Decided(address)) => {
                    panic!("v4 decides nothing: {address}")
                }
            }
        }
    }

    fn run_until(&mut self, end_ms: u64) {
        loop {
            let arrival = self.packets.keys().next().map_or(u64::MAX, |key| key.0);
            let wake = self.machines.values().map(Machine::next_wake_ms).min();
            let next = arrival.min(wake.unwrap_or(u64::MAX));
            if next > end_ms {
                return;
            }
            self.now_ms = self.now_ms.max(next);
            let now = at(self.now_ms);
            while let Some(entry) = self.packets.first_entry()
                && entry.key().0 <= self.now_ms
            {
                let (from, to, packet) = entry.remove();
                if let Some(machine) = self.machines.get_mut(&to) {
                    let _ = machine.receive(from, &packet, now);
                    self.act(to);
                }
            }
            let due = self.machines.iter();
            let due = due.filter(|(_, machine)| machine.next_wake_ms() <= self.now_ms);
            let due: Vec<_> = due.map(|(address, _)| *address).collect();
            for address in due {
                let machine = self.machines.get_mut(&address).unwrap();
                machine.tick(now);
                assert!(
                    machine.next_wake_ms() > self.now_ms,
                    "a machine that never rests"
                );
                self.act(address);
            }
        }
    }
}

#[test]
fn twenty_nodes_find_each_other_through_one() {
    let mut network = Network::new(20, 1, 0);
    network.run_until(30_000);
    for (address, machine) in &network.machines {
        let found = network.found.get(address).map_or(0, BTreeSet::len);
        assert!(found >= 18, "{address} found {found}");
        assert!(
            machine.table_len() >= 16,
            "{address}: {}",
            machine.table_len()
        );
    }
}

#[test]
fn two_nodes_find_each_other_though_every_fifth_packet_is_lost() {
    let mut network = Network::new(2, 2, 20);
    network.run_until(120_000);
    for address in network.machines.keys() {
        assert_eq!(network.found.get(address).map_or(0, BTreeSet::len), 1);
    }
}

#[test]
fn fifty_nodes_find_most_of_each_other_with_one_packet_in_twenty_lost() {
    let mut network = Network::new(50, 3, 5);
    network.run_until(120_000);
    let found: Vec<_> = network.found.values().map(BTreeSet::len).collect();
    assert_eq!(found.len(), 50);
    assert!(found.iter().all(|found| *found >= 40), "{found:?}");
    let tables = network.machines.values().map(Machine::table_len);
    let tables: Vec<_> = tables.collect();
    assert!(tables.iter().all(|length| *length >= 20), "{tables:?}");
    // What it costs: a node sends less than 10 packets a second.
    let packets = network.sent / 50 / 120;
    assert!(packets < 10, "{packets} packets a second");
}

#[test]
fn nodes_that_went_away_are_forgotten_and_found_again_when_they_are_back() {
    let mut network = Network::new(10, 4, 0);
    network.run_until(30_000);
    let gone: Vec<_> = (5..10).map(address).collect();
    let away: Vec<_> = gone
        .iter()
        .map(|at| network.machines.remove(at).unwrap())
        .collect();
    network.run_until(400_000);
    for machine in network.machines.values() {
        assert_eq!(machine.table_len(), 4);
    }
    network.machines.extend(gone.into_iter().zip(away));
    network.run_until(600_000);
    for machine in network.machines.values() {
        assert_eq!(machine.table_len(), 9);
    }
}

#[test]
fn a_node_whose_candidates_are_not_wanted_makes_no_look_ups_of_random_targets() {
    let mut network = Network::new(3, 5, 0);
    network.run_until(5_000);
    let now = at(network.now_ms);
    for machine in network.machines.values_mut() {
        machine.set_wanting(false, now);
    }
    network.run_until(100_000);
    let before = network.sent;
    network.run_until(700_000);
    // Checks remain: one node each 3 to 7 s, a ping and a pong.
    let per_node_s = (network.sent - before) as f64 / 3.0 / 600.0;
    assert!(per_node_s < 1.5, "{per_node_s} packets a second");
}
