//! What a consensus client drives: a verdict on each payload, the fork choice, and the blocks whose
//! parents have not come yet.
//!
//! A verdict is about the block alone: a fault of this machine is an error and never makes a block
//! invalid. What was found invalid stays so, with all that builds upon it, for as long as it is
//! remembered; forgetting costs another look, nothing else.
//!
//! Spec: execution-apis `engine/paris.md`, payload validation and fork choice.

use crate::forkchoice::Marks;
use crate::import::Note;
use crate::journal::{self, Journal, Record};
use crate::tree::StoredHeader;
use crate::{Chain, ImportError, Imported, Known, SetHeadError};
use niwaki_primitives::{B256, Block, Fault};
use niwaki_rules::InvalidBlock;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How many invalid blocks are remembered.
const INVALID_KEPT: usize = 512;

/// How many blocks may wait for their parents, and their bytes.
const WAITING_BLOCKS: usize = 256;
const WAITING_BYTES: usize = 128 << 20;

/// What is known of a payload.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is valid, and so are all before it. What was done, if it was not known before.
    Valid(Option<Imported>),
    /// It, or one before it, breaks the protocol.
    Invalid(Refused),
    /// Blocks between it and this chain are missing.
    Syncing,
    /// Its ancestors are known, but their state is out of reach.
    Accepted,
}

/// Why a block is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The last valid block before it: zero if that is one of proof of work.
    pub latest_valid: Option<B256>,
    /// The rule that is broken.
    pub reason: String,
}

/// A head that was chosen and can't be followed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedHead {
    /// Its hash.
    pub hash: B256,
    /// Its number, if the block itself has come.
    pub number: Option<u64>,
}

/// What a consensus client chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkChoice {
    /// The head.
    pub head: B256,
    /// The safe block; zero to keep the one that was named before.
    pub safe: B256,
    /// The finalized block; zero to keep the one that was named before.
    pub finalized: B256,
}

/// Why a fork choice can't be followed although its head is valid.
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

/// Blocks that can't be judged yet, by hash, oldest first.
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
        while self.order.len() > WAITING_BLOCKS || self.bytes > WAITING_BYTES {
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
    blocks: HashMap<B256, Refused>,
    order: VecDeque<B256>,
}

