//! What a validator does, told as Besu's tests are: one machine, and the messages of the others.

mod missed;
mod restart;
mod rig;

use super::*;
use crate::wire::{CommitPayload, Kind, Proposal, RoundChange, RoundChangePayload};
use niwaki_primitives::{B256, Block};
use niwaki_rules::{BftProtocol, BftRules, ValidatorSet, check_bft_validators};
use rig::*;
use std::sync::Arc;

#[test]
fn the_proposer_builds_at_the_block_time_and_finishes_with_a_quorum_of_seals() {
    for protocol in BOTH {
        let mut rig = Rig::new(protocol, 0);
        rig.now_ms = DUE_MS - 400;
        assert_eq!(timer_of(&rig.begin(), TimerKind::Block), Some(DUE_MS));
        rig.now_ms = DUE_MS;
        let actions = rig.time(TimerKind::Block);
        let asked = |action: &Action| matches!(action, Action::Build { timestamp, .. } if *timestamp == GENESIS_S + 1);
        assert!(has(&actions, asked));
        assert_eq!(timer_of(&actions, TimerKind::Round), Some(DUE_MS + 1_000));
        let block = rig.block(0, 0);
        let (view, built) = (rig.view(0), Some((block.block.clone(), None)));
        let actions = rig.step(Event::Built { view, built });
        let own_prepare = protocol == BftProtocol::Qbft;
        let expected = [Kind::Proposal, Kind::Prepare];
        assert_eq!(said(&actions), expected[..1 + usize::from(own_prepare)]);
        let mut actions = Vec::new();
        for by in [1, 2] {
            let prepare = rig.prepare(by, 0, &block);
            actions = rig.message(Message::Prepare(prepare));
        }
        assert_eq!(said(&actions), [Kind::Commit]);
        for by in [1, 2] {
            let commit = rig.commit(by, 0, &block);
            actions = rig.message(commit);
        }
        let header = finished(&actions).unwrap();
        check_bft_validators(&rig.head.rules, header, &rig.head.validators).unwrap();
        assert_eq!(rig.machine.phase(), Phase::Committed);
    }
}

#[test]
fn another_validator_prepares_what_is_valid_and_commits_what_a_quorum_prepared() {
    for protocol in BOTH {
        let mut rig = Rig::new(protocol, 2);
        assert_eq!(said(&rig.begin_round()), []);
        let block = rig.block(0, 0);
        let proposal = rig.propose(0, 0, &block);
        let actions = rig.message(Message::Proposal(Box::new(proposal)));
        assert!(has(&actions, |action| matches!(action, Action::Judge(_))));
        assert_eq!(said(&actions), []);
        assert_eq!(said(&rig.judged(&block, Verdict::Valid)), [Kind::Prepare]);
        let commits = [0, 1, 3].map(|by| rig.commit(by, 0, &block));
        for commit in &commits[..2] {
            assert!(finished(&rig.message(commit.clone())).is_none());
        }
        let header = rig.message(commits[2].clone());
        let header = finished(&header).unwrap();
        check_bft_validators(&rig.head.rules, header, &rig.head.validators).unwrap();
    }
}

#[test]
fn votes_that_come_before_the_proposal_and_the_verdict_count() {
    for protocol in BOTH {
        let mut rig = Rig::new(protocol, 2);
        rig.begin_round();
        let block = rig.block(0, 0);
        for by in [1, 3] {
            let prepare = rig.prepare(by, 0, &block);
            assert_eq!(said(&rig.message(Message::Prepare(prepare))), []);
        }
        for by in [0, 1] {
            let commit = rig.commit(by, 0, &block);
            rig.message(commit);
        }
        let proposal = rig.propose(0, 0, &block);
        rig.message(Message::Proposal(Box::new(proposal)));
        let actions = rig.judged(&block, Verdict::Valid);
        assert_eq!(said(&actions), [Kind::Prepare, Kind::Commit]);
        assert!(finished(&actions).is_some());
    }
}

