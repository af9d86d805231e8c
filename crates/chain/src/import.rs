//! The import of a block: validated, executed, its roots compared, committed.
//!
//! One block at a time, under the writer's lock. The consensus client (`consensus`), files of blocks and block production call
//! [`Chain::import`]; whatever way a block takes, the result is that of executing it sequentially, or an
//! [`ImportError`] and the chain as it was.
//!
//! ```text
//! ImportRequest -> validate -> process -------------------------> compare -> write ahead -> commit -> Imported
//!                  (header,    (transactions, state root,         (header)   (journal)      (one
//!                   body)       receipts' root: tasks, threads)                              batch)
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `request` | what a caller asks for |
//! | `validate` | checks before and after the execution |
//! | `process` | execution and roots |
//! | `tasks` | what is done in parallel with the execution |
//! | `commit` | what is written |
//! | `judged` | a block whose seals are still to come |
//! | `batch` | several blocks, whose state root is computed once |
//! | `listed` | [`ListedBlocks`]: the same without an execution, by their access lists |
//! | `error` | why a block was not imported |

mod batch;
mod commit;
mod error;
mod judged;
mod listed;
mod process;
mod request;
mod tasks;
mod validate;

use crate::bft::Seals;
use crate::tree::StoredHeader;
use crate::{BlockId, Chain, SetHeadError, nanoseconds};
pub(crate) use commit::ValidBlock;
pub use error::ImportError;
pub(crate) use error::{ImportFailure, fault};
pub use judged::JudgedBlock;
pub use listed::ListedBlocks;
use niwaki_execution::{RecoveringBlock, TxStats, recover_in_background};
use niwaki_primitives::{AccountChanges, B256, Block, Fault, RecoveredBlock, StateDiff};
use niwaki_rules::BodyRoots;
use niwaki_state::ReadStats;
use process::ProcessedBlock;
pub use request::{ImportRequest, PayloadHints};
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use tasks::journal::WriteAhead;
pub use tasks::receipt_root::Receipts;
pub use validate::body_roots;
use validate::compare;

/// What became of an imported block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportStatus {
    /// It is the head now.
    Canonical,
    /// It is valid and stored, and the head stayed.
    Side,
    /// It was stored already and the head is no worse; nothing was done.
    AlreadyStored,
}

/// A block that was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The block.
    pub id: BlockId,
    /// What became of it.
    pub status: ImportStatus,
    /// Gas used.
    pub gas_used: u64,
    /// How many transactions it has.
    pub transactions: usize,
    /// How its transactions were executed.
    pub tx_stats: TxStats,
    /// Whether its state root was computed from its access list, in parallel with the execution.
    pub has_bal_root: bool,
    /// How often changed values were flushed into the tries while it was executed.
    pub root_flushes: u32,
    /// Whether it came with its access list.
    pub has_bal: bool,
    /// What its access list holds, if its fork has one.
    pub bal: Option<BalStats>,
    /// Look-ups of values meanwhile, those of other threads included.
    pub reads: ReadStats,
    /// Changed values.
    pub writes: WriteStats,
    /// Blocks and changes that are on their way to the disk, this one included.
    pub waiting_batches: usize,
    /// What took how long.
    pub timings: Timings,
}

impl Imported {
    /// A block that this import did not execute.
    fn untimed(id: BlockId, gas_used: u64, transactions: usize) -> Self {
        Self {
            id,
            status: ImportStatus::Side,
            gas_used,
            transactions,
            tx_stats: TxStats::default(),
            has_bal_root: false,
            root_flushes: 0,
            has_bal: false,
            bal: None,
            reads: ReadStats::default(),
            writes: WriteStats::default(),
            waiting_batches: 0,
            timings: Timings::default(),
        }
    }
}

/// How much a block access list holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalStats {
    /// Accounts.
    pub accounts: usize,
    /// Accounts with changes.
    pub changed_accounts: usize,
    /// Slots.
    pub slots: usize,
    /// Slots that were written.
    pub changed_slots: usize,
    /// Accounts with new code.
    pub codes: usize,
}

