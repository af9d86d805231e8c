//! Nodes and hosts that are kept away for a while.
//!
//! Every ban ends. There are at most [`MAX_BANS`]: a further one takes the place of the ban that ends first.

use crate::key::NodeId;
use crate::subnet::{Subnet, Width};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Most bans at a time.
const MAX_BANS: usize = 10_000;

/// So many banned nodes of one host get the host banned.
const NODES_OF_A_HOST: usize = 3;

/// What a ban keeps away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BanTarget {
    /// A node.
    Node(NodeId),
    /// A host: an IPv4 address, or the upper 64 bits of an IPv6 one.
    Host(IpAddr),
}

/// A ban in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// What it keeps away.
    pub target: BanTarget,
    /// When it ends, in milliseconds of the roster's clock.
    pub until_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    until_ms: u64,
    /// Where the node was, if it was banned for good reason: counts against its host.
    host: Option<Subnet>,
}

/// The bans.
#[derive(Clone, Debug, Default)]
pub struct Bans {
    entries: HashMap<BanTarget, Entry>,
    by_end: BTreeSet<(u64, BanTarget)>,
}

impl Bans {
    /// Keeps a node or host away until `until_ms`. A longer ban stays as it is. Returns the ban whose place it took, if there
    /// was no room.
    pub fn ban(&mut self, target: BanTarget, until_ms: u64) -> Option<Ban> {
        self.insert(
            canonical(target),
            Entry {
                until_ms,
                host: None,
            },
        )
    }

    /// Keeps a node away that lied, and its host too if it is the third of that host. Local hosts are not banned: many nodes
    /// may be behind one address. Returns the host if that is banned now.
    pub(crate) fn ban_liar(&mut self, id: NodeId, ip: IpAddr, until_ms: u64) -> Option<IpAddr> {
        let host = Subnet::of(ip, Width::HOST);
        self.insert(BanTarget::Node(id), Entry { until_ms, host });
        let host = host?;
        let entries = self.entries.values();
        let liars = entries.filter(|entry| entry.host == Some(host)).count();
        if liars < NODES_OF_A_HOST {
            return None;
        }
        let entry = Entry {
            until_ms,
            host: None,
        };
        self.insert(BanTarget::Host(host.ip()), entry);
        Some(host.ip())
    }

    fn insert(&mut self, target: BanTarget, entry: Entry) -> Option<Ban> {
        if let Some(old) = self.entries.get_mut(&target) {
            old.host = old.host.or(entry.host);
            if old.until_ms < entry.until_ms {
                self.by_end.remove(&(old.until_ms, target));
                self.by_end.insert((entry.until_ms, target));
                old.until_ms = entry.until_ms;
            }
            return None;
        }
        let is_full = self.entries.len() >= MAX_BANS;
        let displaced = is_full.then(|| self.by_end.pop_first()).flatten();
        if let Some((_, target)) = displaced {
            self.entries.remove(&target);
        }
        self.entries.insert(target, entry);
        self.by_end.insert((entry.until_ms, target));
        displaced.map(|(until_ms, target)| Ban { target, until_ms })
    }

    /// Lifts a ban. Returns whether there was one.
    pub fn lift(&mut self, target: BanTarget) -> bool {
        let target = canonical(target);
        let entry = self.entries.remove(&target);
        if let Some(entry) = entry {
            self.by_end.remove(&(entry.until_ms, target));
        }
        entry.is_some()
    }

    /// Drops the bans that have ended.
    pub fn expire(&mut self, now_ms: u64) {
        while let Some((until_ms, target)) = self.by_end.first().copied() {
            if until_ms > now_ms {
                return;
            }
            self.by_end.pop_first();
            self.entries.remove(&target);
        }
    }

    /// Whether a node is kept away.
    pub fn has_node(&self, id: &NodeId, now_ms: u64) -> bool {
        self.has(&BanTarget::Node(*id), now_ms)
    }

    /// Whether the host of an address is kept away.
    pub fn has_ip(&self, ip: IpAddr, now_ms: u64) -> bool {
        self.has(&canonical(BanTarget::Host(ip)), now_ms)
    }

    fn has(&self, target: &BanTarget, now_ms: u64) -> bool {
        let entry = self.entries.get(target);
        entry.is_some_and(|entry| entry.until_ms > now_ms)
    }

