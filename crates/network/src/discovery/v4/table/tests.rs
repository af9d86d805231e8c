//! The table: its limits hold whatever comes.

use super::*;
use niwaki_primitives::FixedBytes;
use proptest::prelude::*;
use rand::SeedableRng;

fn id(number: u32) -> NodeId {
    let mut bytes = FixedBytes::ZERO;
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    NodeId(bytes)
}

fn contact(number: u32, ip: [u8; 4]) -> Contact {
    Contact::new(id(number), (ip, 30303).into(), 30303)
}

fn own() -> NodeId {
    id(u32::MAX)
}

fn rng() -> SmallRng {
    SmallRng::seed_from_u64(1)
}

/// Private addresses are in no subnet.
fn local(number: u32) -> Contact {
    contact(number, [127, 0, 0, 1])
}

/// Nodes of the farthest bucket.
fn far(table: &Table) -> impl Iterator<Item = Contact> {
    let table = table.clone();
    let all = (0..).map(local);
    all.filter(move |contact| table.index(&contact.position) == BUCKETS - 1)
}

fn check(table: &Table) {
    let mut in_table = std::collections::HashMap::new();
    for (index, bucket) in table.buckets.iter().enumerate() {
        assert!(bucket.entries.len() <= BUCKET_ENTRIES);
        assert!(bucket.replacements.len() <= BUCKET_REPLACEMENTS);
        assert!(bucket.replacements.is_empty() || bucket.entries.len() == BUCKET_ENTRIES);
        let mut in_bucket = std::collections::HashMap::new();
        let mut ids = std::collections::HashSet::new();
        for contact in bucket.contacts() {
            assert!(ids.insert(contact.id), "twice in a bucket");
            assert_eq!(table.index(&contact.position), index);
            if let Some(subnet) = Subnet::of(contact.address.ip(), Width::TABLE) {
                *in_bucket.entry(subnet).or_insert(0) += 1;
                *in_table.entry(subnet).or_insert(0) += 1;
            }
        }
        assert!(in_bucket.values().all(|count| *count <= SUBNET_PER_BUCKET));
    }
    assert!(in_table.values().all(|count| *count <= SUBNET_PER_TABLE));
}

#[test]
fn a_bucket_is_chosen_by_the_first_bit_that_differs() {
    let table = Table::new(own());
    let with_bit = |bit: usize| {
        let mut position = own().position();
        position[bit / 8] ^= 0x80 >> (bit % 8);
        position
    };
    assert_eq!(table.index(&with_bit(0)), 16);
    assert_eq!(table.index(&with_bit(1)), 15);
    assert_eq!(table.index(&with_bit(15)), 1);
    assert_eq!(table.index(&with_bit(16)), 0);
    assert_eq!(table.index(&with_bit(255)), 0);
    assert_eq!(table.index(&own().position()), 0);
}

#[test]
fn a_full_bucket_keeps_its_nodes_and_10_newer_ones_wait() {
    let mut table = Table::new(own());
    let nodes: Vec<_> = far(&table).take(40).collect();
    for (at, node) in nodes.iter().enumerate() {
        let expected = match at < BUCKET_ENTRIES {
            true => Inserted::New,
            false => Inserted::Replacement,
        };
        assert_eq!(table.insert(node.clone()), expected);
    }
    assert!(
        nodes[..16]
            .iter()
            .all(|n| table.get(n.id, &n.position).is_some())
    );
    let waiting = &table.buckets[BUCKETS - 1].replacements;
    let waiting: Vec<_> = waiting.iter().map(|entry| entry.contact.clone()).collect();
    assert_eq!(waiting, nodes[30..]);
    // A removed node's place goes to one that waits.
    table.remove(&nodes[3], &mut rng());
    assert_eq!(table.len(), 16);
    assert!(table.get(nodes[3].id, &nodes[3].position).is_none());
    assert_eq!(table.buckets[BUCKETS - 1].replacements.len(), 9);
    check(&table);
}

#[test]
fn of_one_subnet_2_nodes_are_in_a_bucket_and_10_in_the_table() {
    let mut table = Table::new(own());
    let inserted = (0..10_000).filter(|number| {
        let last = u8::try_from(number % 250).unwrap();
        table.insert(contact(*number, [8, 8, 8, last])) != Inserted::Refused
    });
    let inserted = inserted.count();
    check(&table);
    assert_eq!(inserted, 10);
    assert_eq!(
        table.insert(contact(1_000_000, [8, 8, 9, 1])),
        Inserted::New
    );
}

