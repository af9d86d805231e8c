//! Where log lines go and how they look.

use crate::options::{LogFormat, LogLevel, OperationFlags};
use eyre::{Result, eyre};
use tracing_subscriber::filter::LevelFilter;

/// Has everything from now on logged as the flags say, to standard error.
pub(super) fn install(flags: &OperationFlags) -> Result<()> {
    let level = match flags.logging {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(std::io::stderr);
    let installed = match flags.logging_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    installed.map_err(|error| eyre!("can't begin to log: {error}"))
}
