//! The chain as a consensus client drives it: a verdict on each payload, the fork choice, and blocks whose parents have
//! not come yet.
//!
//! A verdict is about the block alone: a fault of this machine is an error and never makes a block invalid. A block
//! that was found invalid stays so, with its descendants, for as long as it is remembered; one that was forgotten is
//! validated again.
//!
//! Spec: execution-apis `engine/paris.md`, payload validation and fork choice.

mod missing;

use crate::forkchoice::SafeFinalized;
use crate::import::WriteAhead;
use crate::journal::{self, Journal, Record};
use crate::tree::StoredHeader;
use crate::{Chain, ImportError, ImportRequest, Imported, PayloadHints, SetHeadError};
pub use missing::MissingBlock;
use missing::PendingChoice;
use niwaki_primitives::{B256, Block, Fault};
use niwaki_rules::InvalidBlock;
use niwaki_threads::lock;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// How many invalid blocks are remembered.
const MAX_INVALID: usize = 512;

/// Blocks that may wait for their parents, and their bytes.
const MAX_WAITING: usize = 256;
const MAX_WAITING_BYTES: usize = 128 << 20;

/// The status of a payload.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is valid, as are its ancestors. The import, if it was not stored before.
    Valid(Option<Box<Imported>>),
    /// It, or an ancestor, breaks the protocol.
    Invalid(RejectedBlock),
    /// Ancestors are missing.
    Syncing,
    /// Its ancestors are stored, but their state is out of reach.
    Accepted,
}

/// Why a block is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedBlock {
    /// Its last valid ancestor: zero if that is a proof-of-work block.
    pub latest_valid: Option<B256>,
    /// The rule that is broken.
    pub reason: String,
}

/// A head that the consensus client chose and whose ancestors are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingHead {
    /// Its hash.
    pub hash: B256,
    /// Its number, if the block itself has come.
    pub number: Option<u64>,
}

/// A fork choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkChoice {
    /// The head.
    pub head: B256,
    /// The safe block; zero to keep the last one.
    pub safe: B256,
    /// The finalized block; zero to keep the last one.
    pub finalized: B256,
}

/// Why a fork choice was rejected although its head is valid.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ForkChoiceError {
    /// -38002: the safe or the finalized block is not in the chain of the head.
    #[error("invalid forkchoice state: the {what} block {hash} is not in the chain of the head")]
    Inconsistent {
        /// Which one.
        what: &'static str,
        /// Its hash.
        hash: B256,
    },
    /// -38006: the state of the head is too far from the present one.
    #[error("too deep reorg: {0}")]
    TooDeep(SetHeadError),
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Blocks whose parents are missing, by hash, oldest first.
#[derive(Debug, Default)]
struct Waiting {
    blocks: HashMap<B256, (Block, usize)>,
    order: VecDeque<B256>,
    bytes: usize,
}

impl Waiting {
    fn put(&mut self, hash: B256, block: Block) {
        let bytes = block.header.size() + alloy_rlp::Encodable::length(&block);
        if self.blocks.insert(hash, (block, bytes)).is_some() {
            return;
        }
        self.order.push_back(hash);
        self.bytes += bytes;
        while self.order.len() > MAX_WAITING || self.bytes > MAX_WAITING_BYTES {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            self.forget(&oldest);
        }
    }

    fn take(&mut self, hash: &B256) -> Option<Block> {
        self.order.retain(|waiting| waiting != hash);
        self.forget(hash)
    }

    fn forget(&mut self, hash: &B256) -> Option<Block> {
        let (block, bytes) = self.blocks.remove(hash)?;
        self.bytes -= bytes;
        Some(block)
    }
}

/// Invalid blocks by hash, oldest first.
#[derive(Debug, Default)]
struct Invalid {
    blocks: HashMap<B256, RejectedBlock>,
    order: VecDeque<B256>,
}

