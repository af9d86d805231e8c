//! Profiles of the running node: `debug_cpuProfile`, `debug_writeMemProfile`, `debug_memStats`, `admin_profile`; and the hooks into
//! the program that makes them.
//!
//! The methods of `debug` write into one folder of the data path, under names without a path, and never over a file.

use crate::json::{Array, Object};
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult};
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Writes profiles; the error says why it can't.
pub type ProfileWriter<T> = Box<dyn Fn(T, &Path) -> Result<Vec<PathBuf>, String> + Send + Sync>;

/// What the program can say of itself. A path of a profile is without its extensions: `.svg`, a flame graph, and `.pb.gz`, for `pprof`.
pub struct ProfileHooks {
    /// The folder for profiles that are asked for by `debug`.
    pub folder: PathBuf,
    /// Samples all threads that run, for so long.
    pub cpu: ProfileWriter<Duration>,
    /// What is allocated now, of the allocations that were sampled.
    pub heap: ProfileWriter<()>,
    /// Bytes of memory by kind.
    pub memory: Box<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>,
}

impl fmt::Debug for ProfileHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileHooks").finish_non_exhaustive()
    }
}

/// The longest profile of the processor.
const MAX_SECONDS: u64 = 600;
/// Files in the folder from which on none is added.
const MAX_FILES: usize = 200;
/// The longest name of a profile.
const MAX_NAME: usize = 64;

fn hooks(backend: &Backend) -> Result<&ProfileHooks, RpcError> {
    let hooks = backend.operator().profiles();
    hooks.ok_or_else(|| RpcError::server("this program makes no profiles of itself"))
}

fn seconds(params: &Params<'_>, index: usize) -> Result<Duration, RpcError> {
    let seconds: u64 = params.required(index)?;
    match (1..=MAX_SECONDS).contains(&seconds) {
        true => Ok(Duration::from_secs(seconds)),
        false => Err(RpcError::invalid_params(format!(
            "{seconds} seconds: 1 to {MAX_SECONDS} are possible"
        ))),
    }
}

/// The path in the folder for profiles that a name stands for.
fn path(hooks: &ProfileHooks, params: &Params<'_>) -> Result<PathBuf, RpcError> {
    let name: Cow<'_, str> = params.required(0)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty()
        || name.len() > MAX_NAME
        || name.starts_with('.')
        || !name.bytes().all(is_plain)
    {
        return Err(RpcError::invalid_params(format!(
            "the name of a profile has up to {MAX_NAME} letters, digits, '-', '_' and '.', and does not begin with '.'; \
             it is written into {}",
            hooks.folder.display()
        )));
    }
    let files = std::fs::read_dir(&hooks.folder).map_or(0, Iterator::count);
    if files >= MAX_FILES {
        let folder = hooks.folder.display();
        let message = format!("{folder} has {files} files: remove some");
        return Err(RpcError::limit(message));
    }
    Ok(hooks.folder.join(&*name))
}

fn write_paths(paths: Result<Vec<PathBuf>, String>, out: &mut Vec<u8>) -> RpcResult {
    let paths = paths.map_err(RpcError::server)?;
    let mut list = Array::new(out);
    for path in paths {
        crate::json::string(list.item(), &path.display().to_string());
    }
    Ok(())
}

/// A name and seconds.
pub(super) fn cpu(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hooks = hooks(backend)?;
    let path = path(hooks, params)?;
    write_paths((hooks.cpu)(seconds(params, 1)?, &path), out)
}

/// A name.
pub(super) fn heap(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hooks = hooks(backend)?;
    write_paths((hooks.heap)((), &path(hooks, params)?), out)
}

/// Bytes of memory by kind.
pub(super) fn memory(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let memory = (hooks(backend)?.memory)();
    let mut object = Object::new(out);
    for (name, bytes) in memory {
        object.decimal(name, bytes);
    }
    Ok(())
}

/// Seconds and a folder of this machine: a profile of the processor and, if allocations are sampled, one of the heap.
pub(crate) fn profile(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hooks = hooks(backend)?;
    let time = seconds(params, 0)?;
    let folder: PathBuf = params.required(1)?;
    if !folder.is_absolute() {
        let message = format!("{} must be an absolute path", folder.display());
        return Err(RpcError::invalid_params(message));
    }
    let mut paths = (hooks.cpu)(time, &folder.join("cpu")).map_err(RpcError::server)?;
    let is_sampled = (hooks.memory)().iter().any(|(name, _)| *name == "sampled");
    if is_sampled {
        paths.extend((hooks.heap)((), &folder.join("heap")).map_err(RpcError::server)?);
    }
    write_paths(Ok(paths), out)
}
