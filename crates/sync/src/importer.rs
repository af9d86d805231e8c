//! The import of blocks in order, on threads of its own: senders are recovered ahead; blocks become the head one after the other, or
//! in batches while the target is far.

use crate::body_queue::CheckedBody;
use crate::header_window::SealedHeader;
use niwaki_chain::{Chain, ImportError, ImportRequest, Imported, StreamedBlock, recover_stream};
use niwaki_primitives::Block;
use niwaki_rules::BodyRoots;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes of blocks that may wait for the import.
const MAX_BYTES: usize = 96 << 20;
/// Blocks that may wait for it.
const MAX_BLOCKS: usize = 512;
/// Blocks that are imported together.
const BATCH_BLOCKS: usize = 64;
/// Their gas, which bounds the memory of their changes and the time that a stop has to wait.
const BATCH_GAS: u64 = 3_000_000_000;

/// What became of a block.
#[derive(Debug)]
pub(crate) enum ImportEvent {
    Imported(Box<Imported>),
    /// It is the last event.
    Failed(ImportError),
}

/// What is known of a block that is on its way.
struct Waiting {
    roots: BodyRoots,
    bytes: usize,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<VecDeque<Waiting>>,
    bytes: AtomicUsize,
    blocks: AtomicUsize,
    is_stopped: AtomicBool,
}

/// An import in progress. Dropping it ends it after the present block.
pub(crate) struct Importer {
    blocks: Option<SyncSender<Block>>,
    events: Receiver<ImportEvent>,
    shared: Arc<Shared>,
}

impl Importer {
    /// Starts an import. Blocks below `batch_end` are imported in batches.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(chain: Arc<Chain>, batch_end: u64) -> io::Result<Self> {
        let (sender, blocks) = sync_channel(MAX_BLOCKS);
        // More than blocks can be on the way, so that the import never waits for its events to be read.
        let (event_sender, events) = sync_channel(4 * MAX_BLOCKS);
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        thread::Builder::new()
            .name("sync-import".to_owned())
            .spawn(move || run(&chain, batch_end, blocks, &event_sender, &own))?;
        Ok(Self {
            blocks: Some(sender),
            events,
            shared,
        })
    }

    /// Whether another block may be given.
    pub(crate) fn has_room(&self) -> bool {
        // Only this thread adds: a stale value is too large at worst.
        self.shared.bytes.load(Ordering::Relaxed) < MAX_BYTES
            && self.shared.blocks.load(Ordering::Relaxed) < MAX_BLOCKS
    }

    /// Gives the next block, a child of the last one.
    pub(crate) fn push(&self, header: SealedHeader, body: CheckedBody) {
        let Some(blocks) = &self.blocks else {
            return;
        };
        let waiting = Waiting {
            roots: body.roots,
            bytes: body.bytes,
        };
        self.shared.bytes.fetch_add(body.bytes, Ordering::Relaxed);
        self.shared.blocks.fetch_add(1, Ordering::Relaxed);
        let mut queue = self
            .shared
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        queue.push_back(waiting);
        drop(queue);
        // Fails only after an event that says why.
        let _ = blocks.send(Block {
            header: header.header,
            body: body.body,
        });
    }

    /// Says that no more blocks come.
    pub(crate) fn close(&mut self) {
        self.blocks = None;
    }

    /// The next event within this time. `Err` if the import has ended.
    pub(crate) fn next(&self, timeout: Duration) -> Result<Option<ImportEvent>, ()> {
        match self.events.recv_timeout(timeout) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }
}

impl Drop for Importer {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.close();
        // The import must have ended before another one begins: the events end with it.
        while self.next(Duration::from_secs(1)).is_ok() {}
    }
}

fn run(
    chain: &Chain,
    batch_end: u64,
    blocks: Receiver<Block>,
    events: &SyncSender<ImportEvent>,
    shared: &Shared,
) {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let blocks = blocks.into_iter().map(Ok::<_, Infallible>);
    let mut stream = recover_stream(chain.spec(), blocks, workers);
    while let Some(batch) = next_batch(&mut stream, batch_end, shared) {
        let mut queue = shared
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = batch.len().min(queue.len());
        let waiting: Vec<Waiting> = queue.drain(..count).collect();
        drop(queue);
        if shared.is_stopped.load(Ordering::Relaxed) {
            return;
        }
        let requests = batch.into_iter().zip(&waiting).map(|(block, waiting)| {
            let mut request = ImportRequest::from(block);
            request.hints.roots = Some(waiting.roots);
            request
        });
        for (imported, waiting) in chain
            .import_batch(requests.collect())
            .into_iter()
            .zip(&waiting)
        {
            let is_failed = imported.is_err();
            let event = match imported {
                Ok(imported) => ImportEvent::Imported(Box::new(imported)),
                Err(error) => ImportEvent::Failed(error),
            };
            shared.bytes.fetch_sub(waiting.bytes, Ordering::Relaxed);
            shared.blocks.fetch_sub(1, Ordering::Relaxed);
            if events.send(event).is_err() || is_failed {
                return;
            }
        }
    }
}

/// The next block, and of those after it that have come already as many as make up a batch. `None` at the end.
fn next_batch(
    stream: &mut impl Iterator<Item = Result<StreamedBlock, Infallible>>,
    batch_end: u64,
    shared: &Shared,
) -> Option<Vec<StreamedBlock>> {
    let mut batch = Vec::new();
    let mut gas = 0_u64;
    while let Some(Ok(block)) = stream.next() {
        let number = block.block.header.number;
        gas = gas.saturating_add(block.block.header.gas_used);
        batch.push(block);
        let most = shared.blocks.load(Ordering::Relaxed).min(BATCH_BLOCKS);
        if batch.len() >= most || gas >= BATCH_GAS || number >= batch_end {
            break;
        }
    }
    (!batch.is_empty()).then_some(batch)
}
