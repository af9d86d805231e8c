//! A long gap of a node that may begin with a late state: its blocks come whole, with receipts and access lists, and the lists are
//! applied instead of executing the blocks (EIP-7928).
//!
//! ```text
//! lowest header --windows of 128--> bodies, receipts, lists --> chain (a thread of its own) ... up to 96 below the target
//!                                                              the last 96 blocks are executed
//! ```
//!
//! What came before a kill and was not applied is read from the disk. Where lists are missing or do not lead to a block's state root, the
//! blocks from there on are executed, which names an invalid one.

use super::{Context, Failure, Interrupt, header_of};
use crate::header_window::SealedHeader;
use crate::progress::SyncState;
use crate::skeleton::{Path, Skeleton};
use crate::whole_blocks::{WholeBlocks, count_within_gas, stored};
use niwaki_chain::{BlockId, Chain, DownloadedBlock, ImportError, StoredHeader};
use niwaki_primitives::{Fault, U256};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tracing::{info, warn};

/// So many blocks up to the target are executed: a reorganisation may need the states between them.
const EXECUTED: u64 = 96;
/// Most blocks that are downloaded together.
const WINDOW: usize = 128;
/// Windows that wait to be applied.
const WAITING: usize = 1;

impl Context<'_> {
    /// Applies the lists of a path's blocks, as far as they come. Returns whether the head has moved.
    pub(super) fn apply_lists(
        &self,
        skeleton: &mut Skeleton,
        target: BlockId,
        path: &Path,
    ) -> Result<bool, Interrupt> {
        let before = self.chain.head().id;
        if path.parent != before.hash {
            return Ok(false);
        }
        self.report(|progress, now_ms| progress.enter(SyncState::Blocks, now_ms));
        let end = target.number.saturating_sub(EXECUTED - 1);
        let (sender, windows) = sync_channel(WAITING);
        let (downloaded, applied) = std::thread::scope(|scope| {
            let applier = scope.spawn(|| apply(self.chain, windows));
            let downloaded = self.download_windows(skeleton, path, end, sender);
            (downloaded, applier.join())
        });
        let applied = applied.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // What came before an interruption counts.
        let head = self.chain.head().id;
        let has_moved = head != before;
        if has_moved {
            skeleton.remove_stored(path, head)?;
        }
        applied?;
        downloaded?;
        Ok(has_moved)
    }

    /// The first of these headers whose blocks are stored but for the headers.
    fn stored_parts(
        &self,
        headers: &[SealedHeader],
        total: U256,
    ) -> Result<Vec<StoredHeader>, Fault> {
        let mut found = Vec::new();
        for header in headers {
            let header = stored(header.clone(), total);
            if !self.chain.has_parts(&header.id)? {
                break;
            }
            found.push(header);
        }
        Ok(found)
    }

    /// Downloads the blocks of a path below block `end` that are not stored, window by window, until lists are missing or the receiver
    /// is gone.
    fn download_windows(
        &self,
        skeleton: &Skeleton,
        path: &Path,
        end: u64,
        windows: SyncSender<Window>,
    ) -> Result<(), Interrupt> {
        let check = || {
            self.tick()?;
            match self.target()? {
                Some(_) => Ok(()),
                None => Err(Interrupt::Retargeted),
            }
        };
        let total = self.chain.head().total_difficulty;
        let mut next = path.low;
        while next < end {
            check()?;
            let headers = (next..end).take(WINDOW);
            let headers = headers.map(|number| header_of(skeleton, path, number));
            let mut headers = headers.collect::<Result<Vec<_>, Interrupt>>()?;
            headers.truncate(count_within_gas(&headers));
            let stored = self.stored_parts(&headers, total)?;
            if let Some(last) = stored.last().map(|header| header.id.number) {
                if windows.send(Window::Stored(stored)).is_err() {
                    break;
                }
                next = last.saturating_add(1);
                continue;
            }
            let Some(last) = headers.last().map(|header| header.header.number) else {
                break;
            };
            let blocks = WholeBlocks::new(self, self.need(last), &check);
            let blocks = match blocks.download(headers, total, true) {
                Ok(blocks) if blocks.iter().all(|block| block.access_list.is_some()) => blocks,
                Ok(_) | Err(Interrupt::Failed(Failure::NoBlocks { .. })) => {
                    info!("Blocks from {next} on come without access lists: they are executed");
                    break;
                }
                Err(other) => return Err(other),
            };
            let (count, head) = (blocks.len() as u64, self.chain.head().id.number);
            self.report(|progress, _| {
                progress.update(|status| {
                    status.all_bodies += count;
                    status.current_block = head;
                });
            });
            if windows.send(Window::Came(blocks)).is_err() {
                break;
            }
            next = last.saturating_add(1);
        }
        Ok(())
    }
}

/// Blocks to be applied.
enum Window {
    Came(Vec<DownloadedBlock>),
    /// They came before the node ended, and were not applied.
    Stored(Vec<StoredHeader>),
}

/// Applies windows in their order, until one fails.
fn apply(chain: &Chain, windows: Receiver<Window>) -> Result<(), Fault> {
    let mut listed = chain.listed_blocks()?;
    let added = windows.iter().try_for_each(|window| match window {
        Window::Came(blocks) => listed.add(blocks),
        Window::Stored(headers) => listed.add_stored(headers),
    });
    // Those before one that is refused count.
    match added.and(listed.commit()) {
        Err(ImportError::Fault(fault)) => Err(fault),
        Err(error) => {
            warn!("By the access lists, {error}: the blocks are executed");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