impl BalStats {
    fn of(list: &[AccountChanges]) -> Self {
        let mut stats = Self::default();
        for account in list {
            let (written, read) = (account.storage_changes.len(), account.storage_reads.len());
            let is_changed = written > 0
                || !account.balance_changes.is_empty()
                || !account.nonce_changes.is_empty()
                || !account.code_changes.is_empty();
            stats.accounts += 1;
            stats.changed_accounts += usize::from(is_changed);
            stats.slots += written + read;
            stats.changed_slots += written;
            stats.codes += usize::from(!account.code_changes.is_empty());
        }
        stats
    }
}

/// How many values a block has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteStats {
    /// Accounts, those of changed slots included.
    pub accounts: usize,
    /// Accounts that do not exist any more.
    pub deleted_accounts: usize,
    /// Slots.
    pub slots: usize,
    /// Slots that are zero now, without those of accounts that were destroyed.
    pub deleted_slots: usize,
    /// Codes that were deployed.
    pub codes: usize,
    /// Their bytes.
    pub code_bytes: usize,
}

impl WriteStats {
    fn of(diff: &StateDiff) -> Self {
        let changes = diff.accounts.iter().map(|(_, change)| change);
        let slots = changes.clone().flat_map(|change| &change.slots);
        Self {
            accounts: diff.accounts.len(),
            deleted_accounts: changes.filter(|change| change.new.is_none()).count(),
            slots: slots.clone().count(),
            deleted_slots: slots.filter(|(_, slot)| slot.new.is_zero()).count(),
            codes: diff.codes.len(),
            code_bytes: diff.codes.iter().map(|(_, code)| code.len()).sum(),
        }
    }
}

/// How long the phases of an import took. All zero for a block that was stored already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Header, body and ommers against the parent.
    pub check: Duration,
    /// Recovery of senders, as far as the commit thread had to do it: the rest is done in the background of the other
    /// phases.
    pub recover: Duration,
    /// The transactions, with the intermediate roots of the first forks.
    pub execute: Duration,
    /// What follows until all roots are there: withdrawals, requests, the tasks that were begun during the execution, the
    /// state root and the receipts' root.
    pub root: Duration,
    /// The comparison with the header.
    pub compare: Duration,
    /// The write.
    pub commit: Duration,
}

impl Timings {
    /// The sum of all phases.
    pub fn total(&self) -> Duration {
        self.check + self.recover + self.execute + self.root + self.compare + self.commit
    }
}

impl Timings {
    /// Moves to `root` what came after the last transaction, which was committed at `ended` ([`nanoseconds`]), and to `recover`
    /// what the commit thread spent on senders.
    fn split_execution(&mut self, ended: Option<u64>, recover_ns: u64) {
        let after = ended.map_or(0, |ended| nanoseconds().saturating_sub(ended));
        self.root = Duration::from_nanos(after).min(self.execute);
        self.execute -= self.root;
        self.recover = Duration::from_nanos(recover_ns).min(self.execute);
        self.execute -= self.recover;
    }
}

/// What came with a block that is imported, and what becomes of it ([`ImportRequest`]).
#[derive(Clone, Copy)]
struct ImportOptions<'r> {
    roots: Option<BodyRoots>,
    access_list: Option<&'r [AccountChanges]>,
    write_ahead: Option<WriteAhead<'r>>,
    canonicalize: bool,
}

/// A block that is valid, to be written.
pub(crate) struct ReadyBlock {
    valid: ValidBlock,
    parent: StoredHeader,
    recovered: RecoveredBlock,
    imported: Imported,
}

impl ReadyBlock {
    /// A block that was built and executed here.
    pub(crate) fn new(valid: ValidBlock, parent: StoredHeader, recovered: RecoveredBlock) -> Self {
        let gas_used = valid.executed.gas_used;
        let imported = Imported::untimed(valid.id(), gas_used, recovered.senders.len());
        Self {
            valid,
            parent,
            recovered,
            imported,
        }
    }
}