#[test]
fn an_invalid_block_gets_no_vote_and_a_fault_is_tried_once_more() {
    for verdict in [Verdict::Invalid, Verdict::Fault] {
        let mut rig = Rig::new(BftProtocol::Qbft, 2);
        rig.begin_round();
        let block = rig.block(0, 0);
        let proposal = rig.propose(0, 0, &block);
        rig.message(Message::Proposal(Box::new(proposal)));
        let actions = rig.judged(&block, verdict);
        assert_eq!(said(&actions), []);
        let is_judged = |action: &Action| matches!(action, Action::Judge(_));
        assert_eq!(has(&actions, is_judged), verdict == Verdict::Fault);
        assert!(!has(&rig.judged(&block, verdict), is_judged));
        assert_eq!(said(&rig.time(TimerKind::Round)), [Kind::RoundChange]);
    }
}

#[test]
fn a_round_change_is_bare_until_a_quorum_has_prepared_a_block_and_then_carries_it() {
    for protocol in BOTH {
        let mut rig = Rig::new(protocol, 2);
        rig.begin_round();
        let Some(Message::RoundChange(change)) =
            message_of(&rig.time(TimerKind::Round), Kind::RoundChange)
        else {
            panic!("no round change");
        };
        assert_eq!((change.block, change.signed.payload.prepared), (None, None));

        let mut rig = Rig::new(protocol, 2);
        let block = rig.until_prepared();
        let Some(Message::RoundChange(change)) =
            message_of(&rig.time(TimerKind::Round), Kind::RoundChange)
        else {
            panic!("no round change");
        };
        let prepared = change.signed.payload.prepared.unwrap();
        assert_eq!((prepared.round, prepared.digest), (0, block.seal_hash(0)));
        assert_eq!(change.block.unwrap(), block.block);
    }
}

#[test]
fn the_proposer_of_a_later_round_proposes_the_prepared_block_with_its_round() {
    for protocol in BOTH {
        let mut rig = Rig::new(protocol, 1);
        rig.begin_round();
        let block = rig.block(0, 0);
        let prepared_by: &[usize] = match protocol {
            BftProtocol::Qbft => &[0, 2, 3],
            BftProtocol::Ibft2 => &[2, 3],
        };
        let change = rig.prepared_change(3, 1, &block, prepared_by);
        rig.message(Message::RoundChange(Box::new(change)));
        let bare = rig.bare_change(2, 1);
        let actions = rig.message(Message::RoundChange(Box::new(bare)));
        let Some(Message::Proposal(proposal)) = message_of(&actions, Kind::Proposal) else {
            panic!("{protocol:?}: no proposal in {actions:?}");
        };
        let again = Candidate::new(protocol, proposal.block.clone(), None).unwrap();
        assert_eq!((again.hash, again.header_round()), (block.hash, 1));
        assert_eq!(again.block.header.beneficiary, rig.signers[0].address());
        assert_eq!(proposal.round_changes.len(), 3);

        // Another validator takes it, although it has not seen the round changes.
        let mut other = Rig::new(protocol, 3);
        other.begin_round();
        let actions = other.message(Message::Proposal(proposal));
        assert!(
            has(&actions, |action| matches!(action, Action::Judge(_))),
            "{actions:?}"
        );
        assert_eq!(other.machine.view().round, 1);
    }
}

#[test]
fn a_new_block_is_refused_where_a_prepared_one_must_come_again() {
    for protocol in BOTH {
        let mut rig = Rig::new(protocol, 3);
        rig.begin_round();
        let prepared_by: &[usize] = match protocol {
            BftProtocol::Qbft => &[0, 1, 2],
            BftProtocol::Ibft2 => &[1, 2],
        };
        let change = rig.prepared_change(2, 1, &rig.block(0, 0), prepared_by);
        let changes = [rig.bare_change(0, 1), rig.bare_change(1, 1), change];
        let mut proposal = rig.propose(1, 1, &rig.block(1, 1));
        proposal.round_changes = changes.map(|change| change.signed).to_vec();
        let actions = rig.message(Message::Proposal(Box::new(proposal)));
        assert_eq!(refusal_of(&actions), Some(&Refusal::Prepared));
    }
}

