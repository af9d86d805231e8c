//! Words to the operator beside a command's result: lines of the log once there is one, plain lines of
//! standard error otherwise.

use std::fmt;

/// Whether lines go to the log.
pub(crate) fn is_logging() -> bool {
    tracing::dispatcher::has_been_set()
}

/// Tells the operator.
pub(crate) fn tell(text: fmt::Arguments<'_>) {
    match is_logging() {
        true => tracing::info!("{text}"),
        false => eprintln!("{text}"),
    }
}

/// Tells the operator why the program ends.
pub(crate) fn tell_failure(error: &eyre::Report) {
    match is_logging() {
        true => tracing::error!("{error:#}"),
        false => eprintln!("niwaki: {error:#}"),
    }
}
