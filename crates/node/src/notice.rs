//! Messages to the operator that are not a command's result: log lines once logging is installed, plain
//! lines on standard error before.

use std::fmt;

/// Whether messages go to the log.
pub(crate) fn is_logging() -> bool {
    tracing::dispatcher::has_been_set()
}

/// Writes a message.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    match is_logging() {
        true => tracing::info!("{text}"),
        false => eprintln!("{text}"),
    }
}

/// Writes the error that ends the program.
pub(crate) fn write_failure(error: &eyre::Report) {
    match is_logging() {
        true => tracing::error!("{error:#}"),
        false => eprintln!("niwaki: {error:#}"),
    }
}
