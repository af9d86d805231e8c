//! Answers in any order, cut, repeated and wrong: what is linked is always the chain below the expected hash.
#![expect(clippy::cast_possible_truncation, reason = "numbers below 1,000")]

use super::*;
use crate::tests::headers_upon;
use crate::tests::sealed_header;
use proptest::prelude::*;

const TOP: u64 = 60;

/// Headers 0 to [`TOP`], lowest first.
fn chain(salt: u8) -> Vec<SealedHeader> {
    headers_upon(B256::ZERO, 0, TOP + 1, salt)
}

fn window(count: u32, approach: Approach) -> HeaderWindow {
    HeaderWindow::new(TOP, chain(0)[TOP as usize].hash, count, approach)
}

/// What an honest peer answers.
fn answer(chain: &[SealedHeader], items: &Range<u32>) -> Vec<Header> {
    let numbers = items.clone().map(|item| (TOP - u64::from(item)) as usize);
    numbers.map(|number| chain[number].header.clone()).collect()
}

fn all() -> Outcome {
    Outcome::Items {
        missing: Vec::new(),
    }
}

fn none(items: &Range<u32>) -> Outcome {
    Outcome::Items {
        missing: vec![items.clone()],
    }
}

#[test]
fn a_request_is_by_number_downwards_or_by_the_hash_of_the_first() {
    let chain = chain(0);
    let request = window(20, Approach::Numbers).request();
    assert_eq!(
        request(3..8),
        Request::Headers {
            start: BlockId::Number(TOP - 3),
            limit: 5,
            skip: 0,
            reverse: true
        }
    );
    let by_hash = window(20, Approach::Hash);
    assert_eq!(by_hash.items(), 1);
    assert_eq!(
        by_hash.request()(0..1),
        Request::Headers {
            start: BlockId::Hash(chain[TOP as usize].hash),
            limit: 20,
            skip: 0,
            reverse: true
        }
    );
    // No request goes below the genesis block, and none by hash is for more than an answer holds.
    assert_eq!(window(1_000, Approach::Numbers).items(), 61);
    let high = HeaderWindow::new(9_999, B256::ZERO, 1_000, Approach::Hash);
    assert_eq!(high.slots.len(), 192);
}

#[test]
fn headers_that_are_not_linked_with_each_other_are_a_lie() {
    let chain = chain(0);
    let honest = answer(&chain, &(0..10));
    let wrong = |change: &dyn Fn(&mut Vec<Header>)| {
        let mut headers = honest.clone();
        change(&mut headers);
        let mut window = window(20, Approach::Numbers);
        let outcome = window.take(&(0..10), sealed(headers));
        assert!(window.take_linked().is_empty());
        outcome
    };
    let lie = Outcome::Wrong(Conduct::Lie);
    assert_eq!(wrong(&|headers| headers[4].parent_hash = B256::ZERO), lie);
    assert_eq!(wrong(&|headers| headers.reverse()), lie);
    assert_eq!(wrong(&|headers| drop(headers.remove(5))), lie);
    assert_eq!(wrong(&|headers| headers[9].number = 7), lie);
    let more = wrong(&|headers| headers.push(Header::default()));
    assert_eq!(more, Outcome::Wrong(Conduct::BadMessage));
    assert_eq!(wrong(&Vec::clear), none(&(0..10)));
}

#[test]
fn another_branch_is_no_lie_by_number_and_one_by_hash() {
    let (main, other) = (chain(0), chain(1));
    let mut by_number = window(20, Approach::Numbers);
    let got = by_number.take(&(0..10), sealed(answer(&other, &(0..10))));
    assert_eq!(got, none(&(0..10)));
    assert!(by_number.has_unlinked());
    assert_eq!(
        by_number.take(&(0..10), sealed(answer(&main, &(0..10)))),
        all()
    );
    assert_eq!(by_number.take_linked().len(), 10);

    let mut by_hash = window(20, Approach::Hash);
    let lie = Outcome::Wrong(Conduct::Lie);
    assert_eq!(by_hash.take(&(0..1), sealed(answer(&other, &(0..10)))), lie);
    // The first half of what was asked for is a good answer.
    assert_eq!(
        by_hash.take(&(0..1), sealed(answer(&main, &(0..10)))),
        all()
    );
    assert_eq!((by_hash.linked(), by_hash.is_complete()), (10, false));
}

#[test]
fn a_piece_of_another_branch_that_came_early_is_dropped_when_the_headers_above_it_come() {
    let (main, other) = (chain(0), chain(1));
    let mut window = window(30, Approach::Numbers);
    assert_eq!(
        window.take(&(10..20), sealed(answer(&other, &(10..20)))),
        all()
    );
    assert_eq!(
        window.take(&(20..30), sealed(answer(&main, &(20..30)))),
        all()
    );
    assert_eq!(
        window.take(&(0..10), sealed(answer(&main, &(0..10)))),
        all()
    );
    assert_eq!((window.linked(), window.has_unlinked()), (10, true));
    // The piece below it stays, and links once the gap is filled.
    assert_eq!(
        window.take(&(10..20), sealed(answer(&main, &(10..20)))),
        all()
    );
    assert!(window.is_complete());
}

/// What a peer does with a piece.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Honest,
    OtherBranch,
    Cut,
    Empty,
    Unlinked,
}

proptest! {
    #[test]
    fn whatever_comes_the_linked_headers_are_the_first_of_the_chain_each_once(
        count in 1_u32..60,
        pieces in prop::collection::vec((0_u32..60, 1_u32..30, 0_u8..5), 0..40),
    ) {
        let (main, other) = (chain(0), chain(1));
        let mut window = window(count, Approach::Numbers);
        let mut linked = Vec::new();
        for (start, length, kind) in pieces {
            let items = start.min(count - 1)..(start + length).clamp(1, count).max(start.min(count - 1) + 1);
            let kind = match kind {
                0 => Kind::Honest,
                1 => Kind::OtherBranch,
                2 => Kind::Cut,
                3 => Kind::Empty,
                _ => Kind::Unlinked,
            };
            let mut headers = answer(&main, &items);
            match kind {
                Kind::Honest => {}
                Kind::OtherBranch => headers = answer(&other, &items),
                Kind::Cut => headers.truncate(1),
                Kind::Empty => headers.clear(),
                Kind::Unlinked => headers[0].parent_hash = B256::ZERO,
            }
            let is_single = headers.len() < 2;
            let outcome = window.take(&items, sealed(headers));
            if let Kind::Unlinked = kind {
                // A single header is linked with nothing but those above it.
                prop_assert!(is_single || outcome == Outcome::Wrong(Conduct::Lie));
            }
            linked.extend(window.take_linked());
        }
        let expected: Vec<_> = main.iter().rev().take(linked.len()).cloned().collect();
        prop_assert_eq!(&linked, &expected);
        prop_assert_eq!(linked.len(), window.linked());
        // What is missing links after all this.
        let items = 0..count;
        let at = window.linked() as u32;
        window.drop_all_unlinked();
        let rest = at..items.end;
        if !rest.is_empty() {
            prop_assert_eq!(window.take(&rest, sealed(answer(&main, &rest))), all());
        }
        prop_assert!(window.is_complete());
    }
}

impl HeaderWindow {
    /// Forgets what came and is not linked, as a new window would.
    fn drop_all_unlinked(&mut self) {
        let linked = self.linked;
        self.slots
            .iter_mut()
            .skip(linked)
            .for_each(|slot| *slot = None);
    }
}

fn sealed(headers: Vec<Header>) -> Vec<SealedHeader> {
    headers.into_iter().map(sealed_header).collect()
}
