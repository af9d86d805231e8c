//! `niwaki blocks import`.

use super::json;
use super::source::{RawBlock, Source, total_bytes};
use crate::Outcome;
use crate::open::open_chain_with_state;
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

/// Imports the files and prints a summary. Blocks imported before a failure stay imported.
///
/// # Errors
/// The first block that can't be imported, or a fault of the machine.
pub(crate) fn import(options: &Options, import: &ImportOptions) -> Result<Outcome> {
    let files: Vec<PathBuf> = import.from.iter().chain(&import.files).cloned().collect();
    let total_bytes = total_bytes(&files)?;
    let range = Range::new(import)?;
    let is_ranged = import.start_block > 0 || import.end_block.is_some();
    // The blocks of a JSON file need not have numbers.
    ensure!(
        import.format != Format::Json || !is_ranged,
        "--start-block and --end-block do not go with --format JSON; edit the file instead"
    );
    let source = Source::new(&files, import.format)?;
    let stop = Stop::listen()?;
    let began = Instant::now();

    let Some(chain) = open_chain_with_state(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    let head = chain.head().id;
    eprintln!("chain {}, head {head}", chain.spec().chain_id);
    let is_proof_of_work = matches!(chain.spec().seal, SealKind::Ethash { .. });
    if is_proof_of_work && !import.skip_pow_validation_enabled {
        eprintln!(
            "note: the seals of proof-of-work blocks are not verified \
             (--skip-pow-validation-enabled leaves this note out)"
        );
    }

    let mut run = BlockImport {
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
        Format::Rlp | Format::Era1 | Format::Ere => run.blocks(source),
    };
    // Even if the last block failed, the blocks before it must reach the disk.
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
        Ok(_) if run.stop.is_requested() => {
            synced?;
            eprintln!("stopped on request; the same command continues from here");
            Ok(Outcome::Interrupted)
        }
        Ok(()) => {
            synced?;
            Ok(Outcome::Done)
        }
    }
}

/// The requested block numbers.
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
            "--start-block {start} is not before --end-block {end}; there is no block between"
        );
        Ok(Self { start, end })
    }

    fn contains(&self, number: u64) -> bool {
        (self.start..self.end).contains(&number)
    }
}

/// An import in progress.
pub(crate) struct BlockImport {
    range: Range,
    pub(crate) chain: Arc<Chain>,
    pub(crate) stop: Stop,
    pub(crate) summary: Summary,
    progress: Progress,
    read_bytes: Arc<AtomicU64>,
    number: u64,
}

impl BlockImport {
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
                    let is_in_range = range.contains(raw.header()?.number);
                    is_in_range.then(|| raw.block()).transpose()
                });
                let decoded = decoded.transpose();
                if decoded.is_none() {
                    // A counter for the summary: no other memory depends on it.
                    count.fetch_add(1, Ordering::Relaxed);
                }
                decoded
            });
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let mut stream = recover_stream(self.chain.spec(), blocks, workers);
        let mut clock = Instant::now();
        while !self.stop.is_requested()
            && let Some(block) = stream.next()
        {
            self.summary.wait += clock.elapsed();
            let imported = self.chain.import(block?);
            self.record(imported)?;
            clock = Instant::now();
        }
        self.summary.left_out += left_out.load(Ordering::Relaxed);
        Ok(())
    }

    /// The first block that the chain does not have. Of the blocks before it only headers are decoded.
    fn first_new(&mut self, source: &mut Source) -> Result<Option<RawBlock>> {
        for raw in source {
            if self.stop.is_requested() {
                return Ok(None);
            }
            let raw = raw?;
            let header = raw.header()?;
            if !self.range.contains(header.number) {
                self.summary.left_out += 1;
            } else if self.is_canonical(&header)? {
                self.summary.known += 1;
            } else {
                return Ok(Some(raw));
            }
            self.show();
        }
        Ok(None)
    }

    /// Whether the block is already canonical.
    fn is_canonical(&self, header: &Header) -> Result<bool> {
        if header.number > self.chain.head().id.number {
            return Ok(false);
        }
        let hash = self.chain.spec().header_hash(header);
        let genesis = self.chain.genesis_hash();
        ensure!(
            header.number != 0 || hash == genesis,
            "the files are of another chain: they begin with genesis {hash}, the genesis here is \
             {genesis}; choose the --network or --genesis-file that they were made with"
        );
        Ok(self.chain.canonical_hash(header.number)? == Some(hash))
    }

    /// Adds the result of a block to the summary and the progress; explains an error.
    pub(crate) fn record(&mut self, imported: Result<Imported, ImportError>) -> Result<()> {
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
