//! The dial plan: order, waiting times, bounds.

use super::*;
use niwaki_primitives::FixedBytes;
use proptest::prelude::*;
use rand::SeedableRng;

fn id(number: u64) -> NodeId {
    NodeId(FixedBytes::left_padding_from(&number.to_be_bytes()))
}

fn candidate(number: u64) -> Candidate {
    let bytes = number.to_be_bytes();
    Candidate {
        id: id(number),
        address: SocketAddr::new([20, bytes[5], bytes[6], bytes[7]].into(), 30303),
        udp_port: 30303,
    }
}

fn rng() -> SmallRng {
    SmallRng::seed_from_u64(1)
}

fn next(plan: &mut DialPlan, now_ms: u64) -> Option<(Source, u64)> {
    let (source, candidate) = plan.next(16, now_ms, |_, _| true)?;
    let bytes = candidate.id.0[56..].try_into().unwrap();
    Some((source, u64::from_be_bytes(bytes)))
}

#[test]
fn sources_are_dialled_in_their_order() {
    let mut plan = DialPlan::default();
    let all: Vec<(Source, u64)> = Source::ALL.into_iter().zip(1..).collect();
    for (source, number) in all.iter().rev() {
        assert!(plan.find(*source, candidate(*number), 0));
    }
    for dial in all {
        assert_eq!(next(&mut plan, 0), Some(dial));
    }
    assert_eq!(next(&mut plan, 0), None);
}

#[test]
fn one_source_has_at_most_half_of_the_dials_in_flight() {
    let mut plan = DialPlan::default();
    for number in 0..100 {
        plan.find(Source::Saved, candidate(number), 0);
        plan.find(Source::V4, candidate(100 + number), 0);
    }
    let sources: Vec<Source> = std::iter::from_fn(|| next(&mut plan, 0))
        .map(|dial| dial.0)
        .collect();
    assert_eq!(sources[..8], [Source::Saved; 8]);
    assert_eq!(sources[8..], [Source::V4; 8]);
}

#[test]
fn a_failure_backs_off_from_30_seconds_to_an_hour() {
    let (mut plan, mut rng, mut now_ms) = (DialPlan::default(), rng(), 0);
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert!(plan.find(Source::V4, candidate(1), now_ms));
        assert!(next(&mut plan, now_ms).is_some());
        plan.end(&id(1), Outcome::Failed, now_ms, &mut rng);
        waits.push(plan.next_ms(&id(1)) - now_ms);
        now_ms = plan.next_ms(&id(1));
    }
    let longest = [42, 60, 120, 240, 480, 960, 1920, 3600, 3600].map(|s| s * 1000);
    let shortest = [35, 48, 96, 192, 384, 768, 1536, 2880, 2880].map(|s| s * 1000);
    for ((wait, shortest), longest) in waits.iter().zip(shortest).zip(longest) {
        assert!((shortest..=longest).contains(wait), "{wait}");
    }
}

#[test]
fn a_static_node_is_dialled_for_ever_every_5_minutes() {
    let (mut plan, mut rng, mut now_ms) = (DialPlan::default(), rng(), 0);
    plan.name(Source::Static, candidate(1));
    for _ in 0..50 {
        assert_eq!(next(&mut plan, now_ms), Some((Source::Static, 1)));
        plan.end(&id(1), Outcome::Failed, now_ms, &mut rng);
        let wait = plan.next_ms(&id(1)) - now_ms;
        assert!((REDIAL_MS..=MAX_NAMED_BACKOFF_MS).contains(&wait), "{wait}");
        now_ms += wait;
    }
    assert!(plan.unname(Source::Static, id(1)));
    assert_eq!(next(&mut plan, now_ms), None);
}

#[test]
fn a_static_node_that_is_not_reached_is_dialled_again_after_seconds_at_first() {
    let (mut plan, mut rng, mut now_ms) = (DialPlan::default(), rng(), 0);
    plan.name(Source::Static, candidate(1));
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(next(&mut plan, now_ms), Some((Source::Static, 1)));
        plan.end(&id(1), Outcome::Unreached, now_ms + 3, &mut rng);
        let wait = plan.next_ms(&id(1)) - (now_ms + 3);
        assert!((seconds * 800..=seconds * 1_000).contains(&wait), "{wait}");
        now_ms += 3 + wait;
    }
    // Found ones, such as a saved peer, wait as after any failure.
    plan.find(Source::V4, candidate(2), 0);
    next(&mut plan, 0);
    plan.end(&id(2), Outcome::Unreached, 3, &mut rng);
    assert!(plan.next_ms(&id(2)) >= REDIAL_MS);
}

#[test]
fn a_node_that_the_operator_names_is_dialled_although_it_failed_before() {
    let (mut plan, mut rng) = (DialPlan::default(), rng());
    plan.find(Source::V4, candidate(1), 0);
    next(&mut plan, 0);
    plan.end(&id(1), Outcome::OtherChain, 0, &mut rng);
    assert_eq!(next(&mut plan, 100_000), None);
    plan.name(Source::Static, candidate(1));
    assert_eq!(next(&mut plan, 34_999), None);
    assert_eq!(next(&mut plan, 35_000), Some((Source::Static, 1)));
    plan.end(&id(1), Outcome::OtherChain, 35_000, &mut rng);
    plan.name(Source::Static, candidate(1));
    assert_eq!(next(&mut plan, 100_000), None);
}

