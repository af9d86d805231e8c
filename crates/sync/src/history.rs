//! Blocks below the first one that is stored, after the state of a late block has come: from files, else from peers, a window at a
//! time, the highest first, while there is nothing else to do.
//!
//! ```text
//! genesis  ...  floor <--window--[first block ..................... head]
//!                        headers down by parent hash, then bodies and receipts
//! ```
//!
//! Every header is the parent of one that is stored, so peers can only withhold. What is written stays: the next start goes on below it.

mod files;

use crate::header_window::{Approach, HeaderWindow, SealedHeader};
use crate::session::{Context, Failure, Interrupt, reasons};
use crate::whole_blocks::{WholeBlocks, count_within_gas};
pub(crate) use files::HistoryFiles;
use niwaki_chain::{DownloadedBlock, StoredHeader};
use niwaki_network::router::Need;
use niwaki_primitives::rlp::Encodable;
use niwaki_primitives::{Fork, Header};
use niwaki_rules::ChainSpec;
use tracing::{debug, info};

/// A window has so many bytes, about:
const WINDOW_BYTES: usize = 32 << 20;
/// at first this many blocks,
const FIRST_WINDOW: usize = 64;
/// and at most this many.
const MAX_WINDOW: usize = 1_024;
/// The pause after no peer gave a window.
const PAUSE_MS: u64 = 60_000;
/// A line of progress comes so often.
const LINE_MS: u64 = 60_000;
/// Peers ask for the access lists of so many blocks (EIP-7928: 3,533 epochs).
const LISTS_KEPT: u64 = 113_056;

/// The lowest blocks that a node wants, if it begins with the state of a late block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryFloor {
    /// All blocks.
    Genesis,
    /// The blocks of this fork and later ones.
    Fork(Fork),
    /// This block and those above it.
    Block(u64),
    /// None but those that come with the state.
    State,
}

impl HistoryFloor {
    /// Whether the block with this header is wanted.
    fn includes(self, header: &Header, spec: &ChainSpec) -> bool {
        match self {
            Self::Genesis => true,
            // A chain that is never merged has no fork that history could begin with.
            Self::Fork(_) if spec.terminal_total_difficulty.is_none() => true,
            Self::Fork(fork) => spec.fork_of(header) >= fork,
            Self::Block(number) => header.number >= number,
            Self::State => false,
        }
    }
}

/// The history of a chain, as it comes.
pub(crate) struct History {
    floor: HistoryFloor,
    files: HistoryFiles,
    /// The lowest block, once it is known that none below is wanted, or that all are here.
    done_at: Option<u64>,
    /// Nothing is asked for until then,
    pause_until_ms: u64,
    /// unless there are more peers than these.
    peers: usize,
    /// Of a whole block, a moving average; zero before any has come.
    block_bytes: usize,
    /// When the last line was written.
    line_ms: Option<u64>,
    /// Blocks since the last line.
    since_line: u64,
}

impl History {
    pub(crate) fn new(floor: HistoryFloor, files: HistoryFiles) -> Self {
        Self {
            floor,
            files,
            done_at: None,
            pause_until_ms: 0,
            peers: 0,
            block_bytes: 0,
            line_ms: None,
            since_line: 0,
        }
    }

    /// Gets a window of blocks, if there are some to get. Returns whether it has. Ends when there is another target: blocks at the
    /// head come first.
    ///
    /// # Errors
    /// If the node stops, or the storage fails; not if peers fail.
    pub(crate) fn step(&mut self, context: &Context<'_>) -> Result<bool, Interrupt> {
        if !context.chain.has_state() {
            return Ok(false);
        }
        let Some(end) = self.next_end(context)? else {
            return Ok(false);
        };
        let of_files = self.window_of_files(context, &end)?;
        if of_files > 0 {
            self.report(context, of_files)?;
            return Ok(true);
        }
        if self.is_pausing(context) {
            return Ok(false);
        }
        match self.window(context, &end) {
            Ok(came) => {
                self.report(context, came)?;
                Ok(true)
            }
            Err(Interrupt::Retargeted) => Ok(false),
            Err(Interrupt::Failed(failure)) if !matches!(failure, Failure::Fault(_)) => {
                self.pause(context, &failure);
                Ok(false)
            }
            Err(other) => Err(other),
        }
    }

    fn is_pausing(&self, context: &Context<'_>) -> bool {
        let peers = context.peers.offers().len();
        peers == 0 || context.now_ms() < self.pause_until_ms && peers <= self.peers
    }