#[test]
fn a_proposal_is_refused_by_the_first_rule_that_it_breaks() {
    for protocol in BOTH {
        let case = |change: &dyn Fn(&Rig, Proposal) -> Proposal| {
            let mut rig = Rig::new(protocol, 3);
            rig.begin_round();
            let mut proposal = rig.propose(1, 1, &rig.block(1, 1));
            let changes = [0, 1, 2].map(|by| rig.bare_change(by, 1).signed);
            proposal.round_changes = changes.to_vec();
            let proposal = change(&rig, proposal);
            let actions = rig.message(Message::Proposal(Box::new(proposal)));
            refusal_of(&actions).cloned()
        };
        let quorum_of = |got| Some(Refusal::RoundChanges { got, expected: 3 });
        assert_eq!(case(&|_, own| own), None);
        assert_eq!(
            case(&|rig, own| Proposal {
                signed: rig.propose(2, 1, &rig.block(1, 1)).signed,
                ..own
            }),
            Some(Refusal::Proposer)
        );
        let other_coinbase = |rig: &Rig, own: Proposal| Proposal {
            round_changes: own.round_changes,
            ..rig.propose(1, 1, &rig.block(2, 1))
        };
        assert_eq!(case(&other_coinbase), Some(Refusal::Coinbase));
        let round_2 = |rig: &Rig, own: Proposal| Proposal {
            round_changes: own.round_changes,
            ..rig.propose(1, 1, &rig.block(1, 2))
        };
        let refused = Refusal::HeaderRound { got: 2, round: 1 };
        assert_eq!(case(&round_2), Some(refused));
        let few = |_: &Rig, mut own: Proposal| {
            own.round_changes.pop();
            own
        };
        assert_eq!(case(&few), quorum_of(2));
        let twice = |rig: &Rig, mut own: Proposal| {
            own.round_changes[2] = rig.bare_change(1, 1).signed;
            own
        };
        let author = |rig: &Rig, by: usize| Some(Refusal::Author(rig.signers[by].address()));
        assert_eq!(case(&twice), author(&Rig::new(protocol, 3), 1));
        let later = |rig: &Rig, mut own: Proposal| {
            own.round_changes[2] = rig.bare_change(2, 2).signed;
            own
        };
        assert_eq!(case(&later), Some(Refusal::Part));
        let stranger = |rig: &Rig, mut own: Proposal| {
            let (view, prepared) = (rig.view(1), None);
            let change = signer(protocol, 77).round_change(RoundChangePayload { view, prepared });
            own.round_changes.push(change.unwrap());
            own
        };
        let refused = Some(Refusal::Author(signer(protocol, 77).address()));
        assert_eq!(case(&stranger), refused);
        let prepares = |rig: &Rig, mut own: Proposal| {
            own.prepares = vec![rig.prepare(2, 0, &rig.block(0, 0))];
            own
        };
        assert_eq!(case(&prepares), Some(Refusal::Shown));
        let other_parent = |rig: &Rig, own: Proposal| {
            let mut block = Block::clone(&own.block);
            block.header.parent_hash = B256::ZERO;
            let block = Candidate::new(protocol, Arc::new(block), None).unwrap();
            Proposal {
                round_changes: own.round_changes,
                ..rig.propose(1, 1, &block)
            }
        };
        assert_eq!(case(&other_parent), Some(Refusal::Parent));
    }
}

#[test]
fn a_round_change_must_show_a_quorum_of_prepares_of_the_block_it_names() {
    for protocol in BOTH {
        let case = |change: &dyn Fn(&Rig) -> RoundChange| {
            let mut rig = Rig::new(protocol, 3);
            rig.begin_round();
            let change = change(&rig);
            let actions = rig.message(Message::RoundChange(Box::new(change)));
            refusal_of(&actions).cloned()
        };
        let needed = match protocol {
            BftProtocol::Qbft => 3,
            BftProtocol::Ibft2 => 2,
        };
        let all: &[usize] = &[1, 2, 3];
        let show =
            |count| move |rig: &Rig| rig.prepared_change(2, 1, &rig.block(0, 0), &all[..count]);
        assert_eq!(case(&show(needed)), None);
        let refused = Refusal::Prepares {
            got: needed - 1,
            expected: needed,
        };
        assert_eq!(case(&show(needed - 1)), Some(refused));
        let twice = |rig: &Rig| rig.prepared_change(2, 1, &rig.block(0, 0), &[1, 1, 2]);
        let first = Rig::new(protocol, 3).signers[1].address();
        assert_eq!(case(&twice), Some(Refusal::Author(first)));
        let without_block = |rig: &Rig| RoundChange {
            block: None,
            ..show(needed)(rig)
        };
        assert_eq!(case(&without_block), Some(Refusal::Shown));
        let other_block = |rig: &Rig| RoundChange {
            block: Some(rig.block(1, 0).block.clone()),
            ..show(needed)(rig)
        };
        assert_eq!(case(&other_block), Some(Refusal::Digest));
        let same_round = |rig: &Rig| rig.prepared_change(2, 1, &rig.block(1, 1), all);
        assert_eq!(case(&same_round), Some(Refusal::Part));
        let round_0 = |rig: &Rig| rig.bare_change(2, 0);
        assert_eq!(case(&round_0), Some(Refusal::Part));
    }
}

