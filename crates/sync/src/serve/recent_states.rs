//! The states of the newest blocks, for peers that sync from them.
//!
//! While peers ask, a view of the head is kept every 16 blocks. The state of another block is laid over the nearest of them, so that at most
//! 8 trie logs are read and little of the tries differs:
//!
//! ```text
//! blocks      .. 64 ......... 80 ......... 96 .. 101 (head)
//! kept views      *            *            *     *
//! state of 70  =  view of 64, with the logs of 65 to 70
//! ```
//!
//! The few states that were asked for last are kept with their tries: peers that sync ask for one state for many minutes.
//!
//! If none has asked for 15 minutes no view is kept, for a view holds changes in memory and files on the disk that would have gone. The first
//! request after that reads up to 128 trie logs.

use niwaki_chain::{Chain, ChainView, StoredHeader};
use niwaki_primitives::{B256, Fault};
use niwaki_state::{BlockId, ProvableView};
use niwaki_threads::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The states of so many of the newest blocks are served.
pub(crate) const STATES_SERVED: u64 = 128;
/// A view of the head is kept every so many blocks.
const BLOCKS_BETWEEN: u64 = 16;
/// Most states with their tries,
const MAX_PROVABLE: usize = 4;
/// and most bytes of them, but for the one that was asked for last.
const MAX_PROVABLE_BYTES: usize = 128 << 20;
/// After so long without a request for it a state goes, and without any request the views go.
const UNUSED: Duration = Duration::from_secs(15 * 60);

/// See the module.
#[derive(Debug, Default)]
pub struct RecentStates {
    /// Of past heads, the lowest first.
    pub(super) kept: Mutex<VecDeque<ChainView>>,
    roots: Mutex<Roots>,
    /// Those asked for last, the latest first, each with when that was.
    provable: Mutex<VecDeque<(Instant, Arc<ProvableView>)>>,
    /// When one of them was asked for.
    asked: Mutex<Option<Instant>>,
}

/// The state roots of the newest canonical blocks, the lowest first.
#[derive(Debug, Default)]
struct Roots(VecDeque<(BlockId, B256)>);

impl Roots {
    fn update(&mut self, chain: &Chain) -> Result<(), Fault> {
        let head = chain.head();
        let mut missing = Vec::new();
        let mut next = Some(head);
        while let Some(StoredHeader { id, header, .. }) = next {
            while self.0.back().is_some_and(|(last, _)| {
                last.number > id.number || last.number == id.number && last.hash != id.hash
            }) {
                self.0.pop_back();
            }
            let is_joined = self.0.back().is_some_and(|(last, _)| *last == id);
            if is_joined || missing.len() as u64 == STATES_SERVED {
                break;
            }
            missing.push((id, header.state_root));
            next = match id.number {
                0 => None,
                _ => chain.header(&header.parent_hash)?,
            };
        }
        self.0.extend(missing.into_iter().rev());
        while self.0.len() as u64 > STATES_SERVED {
            self.0.pop_front();
        }
        Ok(())
    }

    fn block_of(&self, root: &B256) -> Option<BlockId> {
        let mut newest_first = self.0.iter().rev();
        newest_first.find(|(_, own)| own == root).map(|(id, _)| *id)
    }
}

impl RecentStates {
    /// The head has moved: keeps a view of it if one is due, and drops what is not needed any more.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn head_moved(&self, chain: &Chain) -> Result<(), Fault> {
        if !chain.has_state() {
            return Ok(());
        }
        let head = chain.head().id;
        // Below its first block a chain whose state was downloaded has none.
        let oldest = head.number.saturating_sub(STATES_SERVED);
        let oldest = oldest.max(chain.first_block()?);
        let asked = *lock(&self.asked);
        let is_wanted = asked.is_some_and(|asked| asked.elapsed() < UNUSED);
        let mut kept = lock(&self.kept);
        kept.retain(|view| (oldest..=head.number).contains(&view.block().number));
        let last = kept.back().map(|view| view.block().number);
        if !is_wanted {
            kept.clear();
        } else if last.is_none_or(|last| head.number >= last + BLOCKS_BETWEEN) {
            kept.push_back(chain.view_at_head()?);
        }
        drop(kept);
        let is_used = |(used, state): &(Instant, Arc<ProvableView>)| {
            used.elapsed() < UNUSED && state.head().block.number >= oldest
        };
        lock(&self.provable).retain(is_used);
        Ok(())
    }

    /// The state with this root, if it is that of one of the newest canonical blocks.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub(super) fn find(
        &self,
        chain: &Chain,
        root: &B256,
    ) -> Result<Option<Arc<ProvableView>>, Fault> {
        if !chain.has_state() {
            return Ok(None);
        }
        let block = {
            let mut roots = lock(&self.roots);
            roots.update(chain)?;
            roots.block_of(root)
        };
        let Some(block) = block else {
            return Ok(None);
        };
        *lock(&self.asked) = Some(Instant::now());
        // The lock is held while the state is made, so that two peers that ask for it share one.
        let mut provable = lock(&self.provable);
        let mut known = provable.iter();
        let known = known.position(|(_, state)| state.head().root == *root);
        let state = match known.and_then(|at| provable.remove(at)) {
            Some((_, state)) => state,
            None => match self.view_of(chain, block)? {
                Some(view) => Arc::new(view.with_tries(1)?),
                None => return Ok(None),
            },
        };
        if state.head().root != *root {
            return Ok(None);
        }
        provable.push_front((Instant::now(), Arc::clone(&state)));
        let bytes = |states: &VecDeque<(Instant, Arc<ProvableView>)>| -> usize {
            states.iter().map(|(_, state)| state.bytes()).sum()
        };
        while provable.len() > MAX_PROVABLE
            || provable.len() > 1 && bytes(&provable) > MAX_PROVABLE_BYTES
        {
            provable.pop_back();
        }
        Ok(Some(state))
    }

    /// The state after a block, laid over the nearest view of a head.
    fn view_of(&self, chain: &Chain, block: BlockId) -> Result<Option<ChainView>, Fault> {
        let head = chain.view_at_head()?;
        let distance = |view: &ChainView| view.block().number.abs_diff(block.number);
        let nearest = {
            let kept = lock(&self.kept);
            let nearest = kept.iter().min_by_key(|view| distance(view)).cloned();
            nearest.filter(|view| distance(view) < distance(&head))
        };
        let base = nearest.unwrap_or(head);
        match base.block() == block {
            true => Ok(Some(base)),
            false => chain.view_over(&base, block),
        }
    }
}
