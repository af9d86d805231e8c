//! Progress of reading and writing a large genesis, state or backup; also how the operator stops it.

use crate::notice;
use crate::progress::{BAR_EVERY, LINE_EVERY, new_bar, remaining};
use crate::stop::Stop;
use indicatif::ProgressBar;
use niwaki_chain::Loading;
use std::io::{IsTerminal, stderr};
use std::time::Instant;

/// Shows the progress and passes a request to stop on to the loader.
pub(crate) struct LoadingProgress {
    /// Shown while reading, and while writing.
    titles: [&'static str; 2],
    stop: Stop,
    bar: Option<ProgressBar>,
    began: Instant,
    shown: Instant,
    is_writing: bool,
}

impl LoadingProgress {
    pub(crate) fn new(titles: [&'static str; 2], stop: Stop) -> Self {
        let now = Instant::now();
        Self {
            titles,
            stop,
            bar: None,
            began: now,
            shown: now,
            is_writing: false,
        }
    }

    /// Shows `loading` if it is time to; `false` if the operator asked to stop.
    pub(crate) fn report(&mut self, loading: Loading) -> bool {
        let now = Instant::now();
        let (is_writing, done, of) = match loading {
            Loading::Reading(done, of) => (false, done, of),
            Loading::Writing(done, of) => (true, done, of),
        };
        if is_writing && !self.is_writing {
            self.is_writing = true;
            self.began = now;
        }
        let title = self.titles[usize::from(is_writing)];
        let is_terminal = stderr().is_terminal();
        let every = if is_terminal { BAR_EVERY } else { LINE_EVERY };
        if now - self.shown >= every {
            self.shown = now;
            if is_terminal {
                let bar = self.bar.get_or_insert_with(|| new_bar(of));
                bar.set_length(of);
                bar.set_position(done);
                bar.set_message(title);
            } else {
                let elapsed = (now - self.began).as_secs_f64();
                notice::write(format_args!("{}", line(title, done, of, elapsed)));
            }
        }
        !self.stop.is_requested()
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(title: &str, done: u64, of: u64, elapsed_s: f64) -> String {
    let percent = done.saturating_mul(100) / of.max(1);
    let left = remaining(done, of, elapsed_s);
    format!("{title}, {percent} %, {left} left of it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_title_percentage_and_remaining_time() {
        let text = line("genesis, 2 of 2: writing", 30, 120, 5.0);
        assert_eq!(text, "genesis, 2 of 2: writing, 25 %, 15 s left of it");
        assert!(line("genesis", 0, 0, 0.0).contains("0 %, unknown time left"));
    }
}