/// Measures phases one after the other.
struct PhaseClock(Instant);

impl PhaseClock {
    /// The time since the last call.
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        let took = now - self.0;
        self.0 = now;
        took
    }
}

impl Chain {
    /// Imports a block whose parent is stored.
    ///
    /// # Errors
    /// [`ImportError`]; then the chain is as it was.
    ///
    /// Spec: execution-specs, `state_transition` of each fork's `fork.py`.
    pub fn import<'w>(
        &self,
        request: impl Into<ImportRequest<'w>>,
    ) -> Result<Imported, ImportError> {
        let ImportRequest {
            block,
            hash,
            hints,
            canonicalize,
            write_ahead,
        } = request.into();
        let hash = hash.unwrap_or_else(|| self.spec().header_hash(&block.header));
        let _guard = self.begin_import();
        let _writer = self.writer();
        let options = ImportOptions {
            roots: hints.roots,
            access_list: hints.access_list.as_deref(),
            write_ahead,
            canonicalize,
        };
        let block = Arc::new(RecoveringBlock::new(block, hash, hints.senders).timed(nanoseconds));
        self.import_recovering(&block, options)
    }

    /// The caller holds the writer's lock.
    fn import_recovering(
        &self,
        block: &Arc<RecoveringBlock>,
        options: ImportOptions<'_>,
    ) -> Result<Imported, ImportError> {
        let (header, hash) = (&block.block.header, block.hash);
        let (number, parent) = (header.number, header.parent_hash);
        if let Some(stored) = self.header(&hash)? {
            let transactions = block.block.body.transactions.len();
            return self.import_stored(stored, transactions, options.canonicalize);
        }
        self.validate_and_commit(block, options).map_err(|failure| {
            if matches!(failure, ImportFailure::Invalid(_)) {
                self.bad_blocks().put(&block.block, hash);
            }
            failure.at_block(BlockId { number, hash }, parent)
        })
    }

    /// Validates and executes a stored block again. Nothing changes.
    ///
    /// # Errors
    /// [`ImportError`]: why such a block would not be imported.
    pub fn replay(&self, stored: &StoredHeader) -> Result<(), ImportError> {
        let parent = stored.header.parent_hash;
        let block = Block {
            header: stored.header.clone(),
            body: self.read_body(&stored.id)?,
        };
        self.execute_and_compare(block, stored.id.hash)
            .map_err(|failure| failure.at_block(stored.id, parent))
    }

    fn execute_and_compare(&self, block: Block, hash: B256) -> Result<(), ImportFailure> {
        let parent = self.header(&block.header.parent_hash).map_err(fault)?;
        let parent = parent.ok_or(ImportFailure::UnknownParent)?;
        let block = Arc::new(RecoveringBlock::new(block, hash, []));
        let _recovery = recover_in_background(&block, self.sender_threads());
        let roots = body_roots(&block.block.body);
        self.validate(&block.block, &roots, &parent, Seals::Needed)?;
        let view = self.world().view_at(parent.id).map_err(fault)?;
        let view = view.ok_or(ImportFailure::OutOfReach)?;
        let (executed, _) = self.execute(&block, None, &view)?;
        let root = self
            .world()
            .compute_root(&view, &executed.diff)
            .map_err(fault)?;
        let receipts = Receipts::of(&executed.receipts);
        compare(self.spec(), &block.block, &executed, root.root(), &receipts)?;
        Ok(())
    }

    /// A stored block becomes the head only if the head was set back, or never set to it.
    fn import_stored(
        &self,
        stored: StoredHeader,
        transactions: usize,
        canonicalize: bool,
    ) -> Result<Imported, ImportError> {
        let mut imported = Imported {
            status: ImportStatus::AlreadyStored,
            ..Imported::untimed(stored.id, stored.header.gas_used, transactions)
        };
        if canonicalize && self.is_better(&stored) {
            let (id, parent) = (stored.id, stored.header.parent_hash);
            self.make_canonical(stored).map_err(|error| match error {
                SetHeadError::Fault(fault) => ImportError::Fault(fault),
                _ => ImportFailure::OutOfReach.at_block(id, parent),
            })?;
            imported.status = ImportStatus::Canonical;
        }
        Ok(imported)
    }

    fn validate_and_commit(
        &self,
        block: &Arc<RecoveringBlock>,
        options: ImportOptions<'_>,
    ) -> Result<Imported, ImportFailure> {
        let ready = self.make_ready(block, options, Seals::Needed)?;
        if let Some(write_ahead) = options.write_ahead {
            write_ahead(&block.block);
        }
        self.commit_ready(ready, options.canonicalize)
            .map_err(fault)
    }

    /// Validates and executes a block.
    fn make_ready(
        &self,
        block: &Arc<RecoveringBlock>,
        options: ImportOptions<'_>,
        seals: Seals,
    ) -> Result<ReadyBlock, ImportFailure> {
        let ImportOptions {
            roots,
            access_list: bal,
            write_ahead,
            ..
        } = options;
        let mut timings = Timings::default();
        let mut clock = PhaseClock(Instant::now());
        let parent = self
            .header(&block.block.header.parent_hash)
            .map_err(fault)?
            .ok_or(ImportFailure::UnknownParent)?;
        // Before any worker is woken, which would count as a running thread.
        self.choose_block_threads();
        let _recovery = recover_in_background(block, self.sender_threads());
        let roots = roots.unwrap_or_else(|| body_roots(&block.block.body));
        self.validate(&block.block, &roots, &parent, seals)?;
        timings.check = clock.lap();

        let view = self.world().view_at(parent.id).map_err(fault)?;
        let mut view = view.ok_or(ImportFailure::OutOfReach)?;
        let looked_up = self.world().read_stats();
        let processed = self.process(block, bal, &mut view, write_ahead)?;
        timings.execute = clock.lap();
        timings.split_execution(processed.tx_stats.ended, block.senders.blocking_ns());

        let ProcessedBlock {
            executed,
            tx_stats,
            receipts,
            root,
            has_bal_root,
            root_flushes,
        } = processed;
        let state_root = root.root();
        let access_list = compare(self.spec(), &block.block, &executed, state_root, &receipts)?;
        timings.compare = clock.lap();

        let gas_used = executed.gas_used;
        let recovered = block.recovered().expect("all transactions were executed");
        let valid = ValidBlock {
            block: Arc::clone(&recovered.block),
            hash: recovered.hash,
            view,
            executed,
            access_list,
            root,
        };
        let imported = Imported {
            id: valid.id(),
            // Until it is written.
            status: ImportStatus::Side,
            gas_used,
            transactions: block.block.body.transactions.len(),
            tx_stats,
            has_bal_root,
            root_flushes,
            has_bal: bal.is_some(),
            bal: valid
                .executed
                .block_access_list
                .as_deref()
                .map(BalStats::of),
            reads: self.world().read_stats().since(looked_up),
            writes: WriteStats::of(&valid.executed.diff),
            waiting_batches: 0,
            timings,
        };
        Ok(ReadyBlock {
            valid,
            parent,
            recovered,
            imported,
        })
    }

    /// Writes a block that is ready.
    fn commit_ready(&self, ready: ReadyBlock, canonicalize: bool) -> Result<Imported, Fault> {
        let ReadyBlock {
            valid,
            parent,
            recovered,
            mut imported,
        } = ready;
        let began = Instant::now();
        imported.status = self.commit_block(valid, &parent, canonicalize)?;
        self.cache_recent(recovered);
        imported.timings.commit = began.elapsed();
        imported.waiting_batches = self.database().pending_batches();
        Ok(imported)
    }
}
