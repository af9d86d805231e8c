//! Which block's state is downloaded, and how the download follows the chain.
//!
//! ```text
//!      pivot                          pivot + 96: it is old             target
//!  ------o----------------------------------o-----------o-----------------o
//!        `-- access lists of the blocks between --------^ new pivot: what they change of what has come is kept until the end
//! ```
//!
//! Peers have the states of the newest 128 blocks. Where there are no access lists (before Amsterdam, or after another branch) the pivot
//! moves alone: what has come stays, and is healed in the end.

use crate::header_window::SealedHeader;
use crate::progress::SyncState;
use crate::serve::STATES_SERVED;
use crate::session::{Context, Failure, Interrupt, header_of};
use crate::skeleton::{Path, Skeleton};
use crate::whole_blocks::WholeBlocks;
use niwaki_chain::{BLOCKS_WITH_STATE, BlockId, StateHead};
use niwaki_primitives::Fault;
use niwaki_rules::decode_access_list;
use niwaki_state::StateDownload;
use tracing::{info, warn};

/// A new pivot is so many blocks below the head: peers have its state, and it is not reorganised.
const DISTANCE: u64 = 32;
/// A pivot this far below the head is old: peers have its state for 32 blocks more.
const MAX_AGE: u64 = STATES_SERVED - 32;
/// Peers have the access lists of so many blocks (EIP-7928).
const LISTS_SERVED: u64 = 113_056;
/// The lists of so many blocks are kept together, in one batch.
const LISTS_TOGETHER: usize = 16;

