//! Installs the log: its level, format and colours, and the switch that changes the level at run time.

use super::dashboard::LogLines;
use super::log_formats::JsonFormat;
use crate::options::{LogFormat, LogLevel, OperationFlags};
use eyre::{Result, eyre};
use niwaki_rpc::LogSwitch;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;

/// Most targets that may have a level of their own.
const MAX_TARGETS: usize = 256;

/// Installs the process-wide log, to standard error and, if there are any, to `kept` lines. Returns the switch that changes the level.
pub(super) fn install(flags: &OperationFlags, kept: Option<LogLines>) -> Result<LogSwitch> {
    let level = match flags.logging {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let targets = Targets::new().with_default(level);
    let (filter, handle) = reload::Layer::new(targets.clone());
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(has_colors(flags))
        .with_writer(std::io::stderr);
    let lines = match flags.logging_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
        LogFormat::Ecs => lines.event_format(JsonFormat::Ecs).boxed(),
        LogFormat::Gcp => lines.event_format(JsonFormat::Gcp).boxed(),
        LogFormat::Logstash => lines.event_format(JsonFormat::Logstash).boxed(),
        LogFormat::Gelf => lines.event_format(JsonFormat::Gelf).boxed(),
    };
    let subscriber = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .with(kept);
    let installed = subscriber.try_init();
    installed.map_err(|error| eyre!("can't begin to log: {error}"))?;
    Ok(switch(targets, handle))
}

/// Whether lines have colours: as the flag says, else on a terminal unless `NO_COLOR` is set
/// (<https://no-color.org>).
fn has_colors(flags: &OperationFlags) -> bool {
    let is_disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let by_default = std::io::stderr().is_terminal() && !is_disabled;
    flags.color_enabled.unwrap_or(by_default)
}

fn switch(targets: Targets, handle: Handle<Targets, Registry>) -> LogSwitch {
    let targets = Mutex::new(targets);
    Box::new(move |level, names| {
        let mut targets = targets.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = changed(targets.clone(), level, names)?;
        let reloaded = handle.reload(changed.clone());
        reloaded.map_err(|error| format!("the level can't be changed: {error}"))?;
        *targets = changed;
        Ok(())
    })
}

/// `targets` with a new level for `names`, or for all if there are none.
fn changed(mut targets: Targets, level: LevelFilter, names: &[String]) -> Result<Targets, String> {
    if names.is_empty() {
        return Ok(Targets::new().with_default(level));
    }
    for name in names {
        targets = match name.as_str() {
            "" => targets.with_default(level),
            name => targets.with_target(name, level),
        };
    }
    match targets.iter().count() {
        0..=MAX_TARGETS => Ok(targets),
        count => Err(format!(
            "{count} targets would have a level of their own, at most {MAX_TARGETS} may; change \
             the level of all first, without targets"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_level_applies_to_the_named_targets_or_to_all_at_most_256() {
        let all = Targets::new().with_default(LevelFilter::INFO);
        let debug = LevelFilter::DEBUG;
        let one = changed(all.clone(), debug, &names(&["niwaki_rpc"])).unwrap();
        assert!(one.would_enable("niwaki_rpc::dispatch", &Level::DEBUG));
        assert!(!one.would_enable("niwaki_chain", &Level::DEBUG));
        let off = changed(one.clone(), LevelFilter::OFF, &[]).unwrap();
        assert!(!off.would_enable("niwaki_rpc", &Level::ERROR));
        let rest = changed(one, debug, &names(&[""])).unwrap();
        assert!(rest.would_enable("niwaki_chain", &Level::DEBUG));
        let many: Vec<String> = (0..=MAX_TARGETS).map(|n| format!("t{n}")).collect();
        assert!(changed(all, debug, &many).unwrap_err().contains("at most"));
    }
}
