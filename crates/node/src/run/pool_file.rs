//! The pool's file, `--tx-pool-save-file`: read by a thread behind the ports, written at the end.
//!
//! Transactions with blobs take a quarter of a second each to check, so a large file takes minutes. A
//! node that stops before all are checked writes the others back as they were: nothing is lost.

use crate::options::NodeOptions;
use eyre::{Result, WrapErr, eyre};
use niwaki_rpc::yield_to_blocks;
use niwaki_txpool::Pool;
use std::fs::File;
use std::io::{BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tracing::{info, warn};

/// What [`Progress::unread`] is once all has been read.
const ALL_READ: u64 = u64::MAX;

/// The file, if the operator wants one.
pub(super) struct PoolFile {
    path: PathBuf,
    progress: Arc<Progress>,
}

/// How far the thread is that reads the file.
#[derive(Debug)]
struct Progress {
    is_stopped: AtomicBool,
    /// Where the first line begins that is not known to be in the pool.
    unread: AtomicU64,
}

impl PoolFile {
    /// Begins to read what was saved, on a thread of its own; nothing where the flags want no file.
    pub(super) fn restore(
        node: &NodeOptions,
        data_path: &Path,
        pool: &Arc<Pool>,
    ) -> Result<Option<Self>> {
        if node.pool.tx_pool_enable_save_restore != Some(true) {
            return Ok(None);
        }
        let path = data_path.join(&node.pool.tx_pool_save_file);
        let unread = if path.exists() { 0 } else { ALL_READ };
        let progress = Arc::new(Progress {
            is_stopped: AtomicBool::new(false),
            unread: AtomicU64::new(unread),
        });
        let this = Self { path, progress };
        if unread == ALL_READ {
            return Ok(Some(this));
        }
        let file = File::open(&this.path)
            .wrap_err_with(|| format!("can't open {}", this.path.display()))?;
        let (pool, progress) = (Arc::clone(pool), Arc::clone(&this.progress));
        std::thread::Builder::new()
            .name("pool-restore".to_owned())
            .spawn(move || {
                yield_to_blocks();
                progress.read(file, &pool);
            })
            .wrap_err("can't start the thread that restores the transaction pool")?;
        Ok(Some(this))
    }

    /// Writes the pool by `write_pool`, which says how many transactions it has, and after it what was
    /// not read of the file before.
    pub(super) fn save(
        self,
        write_pool: impl FnOnce(&mut dyn Write) -> std::io::Result<usize>,
    ) -> Result<()> {
        self.progress.is_stopped.store(true, Ordering::SeqCst);
        let unread = self.progress.unread.load(Ordering::SeqCst);
        let mut part = self.path.clone().into_os_string();
        part.push(".part");
        let save = || -> std::io::Result<(usize, u64)> {
            let mut file = BufWriter::new(File::create(&part)?);
            let saved = write_pool(&mut file)?;
            let mut kept = 0;
            if unread != ALL_READ {
                let mut before = File::open(&self.path)?;
                before.seek(SeekFrom::Start(unread))?;
                kept = std::io::copy(&mut before, &mut file)?;
            }
            file.flush()?;
            std::fs::rename(&part, &self.path)?;
            Ok((saved, kept))
        };
        let (transactions, kept_bytes) = save()
            .map_err(|error| eyre!("can't save the pool to {}: {error}", self.path.display()))?;
        info!(transactions, kept_bytes, "Saved the transaction pool");
        Ok(())
    }
}

impl Progress {
    /// Takes in what was saved. A file that can't be read is no reason not to run.
    fn read(&self, file: File, pool: &Pool) {
        let mut goes_on = |offset| {
            self.unread.store(offset, Ordering::SeqCst);
            !self.is_stopped.load(Ordering::SeqCst)
        };
        let restored = pool.restore(&mut BufReader::new(file), super::now(), &mut goes_on);
        if self.is_stopped.load(Ordering::SeqCst) {
            return;
        }
        match restored {
            Ok(restored) => {
                self.unread.store(ALL_READ, Ordering::SeqCst);
                let transactions = restored.restored;
                info!(transactions, "Restored the transaction pool");
                if let Some((line, reason)) = restored.skipped.first() {
                    let left_out = restored.skipped.len();
                    warn!(left_out, line, %reason, "Saved transactions were left out; the first");
                }
            }
            Err(error) => warn!(%error, "Can't read the saved transaction pool"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stopping at `unread` leaves of a file whose pool is empty by now.
    fn saved(text: &str, unread: u64) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("txpool.dump");
        std::fs::write(&path, text).unwrap();
        let progress = Arc::new(Progress {
            is_stopped: AtomicBool::new(false),
            unread: AtomicU64::new(unread),
        });
        let file = PoolFile {
            path: path.clone(),
            progress,
        };
        let write = |out: &mut dyn Write| writeln!(out, "# niwaki txpool 1").map(|()| 0);
        file.save(write).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn lines_that_were_not_read_when_the_node_stopped_are_kept_as_they_were() {
        let text = "# niwaki txpool 1\nl aa\nr bb\n";
        assert_eq!(saved(text, 0), format!("# niwaki txpool 1\n{text}"));
        assert_eq!(saved(text, 23), "# niwaki txpool 1\nr bb\n");
        assert_eq!(saved(text, ALL_READ), "# niwaki txpool 1\n");
    }
}