#[test]
fn a_known_node_moves_to_a_new_address_unless_that_subnet_is_full() {
    let mut table = Table::new(own());
    let [a, b, c] = <[Contact; 3]>::try_from(far(&table).take(3).collect::<Vec<_>>()).unwrap();
    let at = |contact: &Contact, ip: [u8; 4]| Contact {
        address: (ip, 1).into(),
        ..contact.clone()
    };
    assert_eq!(table.insert(at(&a, [8, 8, 8, 1])), Inserted::New);
    assert_eq!(table.insert(at(&b, [8, 8, 8, 2])), Inserted::New);
    assert_eq!(table.insert(at(&c, [9, 9, 9, 1])), Inserted::New);
    assert_eq!(table.insert(at(&c, [8, 8, 8, 3])), Inserted::Refused);
    let kept = table.get(c.id, &c.position).unwrap();
    assert_eq!(kept.address, ([9, 9, 9, 1], 1).into());
    assert_eq!(table.insert(at(&a, [8, 8, 8, 3])), Inserted::Known);
    let moved = table.get(a.id, &a.position).unwrap();
    assert_eq!(moved.address, ([8, 8, 8, 3], 1).into());
}

#[test]
fn our_own_id_is_refused() {
    let mut table = Table::new(own());
    let us = Contact::new(own(), ([127, 0, 0, 1], 1).into(), 1);
    assert!(!table.has_room(&us));
    assert_eq!(table.insert(us), Inserted::Refused);
}

#[test]
fn a_new_node_goes_with_its_first_failed_check_and_a_good_one_after_some() {
    let mut table = Table::new(own());
    table.insert(local(1));
    assert_eq!(table.to_check(true, &mut rng()), Some(local(1)));
    assert_eq!(table.to_check(false, &mut rng()), None);
    for _ in 0..10 {
        table.passed_check(&local(1));
    }
    assert_eq!(table.to_check(true, &mut rng()), None);
    assert_eq!(table.to_check(false, &mut rng()), Some(local(1)));
    // 10, 3, 1, 0.
    assert!(!table.failed_check(&local(1), &mut rng()));
    assert!(!table.failed_check(&local(1), &mut rng()));
    assert!(table.failed_check(&local(1), &mut rng()));
    assert_eq!(table.len(), 0);
}

#[test]
fn five_queries_in_a_row_without_an_answer_remove_a_node() {
    let mut table = Table::new(own());
    table.insert(local(1));
    for _ in 0..4 {
        table.failed_query(&local(1), &mut rng());
    }
    table.answered_query(&local(1));
    for _ in 0..4 {
        table.failed_query(&local(1), &mut rng());
    }
    assert_eq!(table.len(), 1);
    table.failed_query(&local(1), &mut rng());
    assert_eq!(table.len(), 0);
}

#[test]
fn the_closest_nodes_come_first() {
    let mut table = Table::new(own());
    (0..500).for_each(|number| {
        table.insert(local(number));
    });
    let target = id(9999).position();
    let closest = table.closest(&target, 16, |contact| contact.id != id(3));
    assert_eq!(closest.len(), 16);
    let distances: Vec<_> = closest
        .iter()
        .map(|c| distance(&target, &c.position))
        .collect();
    assert!(distances.is_sorted());
    let last = distances[15];
    for number in (0..500).filter(|number| *number != 3) {
        let contact = local(number);
        let is_entry = table.get(contact.id, &contact.position).is_some();
        let is_closer = distance(&target, &contact.position) <= last;
        assert_eq!(closest.contains(&contact), is_entry && is_closer);
    }
}

proptest! {
    #[test]
    fn its_limits_hold_whatever_comes(steps in prop::collection::vec((0_u32..300, 0_u8..6, 0_u8..4, 0_u8..6), 0..600)) {
        let mut table = Table::new(own());
        let mut rng = rng();
        for (number, subnet, last, what) in steps {
            let contact = contact(number, [8, 8, subnet, last]);
            match what {
                0 => table.remove(&contact, &mut rng),
                1 => {
                    table.failed_check(&contact, &mut rng);
                }
                2 => table.passed_check(&contact),
                3 => table.failed_query(&contact, &mut rng),
                _ => {
                    let has_room = table.has_room(&contact);
                    let before = table.len();
                    let inserted = table.insert(contact);
                    prop_assert_eq!(has_room, inserted == Inserted::New && table.len() > before);
                }
            }
            check(&table);
        }
    }
}
