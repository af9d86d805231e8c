//! The rows of a whole state: collected in batches, which another thread writes.

use niwaki_primitives::Fault;
use niwaki_storage::{Batch, Database, Segment};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

/// The writer thread: ingests batches until the sender is dropped or one fails. Each counts in `written` once it is durable.
pub(crate) fn write_all(
    database: &Database,
    batches: Receiver<Batch>,
    written: &AtomicU64,
) -> Result<(), Fault> {
    batches.iter().try_for_each(|batch| {
        database.ingest(batch)?;
        written.fetch_add(1, Ordering::Release);
        Ok(())
    })
}

/// The batch in progress and the channel to the writer thread.
pub(crate) struct RowWriter {
    pub(crate) batch: RefCell<Batch>,
    /// `None` if nothing is written.
    pub(crate) sender: Option<SyncSender<Batch>>,
    /// How many batches were sent.
    pub(crate) batches_sent: Cell<u64>,
    /// Whether the writer thread has failed; joining it returns the fault.
    pub(crate) is_broken: Cell<bool>,
}

impl RowWriter {
    pub(crate) fn put(&self, segment: Segment, key: &[&[u8]], value: &[u8]) {
        self.batch.borrow_mut().put_parts(segment, key, &[value]);
    }

    /// Sends the batch to the writer thread if it has at least `bytes`.
    pub(crate) fn send_if_large(&self, bytes: usize) {
        if self.batch.borrow().bytes() < bytes {
            return;
        }
        self.batches_sent.set(self.batches_sent.get() + 1);
        match &self.sender {
            Some(sender) => {
                let sent = sender.send(self.batch.take());
                self.is_broken.set(sent.is_err());
            }
            None => self.batch.borrow_mut().clear(),
        }
    }
}
