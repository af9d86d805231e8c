//! The thread that builds the log index, section by section, behind the head.

use eyre::{Result, WrapErr};
use niwaki_chain::Chain;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{error, info};

/// How often the thread checks for new sections when the index is complete.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pause between two sections, so that other readers of the disk come first.
const SECTION_PAUSE: Duration = Duration::from_millis(5);

/// Pause after a fault of the disk.
const FAULT_PAUSE: Duration = Duration::from_secs(60);

/// The thread that builds the index; dropping this ends it.
pub(super) struct LogIndexer {
    stop: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl LogIndexer {
    /// Builds the index from the start if it `is_enabled`, else up to the block that a caller requests.
    pub(super) fn start(chain: &Arc<Chain>, is_enabled: bool) -> Result<Self> {
        if is_enabled {
            chain.set_log_index_target(u64::MAX);
        }
        let (stop, stopped) = sync_channel(1);
        let chain = Arc::clone(chain);
        let thread = std::thread::Builder::new()
            .name("log-index".to_owned())
            .spawn(move || {
                let mut sections: u64 = 0;
                loop {
                    let pause = match chain.index_logs() {
                        Ok(true) => {
                            sections += 1;
                            SECTION_PAUSE
                        }
                        Ok(false) => {
                            log_sections(&chain, std::mem::take(&mut sections));
                            POLL_INTERVAL
                        }
                        Err(fault) => {
                            error!(%fault, "the index of logs can't be made");
                            FAULT_PAUSE
                        }
                    };
                    match stopped.recv_timeout(pause) {
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

fn log_sections(chain: &Chain, sections: u64) {
    if sections > 0
        && let Ok(state) = chain.log_index_state()
    {
        info!(
            sections,
            from = state.from,
            below = state.below,
            "indexed logs"
        );
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