#[test]
fn a_validator_follows_when_more_are_ahead_than_can_be_faulty_each_with_one_voice() {
    let mut rig = Rig::new(BftProtocol::Qbft, 3);
    rig.begin_round();
    for round in [3, 4, 4] {
        let change = rig.bare_change(0, round);
        assert_eq!(
            said(&rig.message(Message::RoundChange(Box::new(change)))),
            []
        );
    }
    let change = rig.bare_change(1, 6);
    let actions = rig.message(Message::RoundChange(Box::new(change)));
    assert_eq!(said(&actions), [Kind::RoundChange]);
    assert_eq!(rig.machine.view().round, 4);
}

#[test]
fn the_timer_of_a_later_round_waits_for_a_quorum_and_the_round_change_is_sent_again() {
    let mut rig = Rig::new(BftProtocol::Qbft, 3);
    rig.begin_round();
    rig.now_ms += 1_000;
    let actions = rig.time(TimerKind::Round);
    assert_eq!(timer_of(&actions, TimerKind::Round), None);
    let resend = timer_of(&actions, TimerKind::Resend).unwrap();
    assert_eq!(resend, rig.now_ms + 1_000);
    rig.now_ms = resend;
    let again = rig.time(TimerKind::Resend);
    assert_eq!(said(&again), [Kind::RoundChange]);
    assert!(!has(&again, |action| matches!(action, Action::Record(_))));
    for by in [0, 1] {
        let change = rig.bare_change(by, 1);
        let actions = rig.message(Message::RoundChange(Box::new(change)));
        let expected = (by == 1).then_some(rig.now_ms + 2_000);
        assert_eq!(timer_of(&actions, TimerKind::Round), expected);
    }
    assert_eq!(said(&rig.time(TimerKind::Resend)), []);
}

#[test]
fn timeouts_double_up_to_their_bound() {
    let mut rig = Rig::new(BftProtocol::Qbft, 3);
    rig.begin_round();
    let mut timeouts = Vec::new();
    for round in 1..=8 {
        rig.time(TimerKind::Round);
        for by in [0, 1] {
            let change = rig.bare_change(by, round);
            let actions = rig.message(Message::RoundChange(Box::new(change)));
            timeouts.extend(timer_of(&actions, TimerKind::Round).map(|at| at - rig.now_ms));
        }
    }
    let seconds = [2, 4, 8, 16, 32, 60, 60, 60];
    assert_eq!(timeouts, seconds.map(|seconds| seconds * 1_000));
}

#[test]
fn an_empty_block_waits_for_the_empty_period_or_for_a_transaction() {
    let rules = |rules: &mut BftRules| rules.empty_period_s = 30;
    let mut rig = Rig::with(BftProtocol::Qbft, 0, Ballots::default(), rules);
    let actions = rig.begin_round();
    let empty_ms = (GENESIS_S + 30) * 1_000;
    assert_eq!(timer_of(&actions, TimerKind::Block), Some(empty_ms));
    assert_eq!(timer_of(&actions, TimerKind::Round), None);
    rig.now_ms += 7_000;
    let actions = rig.step(Event::Work(true));
    let asked = |action: &Action| matches!(action, Action::Build { timestamp, .. } if *timestamp == GENESIS_S + 8);
    assert!(has(&actions, asked), "{actions:?}");

    // Others start their round too: they do not wait for the proposer alone.
    let mut rig = Rig::with(BftProtocol::Qbft, 2, Ballots::default(), rules);
    rig.begin_round();
    let actions = rig.step(Event::Work(true));
    assert_eq!(timer_of(&actions, TimerKind::Round), Some(DUE_MS + 1_000));
    let mut rig = Rig::with(BftProtocol::Qbft, 0, Ballots::default(), rules);
    rig.begin_round();
    rig.now_ms = empty_ms;
    assert!(has(&rig.time(TimerKind::Block), |action| matches!(
        action,
        Action::Build { .. }
    )));
}