    fn pause(&mut self, context: &Context<'_>, failure: &Failure) {
        match self.pause_until_ms == 0 {
            true => {
                info!("Older blocks do not come yet: {failure}; they are asked for each minute")
            }
            false => debug!("Older blocks do not come: {failure}"),
        }
        self.pause_until_ms = context.now_ms().saturating_add(PAUSE_MS);
        self.peers = context.peers.offers().len();
    }

    /// The lowest stored block, if its parent is wanted, as far as is known.
    fn next_end(&mut self, context: &Context<'_>) -> Result<Option<StoredHeader>, Interrupt> {
        let first = context.chain.first_block()?;
        if self.done_at == Some(first) {
            return Ok(None);
        }
        let end = context.chain.history_end()?;
        let is_above_floor = match self.floor {
            HistoryFloor::Block(floor) => first > floor,
            HistoryFloor::State => false,
            HistoryFloor::Genesis | HistoryFloor::Fork(_) => true,
        };
        let end = end.filter(|_| is_above_floor);
        match end {
            Some(_) => context.report(|progress, _| {
                progress.update(|status| status.is_history_complete = false);
            }),
            None => self.done(context, first),
        }
        Ok(end)
    }

    /// The wanted blocks are stored, down to `first`.
    fn done(&mut self, context: &Context<'_>, first: u64) {
        self.done_at = Some(first);
        context.report(|progress, _| progress.update(|status| status.is_history_complete = true));
        if self.line_ms.is_some() {
            info!("All older blocks that are wanted have come, down to block {first}");
        }
    }

    /// Stores the blocks below `end` that files have. Returns how many.
    fn window_of_files(
        &mut self,
        context: &Context<'_>,
        end: &StoredHeader,
    ) -> Result<u64, Interrupt> {
        let genesis = context.chain.number_of(&context.chain.genesis_hash())?;
        let most = self.window_blocks();
        let mut blocks =
            self.files
                .blocks_below(context.chain.spec(), end, most, genesis.unwrap_or(0));
        let spec = context.chain.spec();
        let is_wanted = |block: &DownloadedBlock| self.floor.includes(&block.header.header, spec);
        let unwanted = blocks.iter().rposition(|block| !is_wanted(block));
        blocks.drain(..unwanted.map_or(0, |index| index + 1));
        context.chain.add_history(&blocks)?;
        self.reckon(&blocks);
        Ok(blocks.len() as u64)
    }

    /// Gets the blocks below `end` from peers, and stores them. Returns how many.
    fn window(&mut self, context: &Context<'_>, end: &StoredHeader) -> Result<u64, Interrupt> {
        let check = || {
            context.tick()?;
            match context.target()?.is_some() {
                true => Err(Interrupt::Retargeted),
                false => Ok(()),
            }
        };
        let headers = self.headers(context, end, &check)?;
        let Some(lowest) = headers.first().map(|header| header.header.number) else {
            self.done(context, end.id.number);
            return Ok(0);
        };
        let head = context.chain.head().id.number;
        let with_lists = lowest.saturating_add(LISTS_KEPT) > head;
        let total = end.total_difficulty.saturating_sub(end.header.difficulty);
        let blocks = WholeBlocks::new(context, need(lowest), &check);
        let blocks = blocks.download(headers, total, with_lists)?;
        context.chain.add_history(&blocks)?;
        self.reckon(&blocks);
        Ok(blocks.len() as u64)
    }

    /// The headers of wanted blocks below `end`, the lowest first.
    fn headers(
        &self,
        context: &Context<'_>,
        end: &StoredHeader,
        check: &dyn Fn() -> Result<(), Interrupt>,
    ) -> Result<Vec<SealedHeader>, Interrupt> {
        let genesis = context.chain.genesis_hash();
        let above_genesis = context.chain.number_of(&genesis)?.unwrap_or(0) + 1;
        let most = end.id.number.saturating_sub(above_genesis);
        let count = most.min(self.window_blocks() as u64);
        let need = need(end.id.number.saturating_sub(count));
        let mut headers = Vec::new();
        let mut given_up = Vec::new();
        // The peers may be on other branches, where these numbers are other blocks.
        for approach in [Approach::Numbers, Approach::Hash] {
            let items = u32::try_from(count).unwrap_or(u32::MAX);
            let (top, hash) = (end.id.number.saturating_sub(1), end.header.parent_hash);
            let mut window = HeaderWindow::new(top, hash, items, approach);
            given_up = context.ask_window(&mut window, need, check, &mut |_| Ok(false))?;
            headers = window.take_linked();
            if !headers.is_empty() {
                break;
            }
        }
        let Some(lowest) = headers.last() else {
            let (number, reasons) = (end.id.number - 1, reasons(&given_up));
            return Err(Failure::NoHeaders { number, reasons }.into());
        };
        if lowest.header.number == above_genesis && lowest.header.parent_hash != genesis {
            let hash = context.chain.head().id.hash;
            return Err(Failure::OtherChain { hash }.into());
        }
        let spec = context.chain.spec();
        let is_wanted = |header: &SealedHeader| self.floor.includes(&header.header, spec);
        let mut headers: Vec<_> = headers.into_iter().take_while(is_wanted).collect();
        headers.truncate(count_within_gas(&headers));
        headers.reverse();
        Ok(headers)
    }

