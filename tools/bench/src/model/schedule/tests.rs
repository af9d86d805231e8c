//! Schedules made by hand.

use super::*;

const MS: u64 = 1_000_000;

/// So many transactions of a millisecond each, that wait for nothing.
fn independent(count: usize) -> Load {
    let job = Job {
        in_turn: MS,
        ahead: MS,
        again: MS,
        after: Some(0),
        gas_limit: 400_000,
        gas_used: 400_000,
        ..Job::default()
    };
    Load {
        jobs: vec![job; count],
        ..Load::default()
    }
}

#[test]
fn one_thread_does_all_the_work() {
    let load = independent(100);
    let outcome = simulate(&load, 1);
    assert_eq!((outcome.end, outcome.in_turn), (100 * MS, 100));
    assert_eq!(load.work(), outcome.end);
}

#[test]
fn independent_transactions_are_shared_evenly() {
    let load = independent(101);
    assert_eq!(load.longest_chain(), MS);
    for (threads, least, most) in [(2, 51, 55), (4, 26, 33), (10, 11, 17)] {
        let outcome = simulate(&load, threads);
        assert!(
            (least * MS..=most * MS).contains(&outcome.end),
            "{threads}: {outcome:?}"
        );
        assert_eq!(outcome.repeated, 0);
        assert_eq!(outcome.kept + outcome.in_turn, 101);
    }
}

#[test]
fn no_number_of_threads_shortens_a_chain_but_a_list_does() {
    let mut load = independent(100);
    for (index, job) in load.jobs.iter_mut().enumerate() {
        (job.after, job.to) = (Some(index), Some(7));
        job.upon = index.checked_sub(1).into_iter().collect();
    }
    assert_eq!(load.longest_chain(), 100 * MS);
    let outcome = simulate(&load, 16);
    // The first that it waits for are run again; then the contract is left alone.
    assert!(
        outcome.end >= 100 * MS && outcome.end <= 103 * MS,
        "{outcome:?}"
    );
    assert!(outcome.repeated > 0 && outcome.kept == 0, "{outcome:?}");
    load.has_list = true;
    assert_eq!(load.longest_chain(), MS);
    let outcome = simulate(&load, 16);
    assert!(
        outcome.end < 15 * MS && outcome.repeated == 0,
        "{outcome:?}"
    );
}

#[test]
fn calls_of_a_hot_contract_are_left_to_their_turn() {
    // Every second transaction counts in the contract.
    let mut load = independent(200);
    for index in (1..200).step_by(2) {
        let job = &mut load.jobs[index];
        (job.after, job.to) = (Some(index - 1), Some(7));
        job.upon = index.checked_sub(2).into_iter().collect();
    }
    assert_eq!(load.longest_chain(), 100 * MS);
    let outcome = simulate(&load, 16);
    assert!((100 * MS..=110 * MS).contains(&outcome.end), "{outcome:?}");
    // What was begun before the first was seen to fail: no more than the window holds.
    assert!(outcome.repeated <= SPECULATION_WINDOW / 2, "{outcome:?}");
    assert!(outcome.kept > 80, "{outcome:?}");
}

#[test]
fn the_committing_threads_own_work_bounds_all() {
    let mut load = independent(100);
    load.each = MS / 10;
    for job in &mut load.jobs {
        job.adopt = MS / 2;
    }
    assert_eq!(load.serial_share(), 60 * MS);
    let outcome = simulate(&load, 32);
    assert!((60 * MS..=66 * MS).contains(&outcome.end), "{outcome:?}");
}

#[test]
fn transfers_stay_with_the_committing_thread() {
    let mut load = independent(50);
    for job in &mut load.jobs {
        job.is_plain = true;
    }
    let outcome = simulate(&load, 8);
    assert_eq!((outcome.end, outcome.in_turn), (50 * MS, 50));
    // Unless they may take long.
    for job in &mut load.jobs {
        job.gas_limit = HEAVY_GAS;
    }
    assert!(simulate(&load, 8).end < 15 * MS);
}

#[test]
fn a_run_that_cannot_be_told_is_never_kept() {
    let mut load = independent(40);
    for job in &mut load.jobs {
        job.after = None;
    }
    assert_eq!(load.longest_chain(), 40 * MS);
    let outcome = simulate(&load, 4);
    assert!(outcome.kept == 0 && outcome.end >= 40 * MS, "{outcome:?}");
    // Their gas is all that may be wasted.
    assert!(outcome.repeated <= 40, "{outcome:?}");
}

#[test]
fn help_is_called_late_or_never_for_a_short_block() {
    let mut load = independent(20);
    for job in &mut load.jobs {
        (job.in_turn, job.ahead) = (10_000, 10_000);
    }
    assert_eq!(simulate(&load, 8).in_turn, 20);
}