#[test]
fn below_a_second_a_block_is_due_a_period_after_the_last_block_time() {
    let rules = |rules: &mut BftRules| rules.period_ms = Some(200);
    let mut rig = Rig::with(BftProtocol::Qbft, 2, Ballots::default(), rules);
    rig.begin_round();
    rig.now_ms += 70;
    let mut head = rig.head.clone();
    head.number += 1;
    let actions = rig.step(Event::Head(Box::new(head)));
    assert_eq!(timer_of(&actions, TimerKind::Block), Some(DUE_MS + 200));
}

#[test]
fn it_begins_with_a_quorum_of_peers_or_after_ten_seconds_and_alone_at_once() {
    let mut rig = Rig::new(BftProtocol::Qbft, 2);
    let actions = rig.step(Event::Level(true));
    assert_eq!(timer_of(&actions, TimerKind::Block), None);
    let start = timer_of(&actions, TimerKind::Start).unwrap();
    assert_eq!(start, rig.now_ms + 10_000);
    let peers = [0, 1].map(|by| rig.signers[by].address());
    assert_eq!(
        timer_of(&rig.step(Event::PeerUp(peers[0])), TimerKind::Block),
        None
    );
    assert!(timer_of(&rig.step(Event::PeerUp(peers[1])), TimerKind::Block).is_some());

    let mut rig = Rig::new(BftProtocol::Qbft, 2);
    rig.step(Event::Level(true));
    rig.now_ms += 10_000;
    assert!(timer_of(&rig.time(TimerKind::Start), TimerKind::Block).is_some());

    let mut rig = Rig::new(BftProtocol::Qbft, 0);
    let own = rig.signers[0].address();
    let mut head = rig.head.clone();
    head.validators = ValidatorSet::new([own]);
    rig.machine = Machine::new(settings(&rig.signers[0]), Ballots::default(), head);
    assert!(timer_of(&rig.step(Event::Level(true)), TimerKind::Block).is_some());
}

#[test]
fn messages_of_the_next_height_wait_and_those_far_ahead_ask_for_blocks() {
    let mut rig = Rig::new(BftProtocol::Qbft, 2);
    rig.begin_round();
    let block = rig.until_prepared();
    let mut head = rig.head.clone();
    (head.number, head.hash, head.coinbase) = (1, block.hash, rig.signers[0].address());
    let first = std::mem::replace(&mut rig.head, head.clone());
    let next = rig.block(1, 0);
    let proposal = rig.propose(1, 0, &next);
    assert!(
        rig.message(Message::Proposal(Box::new(proposal)))
            .is_empty()
    );
    assert!(rig.machine.waiting_bytes() > 0);
    let actions = rig.step(Event::Head(Box::new(head)));
    assert!(has(
        &actions,
        |action| matches!(action, Action::Judge(judged) if judged.hash == next.hash)
    ));
    assert_eq!(rig.machine.waiting_bytes(), 0);

    rig.head = first;
    rig.head.number = 7;
    for by in [0, 1] {
        let prepare = rig.prepare(by, 0, &next);
        let actions = rig.message(Message::Prepare(prepare));
        let asks = |action: &Action| matches!(action, Action::Sync { to: Some(7) });
        assert_eq!(has(&actions, asks), by == 1, "{actions:?}");
    }
}

#[test]
fn one_author_cannot_fill_the_memory_of_another() {
    let rig = Rig::new(BftProtocol::Qbft, 2);
    let (block, validators) = (rig.block(0, 0), rig.head.validators.clone());
    let mut later = later::Later::new(1);
    let big = 1 << 20;
    let other = Message::Prepare(rig.prepare(1, 5, &block));
    later.add(other.clone(), big, &validators);
    for round in 1..=1_000 {
        let prepare = rig.prepare(0, round, &block);
        later.add(Message::Prepare(prepare), big, &validators);
    }
    let share = (64 << 20) / 5;
    assert!(later.bytes() <= share + big + 1_024, "{}", later.bytes());
    assert_eq!(later.take_view(rig.view(5)).len(), 2);
    assert_eq!(later.take_view(rig.view(900)).len(), 0);
}

