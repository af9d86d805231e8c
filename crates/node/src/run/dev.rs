//! Blocks of `--network=dev`, which nobody but this node makes: for each transaction that comes, or
//! at a period, unless `miner_stop` has stopped it.

use eyre::{Result, WrapErr};
use niwaki_chain::{BlockTemplate, ImportError};
use niwaki_rpc::Backend;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::error;

/// The thread that makes blocks; it ends when this is dropped.
pub(super) struct Producer {
    wake: SyncSender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Producer {
    /// A block every `period_s` seconds, or, for 0, for what comes.
    pub(super) fn start(backend: &Arc<Backend>, period_s: u64) -> Result<Self> {
        let (wake, woken) = sync_channel(1);
        let ring = wake.clone();
        if period_s == 0 {
            backend.pool().listen(move |_| {
                let _ = ring.try_send(true); // One call waiting is enough.
            });
        }
        backend.operator().set_makes_blocks(true);
        let backend = Arc::clone(backend);
        let period = match period_s {
            // Nothing is missed: a look now and then beside the calls.
            0 => Duration::from_secs(1),
            seconds => Duration::from_secs(seconds),
        };
        let thread = std::thread::Builder::new()
            .name("dev-blocks".to_owned())
            .spawn(move || {
                loop {
                    match woken.recv_timeout(period) {
                        Ok(false) | Err(RecvTimeoutError::Disconnected) => return,
                        Ok(true) => {}
                        Err(RecvTimeoutError::Timeout) if period_s > 0 => {}
                        Err(RecvTimeoutError::Timeout) => {
                            if backend.pool().stats().pending == 0 {
                                continue;
                            }
                        }
                    }
                    if !backend.operator().makes_blocks() {
                        continue;
                    }
                    if let Err(failure) = make(&backend, period_s > 0) {
                        error!(%failure, "No block could be made");
                    }
                }
            })
            .wrap_err("can't start the thread that makes blocks")?;
        Ok(Self {
            wake,
            thread: Some(thread),
        })
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.wake.send(false);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes one block of what waits and takes it in; an empty one only if `also_empty`.
fn make(backend: &Backend, also_empty: bool) -> Result<()> {
    let head = backend.chain().head();
    let template = BlockTemplate {
        parent: head.id.hash,
        timestamp: super::now().max(head.header.timestamp + 1),
        ..backend.block_template()
    };
    let built = backend.build_now(template)?;
    if built.block.body.transactions.is_empty() && !also_empty {
        return Ok(());
    }
    let header = built.block.header.clone();
    match backend.chain().import(built.block) {
        Ok(imported) => {
            backend.record_import(&header, &imported);
            Ok(())
        }
        Err(error @ ImportError::Fault(_)) => Err(error.into()),
        Err(error) => Err(eyre::eyre!("a block made here was refused: {error}")),
    }
}
