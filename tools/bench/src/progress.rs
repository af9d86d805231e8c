//! Progress of a long command: a bar on a terminal, a line every 5 s elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress on standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    total: u64,
    what: &'static str,
    shown: Instant,
}

impl Progress {
    /// Progress towards `total` of `what`.
    pub(crate) fn new(total: u64, what: &'static str) -> Self {
        Self {
            bar: stderr().is_terminal().then(|| new_bar(total, what)),
            total,
            what,
            shown: Instant::now(),
        }
    }

    /// Shows that `done` are done; `note` describes the last one.
    pub(crate) fn show(&mut self, done: u64, note: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(note.to_owned());
                bar.set_position(done);
            }
            None if self.shown.elapsed() >= LINE_EVERY => {
                eprintln!("{done} of {} {}: {note}", self.total, self.what);
                self.shown = Instant::now();
            }
            None => {}
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let template = format!("{{bar:30}} {{pos}} of {{len}} {what}  {{msg}}  ETA {{eta}}");
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