impl Invalid {
    fn put(&mut self, hash: B256, rejected: RejectedBlock) {
        if self.blocks.insert(hash, rejected).is_none() {
            self.order.push_back(hash);
        }
        while self.order.len() > MAX_INVALID {
            if let Some(oldest) = self.order.pop_front() {
                self.blocks.remove(&oldest);
            }
        }
    }
}

/// A chain that a consensus client drives.
#[derive(Debug)]
pub struct Consensus {
    chain: Arc<Chain>,
    waiting: Mutex<Waiting>,
    invalid: Mutex<Invalid>,
    /// The last fork choice, if ancestors of its head are missing.
    pending: Mutex<Option<PendingChoice>>,
    /// Whether a fork choice was followed since the process started.
    has_followed: AtomicBool,
    /// The last fork choice that was found consistent.
    last_choice: Mutex<Option<ForkChoice>>,
    journal: Option<Mutex<Journal>>,
}

impl Consensus {
    /// Drives `chain` without a journal: what has not reached the disk is lost with the process.
    pub fn new(chain: Arc<Chain>) -> Self {
        Self {
            chain,
            waiting: Mutex::default(),
            invalid: Mutex::default(),
            pending: Mutex::default(),
            has_followed: AtomicBool::new(false),
            last_choice: Mutex::default(),
            journal: None,
        }
    }

    /// Drives `chain`, and keeps a journal of its answers in `folder`. Replays the journal that an earlier process has
    /// left there first. Returns how many blocks that imported, too.
    ///
    /// # Errors
    /// A [`Fault`], of the chain or of the folder.
    pub fn with_journal(chain: Arc<Chain>, folder: &Path) -> Result<(Self, usize), Fault> {
        let mut this = Self::new(chain);
        let imported = this.replay_journal(folder)?;
        this.chain.sync()?;
        this.journal = Some(Mutex::new(Journal::begin(folder)?));
        Ok((this, imported))
    }

    fn replay_journal(&self, folder: &Path) -> Result<usize, Fault> {
        let opened = self.chain.head().id.hash;
        let mut imported = 0;
        Journal::read(folder, &mut |record| {
            let block = match record {
                Record::Block(block) => block,
                Record::Choice(choice) => return self.replay_choice(choice, opened),
            };
            let hash = self.chain.spec().header_hash(&block.header);
            if self.chain.header(&hash)?.is_some() {
                return Ok(());
            }
            match self.chain.import(ImportRequest {
                canonicalize: false,
                ..ImportRequest::with_hash(*block, hash)
            }) {
                Ok(_) => imported += 1,
                Err(ImportError::Fault(fault)) => return Err(fault),
                // Of another chain, too old, or damaged: it was valid once.
                Err(_) => {}
            }
            Ok(())
        })?;
        Ok(imported)
    }

    /// Follows a fork choice of the journal if it leads forward from the head that the database was `opened` with;
    /// otherwise the database is right.
    fn replay_choice(&self, choice: ForkChoice, opened: B256) -> Result<(), Fault> {
        let Some(head) = self.chain.header(&choice.head)? else {
            return Ok(());
        };
        let chosen = self
            .check_ancestor("present", opened, &head)
            .and_then(|()| self.choose(choice));
        match chosen {
            Err(ForkChoiceError::Fault(fault)) => Err(fault),
            _ => Ok(()),
        }
    }

    /// Writes to the journal, if there is one.
    fn write_journal(
        &self,
        write: impl FnOnce(&mut Journal) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        write(&mut lock(journal))
    }

    /// The number of [`Consensus::missing_head`]; zero if the block itself is missing.
    pub fn target(&self) -> Option<u64> {
        self.missing_head().map(|head| head.number.unwrap_or(0))
    }

    /// Whether a fork choice was followed since the process started: until then the head may be old.
    pub fn has_followed(&self) -> bool {
        self.has_followed.load(Ordering::Relaxed)
    }

    /// How many blocks wait for their parents.
    pub fn waiting_blocks(&self) -> usize {
        lock(&self.waiting).blocks.len()
    }

