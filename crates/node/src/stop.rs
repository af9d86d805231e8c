//! Stopping on request: the first Ctrl-C or SIGTERM sets a flag that commands poll, the second ends the
//! process. After `exit_on_next` the next signal ends the process, for work that does not poll.

use crate::notice;
use eyre::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the operator asked to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    requested: Arc<AtomicBool>,
    exits_on_next: Arc<AtomicBool>,
}

impl Stop {
    /// Listens from now on, for as long as the process lives.
    pub(crate) fn listen() -> Result<Self> {
        let stop = Self::default();
        let Self {
            requested,
            exits_on_next,
        } = stop.clone();
        ctrlc::set_handler(move || {
            // No other memory depends on these flags.
            if exits_on_next.load(Ordering::Relaxed) || requested.swap(true, Ordering::Relaxed) {
                // The database is consistent at any moment.
                std::process::exit(130);
            }
            notice::write(format_args!(
                "Stopping at the next whole step; press Ctrl-C again to stop at once"
            ));
        })
        .wrap_err("can't listen for Ctrl-C")?;
        Ok(stop)
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// From now on the next signal ends the process.
    pub(crate) fn exit_on_next(&self) {
        self.exits_on_next.store(true, Ordering::Relaxed);
    }
}