impl Context<'_> {
    /// The download that was begun, with its pivot moved if that is old, or a new one. With headers from the head down to the first
    /// block that comes with the state.
    pub(super) fn choose_pivot(
        &self,
        skeleton: &mut Skeleton,
        target: &SealedHeader,
    ) -> Result<(StateDownload<'_>, Path), Interrupt> {
        let head = self.chosen_head(target);
        let number = head.header.number;
        let begun = self.chain.resume_state_download()?;
        let newest = number.saturating_sub(DISTANCE).max(1);
        let old = begun.as_ref().filter(|download| {
            let has_lists = head.header.block_access_list_hash.is_some();
            let most = if has_lists { LISTS_SERVED } else { MAX_AGE };
            is_to_be_built(download) || download.pivot().block.number.saturating_add(most) >= number
        });
        // The headers from a pivot on are needed if it may stay, or move by lists.
        let old = old.map_or(newest, |download| download.pivot().block.number);
        let floor = first_block(old.min(newest));
        skeleton.add_target(head.clone())?;
        let id = BlockId {
            number,
            hash: head.hash,
        };
        let path = self.download_headers_to(skeleton, id, floor)?;
        let newest = state_head(&header_of(skeleton, &path, newest)?);
        let head = id;
        let kept = match begun {
            Some(download) if self.renew(&download, skeleton, &path, head, newest)? => {
                Some(download)
            }
            _ => None,
        };
        let download = match kept {
            Some(download) => download,
            None => self.chain.begin_state_download(newest)?,
        };
        let pivot = download.pivot().block.number;
        self.report(|progress, _| {
            progress.update(|status| {
                status.pivots += u64::from(status.pivot != Some(pivot));
                status.pivot = Some(pivot);
            });
        });
        Ok((download, path))
    }

    /// The head that the consensus client chose, if its header is here; else the block that is missing below it.
    fn chosen_head(&self, target: &SealedHeader) -> SealedHeader {
        let chosen = self.consensus.missing_head();
        let header = chosen.and_then(|head| self.consensus.waiting_header(&head.hash));
        header.map_or_else(
            || target.clone(),
            |header| SealedHeader::new(header, self.chain.spec()),
        )
    }

    /// Moves the pivot of a download that was begun if it is old, or in no chain of the head. Returns whether it is of use.
    fn renew(
        &self,
        download: &StateDownload<'_>,
        skeleton: &Skeleton,
        path: &Path,
        head: BlockId,
        newest: StateHead,
    ) -> Result<bool, Interrupt> {
        let pivot = download.pivot();
        let number = pivot.block.number;
        let is_on_path = path.low <= first_block(number)
            && number <= head.number
            && state_head(&header_of(skeleton, path, number)?) == pivot;
        let is_old = number.saturating_add(MAX_AGE) < head.number;
        let is_whole = download.own_root() == Some(pivot.root);
        if is_on_path && (is_whole || is_to_be_built(download)) {
            return Ok(true);
        }
        if is_on_path && !is_old {
            let is_led = download.own_root().is_none() || download.has_changes()?;
            return Ok(is_led || self.gives_nodes());
        }
        if is_on_path && self.move_pivot(download, skeleton, path, newest)? {
            return Ok(true);
        }
        let (old, new) = (pivot.block, newest.block);
        if !self.gives_nodes() {
            warn!(
                "The state of block {new} is downloaded from the beginning: no peer has what leads that of block {old} there"
            );
            return Ok(false);
        }
        download.replace_pivot(newest)?;
        info!(
            "The state of block {new} comes now; what came of that of block {old} is healed in the end"
        );
        Ok(true)
    }

    /// Whether a peer can be asked for nodes of tries.
    pub(super) fn gives_nodes(&self) -> bool {
        self.peers.offers().iter().any(|offer| offer.has_nodes)
    }

    /// Moves the pivot up a path by the access lists of its blocks. Returns whether it has: not all blocks have lists, and peers may
    /// lack them.
    fn move_pivot(
        &self,
        download: &StateDownload<'_>,
        skeleton: &Skeleton,
        path: &Path,
        to: StateHead,
    ) -> Result<bool, Interrupt> {
        self.report(|progress, now_ms| progress.enter(SyncState::MovePivot, now_ms));
        let from = download.pivot().block;
        let numbers = from.number + 1..=to.block.number;
        let headers = numbers.map(|number| header_of(skeleton, path, number));
        let headers: Vec<SealedHeader> = headers.collect::<Result<_, Interrupt>>()?;
        let check = || self.tick();
        let blocks = WholeBlocks::new(self, self.need(to.block.number), &check);
        let mut left = headers.len();
        for headers in headers.chunks(LISTS_TOGETHER) {
            self.report(|progress, _| progress.update(|status| status.open_items = left as u64));
            left -= headers.len();
            let Some(lists) = blocks.access_lists(headers)? else {
                return Ok(false);
            };
            let lists = headers.iter().zip(&lists).map(|(header, list)| {
                decode_access_list(list).map_err(|error| {
                    let number = header.header.number;
                    Failure::NoState(format!("the access list of block {number}: {error}"))
                })
            });
            let lists = lists.collect::<Result<Vec<_>, Failure>>()?;
            if let Some(last) = headers.last() {
                download.move_pivot(state_head(last), &lists)?;
            }
            self.tick()?;
        }
        info!(
            "What has come of the state of block {from} will be of block {}",
            to.block
        );
        Ok(true)
    }

    /// Whether the chain has left a pivot so far behind that it has to move.
    pub(super) fn is_old(&self, pivot: &StateHead) -> Result<bool, Fault> {
        let target = self.target()?;
        let head = target.and_then(|target| target.highest.or(target.number));
        Ok(head.is_some_and(|head| head > pivot.block.number.saturating_add(MAX_AGE)))
    }
}

/// Whether all has come of a state whose tries are not whole yet: it may be the pivot's, whatever peers have by now.
fn is_to_be_built(download: &StateDownload<'_>) -> bool {
    download.own_root().is_none() && download.remaining().is_empty()
}

/// The first of the blocks that come with the state of block `pivot`.
pub(super) fn first_block(pivot: u64) -> u64 {
    pivot.saturating_sub(BLOCKS_WITH_STATE - 1).max(1)
}

fn state_head(header: &SealedHeader) -> StateHead {
    StateHead {
        block: BlockId {
            number: header.header.number,
            hash: header.hash,
        },
        root: header.header.state_root,
    }
}
