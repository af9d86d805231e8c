//! Blocks that the others have and this validator has not: it asks for them.

use super::*;

#[test]
fn a_quorum_of_commits_without_the_proposal_asks_for_the_block() {
    let mut rig = Rig::new(BftProtocol::Qbft, 2);
    rig.begin_round();
    let block = rig.block(0, 0);
    for by in [0, 1, 3] {
        let commit = rig.commit(by, 0, &block);
        let actions = rig.message(commit);
        let asks = |action: &Action| matches!(action, Action::Sync { to: Some(1) });
        assert_eq!(has(&actions, asks), by == 3);
    }
}

#[test]
fn the_next_block_is_asked_for_after_round_zero_and_again_with_each_round_change() {
    let mut rig = Rig::new(BftProtocol::Qbft, 2);
    rig.begin_round();
    let asks = |action: &Action| matches!(action, Action::Sync { to: Some(1) });
    let first = rig.block(0, 0);
    let here = rig.head.clone();
    let ahead = |rig: &mut Rig, by| {
        rig.head.number = 1;
        let prepare = rig.prepare(by, 0, &first);
        rig.head = here.clone();
        has(&rig.message(Message::Prepare(prepare)), asks)
    };
    // In round 0 the commits may yet come.
    assert!(!ahead(&mut rig, 0) && !ahead(&mut rig, 1));
    rig.time(TimerKind::Round);
    assert!(ahead(&mut rig, 1));
    assert!(!ahead(&mut rig, 0));
    for _ in 0..2 {
        let actions = rig.time(TimerKind::Resend);
        assert!(has(&actions, asks));
        assert_eq!(said(&actions), [Kind::RoundChange]);
    }
}

#[test]
fn one_validator_ahead_is_not_enough_to_ask() {
    let mut rig = Rig::new(BftProtocol::Qbft, 2);
    rig.begin_round();
    rig.time(TimerKind::Round);
    let first = rig.block(0, 0);
    rig.head.number = 1;
    let prepare = rig.prepare(0, 0, &first);
    rig.head.number = 0;
    let is_sync = |action: &Action| matches!(action, Action::Sync { .. });
    assert!(!has(&rig.message(Message::Prepare(prepare)), is_sync));
    assert!(!has(&rig.time(TimerKind::Resend), is_sync));
}
