//! How many CPUs of the machine are idle at this moment.
//!
//! A second thread helps a block only while it has a CPU. On a machine with other busy processes it shares one
//! with the commit thread or with such a process: then it takes time from the commit thread, which also waits
//! for what the second thread has begun while that is not running. `/proc/loadavg` says how many threads are
//! running or runnable right now; its averages over minutes say nothing of a block of 50 ms.

use std::sync::OnceLock;

/// The file is read this often before a CPU counts as busy: a thread that has just handed over its work is about
/// to sleep.
const READS: usize = 3;

/// How many CPUs of the machine are idle, that of the calling thread not counted; `None` where there is no
/// `/proc/loadavg`. About 15 us for each of at most three reads.
pub fn free_processors() -> Option<usize> {
    let online = online_processors()?;
    let mut free = 0;
    for _ in 0..READS {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        free = free.max(online.saturating_sub(running(&text)?));
        if free.saturating_add(1) >= online {
            break;
        }
    }
    Some(free)
}

/// The threads that are running or runnable, by the line of `/proc/loadavg`: at least the calling one.
fn running(text: &str) -> Option<usize> {
    let (running, _) = text.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

/// The online CPUs of the machine, also those that this process may not use: running threads are counted on
/// all of them.
fn online_processors() -> Option<usize> {
    static ONLINE: OnceLock<Option<usize>> = OnceLock::new();
    *ONLINE.get_or_init(|| {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
        count(&text)
    })
}

/// How many numbers are in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_threads_are_read_from_the_fourth_word() {
        assert_eq!(running("9.12 9.22 8.56 10/157 15516\n"), Some(10));
        for text in ["", "1 2 3", "1 2 3 4 5", "1 2 3 x/5 6"] {
            assert_eq!(running(text), None, "{text}");
        }
    }

    #[test]
    fn a_cpu_list_of_ranges_is_counted() {
        for (list, processors) in [("0\n", 1), ("0-1\n", 2), ("0-3,8,10-11", 7)] {
            assert_eq!(count(list), Some(processors), "{list}");
        }
        for list in ["", "x", "3-1", "1-"] {
            assert_eq!(count(list), None, "{list}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_cpu_of_the_calling_thread_is_not_free() {
        let online = online_processors().unwrap();
        assert!(free_processors().unwrap() < online);
    }
}
