//! Stopping on request: the first Ctrl-C or SIGTERM asks, the second one ends the process; where
//! nobody looks whether it was asked, the first one does.

use crate::notice;
use eyre::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the operator asked to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    asked: Arc<AtomicBool>,
    at_once: Arc<AtomicBool>,
}

impl Stop {
    /// Listens from now on, for as long as the process lives.
    pub(crate) fn listen() -> Result<Self> {
        let stop = Self::default();
        let Self { asked, at_once } = stop.clone();
        ctrlc::set_handler(move || {
            // Nothing is ordered by these flags; the first is looked at between blocks.
            if at_once.load(Ordering::Relaxed) || asked.swap(true, Ordering::Relaxed) {
                // Whatever is on disk is whole at any moment.
                std::process::exit(130);
            }
            notice::tell(format_args!(
                "Stopping at the next whole step; press Ctrl-C again to stop at once"
            ));
        })
        .wrap_err("can't listen for Ctrl-C")?;
        Ok(stop)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// From now on nobody looks: the next request ends the process.
    pub(crate) fn at_once(&self) {
        self.at_once.store(true, Ordering::Relaxed);
    }
}
