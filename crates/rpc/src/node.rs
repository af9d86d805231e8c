//! The namespaces about this node: `net`, `web3`, `admin`.

use crate::json::{self, Object};
use crate::methods::{Lane, Method, row};
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult};
use niwaki_primitives::Bytes;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::level_filters::LevelFilter;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("admin_backup", "folder keep?", Lane::Long, backup),
    row("admin_changeLogLevel", "level targets?", Lane::Call, change_log_level),
    row("admin_profile", "seconds folder", Lane::Long, crate::debug::profile),
    row("net_services", "", Lane::Inline, services),
    row("net_version", "", Lane::Inline, network_id),
    row("web3_clientVersion", "", Lane::Inline, client_version),
    row("web3_sha3", "data", Lane::Inline, sha3),
];

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn network_id(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::string(out, &backend.network_id().to_string());
    Ok(())
}

/// The services that listen, with their addresses.
fn services(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let mut object = Object::new(out);
    for (service, address) in backend.operator().services() {
        let mut service = object.object(service);
        service.string("host", &address.ip().to_string());
        service.string("port", &address.port().to_string());
    }
    Ok(())
}

fn client_version(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    json::string(out, &backend.identity.client_version);
    Ok(())
}

fn sha3(_: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let bytes: Bytes = params.required(0)?;
    json::data(out, niwaki_crypto::keccak256(&bytes).as_slice());
    Ok(())
}

/// The level that Besu calls `name`, in any case.
fn level_named(name: &str) -> Option<LevelFilter> {
    Some(match name.to_ascii_uppercase().as_str() {
        "OFF" => LevelFilter::OFF,
        "ERROR" | "FATAL" => LevelFilter::ERROR,
        "WARN" => LevelFilter::WARN,
        "INFO" => LevelFilter::INFO,
        "DEBUG" => LevelFilter::DEBUG,
        "TRACE" | "ALL" => LevelFilter::TRACE,
        _ => return None,
    })
}

/// Parameters: a level and its targets, modules such as `niwaki_rpc`; all targets if there is no list.
fn change_log_level(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let name: String = params.required(0)?;
    let level = level_named(&name).ok_or_else(|| {
        let name: String = name.chars().take(50).collect();
        RpcError::invalid_params(format!(
            "Invalid log level params (missing or incorrect): {name:?} is none of OFF, ERROR, \
             WARN, INFO, DEBUG, TRACE, ALL"
        ))
    })?;
    let targets: Option<Vec<String>> = params.optional(1)?;
    // As in Besu, an empty list changes nothing.
    if targets.as_ref().is_none_or(|targets| !targets.is_empty()) {
        backend
            .operator()
            .change_log(level, &targets.unwrap_or_default())?;
    }
    json::string(out, "Success");
    Ok(())
}

/// Adds a backup of the database to a folder of this machine, and keeps only the latest `keep` if given. Block import
/// continues meanwhile.
fn backup(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let folder: PathBuf = params.required(0)?;
    if !folder.is_absolute() {
        let message = format!("{} must be an absolute path", folder.display());
        return Err(RpcError::invalid_params(message));
    }
    let keep = match params.optional::<u32>(1)? {
        Some(0) => return Err(RpcError::invalid_params("at least one backup must be kept")),
        keep => keep.map(|keep| keep as usize),
    };
    let head = backend.chain().head();
    tracing::info!(folder = %folder.display(), number = head.id.number, "Backup begins");
    let made = backend.chain().backup(&folder, keep, &mut |_, _| true);
    let made = made.map_err(|error| RpcError::server(error.to_string()))?;
    let (id, bytes) = (made.backup.id, made.backup.bytes);
    tracing::info!(id, bytes, "Backup is whole");
    let mut object = Object::new(out);
    object.decimal("id", u64::from(id));
    object.decimal("bytes", bytes);
    object.decimal("addedBytes", made.added_bytes);
    object.decimal("number", head.id.number);
    object.data("hash", head.id.hash.as_slice());
    object.data("stateRoot", head.header.state_root.as_slice());
    let mut ids = object.array("kept");
    for one in &made.backups {
        ids.item().extend_from_slice(one.id.to_string().as_bytes());
    }
    Ok(())
}
