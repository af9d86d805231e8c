//! What is left to ask for, shared by the workers.

use niwaki_primitives::B256;
use niwaki_state::{KeyRange, Remaining};
use niwaki_threads::lock;
use std::sync::{Condvar, Mutex, PoisonError};

/// A range is shared with idle workers if it has more than this many 65,536ths of all keys.
const MIN_SHARE: u32 = 16;

/// A part of the state that is asked for one answer after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Accounts with their storage.
    Accounts(KeyRange),
    /// Slots of a large storage.
    Storage {
        account: B256,
        root: B256,
        range: KeyRange,
    },
}

impl Task {
    fn range(&self) -> &KeyRange {
        match self {
            Self::Accounts(range) | Self::Storage { range, .. } => range,
        }
    }

    /// The same of another range.
    pub(super) fn with(self, range: KeyRange) -> Self {
        match self {
            Self::Accounts(_) => Self::Accounts(range),
            Self::Storage { account, root, .. } => Self::Storage {
                account,
                root,
                range,
            },
        }
    }
}

#[derive(Debug, Default)]
struct Tasks {
    /// The next one last: storages before accounts.
    waiting: Vec<Task>,
    busy: usize,
    idle: usize,
    is_over: bool,
    /// 65,536ths of all accounts that no answer has covered.
    left: u64,
}

/// The plan.
#[derive(Debug)]
pub(super) struct Plan {
    tasks: Mutex<Tasks>,
    changed: Condvar,
}

impl Plan {
    pub(super) fn new(remaining: Remaining) -> Self {
        let left = remaining
            .accounts
            .iter()
            .map(|range| u64::from(range.share()));
        let left = left.sum();
        let accounts = remaining.accounts.into_iter().rev().map(Task::Accounts);
        let storages = remaining.storages.into_iter().flat_map(|storage| {
            let (account, root) = (storage.account, storage.root);
            let of_range = move |range| Task::Storage {
                account,
                root,
                range,
            };
            storage.ranges.into_iter().map(of_range)
        });
        let tasks = Tasks {
            waiting: accounts.chain(storages).collect(),
            left,
            ..Tasks::default()
        };
        Self {
            tasks: Mutex::new(tasks),
            changed: Condvar::new(),
        }
    }

    /// Waits for a task; `None` once there is none and no worker can make any.
    pub(super) fn take(&self) -> Option<Task> {
        let mut tasks = lock(&self.tasks);
        tasks.idle += 1;
        loop {
            if tasks.is_over || tasks.waiting.is_empty() && tasks.busy == 0 {
                tasks.idle -= 1;
                self.changed.notify_all();
                return None;
            }
            if let Some(task) = tasks.waiting.pop() {
                tasks.idle -= 1;
                tasks.busy += 1;
                return Some(task);
            }
            let woken = self.changed.wait(tasks);
            tasks = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A worker has ended a task that it took.
    pub(super) fn finish(&self) {
        lock(&self.tasks).busy -= 1;
        self.changed.notify_all();
    }

    /// More tasks.
    pub(super) fn add(&self, more: impl IntoIterator<Item = Task>) {
        lock(&self.tasks).waiting.extend(more);
        self.changed.notify_all();
    }

    /// Whether a worker waits for a task.
    pub(super) fn has_idle(&self) -> bool {
        let tasks = lock(&self.tasks);
        tasks.idle > 0 && tasks.waiting.is_empty()
    }

    /// What the calling worker goes on with of a task: idle workers get equal parts of it.
    pub(super) fn share(&self, task: Task) -> Task {
        let mut tasks = lock(&self.tasks);
        let range = task.range();
        if tasks.idle == 0 || !tasks.waiting.is_empty() || range.share() <= MIN_SHARE {
            return task;
        }
        let parts = range.split(tasks.idle + 1);
        let mut parts = parts.into_iter().map(|range| task.with(range));
        let own = parts.next().unwrap_or(task);
        tasks.waiting.extend(parts);
        self.changed.notify_all();
        own
    }

    /// Accounts of a range have come.
    pub(super) fn cover(&self, range: &KeyRange) {
        let mut tasks = lock(&self.tasks);
        tasks.left = tasks.left.saturating_sub(u64::from(range.share()));
    }

    /// 65,536ths of all accounts that have not come, about.
    pub(super) fn left(&self) -> u64 {
        lock(&self.tasks).left
    }

    /// How many ranges of accounts, and of large storages, wait for a worker.
    pub(super) fn waiting(&self) -> (u64, u64) {
        let tasks = lock(&self.tasks);
        let is_of_accounts = |task: &&Task| matches!(task, Task::Accounts(_));
        let accounts = tasks.waiting.iter().filter(is_of_accounts).count();
        (accounts as u64, (tasks.waiting.len() - accounts) as u64)
    }

    /// No worker gets another task.
    pub(super) fn end(&self) {
        lock(&self.tasks).is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn idle_workers_get_equal_parts_and_all_end_when_nothing_is_left() {
        let plan = Plan::new(Remaining::whole());
        let steps = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(task) = plan.take() {
                        let mut rest = Some(task);
                        while let Some(task) = rest {
                            steps.fetch_add(1, Ordering::Relaxed);
                            // Each step covers a quarter of what is left of the range.
                            let parts = task.range().split(4);
                            plan.cover(&parts[0]);
                            let last = parts[0].last;
                            let left = task.range().after(&last);
                            let left = left.filter(|left| left.share() > 1);
                            rest = left.map(|left| plan.share(task.with(left)));
                        }
                        plan.finish();
                    }
                });
            }
        });
        assert!(steps.into_inner() > 20);
        assert!(plan.take().is_none());
    }

    #[test]
    fn storages_come_before_accounts_and_an_ended_plan_gives_none() {
        let mut remaining = Remaining::whole();
        let account = B256::repeat_byte(1);
        remaining.storages.push(niwaki_state::LargeStorage {
            account,
            root: B256::repeat_byte(2),
            ranges: KeyRange::WHOLE.split(2),
        });
        let plan = Plan::new(remaining);
        assert_eq!(plan.waiting(), (1, 2));
        for _ in 0..2 {
            let task = plan.take();
            assert!(matches!(task, Some(Task::Storage { account: own, .. }) if own == account));
        }
        assert_eq!(plan.waiting(), (1, 0));
        plan.end();
        assert_eq!(plan.take(), None);
    }
}
