//! Block production of `--network=dev`: a block for each new transaction, or one every period, until
//! `miner_stop` is called.

use eyre::{Result, WrapErr};
use niwaki_chain::{BlockTemplate, ImportError};
use niwaki_rpc::Backend;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::error;

/// The thread that builds blocks; dropping this ends it.
pub(super) struct Producer {
    wake: SyncSender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Producer {
    /// Builds a block every `period_s` seconds, or for each new transaction if it is 0.
    pub(super) fn start(backend: &Arc<Backend>, period_s: u64) -> Result<Self> {
        let (wake, woken) = sync_channel(1);
        let wake_on_tx = wake.clone();
        if period_s == 0 {
            backend.pool().listen(move |_| {
                let _ = wake_on_tx.try_send(true); // One pending wake-up is enough.
            });
        }
        backend.operator().set_makes_blocks(true);
        let backend = Arc::clone(backend);
        let period = match period_s {
            // Also polls, in case a wake-up came while a block was being built.
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
                    if let Err(failure) = build_block(&backend, period_s > 0) {
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

/// Builds a block of pending transactions and imports it; an empty one only if `is_empty_allowed`.
fn build_block(backend: &Backend, is_empty_allowed: bool) -> Result<()> {
    let head = backend.chain().head();
    let template = BlockTemplate {
        parent: head.id.hash,
        timestamp: super::now().max(head.header.timestamp + 1),
        ..backend.block_template()
    };
    let built = backend.build_now(template)?;
    if built.block.body.transactions.is_empty() && !is_empty_allowed {
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