    /// The bans in force, the one that ends first in front.
    pub fn list(&self, now_ms: u64) -> impl Iterator<Item = Ban> {
        let all = self.by_end.iter();
        let all = all.map(|(until_ms, target)| Ban {
            target: *target,
            until_ms: *until_ms,
        });
        all.filter(move |ban| ban.until_ms > now_ms)
    }
}

/// Hosts by their address without the bits that don't count.
fn canonical(target: BanTarget) -> BanTarget {
    match target {
        BanTarget::Host(ip) => {
            let ip = ip.to_canonical();
            BanTarget::Host(Subnet::of(ip, Width::HOST).map_or(ip, Subnet::ip))
        }
        node @ BanTarget::Node(_) => node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::FixedBytes;
    use proptest::prelude::*;

    fn id(number: u64) -> NodeId {
        NodeId(FixedBytes::left_padding_from(&number.to_be_bytes()))
    }

    #[test]
    fn a_ban_ends_and_can_be_lifted_before() {
        let mut bans = Bans::default();
        bans.ban(BanTarget::Node(id(1)), 100);
        bans.ban(BanTarget::Node(id(2)), 200);
        assert!(bans.has_node(&id(1), 99) && !bans.has_node(&id(1), 100));
        let listed: Vec<u64> = bans.list(100).map(|ban| ban.until_ms).collect();
        assert_eq!(listed, [200]);
        assert!(bans.lift(BanTarget::Node(id(2))));
        assert!(!bans.lift(BanTarget::Node(id(2))) && !bans.has_node(&id(2), 0));
        bans.expire(100);
        assert!(bans.entries.is_empty() && bans.by_end.is_empty());
    }

    #[test]
    fn a_shorter_ban_does_not_shorten_a_longer_one() {
        let mut bans = Bans::default();
        bans.ban(BanTarget::Node(id(1)), 200);
        bans.ban(BanTarget::Node(id(1)), 100);
        assert!(bans.has_node(&id(1), 150));
        bans.ban(BanTarget::Node(id(1)), 300);
        assert!(bans.has_node(&id(1), 250));
        assert_eq!(bans.list(0).count(), 1);
    }

    #[test]
    fn the_third_liar_of_a_host_gets_the_host_banned_but_not_a_local_one() {
        let (public, local) = ("8.8.8.8".parse().unwrap(), "127.0.0.1".parse().unwrap());
        let mut bans = Bans::default();
        assert_eq!(bans.ban_liar(id(1), public, 100), None);
        assert_eq!(bans.ban_liar(id(1), public, 100), None);
        assert_eq!(bans.ban_liar(id(2), public, 100), None);
        assert!(!bans.has_ip(public, 0));
        assert_eq!(bans.ban_liar(id(3), public, 100), Some(public));
        assert!(bans.has_ip("::ffff:8.8.8.8".parse().unwrap(), 0));
        for number in 4..9 {
            assert_eq!(bans.ban_liar(id(number), local, 100), None);
        }
        assert!(!bans.has_ip(local, 0));
    }

    #[test]
    fn the_10001st_ban_takes_the_place_of_the_one_that_ends_first() {
        let mut bans = Bans::default();
        for number in 0..MAX_BANS as u64 {
            assert_eq!(bans.ban(BanTarget::Node(id(number)), 1000 + number), None);
        }
        let displaced = bans.ban(BanTarget::Node(id(1_000_000)), 5000).unwrap();
        assert_eq!(displaced.target, BanTarget::Node(id(0)));
        assert_eq!(bans.entries.len(), MAX_BANS);
    }

    proptest! {
        #[test]
        fn both_tables_hold_the_same(
            steps in prop::collection::vec((0..3_u8, 0..8_u64, 0..100_u64), 0..60)
        ) {
            let mut bans = Bans::default();
            for (step, number, time) in steps {
                match step {
                    0 => {
                        bans.ban(BanTarget::Node(id(number)), time);
                    }
                    1 => {
                        bans.lift(BanTarget::Node(id(number)));
                    }
                    _ => bans.expire(time),
                }
                prop_assert_eq!(bans.entries.len(), bans.by_end.len());
                for (until_ms, target) in &bans.by_end {
                    prop_assert_eq!(bans.entries.get(target).map(|e| e.until_ms), Some(*until_ms));
                }
            }
        }
    }
}
