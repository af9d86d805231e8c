//! What the program around the server does for the methods that are its operator's: figures, the
//! level of its log, whether it makes blocks, where it listens and writes.
//!
//! Each is handed over once, when it is there; until then, and in a program that has none of it,
//! the methods say so.

use crate::RpcError;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Gives all figures in Prometheus' text form.
pub type FiguresSource = Box<dyn Fn() -> String + Send + Sync>;

/// Changes from which level on is logged, of these targets, or of all if there are none; the error
/// says in words why not.
pub type LogSwitch = Box<dyn Fn(LogLevel, &[String]) -> Result<(), String> + Send + Sync>;

/// The least important thing that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What went wrong.
    Error,
    /// What may go wrong.
    Warn,
    /// What an operator wants to know.
    Info,
    /// What a developer wants to know.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The level that Besu calls `name`, in any case.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_uppercase().as_str() {
            "OFF" => Self::Off,
            "ERROR" | "FATAL" => Self::Error,
            "WARN" => Self::Warn,
            "INFO" => Self::Info,
            "DEBUG" => Self::Debug,
            "TRACE" | "ALL" => Self::Trace,
            _ => return None,
        })
    }
}

/// See the module.
#[derive(Default)]
pub struct Operator {
    figures: OnceLock<FiguresSource>,
    log_switch: OnceLock<LogSwitch>,
    /// Whether blocks are made here of their own accord; absent where they never are.
    makes_blocks: OnceLock<AtomicBool>,
    traces: OnceLock<PathBuf>,
    services: Mutex<BTreeMap<&'static str, SocketAddr>>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

impl Operator {
    /// Says where figures come from.
    pub fn set_figures(&self, source: FiguresSource) {
        let _ = self.figures.set(source); // The first one stays.
    }

    /// Says how the level of the log is changed.
    pub fn set_log_switch(&self, switch: LogSwitch) {
        let _ = self.log_switch.set(switch); // The first one stays.
    }

    /// Says that blocks are made here without being asked for, and whether they are by now.
    pub fn set_makes_blocks(&self, makes: bool) {
        let known = self.makes_blocks.get_or_init(|| AtomicBool::new(makes));
        known.store(makes, Ordering::Relaxed);
    }

    /// Says where traces may be written to.
    pub fn set_traces_folder(&self, folder: PathBuf) {
        let _ = self.traces.set(folder); // The first one stays.
    }

    /// Says that `service` listens on `address`.
    pub fn add_service(&self, service: &'static str, address: SocketAddr) {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        services.insert(service, address);
    }

    /// Whether blocks are made here without being asked for.
    pub fn makes_blocks(&self) -> bool {
        let makes = self.makes_blocks.get();
        makes.is_some_and(|makes| makes.load(Ordering::Relaxed))
    }

    pub(crate) fn figures(&self) -> Option<String> {
        self.figures.get().map(|source| source())
    }

    pub(crate) fn traces_folder(&self) -> Option<&Path> {
        self.traces.get().map(PathBuf::as_path)
    }

    pub(crate) fn services(&self) -> BTreeMap<&'static str, SocketAddr> {
        self.services
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Starts or stops the making of blocks.
    ///
    /// # Errors
    /// -32000 where blocks are never made without being asked for.
    pub(crate) fn make_blocks(&self, make: bool) -> Result<(), RpcError> {
        let makes = self.makes_blocks.get().ok_or_else(|| {
            RpcError::server(
                "this node makes no blocks of its own accord: on this network they are made for \
                 the consensus client, whenever it asks; only --network=dev can be started and \
                 stopped",
            )
        })?;
        makes.store(make, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn change_log(&self, level: LogLevel, targets: &[String]) -> Result<(), RpcError> {
        let switch = self.log_switch.get();
        let switch =
            switch.ok_or_else(|| RpcError::server("this program's log can't be changed"))?;
        switch(level, targets).map_err(RpcError::server)
    }
}
