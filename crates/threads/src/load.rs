//! How many processors other threads of the machine leave free at this moment.
//!
//! A second thread helps a block only while it has a processor. Beside a busy process it shares one with the
//! committing thread or with that process: then it takes time from the committing thread, which also waits for
//! what the second one has begun while that is not running. The kernel tells in `/proc/loadavg` how many
//! threads are running or ready right now; what was an average over seconds would say nothing of a block of
//! 50 ms.

use std::sync::OnceLock;

/// So often the kernel is asked before a processor counts as taken: a thread that has just handed over its
/// work is about to sleep.
const LOOKS: usize = 3;

/// How many processors of the machine nothing runs on, that of the calling thread not counted; `None` where
/// the kernel does not tell. About 15 us for each of three looks at most.
pub fn free_processors() -> Option<usize> {
    let online = online_processors()?;
    let mut free = 0;
    for _ in 0..LOOKS {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        free = free.max(online.saturating_sub(running(&text)?));
        if free.saturating_add(1) >= online {
            break;
        }
    }
    Some(free)
}

/// The threads that are running or ready, by the line of `/proc/loadavg`: the calling one at least.
fn running(text: &str) -> Option<usize> {
    let (running, _) = text.split_ascii_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

/// The processors of the machine, whatever part of them this process may use: as many as threads are counted on.
fn online_processors() -> Option<usize> {
    static ONLINE: OnceLock<Option<usize>> = OnceLock::new();
    *ONLINE.get_or_init(|| {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
        count(&text)
    })
}

/// How many numbers a list such as `0-3,8` has.
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
    fn running_threads_are_the_first_half_of_the_fourth_word() {
        assert_eq!(running("9.12 9.22 8.56 10/157 15516\n"), Some(10));
        for text in ["", "1 2 3", "1 2 3 4 5", "1 2 3 x/5 6"] {
            assert_eq!(running(text), None, "{text}");
        }
    }

    #[test]
    fn processors_are_counted_in_ranges() {
        for (list, processors) in [("0\n", 1), ("0-1\n", 2), ("0-3,8,10-11", 7)] {
            assert_eq!(count(list), Some(processors), "{list}");
        }
        for list in ["", "x", "3-1", "1-"] {
            assert_eq!(count(list), None, "{list}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_calling_thread_has_a_processor_that_is_not_free() {
        let online = online_processors().unwrap();
        assert!(free_processors().unwrap() < online);
    }
}