#[test]
fn a_full_node_is_dialled_after_3_minutes_and_not_at_fault() {
    let (mut plan, mut rng) = (DialPlan::default(), rng());
    plan.find(Source::V5, candidate(1), 0);
    next(&mut plan, 0);
    plan.end(&id(1), Outcome::Full, 0, &mut rng);
    assert!(!plan.find(Source::V5, candidate(1), 179_999));
    assert!(plan.find(Source::V5, candidate(1), 217_000));
    assert_eq!(plan.tried[&id(1)].failures, 0);
}

#[test]
fn a_node_of_another_chain_is_left_alone_for_a_day() {
    let (mut plan, mut rng) = (DialPlan::default(), rng());
    plan.find(Source::Dns, candidate(1), 0);
    next(&mut plan, 0);
    plan.end(&id(1), Outcome::OtherChain, 0, &mut rng);
    assert!(!plan.find(Source::Dns, candidate(1), 86_399_999));
    assert!(plan.find(Source::Dns, candidate(1), 86_400_000));
}

#[test]
fn a_saved_peer_that_fails_is_tried_four_times() {
    let (mut plan, mut rng, mut now_ms, mut dials) = (DialPlan::default(), rng(), 0, 0);
    plan.find(Source::Saved, candidate(1), 0);
    while next(&mut plan, now_ms).is_some() {
        dials += 1;
        plan.end(&id(1), Outcome::Failed, now_ms, &mut rng);
        now_ms += MAX_BACKOFF_MS;
    }
    assert_eq!(dials, SAVED_TRIES);
    assert!(plan.queued.is_empty());
}

#[test]
fn a_candidate_is_queued_once_and_of_a_source_at_most_256() {
    let mut plan = DialPlan::default();
    assert!(plan.find(Source::V4, candidate(0), 0));
    assert!(!plan.find(Source::V5, candidate(0), 0));
    let taken = (1..1000).filter(|number| plan.find(Source::V4, candidate(*number), 0));
    assert_eq!(taken.count(), 255);
    let nowhere = Candidate {
        address: SocketAddr::new([0, 0, 0, 0].into(), 30303),
        ..candidate(2000)
    };
    assert!(!plan.find(Source::V5, nowhere, 0));
}

#[test]
fn what_is_remembered_of_dials_is_bounded_and_dials_wait_for_room() {
    let (mut plan, mut rng, mut dials) = (DialPlan::default(), rng(), 0);
    for number in 0..20_000 {
        plan.find(Source::V4, candidate(number), 0);
        if next(&mut plan, 0).is_some() {
            plan.end(&id(number), Outcome::Failed, 0, &mut rng);
            dials += 1;
        }
    }
    assert_eq!((dials, plan.tried.len()), (MAX_TRIED, MAX_TRIED));
    assert!(next(&mut plan, MAX_BACKOFF_MS).is_some());
    assert_eq!(plan.tried.len(), MAX_TRIED);
    assert_eq!(plan.by_time.len(), MAX_TRIED);
}

const OUTCOMES: [Outcome; 8] = [
    Outcome::Unreached,
    Outcome::Connected,
    Outcome::Parted,
    Outcome::Failed,
    Outcome::Full,
    Outcome::Twice,
    Outcome::OtherChain,
    Outcome::Cut,
];

proptest! {
    #[test]
    fn no_node_is_dialled_twice_within_35_seconds_but_the_operators_that_were_not_reached(
        steps in prop::collection::vec((0..7_usize, 0..12_u64, 0..8_usize, 0..20_000_u64), 1..300),
        seed in any::<u64>(),
    ) {
        let (mut plan, mut rng, mut now_ms) = (DialPlan::default(), SmallRng::seed_from_u64(seed), 0);
        let mut last: HashMap<u64, u64> = HashMap::new();
        let mut unreached: HashSet<u64> = HashSet::new();
        for (source, number, outcome, elapsed) in steps {
            now_ms += elapsed;
            plan.find(Source::ALL[source], candidate(number), now_ms);
            while let Some((_, dialled)) = next(&mut plan, now_ms) {
                let before = last.insert(dialled, now_ms);
                let soonest = match unreached.remove(&dialled) && plan.is_operators(&id(dialled)) {
                    true => FIRST_UNREACHED_MS * 8 / 10,
                    false => REDIAL_MS,
                };
                prop_assert!(before.is_none_or(|before| now_ms - before >= soonest));
            }
            prop_assert!(plan.in_flight.len() <= 16);
            if plan.in_flight.contains_key(&id(number)) && OUTCOMES[outcome] == Outcome::Unreached {
                unreached.insert(number);
            }
            plan.end(&id(number), OUTCOMES[outcome], now_ms, &mut rng);
            plan.rest(&id(number + 1), OUTCOMES[outcome], now_ms, &mut rng);
            prop_assert_eq!(plan.by_time.len(), plan.tried.len());
            let waiting: usize = plan.found.values().map(VecDeque::len).sum();
            prop_assert_eq!(waiting, plan.queued.len());
        }
    }
}
