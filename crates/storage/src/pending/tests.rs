//! A look-up through the table of marks finds what asking every batch finds.

use super::*;
use crate::marks::MOST_BATCHES;
use rand::{Rng, SeedableRng, rngs::SmallRng};

fn naive(stack: &[Arc<Pending>], segment: Segment, key: &[u8]) -> Option<Option<Vec<u8>>> {
    let changes = stack.iter().flat_map(|batch| batch.batch().changes());
    let of_key = changes.filter(|(own, own_key, _)| *own == segment && *own_key == key);
    of_key.last().map(|(_, _, value)| value.map(<[u8]>::to_vec))
}

fn compare(stack: &[Arc<Pending>], keys: u16) {
    for segment in [Segment::Slots, Segment::Accounts] {
        for key in 0..keys {
            let key = key.to_be_bytes();
            let found = find(stack, segment, &key);
            let expected = naive(stack, segment, &key);
            assert_eq!(found.map(|value| value.map(<[u8]>::to_vec)), expected);
        }
    }
}

fn random_batch(random: &mut SmallRng, keys: u16) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..random.random_range(0..20) {
        let key = random.random_range(0..keys).to_be_bytes();
        match random.random_range(0..4) {
            0 => batch.delete(Segment::Slots, &key),
            1 => batch.put(Segment::Accounts, &key, b"account"),
            _ => batch.put(Segment::Slots, &key, &random.random::<[u8; 3]>()),
        }
    }
    batch
}

/// A queue without an engine: random batches come, some are made ready, and the oldest go.
#[test]
fn every_stack_says_the_same_of_every_key_whatever_came_and_went_since() {
    const KEYS: u16 = 100;
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = SmallRng::seed_from_u64(seed);
        let (marks, total) = (Arc::new(Marks::new()), Arc::default());
        let mut stack: Vec<Arc<Pending>> = Vec::new();
        let mut old = Vec::new();
        for number in 0..300 {
            let batch = random_batch(&mut random, KEYS);
            let place = Place {
                marks: Arc::clone(&marks),
                number,
            };
            let later = Later::default();
            stack.push(Arc::new(Pending::new(batch, later, place, &total)));
            if random.random_range(0..3) == 0 {
                stack[random.random_range(0..stack.len())].make_ready();
            }
            if random.random_range(0..40) == 0 {
                compare(&stack, KEYS);
            }
            if number % 50 == 30 {
                old.push(stack.clone());
            }
            if stack.len() == MOST_BATCHES || random.random_range(0..30) == 0 {
                let group = random.random_range(1..=stack.len());
                let group = &stack[..group];
                group.iter().for_each(|batch| batch.make_ready());
                clear_marks(group);
                compare(&stack, KEYS);
                stack = stack[group.len()..].to_vec();
            }
        }
        for stack in &old {
            compare(stack, KEYS);
        }
    }
}

#[test]
fn only_the_last_change_of_a_key_in_a_stack_holds() {
    let total = Arc::default();
    let mut random = SmallRng::seed_from_u64(1);
    for count in [1, 2, 3, 4, 64] {
        let marks = Arc::new(Marks::new());
        let stack: Vec<_> = (0..count)
            .map(|number| {
                let mut batch = random_batch(&mut random, 30);
                batch.put(Segment::Slots, b"same", &[7]);
                let place = Place {
                    marks: Arc::clone(&marks),
                    number,
                };
                Arc::new(Pending::new(batch, Later::default(), place, &total))
            })
            .collect();
        let mut holding = BTreeMap::new();
        for (at, batch) in stack.iter().enumerate() {
            for (index, (segment, key, value)) in (0..).zip(batch.batch().changes()) {
                if batch.holds(index, &stack[at + 1..]) {
                    let is_first = holding.insert((segment as u8, key), value).is_none();
                    assert!(is_first, "{key:?} holds twice");
                }
            }
        }
        for ((segment, key), value) in holding {
            let segment = Segment::ALL[usize::from(segment)];
            let expected = naive(&stack, segment, key).unwrap();
            assert_eq!(value.map(<[u8]>::to_vec), expected);
        }
    }
}
