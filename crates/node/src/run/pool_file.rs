//! The saved pool, `--tx-pool-save-file`: restored by a background thread, written when the node stops.
//!
//! Checking a blob transaction takes a quarter of a second, so restoring a large file takes minutes and the
//! servers do not wait for it. A node that stops earlier copies the rest of the old file behind the saved
//! pool, so that no transaction is lost.

use eyre::{Result, WrapErr, eyre};
use niwaki_rpc::yield_to_blocks;
use niwaki_txpool::Pool;
use std::fs::File;
use std::io::{BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tracing::{info, warn};

/// [`Progress::unread`] once the whole file is read.
const ALL_READ: u64 = u64::MAX;

/// The file of the saved pool.
pub(super) struct PoolFile {
    path: PathBuf,
    progress: Arc<Progress>,
}

/// The progress of the thread that reads the file.
#[derive(Debug)]
struct Progress {
    is_stopped: AtomicBool,
    /// Offset of the first line that is not known to be in the pool.
    unread: AtomicU64,
}

impl PoolFile {
    /// Starts a thread that reads the file into the pool, if the file exists.
    pub(super) fn restore(path: PathBuf, pool: &Arc<Pool>) -> Result<Self> {
        let unread = if path.exists() { 0 } else { ALL_READ };
        let progress = Arc::new(Progress {
            is_stopped: AtomicBool::new(false),
            unread: AtomicU64::new(unread),
        });
        let this = Self { path, progress };
        if unread == ALL_READ {
            return Ok(this);
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
        Ok(this)
    }

    /// Writes the pool by `write_pool`, which returns the number of transactions, and after it the part of
    /// the old file that was not read.
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
    /// Reads the file into the pool. If it can't be read, the node runs on with a warning.
    fn read(&self, file: File, pool: &Pool) {
        let mut should_continue = |offset| {
            self.unread.store(offset, Ordering::SeqCst);
            !self.is_stopped.load(Ordering::SeqCst)
        };
        let restored = pool.restore(
            &mut BufReader::new(file),
            super::now(),
            &mut should_continue,
        );
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

    /// The file after a stop at offset `unread` with an empty pool.
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
    fn lines_that_were_not_read_before_a_stop_are_saved_unchanged() {
        let text = "# niwaki txpool 1\nl aa\nr bb\n";
        assert_eq!(saved(text, 0), format!("# niwaki txpool 1\n{text}"));
        assert_eq!(saved(text, 23), "# niwaki txpool 1\nr bb\n");
        assert_eq!(saved(text, ALL_READ), "# niwaki txpool 1\n");
    }
}
