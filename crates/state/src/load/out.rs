//! Where the rows of a load go: gathered, then handed to the thread that writes them.

use niwaki_primitives::Fault;
use niwaki_storage::{Batch, Database, Segment};
use std::cell::{Cell, RefCell};
use std::sync::mpsc::{Receiver, SyncSender};

/// Writes batches as they come. A failure ends the coming.
pub(super) fn write_all(database: &Database, batches: Receiver<Batch>) -> Result<(), Fault> {
    batches.iter().try_for_each(|batch| database.ingest(batch))
}

/// The rows that wait, and the way to the thread that writes them.
pub(super) struct Out {
    pub(super) batch: RefCell<Batch>,
    /// `None` if nothing is to be written.
    pub(super) sender: Option<SyncSender<Batch>>,
    /// How many batches were handed over.
    pub(super) cuts: Cell<u64>,
    /// The writer has failed, and says why when it is joined.
    pub(super) is_broken: Cell<bool>,
}

impl Out {
    pub(super) fn put(&self, segment: Segment, key: &[&[u8]], value: &[u8]) {
        self.batch.borrow_mut().put_parts(segment, key, &[value]);
    }

    /// Hands the batch over if it has at least `bytes`.
    pub(super) fn hand_over(&self, bytes: usize) {
        if self.batch.borrow().bytes() < bytes {
            return;
        }
        self.cuts.set(self.cuts.get() + 1);
        match &self.sender {
            Some(sender) => {
                let sent = sender.send(self.batch.take());
                self.is_broken.set(sent.is_err());
            }
            None => self.batch.borrow_mut().clear(),
        }
    }
}
