//! A validator that starts again.

use super::super::*;
use super::rig::*;
use crate::wire::Kind;
use niwaki_primitives::Block;
use niwaki_rules::{BftProtocol, ValidatorSet};
use std::sync::Arc;

#[test]
fn a_validator_that_starts_again_never_signs_a_second_vote() {
    for protocol in BOTH {
        let mut rig = Rig::new(protocol, 2);
        rig.begin_round();
        let block = rig.block(0, 0);
        let proposal = rig.propose(0, 0, &block);
        let mut records = rig.message(Message::Proposal(Box::new(proposal.clone())));
        records.extend(rig.judged(&block, Verdict::Valid));
        let mut ballots = Ballots::default();
        for action in &records {
            if let Action::Record(record) = action {
                ballots.add(record);
            }
        }
        // The same proposal gets the same vote, another one none.
        for is_same in [true, false] {
            let mut again = Rig::with(protocol, 2, ballots.clone(), |_| {});
            again.begin();
            let (block, proposal) = match is_same {
                true => (block.clone(), proposal.clone()),
                false => {
                    let mut other = Block::clone(&block.block);
                    other.header.timestamp += 1;
                    let other = Candidate::new(protocol, Arc::new(other), None).unwrap();
                    let proposal = again.propose(0, 0, &other);
                    (Arc::new(other), proposal)
                }
            };
            again.message(Message::Proposal(Box::new(proposal)));
            let actions = again.judged(&block, Verdict::Valid);
            let expected: &[Kind] = if is_same { &[Kind::Prepare] } else { &[] };
            assert_eq!(said(&actions), expected);
        }
    }
}

#[test]
fn a_validator_that_starts_again_is_in_its_round_with_what_it_has_prepared() {
    for protocol in BOTH {
        let mut rig = Rig::new(protocol, 2);
        rig.until_prepared();
        let before = rig.time(TimerKind::Round);
        let ballots = rig.machine.ballots().clone();
        let mut again = Rig::with(protocol, 2, ballots, |_| {});
        let after = again.begin();
        assert_eq!(again.machine.view(), again.view(1));
        let [before, after] =
            [before, after].map(|actions| message_of(&actions, Kind::RoundChange));
        assert_eq!(before.unwrap(), after.unwrap());
    }
}

#[test]
fn without_its_records_it_abstains_at_the_four_next_heights() {
    let mut rig = Rig::with(BftProtocol::Qbft, 0, Ballots::unknown(), |_| {});
    let mut head = rig.head.clone();
    for number in [8, 9, 10, 11] {
        head.number = number;
        rig.step(Event::Head(Box::new(head.clone())));
        assert!(timer_of(&rig.begin(), TimerKind::Block).is_none());
        assert_eq!(rig.machine.phase(), Phase::Idle, "{number}");
    }
    head.number = 12;
    let actions = rig.step(Event::Head(Box::new(head)));
    assert!(timer_of(&actions, TimerKind::Block).is_some());
}

#[test]
fn in_a_new_network_or_voted_in_for_the_first_time_it_has_no_records_and_begins() {
    let mut rig = Rig::with(BftProtocol::Qbft, 0, Ballots::unknown(), |_| {});
    assert!(timer_of(&rig.begin(), TimerKind::Block).is_some());

    let mut rig = Rig::with(BftProtocol::Qbft, 0, Ballots::unknown(), |_| {});
    let mut head = rig.head.clone();
    let own = rig.signers[0].address();
    let others = head.validators.as_slice().iter();
    let others = others.copied().filter(|validator| *validator != own);
    (head.number, head.validators) = (8, ValidatorSet::new(others));
    rig.step(Event::Head(Box::new(head)));
    let actions = rig.begin();
    assert!(timer_of(&actions, TimerKind::Block).is_none());
    // So the next start knows that it has not signed.
    let round = View {
        height: 9,
        round: 0,
    };
    assert!(has(&actions, |action| {
        matches!(action, Action::Record(Record::Round(view)) if *view == round)
    }));
    let mut head = rig.head.clone();
    head.number = 9;
    let actions = rig.step(Event::Head(Box::new(head)));
    assert!(timer_of(&actions, TimerKind::Block).is_some());
}

#[test]
fn a_message_with_its_signature_that_it_did_not_make_stops_it() {
    let mut rig = Rig::new(BftProtocol::Qbft, 2);
    let block = rig.until_prepared();
    let own = rig.prepare(2, 0, &block);
    assert!(rig.message(Message::Prepare(own)).is_empty());
    let strange = rig.prepare(2, 3, &block);
    let actions = rig.message(Message::Prepare(strange));
    assert!(has(&actions, |action| matches!(action, Action::Stop(_))));
    assert!(rig.time(TimerKind::Round).is_empty());
    let mut head = rig.head.clone();
    head.number = 1;
    assert!(rig.step(Event::Head(Box::new(head))).is_empty());
}

#[test]
fn a_certificate_that_is_gathered_again_leaves_the_earlier_one() {
    let rig = Rig::new(BftProtocol::Qbft, 2);
    let certificate = |round| Record::Certificate {
        height: 1,
        certificate: Certificate {
            round,
            candidate: rig.block(0, round),
            proposal: None,
            prepares: Vec::new(),
        },
    };
    let mut ballots = Ballots::default();
    for round in [0, 1, 1] {
        ballots.add(&certificate(round));
    }
    let round = |to| ballots.certificate_to(to).map(|found| found.round);
    assert_eq!([round(0), round(1), round(9)], [Some(0), Some(1), Some(1)]);
    ballots.add(&certificate(4));
    let round = |to| ballots.certificate_to(to).map(|found| found.round);
    assert_eq!([round(0), round(3), round(4)], [None, Some(1), Some(4)]);
}
