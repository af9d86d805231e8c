//! Progress of a long copy by the engine, which reports none: the size of the folder that it fills is polled.

use super::bytes_below;
use crate::fault::engine_fault;
use niwaki_primitives::Fault;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Called with how many bytes of about how many are copied; `false` stops.
pub type BackupProgress<'a> = dyn FnMut(u64, u64) -> bool + 'a;

/// Time between two looks at the folder.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A folder that a copy fills.
pub(super) struct CopyWatch<'a> {
    pub(super) folder: &'a Path,
    /// Bytes that were there before.
    pub(super) before: u64,
    /// Bytes that will be added.
    pub(super) of: u64,
}

impl CopyWatch<'_> {
    /// Runs `work`, which fills the folder, on a thread of its own and calls `report` with its progress. `None` if
    /// `report` returns `false`: the engine can't be stopped, so the thread continues until it is done or the process
    /// ends.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        report: &mut BackupProgress<'_>,
    ) -> Result<Option<T>, Fault> {
        if !report(0, self.of) {
            return Ok(None);
        }
        let (done, outcome) = sync_channel(1);
        let copy = move || {
            // Fails only if the caller has returned.
            let _ = done.send(work());
        };
        let fault = |text: &str| engine_fault("copy", "all", text);
        let started = thread::Builder::new().name("backup".to_owned()).spawn(copy);
        started.map_err(|error| fault(&error.to_string()))?;
        loop {
            match outcome.recv_timeout(POLL_INTERVAL) {
                Ok(outcome) => return Ok(Some(outcome)),
                Err(RecvTimeoutError::Timeout) => {
                    // A file may be removed while it is looked at; the next look is right again.
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
    fn a_watched_call_reports_bytes_and_stops_on_request() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), [0; 10]).unwrap();
        let watch = CopyWatch {
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
        let left = watch.run(work, &mut |done, of| {
            seen.push((done, of));
            // Until the file is there.
            done < 20
        });
        assert!(left.unwrap().is_none());
        assert_eq!(seen[0], (0, 25));
        assert_eq!(seen.last(), Some(&(20, 25)));
        drop(go_on);
        assert_eq!(watch.run(|| 7, &mut |_, _| true).unwrap(), Some(7));
        assert_eq!(watch.run(|| 7, &mut |_, _| false).unwrap(), None);
        assert!(watch.run(|| panic!("a bug"), &mut |_, _| true).is_err());
    }
}