    fn window_blocks(&self) -> usize {
        match WINDOW_BYTES.checked_div(self.block_bytes) {
            Some(blocks) => blocks.clamp(1, MAX_WINDOW),
            None => FIRST_WINDOW,
        }
    }

    /// Learns how large blocks are.
    fn reckon(&mut self, blocks: &[DownloadedBlock]) {
        let logs = |block: &DownloadedBlock| {
            let logs = block.receipts.iter().flat_map(|receipt| &receipt.logs);
            logs.map(Encodable::length).sum::<usize>()
        };
        let bytes = blocks.iter().map(|block| block.body.length() + logs(block));
        let Some(each) = bytes.sum::<usize>().checked_div(blocks.len()) else {
            return;
        };
        let each = each.max(1);
        self.block_bytes = match self.block_bytes {
            0 => each,
            // Older blocks may be larger: the next window counts more than all before.
            known => (known + 3 * each) / 4,
        };
    }

    fn report(&mut self, context: &Context<'_>, came: u64) -> Result<(), Interrupt> {
        self.pause_until_ms = 0;
        self.since_line += came;
        context.report(|progress, _| progress.update(|status| status.history_blocks += came));
        let now_ms = context.now_ms();
        let since_ms = now_ms.saturating_sub(self.line_ms.unwrap_or(0));
        if came == 0 || self.line_ms.is_some() && since_ms < LINE_MS {
            return Ok(());
        }
        let first = context.chain.first_block()?;
        match self.line_ms {
            None => info!("Older blocks come, from block {first} down"),
            Some(_) => {
                let rate = self.since_line * 1_000 / since_ms.max(1);
                info!("Older blocks come: down to block {first}, {rate} a second");
            }
        }
        (self.line_ms, self.since_line) = (Some(now_ms), 0);
        Ok(())
    }
}

/// A peer must have the lowest block: those that began with a late state lack it.
fn need(lowest: u64) -> Need {
    Need {
        block: Some(lowest),
        ..Need::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::U256;
    use niwaki_rules::Activation;

    fn header(number: u64, difficulty: u64) -> Header {
        Header {
            number,
            timestamp: 10 * number,
            difficulty: U256::from(difficulty),
            ..Header::default()
        }
    }

    #[test]
    fn history_begins_with_the_first_block_of_a_fork_whatever_its_number() {
        let mut spec = ChainSpec {
            terminal_total_difficulty: Some(U256::from(100)),
            ..ChainSpec::frontier(1)
        };
        spec.set(Fork::Paris, Activation::TotalDifficulty);
        spec.set(Fork::Prague, Activation::Time(50));
        let lowest = |floor: HistoryFloor, spec: &ChainSpec| {
            // Merged at block 3.
            let headers = (1..9).map(|number| header(number, u64::from(number < 3)));
            let wanted = headers.filter(|header| floor.includes(header, spec));
            wanted.map(|header| header.number).min()
        };
        assert_eq!(lowest(HistoryFloor::Genesis, &spec), Some(1));
        assert_eq!(lowest(HistoryFloor::Fork(Fork::Paris), &spec), Some(3));
        assert_eq!(lowest(HistoryFloor::Fork(Fork::Prague), &spec), Some(5));
        assert_eq!(lowest(HistoryFloor::Block(7), &spec), Some(7));
        assert_eq!(lowest(HistoryFloor::State, &spec), None);
        let never_merged = ChainSpec::frontier(1);
        let floor = HistoryFloor::Fork(Fork::Paris);
        assert_eq!(lowest(floor, &never_merged), Some(1));
    }

    #[test]
    fn a_window_has_32_mib_as_far_as_sizes_are_known() {
        let mut history = History::new(HistoryFloor::Genesis, HistoryFiles::default());
        assert_eq!(history.window_blocks(), FIRST_WINDOW);
        for (bytes, blocks) in [
            (1, MAX_WINDOW),
            (100_000, 335),
            (10 << 20, 3),
            (99 << 20, 1),
        ] {
            history.block_bytes = bytes;
            assert_eq!(history.window_blocks(), blocks);
        }
    }
}