#[test]
fn a_peer_that_connects_gets_what_was_said_in_this_round() {
    let mut rig = Rig::new(BftProtocol::Qbft, 2);
    rig.until_prepared();
    let peer = rig.signers[1].address();
    let actions = rig.step(Event::PeerUp(peer));
    let kinds = actions.iter().filter_map(|action| match action {
        Action::Send {
            to: Some(to),
            message,
        } if *to == peer => Some(message.kind()),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [Kind::Prepare, Kind::Commit]);
}

#[test]
fn a_commit_without_its_authors_seal_or_for_another_block_does_not_count() {
    let mut rig = Rig::new(BftProtocol::Qbft, 2);
    let block = rig.until_prepared();
    let (view, digest) = (rig.view(0), block.seal_hash(0));
    let seal = rig.signers[3].seal(&digest).unwrap();
    let stolen = rig.signers[0]
        .commit(CommitPayload { view, digest, seal })
        .unwrap();
    let other = rig.commit(1, 0, &rig.block(1, 0));
    for commit in [Message::Commit(stolen), other, rig.commit(3, 0, &block)] {
        assert!(finished(&rig.message(commit)).is_none());
    }
    // A second one, for the block this time, is evidence and does not count either.
    let actions = rig.message(rig.commit(1, 0, &block));
    assert!(has(&actions, |action| matches!(
        action,
        Action::Evidence(_)
    )));
    assert!(finished(&actions).is_none());
}

#[test]
fn commits_that_come_after_the_round_was_given_up_finish_its_block() {
    for protocol in BOTH {
        let mut rig = Rig::new(protocol, 2);
        let block = rig.until_prepared();
        rig.time(TimerKind::Round);
        assert_eq!(rig.machine.view().round, 1);
        let first = rig.commit(0, 0, &block);
        assert!(finished(&rig.message(first)).is_none());
        let second = rig.commit(1, 0, &block);
        let actions = rig.message(second);
        let header = finished(&actions).unwrap();
        check_bft_validators(&rig.head.rules, header, &rig.head.validators).unwrap();
        assert_eq!(rig.machine.phase(), Phase::Committed);
    }
}

#[test]
fn a_given_up_block_is_finished_only_once_it_is_known_to_be_valid() {
    for verdict in [Verdict::Valid, Verdict::Invalid] {
        let mut rig = Rig::new(BftProtocol::Qbft, 2);
        rig.begin_round();
        let block = rig.block(0, 0);
        let proposal = rig.propose(0, 0, &block);
        rig.message(Message::Proposal(Box::new(proposal)));
        rig.time(TimerKind::Round);
        for by in [0, 1, 3] {
            let commit = rig.commit(by, 0, &block);
            assert!(finished(&rig.message(commit)).is_none());
        }
        let actions = rig.judged(&block, verdict);
        assert_eq!(finished(&actions).is_some(), verdict == Verdict::Valid);
    }
}

#[test]
fn go_quorums_form_has_round_zero_in_the_header_and_the_hash_as_digest() {
    let mut rig = Rig::new(BftProtocol::Qbft, 1);
    rig.machine.settings.digest = DigestForm::RoundZero;
    rig.begin_round();
    rig.time(TimerKind::Round);
    let changes = [2, 3].map(|by| rig.bare_change(by, 1));
    let mut actions = Vec::new();
    for change in changes {
        actions = rig.message(Message::RoundChange(Box::new(change)));
    }
    assert!(has(&actions, |action| matches!(
        action,
        Action::Build { .. }
    )));
    let block = rig.block(1, 0);
    let (view, built) = (rig.view(1), Some((block.block.clone(), None)));
    let actions = rig.step(Event::Built { view, built });
    let Some(Message::Prepare(prepare)) = message_of(&actions, Kind::Prepare) else {
        panic!("no prepare in {actions:?}");
    };
    assert_eq!(prepare.payload.digest, block.hash);
    let Some(Message::Proposal(proposal)) = message_of(&actions, Kind::Proposal) else {
        panic!("no proposal");
    };
    assert_eq!(proposal.block.header, block.block.header);
}
