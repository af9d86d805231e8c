//! The index of logs, made behind the head by a thread of its own.

use eyre::{Result, WrapErr};
use niwaki_chain::Chain;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{error, info};

/// Between two looks whether there is something to do.
const LOOK: Duration = Duration::from_secs(1);

/// Between two sections, so that whoever else reads the disk comes first.
const REST: Duration = Duration::from_millis(5);

/// After a fault of the disk.
const PAUSE: Duration = Duration::from_secs(60);

/// The thread that makes the index; it ends when this is dropped.
pub(super) struct LogIndexer {
    stop: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl LogIndexer {
    /// Makes it of its own accord if it `is_wanted`, else when that is asked for.
    pub(super) fn start(chain: &Arc<Chain>, is_wanted: bool) -> Result<Self> {
        if is_wanted {
            chain.want_log_index(u64::MAX);
        }
        let (stop, stopped) = sync_channel(1);
        let chain = Arc::clone(chain);
        let thread = std::thread::Builder::new()
            .name("log-index".to_owned())
            .spawn(move || {
                let mut sections: u64 = 0;
                loop {
                    let rest = match chain.index_logs() {
                        Ok(true) => {
                            sections += 1;
                            REST
                        }
                        Ok(false) => {
                            tell(&chain, std::mem::take(&mut sections));
                            LOOK
                        }
                        Err(fault) => {
                            error!(%fault, "the index of logs can't be made");
                            PAUSE
                        }
                    };
                    match stopped.recv_timeout(rest) {
                        Err(RecvTimeoutError::Timeout) => {}
                        _ => return,
                    }
                }
            })
            .wrap_err("can't start the thread that makes the index of logs")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

fn tell(chain: &Chain, sections: u64) {
    if sections > 0
        && let Ok(state) = chain.log_index_state()
    {
        info!(sections, below = state.below, "indexed logs");
    }
}

impl Drop for LogIndexer {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