    /// The chain.
    pub fn chain(&self) -> &Arc<Chain> {
        &self.chain
    }

    /// Validates the block with this hash, and stores it as a side block if it is valid.
    ///
    /// # Errors
    /// A [`Fault`]: whether the block is valid is not known.
    pub fn new_payload(
        &self,
        block: Block,
        hash: B256,
        hints: PayloadHints,
    ) -> Result<Verdict, Fault> {
        if let Some(rejected) = self.rejected(&hash) {
            return Ok(Verdict::Invalid(rejected));
        }
        if self.chain.header(&hash)?.is_some() {
            return Ok(Verdict::Valid(None));
        }
        let parent = block.header.parent_hash;
        if let Some(rejected) = self.rejected(&parent) {
            lock(&self.invalid).put(hash, rejected.clone());
            return Ok(Verdict::Invalid(rejected));
        }
        if self.chain.header(&parent)?.is_none() {
            match self.connect(&parent)? {
                Some(Verdict::Valid(_)) => {}
                Some(Verdict::Invalid(rejected)) => {
                    lock(&self.invalid).put(hash, rejected.clone());
                    return Ok(Verdict::Invalid(rejected));
                }
                other => {
                    lock(&self.waiting).put(hash, block);
                    return Ok(other.unwrap_or(Verdict::Syncing));
                }
            }
        }
        self.import(block, hash, hints)
    }

