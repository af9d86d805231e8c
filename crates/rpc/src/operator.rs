//! Hooks of the program around this crate, for methods of its operator: metrics, log levels, building blocks on its
//! own, listening addresses, the folder for traces, peers, the sync, the validator, the machine, profiles.
//!
//! The program sets each hook once. A method whose hook is not set says so in its error.

use crate::dashboard::MachineHook;
use crate::debug::ProfileHooks;
use crate::peers::PeerHooks;
use crate::permissions::PermissionHooks;
use crate::sync::{SyncHook, SyncReport};
use crate::validators::ValidatorHooks;
use crate::{RpcError, RpcResult, lock};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use tracing::level_filters::LevelFilter;

/// Returns all metrics in Prometheus' text form.
pub type MetricsSource = Box<dyn Fn() -> String + Send + Sync>;

/// Changes the log level of these targets, or of all if there are none; the error says why it can't.
pub type LogSwitch = Box<dyn Fn(LevelFilter, &[String]) -> Result<(), String> + Send + Sync>;

/// The hooks; see the module.
#[derive(Default)]
pub struct Operator {
    metrics: OnceLock<MetricsSource>,
    log_switch: OnceLock<LogSwitch>,
    /// Whether this node builds blocks on its own now; unset if it never does.
    makes_blocks: OnceLock<AtomicBool>,
    traces: OnceLock<PathBuf>,
    peers: OnceLock<PeerHooks>,
    permissions: OnceLock<PermissionHooks>,
    sync: OnceLock<SyncHook>,
    validator: OnceLock<ValidatorHooks>,
    machine: OnceLock<MachineHook>,
    profiles: OnceLock<ProfileHooks>,
    services: Mutex<BTreeMap<&'static str, SocketAddr>>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

impl Operator {
    /// Sets the source of metrics.
    pub fn set_metrics(&self, source: MetricsSource) {
        let _ = self.metrics.set(source); // The first one wins.
    }

    /// Sets how the log level is changed.
    pub fn set_log_switch(&self, switch: LogSwitch) {
        let _ = self.log_switch.set(switch); // The first one wins.
    }

    /// Declares that this node builds blocks on its own, and whether it does so now.
    pub fn set_makes_blocks(&self, makes: bool) {
        let known = self.makes_blocks.get_or_init(|| AtomicBool::new(makes));
        known.store(makes, Ordering::Relaxed);
    }

    /// Sets the folder for traces.
    pub fn set_traces_folder(&self, folder: PathBuf) {
        let _ = self.traces.set(folder); // The first one wins.
    }

    /// Sets the hooks into the network of peers.
    pub fn set_peers(&self, hooks: PeerHooks) {
        let _ = self.peers.set(hooks); // The first ones win.
    }

    /// The hooks into the network of peers, if there is one.
    pub fn peers(&self) -> Option<&PeerHooks> {
        self.peers.get()
    }

    /// Sets the lists of nodes and accounts, if there are any.
    pub fn set_permissions(&self, hooks: PermissionHooks) {
        let _ = self.permissions.set(hooks); // The first ones win.
    }

    pub(crate) fn permissions(&self) -> Option<&PermissionHooks> {
        self.permissions.get()
    }

    /// Sets the hooks into this node's validator.
    pub fn set_validator(&self, hooks: ValidatorHooks) {
        let _ = self.validator.set(hooks); // The first ones win.
    }

    /// Whether this node is one of the validators of the next block.
    pub fn is_validator(&self) -> bool {
        self.validator.get().is_some_and(|hooks| {
            let report = (hooks.state)();
            report.validators.contains(&report.address)
        })
    }

    pub(crate) fn validator(&self) -> Option<&ValidatorHooks> {
        self.validator.get()
    }

    /// Sets the hook into the sync.
    pub fn set_sync(&self, hook: SyncHook) {
        let _ = self.sync.set(hook); // The first one wins.
    }

    /// How far the sync is, if there is one.
    pub(crate) fn sync_report(&self) -> Option<SyncReport> {
        self.sync.get().map(|hook| hook())
    }

    /// Sets the hook into the program and its machine, for the dashboard.
    pub fn set_machine(&self, hook: MachineHook) {
        let _ = self.machine.set(hook); // The first one wins.
    }

    pub(crate) fn machine(&self) -> Option<&MachineHook> {
        self.machine.get()
    }

    /// Sets how profiles of this program are made.
    pub fn set_profiles(&self, hooks: ProfileHooks) {
        let _ = self.profiles.set(hooks); // The first ones win.
    }

    pub(crate) fn profiles(&self) -> Option<&ProfileHooks> {
        self.profiles.get()
    }

    /// Records that `service` listens on `address`.
    pub fn add_service(&self, service: &'static str, address: SocketAddr) {
        lock(&self.services).insert(service, address);
    }

    /// Whether this node builds blocks on its own now.
    pub fn makes_blocks(&self) -> bool {
        let makes = self.makes_blocks.get();
        makes.is_some_and(|makes| makes.load(Ordering::Relaxed))
    }

    pub(crate) fn metrics(&self) -> Option<String> {
        self.metrics.get().map(|source| source())
    }

    pub(crate) fn traces_folder(&self) -> Option<&Path> {
        self.traces.get().map(PathBuf::as_path)
    }

    pub(crate) fn services(&self) -> BTreeMap<&'static str, SocketAddr> {
        lock(&self.services).clone()
    }

    /// Starts or stops building blocks.
    ///
    /// # Errors
    /// -32000 if this node never builds blocks on its own.
    pub(crate) fn make_blocks(&self, make: bool) -> RpcResult {
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

    pub(crate) fn change_log(&self, level: LevelFilter, targets: &[String]) -> RpcResult {
        let switch = self.log_switch.get();
        let switch =
            switch.ok_or_else(|| RpcError::server("this program's log can't be changed"))?;
        switch(level, targets).map_err(RpcError::server)
    }
}
