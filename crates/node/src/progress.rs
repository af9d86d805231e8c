//! Progress of a long command: a bar on a terminal, a line every 5 s elsewhere.

use crate::notice;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

pub(crate) const LINE_EVERY: Duration = Duration::from_secs(5);
pub(crate) const BAR_EVERY: Duration = Duration::from_millis(100);

/// The work done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Bytes read; the remaining time follows from the bytes that remain.
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) gas: u64,
    /// The number of the latest block.
    pub(crate) number: u64,
}

pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    total_bytes: u64,
    began: Instant,
    shown: Instant,
    /// As of the last line, for the rates since.
    before: Done,
}

impl Progress {
    pub(crate) fn new(total_bytes: u64) -> Self {
        let now = Instant::now();
        Self {
            bar: stderr().is_terminal().then(|| new_bar(total_bytes)),
            total_bytes,
            began: now,
            shown: now,
            before: Done::default(),
        }
    }

    /// Shows `done` if it is time to.
    pub(crate) fn show(&mut self, done: Done) {
        let every = if self.bar.is_some() {
            BAR_EVERY
        } else {
            LINE_EVERY
        };
        let now = Instant::now();
        let since = now - self.shown;
        if since < every {
            return;
        }
        let elapsed = (now - self.began).as_secs_f64();
        match &self.bar {
            Some(bar) => {
                bar.set_position(done.bytes.min(self.total_bytes));
                bar.set_message(rates(&done, &Done::default(), elapsed));
            }
            None => notice::write(format_args!(
                "block {}: {}, {} left",
                done.number,
                rates(&done, &self.before, since.as_secs_f64()),
                remaining(done.bytes, self.total_bytes, elapsed)
            )),
        }
        self.shown = now;
        self.before = done;
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

pub(crate) fn new_bar(total_bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}  ETA {eta}")
        .expect("the template is well-formed");
    let bar = ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::stderr());
    bar.with_style(style)
}

/// The rates from `before` to `done` in `seconds`.
fn rates(done: &Done, before: &Done, seconds: f64) -> String {
    let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(1e-9);
    let blocks = per_second(done.blocks, before.blocks);
    let gas = per_second(done.gas, before.gas);
    if done.gas == 0 {
        return format!("{blocks:.0} blocks/s");
    }
    format!("{blocks:.0} blocks/s, {:.1} Mgas/s", gas / 1e6)
}

/// The time for the bytes that remain, at the speed so far.
pub(crate) fn remaining(bytes: u64, total_bytes: u64, seconds: f64) -> String {
    if bytes == 0 {
        return "unknown time".to_owned();
    }
    let rest = total_bytes.saturating_sub(bytes) as f64 / bytes as f64 * seconds;
    if rest < 90.0 {
        format!("{rest:.0} s")
    } else if rest < 5400.0 {
        format!("{:.0} min", rest / 60.0)
    } else {
        format!("{:.1} h", rest / 3600.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_follows_from_the_bytes() {
        assert_eq!(remaining(0, 100, 1.0), "unknown time");
        assert_eq!(remaining(50, 100, 10.0), "10 s");
        assert_eq!(remaining(1, 100, 10.0), "16 min");
        assert_eq!(remaining(1, 10_000, 10.0), "27.8 h");
        assert_eq!(remaining(120, 100, 10.0), "0 s");
    }
}