    /// Remembers that the block `hash`, a child of `parent`, is invalid by its form.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn reject_payload(
        &self,
        parent: B256,
        hash: B256,
        reason: &InvalidBlock,
    ) -> Result<Verdict, Fault> {
        if let Some(rejected) = self.rejected(&hash).or_else(|| self.rejected(&parent)) {
            lock(&self.invalid).put(hash, rejected.clone());
            return Ok(Verdict::Invalid(rejected));
        }
        if self.chain.header(&parent)?.is_none() {
            return Ok(Verdict::Syncing);
        }
        self.reject(parent, hash, reason)
    }

    /// Remembers that a block is invalid whose parent is valid.
    fn reject(&self, parent: B256, hash: B256, reason: &InvalidBlock) -> Result<Verdict, Fault> {
        let is_stake = self.chain.header(&parent)?.is_some_and(|parent| {
            self.chain.spec().is_proof_of_stake(&parent.header)
                || parent.id.hash == self.chain.genesis_hash()
        });
        let rejected = RejectedBlock {
            latest_valid: Some(if is_stake { parent } else { B256::ZERO }),
            reason: reason.to_string(),
        };
        lock(&self.invalid).put(hash, rejected.clone());
        Ok(Verdict::Invalid(rejected))
    }

    /// Follows a fork choice. The head changes only with [`Verdict::Valid`].
    ///
    /// # Errors
    /// [`ForkChoiceError`]; then nothing changed, unless the journal failed, which is written last.
    pub fn fork_choice(&self, choice: ForkChoice) -> Result<Verdict, ForkChoiceError> {
        let verdict = self.choose(choice)?;
        let is_head = self.chain.head().id.hash == choice.head;
        if is_head && matches!(verdict, Verdict::Valid(_)) {
            self.write_journal(|journal| journal.choice(choice))?;
        }
        let pending = match &verdict {
            Verdict::Syncing | Verdict::Accepted => {
                let waiting = lock(&self.waiting);
                let chosen = waiting.blocks.get(&choice.head);
                let head = MissingHead {
                    hash: choice.head,
                    number: chosen.map(|(block, _)| block.header.number),
                };
                Some(PendingChoice { head, choice })
            }
            Verdict::Valid(_) | Verdict::Invalid(_) => None,
        };
        *lock(&self.pending) = pending;
        if matches!(verdict, Verdict::Valid(_)) {
            self.has_followed.store(true, Ordering::Relaxed);
        }
        Ok(verdict)
    }

    fn choose(&self, choice: ForkChoice) -> Result<Verdict, ForkChoiceError> {
        let ForkChoice { head, .. } = choice;
        if let Some(rejected) = self.rejected(&head) {
            return Ok(Verdict::Invalid(rejected));
        }
        let mut stored = self.chain.header(&head)?;
        if stored.is_none() {
            match self.connect(&head)? {
                Some(Verdict::Valid(_)) => stored = self.chain.header(&head)?,
                Some(Verdict::Invalid(rejected)) => return Ok(Verdict::Invalid(rejected)),
                _ => return Ok(Verdict::Syncing),
            }
        }
        let Some(stored) = stored else {
            return Ok(Verdict::Syncing);
        };
        if let Some(rejected) = self.not_terminal(&stored)? {
            return Ok(Verdict::Invalid(rejected));
        }
        if self.is_behind_finalized(&stored)? {
            return Ok(Verdict::Valid(None));
        }
        self.check_ancestor("finalized", choice.finalized, &stored)?;
        self.check_ancestor("safe", choice.safe, &stored)?;
        let before = *lock(&self.chain.safe_finalized);
        let finality = SafeFinalized {
            safe: self.named_or_last(choice.safe, before.safe, &stored)?,
            finalized: self.named_or_last(choice.finalized, before.finalized, &stored)?,
        };
        *lock(&self.last_choice) = Some(ForkChoice {
            head,
            safe: finality.safe,
            finalized: finality.finalized,
        });
        match self.chain.set_head_and_finality(&head, finality) {
            Ok(()) => Ok(Verdict::Valid(None)),
            Err(SetHeadError::Fault(fault)) => Err(fault.into()),
            Err(error) => Err(ForkChoiceError::TooDeep(error)),
        }
    }

    /// Makes a stored block the head, whatever the consensus client chose, so that it is the head after a crash, too.
    ///
    /// # Errors
    /// [`SetHeadError`]; then nothing changed, unless the journal failed, which is written last.
    pub fn set_head(&self, hash: &B256) -> Result<(), SetHeadError> {
        self.chain.set_head(hash)?;
        let hash_of = |block: Option<StoredHeader>| block.map_or(B256::ZERO, |block| block.id.hash);
        let choice = ForkChoice {
            head: *hash,
            safe: hash_of(self.chain.safe()?),
            finalized: hash_of(self.chain.finalized()?),
        };
        self.write_journal(|journal| journal.choice(choice))?;
        // The journal only leads forward, and this choice may lead back.
        self.chain.sync()?;
        Ok(())
    }

    /// Whether the head is an ancestor of the finalized block: then the fork choice changes nothing.
    fn is_behind_finalized(&self, head: &StoredHeader) -> Result<bool, Fault> {
        if !self.chain.is_canonical(&head.id)? {
            return Ok(false);
        }
        let finalized = self.chain.finalized()?;
        Ok(finalized.is_some_and(|finalized| head.id.number < finalized.id.number))
    }

    /// Imports the waiting block `hash` with its waiting ancestors, if they lead to a stored block; `None` if they do
    /// not. If they lead to an invalid one, they are invalid.
    fn connect(&self, hash: &B256) -> Result<Option<Verdict>, Fault> {
        let mut path = Vec::new();
        let mut next = *hash;
        {
            let waiting = lock(&self.waiting);
            while let Some((block, _)) = waiting.blocks.get(&next) {
                path.push(next);
                next = block.header.parent_hash;
            }
        }
        if path.is_empty() {
            return Ok(None);
        }
        if let Some(rejected) = self.rejected(&next) {
            for hash in path.into_iter().rev() {
                lock(&self.waiting).take(&hash);
                lock(&self.invalid).put(hash, rejected.clone());
            }
            return Ok(Some(Verdict::Invalid(rejected)));
        }
        if self.chain.header(&next)?.is_none() {
            return Ok(None);
        }
        let mut verdict = None;
        for hash in path.into_iter().rev() {
            let Some(block) = lock(&self.waiting).take(&hash) else {
                return Ok(None);
            };
            let status = self.import(block, hash, PayloadHints::default())?;
            let is_valid = matches!(status, Verdict::Valid(_));
            verdict = Some(status);
            if !is_valid {
                break;
            }
        }
        Ok(verdict)
    }

    /// Imports a block whose parent is stored.
    fn import(&self, block: Block, hash: B256, hints: PayloadHints) -> Result<Verdict, Fault> {
        let parent = block.header.parent_hash;
        let written = OnceLock::new();
        let write_ahead = |block: &Block| {
            let record = || journal::encode(block);
            written.get_or_init(|| self.write_journal(|journal| journal.block(&record())));
        };
        let write_ahead = self
            .journal
            .is_some()
            .then_some(&write_ahead as WriteAhead<'_>);
        let request = ImportRequest {
            hints,
            canonicalize: false,
            write_ahead,
            ..ImportRequest::with_hash(block, hash)
        };
        match self.chain.import(request) {
            Ok(imported) => {
                if let Some(written) = written.into_inner() {
                    written?;
                    self.write_journal(|journal| {
                        journal.count_block();
                        Ok(())
                    })?;
                }
                Ok(Verdict::Valid(Some(Box::new(imported))))
            }
            Err(ImportError::Fault(fault)) => Err(fault),
            Err(ImportError::UnknownParent { .. }) => Ok(Verdict::Syncing),
            Err(ImportError::OutOfReach { .. }) => Ok(Verdict::Accepted),
            Err(ImportError::Invalid { reason, .. }) => self.reject(parent, hash, &reason),
        }
    }

    /// A proof-of-work block can only be the head if its total difficulty is terminal.
    fn not_terminal(&self, head: &StoredHeader) -> Result<Option<RejectedBlock>, Fault> {
        let spec = self.chain.spec();
        let is_terminal = spec.is_proof_of_stake(&head.header)
            || spec.is_terminal(head.total_difficulty)
            || spec.terminal_total_difficulty.is_none();
        Ok((!is_terminal).then(|| RejectedBlock {
            latest_valid: Some(B256::ZERO),
            reason: "the head is a block of proof of work below the terminal total difficulty"
                .to_owned(),
        }))
    }

    /// The safe and the finalized block must be the head or an ancestor of it.
    fn check_ancestor(
        &self,
        what: &'static str,
        hash: B256,
        head: &StoredHeader,
    ) -> Result<(), ForkChoiceError> {
        if hash.is_zero()
            || self.was_ancestor_of_parent(hash, head)
            || self.chain.is_ancestor(hash, head)?
        {
            return Ok(());
        }
        Err(ForkChoiceError::Inconsistent { what, hash })
    }

    /// The safe or finalized block of a fork choice: the one it names or, for zero, the last one as long as that is the
    /// head or an ancestor of it. A consensus client that was just started names none.
    ///
    /// Spec: execution-apis leaves zero open; go-ethereum's `eth/catalyst` keeps the last ones, too.
    fn named_or_last(&self, named: B256, last: B256, head: &StoredHeader) -> Result<B256, Fault> {
        if !named.is_zero() || last.is_zero() {
            return Ok(named);
        }
        let holds =
            self.was_ancestor_of_parent(last, head) || self.chain.is_ancestor(last, head)?;
        Ok(if holds { last } else { B256::ZERO })
    }

    /// Whether the last fork choice named the parent of `head`, with this block as safe or finalized.
    fn was_ancestor_of_parent(&self, hash: B256, head: &StoredHeader) -> bool {
        let last = lock(&self.last_choice);
        last.is_some_and(|last| {
            last.head == head.header.parent_hash && (hash == last.safe || hash == last.finalized)
        })
    }

    fn rejected(&self, hash: &B256) -> Option<RejectedBlock> {
        lock(&self.invalid).blocks.get(hash).cloned()
    }
}
