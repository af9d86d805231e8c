//! Stopping on request: the first Ctrl-C or SIGTERM asks, the second one ends the process.

use eyre::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the operator asked to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens from now on, for as long as the process lives.
    pub(crate) fn listen() -> Result<Self> {
        let stop = Self::default();
        let asked = Arc::clone(&stop.0);
        ctrlc::set_handler(move || {
            // Nothing is ordered by this flag; it is looked at between blocks.
            if asked.swap(true, Ordering::Relaxed) {
                // Whatever is on disk is whole at any moment.
                std::process::exit(130);
            }
            eprintln!("stopping at the next whole step; press Ctrl-C again to stop at once");
        })
        .wrap_err("can't listen for Ctrl-C")?;
        Ok(stop)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
