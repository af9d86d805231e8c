//! A long call of the engine, watched from beside: it tells nobody how far it is, but the files that
//! it makes do.

use super::bytes_below;
use crate::database::engine_fault;
use niwaki_primitives::Fault;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Told how many bytes of about how many are copied; `false` stops.
pub type BackupReport<'a> = dyn FnMut(u64, u64) -> bool + 'a;

/// How often somebody looks.
const EVERY: Duration = Duration::from_millis(200);

/// A folder that fills.
pub(super) struct Filling<'a> {
    pub(super) folder: &'a Path,
    /// Bytes that were there before.
    pub(super) before: u64,
    /// Bytes that are to come.
    pub(super) of: u64,
}

impl Filling<'_> {
    /// Does `work`, which fills the folder, on a thread of its own and tells `report` how far it is.
    /// `None` if `report` wants no more: the engine can't be told to stop, so that thread goes on
    /// until it has done or the process ends.
    pub(super) fn watch<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        report: &mut BackupReport<'_>,
    ) -> Result<Option<T>, Fault> {
        if !report(0, self.of) {
            return Ok(None);
        }
        let (done, outcome) = sync_channel(1);
        let copy = move || {
            // Fails only when nobody waits any more.
            let _ = done.send(work());
        };
        let fault = |text: &str| engine_fault("copy", "all", text);
        let started = thread::Builder::new().name("backup".to_owned()).spawn(copy);
        started.map_err(|error| fault(&error.to_string()))?;
        loop {
            match outcome.recv_timeout(EVERY) {
                Ok(outcome) => return Ok(Some(outcome)),
                Err(RecvTimeoutError::Timeout) => {
                    // A file may go while it is looked at; the next look sees the others.
                    let bytes = bytes_below(self.folder).unwrap_or(self.before);
                    let copied = bytes.saturating_sub(self.before).min(self.of);
                    if !report(copied, self.of) {
                        return Ok(None);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(fault("the thread that copies has ended"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_call_is_left_when_asked_and_its_files_tell_how_far_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), [0; 10]).unwrap();
        let filling = Filling {
            folder: dir.path(),
            before: 10,
            of: 25,
        };
        let (go_on, wait) = sync_channel::<()>(1);
        let file = dir.path().join("new");
        let work = move || {
            fs::write(file, [0; 20]).unwrap();
            wait.recv()
        };
        let mut seen = Vec::new();
        let left = filling.watch(work, &mut |done, of| {
            seen.push((done, of));
            // Until the file is there.
            done < 20
        });
        assert!(left.unwrap().is_none());
        assert_eq!(seen[0], (0, 25));
        assert_eq!(seen.last(), Some(&(20, 25)));
        drop(go_on);
        assert_eq!(filling.watch(|| 7, &mut |_, _| true).unwrap(), Some(7));
        assert_eq!(filling.watch(|| 7, &mut |_, _| false).unwrap(), None);
        assert!(filling.watch(|| panic!("a bug"), &mut |_, _| true).is_err());
    }
}
