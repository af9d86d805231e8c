//! A look-up through the key filter finds what asking every batch finds.

use super::*;
use crate::key_filter::MAX_PENDING_BATCHES;
use rand::{Rng, SeedableRng, rngs::SmallRng};

fn naive(batches: &[Arc<PendingBatch>], segment: Segment, key: &[u8]) -> Option<Option<Vec<u8>>> {
    let changes = batches.iter().flat_map(|batch| batch.batch().changes());
    let of_key = changes.filter(|(own, own_key, _)| *own == segment && *own_key == key);
    of_key.last().map(|(_, _, value)| value.map(<[u8]>::to_vec))
}

fn compare(batches: &[Arc<PendingBatch>], keys: u16) {
    for segment in [Segment::Slots, Segment::Accounts] {
        for key in 0..keys {
            let key = key.to_be_bytes();
            let found = find(batches, segment, &key);
            let expected = naive(batches, segment, &key);
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
fn a_filtered_lookup_equals_a_search_of_all_batches() {
    const KEYS: u16 = 100;
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = SmallRng::seed_from_u64(seed);
        let (key_filter, total) = (Arc::new(KeyFilter::new()), Arc::default());
        let mut batches: Vec<Arc<PendingBatch>> = Vec::new();
        let mut old = Vec::new();
        for number in 0..300 {
            let batch = random_batch(&mut random, KEYS);
            let slot = FilterSlot {
                filter: Arc::clone(&key_filter),
                number,
            };
            let later = DeferredRows::default();
            batches.push(Arc::new(PendingBatch::new(batch, later, slot, &total)));
            if random.random_range(0..3) == 0 {
                batches[random.random_range(0..batches.len())].make_ready();
            }
            if random.random_range(0..40) == 0 {
                compare(&batches, KEYS);
            }
            if number % 50 == 30 {
                old.push(batches.clone());
            }
            if batches.len() == MAX_PENDING_BATCHES || random.random_range(0..30) == 0 {
                let group = random.random_range(1..=batches.len());
                let group = &batches[..group];
                group.iter().for_each(|batch| batch.make_ready());
                clear_filter(group);
                compare(&batches, KEYS);
                batches = batches[group.len()..].to_vec();
            }
        }
        for batches in &old {
            compare(batches, KEYS);
        }
    }
}

#[test]
fn the_last_change_of_a_key_in_pending_batches_counts() {
    let total = Arc::default();
    let mut random = SmallRng::seed_from_u64(1);
    for count in [1, 2, 3, 4, 64] {
        let key_filter = Arc::new(KeyFilter::new());
        let batches: Vec<_> = (0..count)
            .map(|number| {
                let mut batch = random_batch(&mut random, 30);
                batch.put(Segment::Slots, b"same", &[7]);
                let slot = FilterSlot {
                    filter: Arc::clone(&key_filter),
                    number,
                };
                Arc::new(PendingBatch::new(
                    batch,
                    DeferredRows::default(),
                    slot,
                    &total,
                ))
            })
            .collect();
        let mut holding = BTreeMap::new();
        for (at, batch) in batches.iter().enumerate() {
            for (index, (segment, key, value)) in (0..).zip(batch.batch().changes()) {
                if batch.is_last_change(index, &batches[at + 1..]) {
                    let is_first = holding.insert((segment as u8, key), value).is_none();
                    assert!(is_first, "{key:?} holds twice");
                }
            }
        }
        for ((segment, key), value) in holding {
            let segment = Segment::ALL[usize::from(segment)];
            let expected = naive(&batches, segment, key).unwrap();
            assert_eq!(value.map(<[u8]>::to_vec), expected);
        }
    }
}
