//! Bodies in any order, left out, repeated and wrong: what comes out are the blocks in order.
#![expect(clippy::cast_possible_truncation, reason = "numbers below 1,000")]

use super::*;
use crate::tests::headers_upon;
use niwaki_primitives::Withdrawal;
use proptest::prelude::*;

fn body(number: u64) -> BlockBody {
    let withdrawal = Withdrawal {
        index: number,
        ..Withdrawal::default()
    };
    BlockBody {
        transactions: Vec::new(),
        ommers: Vec::new(),
        withdrawals: Some(vec![withdrawal].into()),
    }
}

/// Headers of `count` bodies that differ, each third of which is empty if `has_empty`.
fn headers(count: u64, has_empty: bool) -> Vec<SealedHeader> {
    let headers = headers_upon(B256::ZERO, 0, count, 0).into_iter();
    headers
        .map(|header| {
            let mut header = header.header;
            let number = header.number;
            header.withdrawals_root = match has_empty && number.is_multiple_of(3) {
                true => Some(EMPTY_ROOT_HASH),
                false => body_roots(&body(number)).withdrawals,
            };
            crate::tests::sealed_header(header)
        })
        .collect()
}

fn queue(headers: &[SealedHeader]) -> BodyQueue {
    let mut queue = BodyQueue::default();
    headers.iter().for_each(|header| queue.push(header.clone()));
    queue
}

fn checked(numbers: impl IntoIterator<Item = u64>) -> Vec<CheckedBody> {
    let bodies = numbers.into_iter().map(body);
    CheckedBody::of_answer(bodies.collect(), 2)
}

fn items(missing: &[Range<u32>]) -> Outcome {
    Outcome::Items {
        missing: missing.to_vec(),
    }
}

#[test]
fn empty_bodies_are_not_asked_for() {
    let headers = headers(7, true);
    let mut queue = queue(&headers);
    let asked = queue.plan(100);
    let expected: Vec<_> = [1, 2, 4, 5].map(|at: usize| headers[at].hash).to_vec();
    assert_eq!(asked, expected);
    let first = queue.pop().unwrap();
    assert_eq!(first.0, headers[0]);
    assert_eq!(first.1.body.withdrawals, Some(Withdrawals::default()));
    assert!(queue.pop().is_none());
    // Places in a job hold although blocks have come out.
    assert_eq!(queue.take(&(0..2), checked([1, 2])), items(&[]));
    assert_eq!(queue.pop().unwrap().0, headers[1]);
    assert_eq!(queue.take(&(2..4), checked([4, 5])), items(&[]));
    assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 5);
}

#[test]
fn what_an_answer_leaves_out_is_missing_and_what_fits_no_header_is_a_lie() {
    let mut queue = queue(&headers(10, false));
    queue.plan(100);
    assert_eq!(
        queue.take(&(2..8), checked([3, 4, 6])),
        items(&[2..3, 5..6, 7..8])
    );
    let nothing: Vec<_> = std::iter::once(0..2).collect();
    assert_eq!(queue.take(&(0..2), Vec::new()), items(&nothing));
    let lie = Outcome::Wrong(Conduct::Lie);
    assert_eq!(queue.take(&(0..3), checked([0, 77])), lie);
    assert_eq!(queue.take(&(0..3), checked([1, 0])), lie, "out of order");
    assert_eq!(queue.take(&(0..3), checked([0, 0])), lie, "twice");
    assert_eq!(
        queue.take(&(0..1), checked([0, 1])),
        Outcome::Wrong(Conduct::BadMessage)
    );
    // Nothing of a lie is kept.
    assert!(queue.pop().is_none());
    assert_eq!(queue.take(&(0..3), checked([0, 1, 2])), items(&[]));
    assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 5);
}

#[test]
fn a_body_with_other_transactions_ommers_or_withdrawals_fits_no_header() {
    let mut queue = queue(&headers(1, false));
    queue.plan(1);
    let mut bodies = [body(0), body(0), body(0)];
    bodies[0].withdrawals = None;
    bodies[1].ommers.push(Header::default());
    bodies[2].withdrawals = Some(Withdrawals::default());
    for body in bodies {
        let outcome = queue.take(&(0..1), vec![CheckedBody::new(body)]);
        assert_eq!(outcome, Outcome::Wrong(Conduct::Lie));
    }
}

#[test]
fn bodies_beyond_the_limit_are_dropped_from_the_highest_down() {
    let mut queue = queue(&headers(10, false));
    queue.plan(100);
    queue.take(&(1..10), checked(1..10));
    let each = queue.bytes() / 9;
    assert!(queue.make_room(4 * each));
    assert_eq!(queue.bytes(), 4 * each);
    assert_eq!(queue.plan(100).len(), 6);
    queue.take(&(0..1), checked([0]));
    // The lowest is there: what is above will soon go out.
    assert!(!queue.make_room(0));
    assert_eq!(queue.bytes(), 5 * each);
    assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 5);
    assert_eq!(queue.bytes(), 0);
}

#[test]
fn bodies_above_a_gap_never_keep_it_from_being_asked_for() {
    let headers = headers(10, false);
    let mut queue = queue(&headers);
    queue.plan(100);
    // All but the fourth: while those below it go out there is no room, and no gap that has to be closed.
    queue.take(&(0..3), checked(0..3));
    queue.take(&(4..10), checked(4..10));
    let each = queue.bytes() / 9;
    assert!(!queue.make_room(3 * each));
    assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 3);
    assert_eq!(queue.bytes(), 6 * each);
    assert!(queue.make_room(3 * each));
    assert_eq!(queue.plan(1), [headers[3].hash]);
}

proptest! {
    #[test]
    fn blocks_come_out_in_order_each_once_with_their_own_bodies(
        count in 1_u64..40,
        has_empty: bool,
        most in 1_usize..50,
        pieces in prop::collection::vec((0_usize..40, 1_usize..20, any::<u64>(), any::<bool>()), 0..30),
    ) {
        let headers = headers(count, has_empty);
        let mut queue = queue(&headers);
        let mut out = Vec::new();
        let mut asked = queue.plan(most);
        let number_of = |hash: &B256| headers.iter().position(|h| h.hash == *hash).unwrap() as u64;
        for (start, length, left_out, replan) in pieces {
            if replan || asked.is_empty() {
                asked = queue.plan(most);
                continue;
            }
            let start = start % asked.len();
            let end = (start + length).min(asked.len());
            let kept = (start..end).filter(|at| left_out >> (at % 64) & 1 == 0);
            let bodies = checked(kept.map(|at| number_of(&asked[at])));
            let range = start as u32..end as u32;
            let outcome = queue.take(&range, bodies);
            let is_accepted = matches!(outcome, Outcome::Items { .. });
            prop_assert!(is_accepted);
            out.extend(std::iter::from_fn(|| queue.pop()));
        }
        loop {
            let hashes = queue.plan(most);
            if hashes.is_empty() {
                break;
            }
            let bodies = checked(hashes.iter().map(number_of));
            queue.take(&(0..hashes.len() as u32), bodies);
            out.extend(std::iter::from_fn(|| queue.pop()));
        }
        out.extend(std::iter::from_fn(|| queue.pop()));
        prop_assert_eq!(out.len(), headers.len());
        for ((header, body), expected) in out.iter().zip(&headers) {
            prop_assert_eq!(header, expected);
            prop_assert!(body.fits(&header.header));
        }
        prop_assert_eq!(queue.bytes(), 0);
    }
}