impl Invalid {
    fn put(&mut self, hash: B256, refused: Refused) {
        if self.blocks.insert(hash, refused).is_none() {
            self.order.push_back(hash);
        }
        while self.order.len() > INVALID_KEPT {
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
    /// The head that was chosen last, if it could not be followed.
    wanted: Mutex<Option<WantedHead>>,
    /// Whether a fork choice was followed since this process began.
    has_followed: AtomicBool,
    /// The last choice that was found to hang together.
    chosen: Mutex<Option<ForkChoice>>,
    journal: Option<Mutex<Journal>>,
}

impl Consensus {
    /// Drives `chain`; what it answers is forgotten with the process as far as it has not reached the
    /// disk.
    pub fn new(chain: Arc<Chain>) -> Self {
        Self {
            chain,
            waiting: Mutex::default(),
            invalid: Mutex::default(),
            wanted: Mutex::default(),
            has_followed: AtomicBool::new(false),
            chosen: Mutex::default(),
            journal: None,
        }
    }

    /// Drives `chain`, and remembers in `folder` what it answers. First the blocks and the fork
    /// choice that a process before this one has left there are taken in; how many blocks.
    ///
    /// # Errors
    /// A [`Fault`], of the chain or of the folder.
    pub fn with_journal(chain: Arc<Chain>, folder: &Path) -> Result<(Self, usize), Fault> {
        let mut this = Self::new(chain);
        let taken = this.take_in_journal(folder)?;
        this.chain.sync()?;
        this.journal = Some(Mutex::new(Journal::begin(folder)?));
        Ok((this, taken))
    }

    fn take_in_journal(&self, folder: &Path) -> Result<usize, Fault> {
        let opened = self.chain.head().id.hash;
        let mut taken = 0;
        Journal::read(folder, &mut |record| {
            let block = match record {
                Record::Block(block) => block,
                Record::Choice(choice) => return self.choose_again(choice, opened),
            };
            let hash = block.header.hash_slow();
            if self.chain.header(&hash)?.is_some() {
                return Ok(());
            }
            match self.chain.import_payload(*block, hash, Known::default()) {
                Ok(_) => taken += 1,
                Err(ImportError::Fault(fault)) => return Err(fault),
                // Another chain's, too long ago, or not what was written: it was valid once.
                Err(_) => {}
            }
            Ok(())
        })?;
        Ok(taken)
    }

    /// Follows a choice of the journal if it leads forward from where the database was `opened`: where
    /// that is ahead, or elsewhere by now, it is right.
    fn choose_again(&self, choice: ForkChoice, opened: B256) -> Result<(), Fault> {
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
    fn note(&self, write: impl FnOnce(&mut Journal) -> Result<(), Fault>) -> Result<(), Fault> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        write(&mut journal.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The head that the consensus client chose last, if blocks up to it have not come.
    pub fn wanted(&self) -> Option<WantedHead> {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The height of [`Consensus::wanted`]; zero if even that is not known.
    pub fn target(&self) -> Option<u64> {
        self.wanted().map(|wanted| wanted.number.unwrap_or(0))
    }

    /// Whether a fork choice was followed since this process began: until then nothing is known of
    /// how old the head is.
    pub fn has_followed(&self) -> bool {
        self.has_followed.load(Ordering::Relaxed)
    }

    /// How many blocks wait for their parents.
    pub fn waiting_blocks(&self) -> usize {
        self.waiting().blocks.len()
    }

    /// The chain.
    pub fn chain(&self) -> &Arc<Chain> {
        &self.chain
    }

    /// Judges a block, whose hash is `hash`, and stores it beside the canonical chain if it is
    /// valid. What is `known` of it spares work.
    ///
    /// # Errors
    /// A [`Fault`]: nothing is known of the block.
    pub fn new_payload(&self, block: Block, hash: B256, known: Known) -> Result<Verdict, Fault> {
        if let Some(refused) = self.refused(&hash) {
            return Ok(Verdict::Invalid(refused));
        }
        if self.chain.header(&hash)?.is_some() {
            return Ok(Verdict::Valid(None));
        }
        let parent = block.header.parent_hash;
        if let Some(refused) = self.refused(&parent) {
            self.invalid().put(hash, refused.clone());
            return Ok(Verdict::Invalid(refused));
        }
        if self.chain.header(&parent)?.is_none() {
            match self.connect(&parent)? {
                Some(Verdict::Valid(_)) => {}
                Some(Verdict::Invalid(refused)) => {
                    self.invalid().put(hash, refused.clone());
                    return Ok(Verdict::Invalid(refused));
                }
                other => {
                    self.waiting().put(hash, block);
                    return Ok(other.unwrap_or(Verdict::Syncing));
                }
            }
        }
        self.judge(block, hash, known)
    }

    /// Remembers that the block `hash` upon `parent` is invalid, whatever its execution would give.
    ///
    /// # Errors
    /// A [`Fault`]: nothing is known of the block.
    pub fn refuse_payload(
        &self,
        parent: B256,
        hash: B256,
        reason: &InvalidBlock,
    ) -> Result<Verdict, Fault> {
        if let Some(refused) = self.refused(&hash).or_else(|| self.refused(&parent)) {
            self.invalid().put(hash, refused.clone());
            return Ok(Verdict::Invalid(refused));
        }
        if self.chain.header(&parent)?.is_none() {
            return Ok(Verdict::Syncing);
        }
        self.refuse(parent, hash, reason)
    }

    /// Remembers that a block is invalid, whose parent is valid.
    fn refuse(&self, parent: B256, hash: B256, reason: &InvalidBlock) -> Result<Verdict, Fault> {
        let is_stake = self.chain.header(&parent)?.is_some_and(|parent| {
            self.chain.spec().is_proof_of_stake(&parent.header)
                || parent.id.hash == self.chain.genesis_hash()
        });
        let refused = Refused {
            latest_valid: Some(if is_stake { parent } else { B256::ZERO }),
            reason: reason.to_string(),
        };
        self.invalid().put(hash, refused.clone());
        Ok(Verdict::Invalid(refused))
    }

    /// Follows a fork choice. The head becomes the head only by [`Verdict::Valid`].
    ///
    /// # Errors
    /// [`ForkChoiceError`]; then nothing changed, but for a fault of the journal, which comes after.
    pub fn fork_choice(&self, choice: ForkChoice) -> Result<Verdict, ForkChoiceError> {
        let verdict = self.choose(choice)?;
        let is_head = self.chain.head().id.hash == choice.head;
        if is_head && matches!(verdict, Verdict::Valid(_)) {
            self.note(|journal| journal.choice(choice))?;
        }
        let wanted = match &verdict {
            Verdict::Syncing | Verdict::Accepted => {
                let waiting = self.waiting();
                let chosen = waiting.blocks.get(&choice.head);
                Some(WantedHead {
                    hash: choice.head,
                    number: chosen.map(|(block, _)| block.header.number),
                })
            }
            Verdict::Valid(_) | Verdict::Invalid(_) => None,
        };
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
        if matches!(verdict, Verdict::Valid(_)) {
            self.has_followed.store(true, Ordering::Relaxed);
        }
        Ok(verdict)
    }

    fn choose(&self, choice: ForkChoice) -> Result<Verdict, ForkChoiceError> {
        let ForkChoice { head, .. } = choice;
        if let Some(refused) = self.refused(&head) {
            return Ok(Verdict::Invalid(refused));
        }
        let mut stored = self.chain.header(&head)?;
        if stored.is_none() {
            match self.connect(&head)? {
                Some(Verdict::Valid(_)) => stored = self.chain.header(&head)?,
                Some(Verdict::Invalid(refused)) => return Ok(Verdict::Invalid(refused)),
                _ => return Ok(Verdict::Syncing),
            }
        }
        let Some(stored) = stored else {
            return Ok(Verdict::Syncing);
        };
        if let Some(refused) = self.not_terminal(&stored)? {
            return Ok(Verdict::Invalid(refused));
        }
        if self.is_behind_finalized(&stored)? {
            return Ok(Verdict::Valid(None));
        }
        self.check_ancestor("finalized", choice.finalized, &stored)?;
        self.check_ancestor("safe", choice.safe, &stored)?;
        let before = *self.chain.marks();
        let marks = Marks {
            safe: self.named_or_kept(choice.safe, before.safe, &stored)?,
            finalized: self.named_or_kept(choice.finalized, before.finalized, &stored)?,
        };
        *self.chosen.lock().unwrap_or_else(PoisonError::into_inner) = Some(ForkChoice {
            head,
            safe: marks.safe,
            finalized: marks.finalized,
        });
        match self.chain.set_head_and_marks(&head, marks) {
            Ok(()) => Ok(Verdict::Valid(None)),
            Err(SetHeadError::Fault(fault)) => Err(fault.into()),
            Err(error) => Err(ForkChoiceError::TooDeep(error)),
        }
    }

    /// Makes a stored block the head, whatever the consensus client chose, and has that hold after a
    /// crash too.
    ///
    /// # Errors
    /// [`SetHeadError`]; then nothing changed, but for a fault of the journal, which comes after.
    pub fn set_head(&self, hash: &B256) -> Result<(), SetHeadError> {
        self.chain.set_head(hash)?;
        let marked = |block: Option<StoredHeader>| block.map_or(B256::ZERO, |block| block.id.hash);
        let choice = ForkChoice {
            head: *hash,
            safe: marked(self.chain.safe()?),
            finalized: marked(self.chain.finalized()?),
        };
        self.note(|journal| journal.choice(choice))?;
        // At the next start a choice only leads forward.
        self.chain.sync()?;
        Ok(())
    }

    /// Whether the head is an ancestor of a block that is finalized already: then nothing is to be
    /// done.
    fn is_behind_finalized(&self, head: &StoredHeader) -> Result<bool, Fault> {
        if !self.chain.is_canonical(&head.id)? {
            return Ok(false);
        }
        let finalized = self.chain.finalized()?;
        Ok(finalized.is_some_and(|finalized| head.id.number < finalized.id.number))
    }

    /// Takes in the block `hash` with those of its ancestors that wait, if they lead to a block that
    /// is stored; `None` if they do not.
    fn connect(&self, hash: &B256) -> Result<Option<Verdict>, Fault> {
        let mut path = Vec::new();
        let mut next = *hash;
        {
            let waiting = self.waiting();
            while let Some((block, _)) = waiting.blocks.get(&next) {
                path.push(next);
                next = block.header.parent_hash;
            }
        }
        if path.is_empty() || self.chain.header(&next)?.is_none() {
            return Ok(None);
        }
        let mut verdict = None;
        for hash in path.into_iter().rev() {
            let Some(block) = self.waiting().take(&hash) else {
                return Ok(None);
            };
            let judged = self.judge(block, hash, Known::default())?;
            let is_valid = matches!(judged, Verdict::Valid(_));
            verdict = Some(judged);
            if !is_valid {
                break;
            }
        }
        Ok(verdict)
    }

    /// Judges a block whose parent is stored.
    fn judge(&self, block: Block, hash: B256, known: Known) -> Result<Verdict, Fault> {
        let parent = block.header.parent_hash;
        let noted = OnceLock::new();
        let note = |block: &Block| {
            noted.get_or_init(|| self.note(|journal| journal.block(&journal::encode(block))));
        };
        let note = self.journal.is_some().then_some(&note as Note<'_>);
        match self.chain.import_noting((block, hash), known, note) {
            Ok(imported) => {
                if let Some(noted) = noted.into_inner() {
                    noted?;
                    self.note(|journal| {
                        journal.count_block();
                        Ok(())
                    })?;
                }
                Ok(Verdict::Valid(Some(imported)))
            }
            Err(ImportError::Fault(fault)) => Err(fault),
            Err(ImportError::UnknownParent { .. }) => Ok(Verdict::Syncing),
            Err(ImportError::OutOfReach { .. }) => Ok(Verdict::Accepted),
            Err(ImportError::Invalid { reason, .. }) => self.refuse(parent, hash, &reason),
        }
    }

    /// A block of proof of work can only be the head if proof of stake may begin upon it.
    fn not_terminal(&self, head: &StoredHeader) -> Result<Option<Refused>, Fault> {
        let spec = self.chain.spec();
        let is_terminal = spec.is_proof_of_stake(&head.header)
            || spec.is_terminal(head.total_difficulty)
            || spec.terminal_total_difficulty.is_none();
        Ok((!is_terminal).then(|| Refused {
            latest_valid: Some(B256::ZERO),
            reason: "the head is a block of proof of work below the terminal total difficulty"
                .to_owned(),
        }))
    }

    /// A marked block must be the head or one before it.
    fn check_ancestor(
        &self,
        what: &'static str,
        hash: B256,
        head: &StoredHeader,
    ) -> Result<(), ForkChoiceError> {
        if hash.is_zero() || self.is_known_below(hash, head) || self.chain.leads_to(hash, head)? {
            return Ok(());
        }
        Err(ForkChoiceError::Inconsistent { what, hash })
    }

    /// The block that a fork choice marks safe or finalized: the one it names or, for zero, the one
    /// marked before, for as long as that is the head or one before it. A consensus client that was
    /// just started names none; go-ethereum's `eth/catalyst` keeps the last ones too.
    fn named_or_kept(&self, named: B256, kept: B256, head: &StoredHeader) -> Result<B256, Fault> {
        if !named.is_zero() || kept.is_zero() {
            return Ok(named);
        }
        let holds = self.is_known_below(kept, head) || self.chain.leads_to(kept, head)?;
        Ok(if holds { kept } else { B256::ZERO })
    }

    /// Whether a marked block is one that the parent of `head` was chosen with.
    fn is_known_below(&self, hash: B256, head: &StoredHeader) -> bool {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.is_some_and(|chosen| {
            chosen.head == head.header.parent_hash
                && (hash == chosen.safe || hash == chosen.finalized)
        })
    }

    fn refused(&self, hash: &B256) -> Option<Refused> {
        self.invalid().blocks.get(hash).cloned()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn invalid(&self) -> MutexGuard<'_, Invalid> {
        self.invalid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
