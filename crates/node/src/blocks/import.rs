//! `niwaki blocks import`.

use super::json;
use super::source::{RawBlock, Source, total_bytes};
use crate::Ending;
use crate::open::open_chain;
use crate::options::{Format, ImportOptions, Options};
use crate::progress::{Done, Progress};
use crate::stop::Stop;
use crate::summary::Summary;
use eyre::{Report, Result, ensure, eyre};
use niwaki_chain::{Chain, ImportError, Imported, recover_stream};
use niwaki_primitives::Header;
use niwaki_rules::SealKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Imports the files, prints a summary. What was imported before a failure stays.
///
/// # Errors
/// The first block that can't be imported, or the machine's trouble.
pub(crate) fn import(options: &Options, import: &ImportOptions) -> Result<Ending> {
    let files: Vec<PathBuf> = import.from.iter().chain(&import.files).cloned().collect();
    let total_bytes = total_bytes(&files)?;
    let range = Range::new(import)?;
    if import.format == Format::Json {
        json::refuse_range(import.start_block > 0 || import.end_block.is_some())?;
    }
    let source = Source::new(&files, import.format)?;
    let stop = Stop::listen()?;
    let began = Instant::now();

    let Some(chain) = open_chain(options, &stop)? else {
        return Ok(Ending::Interrupted);
    };
    let head = chain.head().id;
    eprintln!("chain {}, head {head}", chain.spec().chain_id);
    let is_work = matches!(chain.spec().seal, SealKind::Ethash { .. });
    if is_work && !import.skip_pow_validation_enabled {
        eprintln!(
            "note: the seals of proof-of-work blocks are not verified \
             (--skip-pow-validation-enabled leaves this note out)"
        );
    }

    let mut run = Run {
        range,
        summary: Summary::default(),
        progress: Progress::new(total_bytes),
        read_bytes: source.read_bytes(),
        number: head.number,
        stop,
        chain: Arc::clone(&chain),
    };
    let outcome = match import.format {
        Format::Json => json::import(&files, &mut run),
        Format::Rlp | Format::Era1 => run.blocks(source),
    };
    // Whatever became of the last block, the ones before it are to stay.
    let synced = chain.sync();
    run.progress.finish();
    run.summary.elapsed = began.elapsed();
    run.summary.caches = chain.cache_stats();
    println!("{}", run.summary);
    println!("head         {}", chain.head().id);
    match outcome {
        Err(error) => Err(error.wrap_err(format!(
            "stopped, the head is block {}",
            chain.head().id.number
        ))),
        Ok(_) if run.stop.is_asked() => {
            synced?;
            eprintln!("stopped as asked; the same command goes on from here");
            Ok(Ending::Interrupted)
        }
        Ok(()) => {
            synced?;
            Ok(Ending::Done)
        }
    }
}

/// The numbers wished for.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    fn new(options: &ImportOptions) -> Result<Self> {
        let (start, end) = (options.start_block, options.end_block.unwrap_or(u64::MAX));
        ensure!(
            start < end,
            "--start-block {start} is not before --end-block {end}; no block lies between"
        );
        Ok(Self { start, end })
    }

    fn contains(&self, number: u64) -> bool {
        (self.start..self.end).contains(&number)
    }
}

/// An import under way.
pub(crate) struct Run {
    range: Range,
    pub(crate) chain: Arc<Chain>,
    pub(crate) stop: Stop,
    pub(crate) summary: Summary,
    progress: Progress,
    read_bytes: Arc<AtomicU64>,
    number: u64,
}

impl Run {
    /// Imports the blocks of `source` that the chain does not have.
    fn blocks(&mut self, mut source: Source) -> Result<()> {
        let Some(first) = self.first_new(&mut source)? else {
            return Ok(());
        };
        let range = self.range;
        let left_out = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&left_out);
        let blocks = std::iter::once(Ok(first))
            .chain(source)
            .filter_map(move |raw| {
                let decoded = raw.and_then(|raw| {
                    let is_wanted = range.contains(raw.header()?.number);
                    is_wanted.then(|| raw.block()).transpose()
                });
                let decoded = decoded.transpose();
                if decoded.is_none() {
                    // A figure for the summary: no other memory hangs on it.
                    count.fetch_add(1, Ordering::Relaxed);
                }
                decoded
            });
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let mut stream = recover_stream(blocks, workers);
        let mut clock = Instant::now();
        while !self.stop.is_asked()
            && let Some(block) = stream.next()
        {
            self.summary.wait += clock.elapsed();
            let imported = self.chain.import(block?);
            self.count(imported)?;
            clock = Instant::now();
        }
        self.summary.left_out += left_out.load(Ordering::Relaxed);
        Ok(())
    }

    /// The first block that the chain does not have. Those before cost no more than their headers.
    fn first_new(&mut self, source: &mut Source) -> Result<Option<RawBlock>> {
        for raw in source {
            if self.stop.is_asked() {
                return Ok(None);
            }
            let raw = raw?;
            let header = raw.header()?;
            if !self.range.contains(header.number) {
                self.summary.left_out += 1;
            } else if self.is_there(&header)? {
                self.summary.known += 1;
            } else {
                return Ok(Some(raw));
            }
            self.show();
        }
        Ok(None)
    }

    /// Whether the chain leads through this block already.
    fn is_there(&self, header: &Header) -> Result<bool> {
        if header.number > self.chain.head().id.number {
            return Ok(false);
        }
        let hash = header.hash_slow();
        let genesis = self.chain.genesis_hash();
        ensure!(
            header.number != 0 || hash == genesis,
            "the files are of another chain: they begin with genesis {hash}, the genesis here is \
             {genesis}; choose the --network or --genesis-file that they were made with"
        );
        Ok(self.chain.canonical_hash(header.number)? == Some(hash))
    }

    /// Takes down what became of a block, and explains why one was refused.
    pub(crate) fn count(&mut self, imported: Result<Imported, ImportError>) -> Result<()> {
        let imported = imported.map_err(|error| self.explain(error))?;
        if imported.timings.total().is_zero() {
            self.summary.known += 1;
        } else {
            self.summary.add(&imported);
        }
        self.number = imported.id.number;
        self.show();
        Ok(())
    }

    fn show(&mut self) {
        self.progress.show(Done {
            bytes: self.read_bytes.load(Ordering::Relaxed),
            blocks: self.summary.blocks + self.summary.known,
            gas: self.summary.gas,
            number: self.number,
        });
    }

    fn explain(&self, error: ImportError) -> Report {
        let head = self.chain.head().id.number;
        match error {
            ImportError::Invalid {
                number,
                hash,
                reason,
            } => eyre!(
                "block {number} ({hash}) is invalid: {}: {reason}",
                reason.spec_name()
            ),
            ImportError::UnknownParent {
                number: 1, parent, ..
            } => eyre!(
                "the files are of another chain: their block 1 has parent {parent}, the genesis \
                 here is {}; choose the --network or --genesis-file that they were made with",
                self.chain.genesis_hash()
            ),
            ImportError::UnknownParent { number, parent, .. } if number > head + 1 => eyre!(
                "there is a gap: block {number} has parent {parent}, the head is block {head}; \
                 import the files with the blocks from {} on first",
                head + 1
            ),
            other => Report::new(other),
        }
    }
}
