//! Senders of a stream of blocks, recovered by worker threads before the import.
//!
//! A stream of blocks goes in and comes out in the same order, hashed and with senders. Blocks travel in batches, because
//! waking a thread costs as much as recovering a sender; at most [`QUEUE`] batches wait for a worker and as many for the import. A
//! block with an invalid signature comes out without senders, and the import names the first rule that it breaks.

use niwaki_primitives::{Address, B256, Block};
use niwaki_rules::{ChainSpec, recover_senders};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Batches that may wait on either side of the workers.
const QUEUE: usize = 32;
/// A batch is full at this many blocks,
const BATCH_BLOCKS: usize = 16;
/// or at this many transactions, about half a millisecond of work.
const BATCH_TRANSACTIONS: usize = 16;

/// A block that comes out of the stream.
#[derive(Clone, Debug)]
pub struct StreamedBlock {
    /// The block.
    pub block: Block,
    /// The hash of the block ([`ChainSpec::header_hash`]).
    pub hash: B256,
    /// One sender per transaction; `None` if one can't be recovered.
    pub senders: Option<Vec<Address>>,
}

impl StreamedBlock {
    /// Hashes the header and recovers the senders.
    pub fn new(block: Block, spec: &ChainSpec) -> Self {
        Self {
            hash: spec.header_hash(&block.header),
            // On this thread: there are as many workers as processors.
            senders: recover_senders(&block.body.transactions)
                .collect::<Result<_, _>>()
                .ok(),
            block,
        }
    }
}

type Job = (Vec<Block>, SyncSender<Vec<StreamedBlock>>);
/// The batches in their order, each to be waited for, and an error of the source in its place.
type Ordered<E> = SyncSender<Result<Receiver<Vec<StreamedBlock>>, E>>;

/// Recovers `blocks` of a chain with these rules on `workers` threads (at least one) and gives them in order. An error of the
/// source comes out in its place and ends the stream. The threads end when the stream is dropped
/// or used up; one that panics ends the stream early. A block may wait for the ones after it that
/// fill its batch, so this is for sources that do not pause.
pub fn recover_stream<E, B>(
    spec: &Arc<ChainSpec>,
    blocks: B,
    workers: usize,
) -> impl Iterator<Item = Result<StreamedBlock, E>> + use<E, B>
where
    E: Send + 'static,
    B: Iterator<Item = Result<Block, E>> + Send + 'static,
{
    let (jobs, job_queue) = sync_channel::<Job>(QUEUE);
    let (ordered, results) = sync_channel(QUEUE);
    let job_queue = Arc::new(Mutex::new(job_queue));
    for _ in 0..workers.max(1) {
        let (queue, spec) = (Arc::clone(&job_queue), Arc::clone(spec));
        thread::spawn(move || work(&queue, &spec));
    }
    thread::spawn(move || feed(blocks, &jobs, &ordered));
    let mut batch = Vec::new().into_iter();
    std::iter::from_fn(move || {
        loop {
            if let Some(block) = batch.next() {
                return Some(Ok(block));
            }
            match results.recv().ok()? {
                Ok(receiver) => batch = receiver.recv().ok()?.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    })
}

/// Hands out `blocks` in batches until they end or the stream is dropped.
fn feed<E>(
    blocks: impl Iterator<Item = Result<Block, E>>,
    jobs: &SyncSender<Job>,
    ordered: &Ordered<E>,
) {
    let hand_out = |batch: Vec<Block>| {
        let (result, receiver) = sync_channel(1);
        jobs.send((batch, result)).is_ok() && ordered.send(Ok(receiver)).is_ok()
    };
    let (mut batch, mut transactions) = (Vec::new(), 0);
    for block in blocks {
        match block {
            Ok(block) => {
                transactions += block.body.transactions.len();
                batch.push(block);
            }
            Err(error) => {
                // Fails only when the stream was dropped.
                let _ = hand_out(batch) && ordered.send(Err(error)).is_ok();
                return;
            }
        }
        if batch.len() >= BATCH_BLOCKS || transactions >= BATCH_TRANSACTIONS {
            transactions = 0;
            if !hand_out(std::mem::take(&mut batch)) {
                return;
            }
        }
    }
    hand_out(batch);
}

fn work(queue: &Mutex<Receiver<Job>>, spec: &ChainSpec) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((batch, result)) = job else {
            return;
        };
        // Fails only when the stream was dropped, which ends the queue soon after.
        let batch = batch.into_iter();
        let _ = result.send(batch.map(|block| StreamedBlock::new(block, spec)).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_BLOCKS, QUEUE, recover_stream};
    use niwaki_primitives::{Block, Header};
    use niwaki_rules::ChainSpec;
    use std::sync::Arc;

    fn spec() -> Arc<ChainSpec> {
        Arc::new(ChainSpec::frontier(1))
    }

    fn block(number: u64) -> Block {
        let header = Header {
            number,
            ..Header::default()
        };
        let body = Default::default();
        Block { header, body }
    }

    #[test]
    fn blocks_come_out_in_order_and_an_error_ends_the_stream() {
        for workers in [0, 1, 3] {
            // In the middle of a batch: the blocks before it are not lost.
            let blocks = (0..500).map(|n| if n == 405 { Err(n) } else { Ok(block(n)) });
            let out: Vec<_> = recover_stream(&spec(), blocks, workers).collect();
            assert_eq!(out.len(), 406);
            for (number, entry) in (0..405).zip(&out) {
                let streamed = entry.as_ref().unwrap();
                assert_eq!(streamed.block.header.number, number);
                assert_eq!(streamed.hash, block(number).header.hash_slow());
                assert_eq!(streamed.senders.as_deref(), Some(&[][..]));
            }
            assert_eq!(out.last().unwrap().as_ref().err(), Some(&405));
        }
    }

    #[test]
    fn a_stream_that_is_dropped_stops_its_source() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let source = (0..).map(move |n| {
            let _ = sender.send(n);
            Ok::<_, ()>(block(n))
        });
        let mut stream = recover_stream(&spec(), source, 1);
        assert!(stream.next().is_some());
        drop(stream);
        // The channel closes when the source is dropped.
        let read = receiver.iter().count();
        assert!(read <= 3 * QUEUE * BATCH_BLOCKS, "{read} blocks were read");
    }
}
