//! Simulations of constructed blocks.

use super::*;

const MS: u64 = 1_000_000;

/// Independent transactions of 1 ms each.
fn independent(count: usize) -> BlockLoad {
    let job = Job {
        sequential: MS,
        speculate: MS,
        reexecute: MS,
        after: Some(0),
        gas_limit: 400_000,
        gas_used: 400_000,
        ..Job::default()
    };
    BlockLoad {
        jobs: vec![job; count],
        ..BlockLoad::default()
    }
}

#[test]
fn one_thread_does_all_the_work() {
    let load = independent(100);
    let outcome = simulate(&load, 1);
    assert_eq!((outcome.end, outcome.sequential), (100 * MS, 100));
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
        assert_eq!(outcome.reexecuted, 0);
        assert_eq!(outcome.validated + outcome.sequential, 101);
    }
}

#[test]
fn a_chain_of_100_takes_100_ms_on_16_threads_and_below_15_ms_with_a_bal() {
    let mut load = independent(100);
    for (index, job) in load.jobs.iter_mut().enumerate() {
        (job.after, job.to) = (Some(index), Some(7));
        job.depends_on = index.checked_sub(1).into_iter().collect();
    }
    assert_eq!(load.longest_chain(), 100 * MS);
    let outcome = simulate(&load, 16);
    // The first ones are re-executed; then the contract is no longer speculated.
    assert!(
        outcome.end >= 100 * MS && outcome.end <= 103 * MS,
        "{outcome:?}"
    );
    assert!(
        outcome.reexecuted > 0 && outcome.validated == 0,
        "{outcome:?}"
    );
    load.has_bal = true;
    assert_eq!(load.longest_chain(), MS);
    let outcome = simulate(&load, 16);
    assert!(
        outcome.end < 15 * MS && outcome.reexecuted == 0,
        "{outcome:?}"
    );
}

#[test]
fn calls_of_a_hot_contract_are_executed_sequentially() {
    // Every second transaction writes the contract's counter.
    let mut load = independent(200);
    for index in (1..200).step_by(2) {
        let job = &mut load.jobs[index];
        (job.after, job.to) = (Some(index - 1), Some(7));
        job.depends_on = index.checked_sub(2).into_iter().collect();
    }
    assert_eq!(load.longest_chain(), 100 * MS);
    let outcome = simulate(&load, 16);
    assert!((100 * MS..=110 * MS).contains(&outcome.end), "{outcome:?}");
    // Only those in the window were begun before the first failed validation.
    assert!(outcome.reexecuted <= SPECULATION_WINDOW / 2, "{outcome:?}");
    assert!(outcome.validated > 80, "{outcome:?}");
}

#[test]
fn the_commit_threads_own_work_is_a_lower_bound() {
    let mut load = independent(100);
    load.overhead = MS / 10;
    for job in &mut load.jobs {
        job.validate = MS / 2;
    }
    assert_eq!(load.serial_share(), 60 * MS);
    let outcome = simulate(&load, 32);
    assert!((60 * MS..=66 * MS).contains(&outcome.end), "{outcome:?}");
}

#[test]
fn transfers_are_executed_by_the_commit_thread() {
    let mut load = independent(50);
    for job in &mut load.jobs {
        job.is_plain = true;
    }
    let outcome = simulate(&load, 8);
    assert_eq!((outcome.end, outcome.sequential), (50 * MS, 50));
    // Unless their gas limit is high.
    for job in &mut load.jobs {
        job.gas_limit = HEAVY_GAS;
    }
    assert!(simulate(&load, 8).end < 15 * MS);
}

#[test]
fn unpredictable_transactions_are_never_validated() {
    let mut load = independent(40);
    for job in &mut load.jobs {
        job.after = None;
    }
    assert_eq!(load.longest_chain(), 40 * MS);
    let outcome = simulate(&load, 4);
    assert!(
        outcome.validated == 0 && outcome.end >= 40 * MS,
        "{outcome:?}"
    );
    // At most their own gas is wasted.
    assert!(outcome.reexecuted <= 40, "{outcome:?}");
}

#[test]
fn a_block_of_200_us_starts_no_workers() {
    let mut load = independent(20);
    for job in &mut load.jobs {
        (job.sequential, job.speculate) = (10_000, 10_000);
    }
    assert_eq!(simulate(&load, 8).sequential, 20);
}
