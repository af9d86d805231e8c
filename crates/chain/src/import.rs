//! One block: checked, executed, rooted, compared, written.

mod early_root;
mod errands;
mod parts;
mod refusal;

use crate::forkchoice::Route;
use crate::indices::adopt;
use crate::persist::BlockRows;
use crate::receipts::Receipts;
use crate::tree::StoredHeader;
use crate::{BlockAhead, BlockId, Chain, Known, SetHeadError, nanoseconds};
use early_root::Ran;
use niwaki_execution::{
    Errands, Executed, Meanwhile, OnTheWay, Shares, apply_body_then, recover_beside,
};
use niwaki_primitives::{
    AccountChanges, Address, B256, Block, Bytes, Encodable2718, Fault, RecoveredBlock, Senders,
    StateDiff, Withdrawal,
};
use niwaki_rules::{
    BlockRules, BodyRoots, ChainSpec, InvalidBlock, Parent, access_list_hash, check_access_list,
    check_body, check_header, check_ommers, encode_access_list, requests_hash,
};
use niwaki_state::{ComputedRoot, HitRate, View};
use niwaki_storage::{Batch, DeferredRows};
use niwaki_trie::ordered_root;
pub use refusal::ImportError;
use refusal::{Refusal, execute_error, fault};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportStatus {
    /// It is the head now.
    Canonical,
    /// It is valid and stored, and the head stayed.
    Side,
    /// It was stored already and the head is no worse; nothing was done.
    Known,
}

/// A block that was taken in.
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
    /// How its transactions were run.
    pub shares: Shares,
    /// Whether its state root was made beside its execution, from its access list.
    pub early_root: bool,
    /// How often its changes so far went into the tries while it was executed.
    pub root_begun: u32,
    /// Whether it came with its access list.
    pub listed: bool,
    /// Look-ups of accounts and slots meanwhile, those of others included.
    pub reads: HitRate,
    /// Blocks and changes that are on their way to the disk, this one included.
    pub waiting_batches: usize,
    /// What took how long.
    pub timings: Timings,
}

/// How long the phases of an import took. All zero for a block that was known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Header, body and ommers against the parent.
    pub check: Duration,
    /// Senders from signatures, as far as the block had to wait for them: they are recovered beside the
    /// other phases where there are processors for it.
    pub recover: Duration,
    /// The body upon the state up to its last transaction, with the intermediate roots of the first forks.
    pub execute: Duration,
    /// What follows until all roots are there: withdrawals, requests, what was begun beside the execution,
    /// the state root and that of the receipts.
    pub root: Duration,
    /// The comparisons with the header.
    pub compare: Duration,
    /// The write.
    pub commit: Duration,
}

impl Timings {
    /// All phases together.
    pub fn total(&self) -> Duration {
        self.check + self.recover + self.execute + self.root + self.compare + self.commit
    }
}

/// Gas of a block whose execution takes long enough to read ahead for its root.
const PREFETCH_GAS: u64 = 2_000_000;

/// What is done with a block at the latest when it is valid, before it is written: beside its roots if there is a
/// processor for it, when nobody knows yet whether it is. It may be called again.
pub(crate) type Note<'n> = &'n (dyn Fn(&Block) + Sync);

impl Chain {
    /// Takes in a block whose parent is stored, and makes it the head if that is better than the
    /// present one: heavier before the Merge, higher after it.
    ///
    /// # Errors
    /// [`ImportError`]; then the chain is as it was.
    ///
    /// Spec: execution-specs, `state_transition` of each fork's `fork.py`.
    pub fn import(&self, block: Block) -> Result<Imported, ImportError> {
        let hash = block.header.hash_slow();
        self.take_in(unrecovered(block, hash, []), &Known::default(), None, true)
    }

    /// Like [`Chain::import`], with the senders of the transactions already recovered.
    ///
    /// # Errors
    /// [`ImportError`]; then the chain is as it was.
    pub fn import_recovered(&self, block: RecoveredBlock) -> Result<Imported, ImportError> {
        self.take_in(block, &Known::default(), None, true)
    }

    /// Like [`Chain::import`], with what [`recover_ahead`](crate::recover_ahead) knows of it.
    ///
    /// # Errors
    /// [`ImportError`]; then the chain is as it was.
    pub fn import_ahead(&self, ahead: BlockAhead) -> Result<Imported, ImportError> {
        let senders = ahead.senders.unwrap_or_default().into_iter().map(Some);
        let block = unrecovered(ahead.block, ahead.hash, senders);
        self.take_in(block, &Known::default(), None, true)
    }

    /// Takes in a block without moving the head: [`Chain::set_head`] does that later.
    ///
    /// # Errors
    /// [`ImportError`]; then the chain is as it was.
    pub fn import_beside(&self, block: Block) -> Result<Imported, ImportError> {
        let hash = block.header.hash_slow();
        self.take_in(unrecovered(block, hash, []), &Known::default(), None, false)
    }

    /// Like [`Chain::import_beside`], of a block whose hash has been computed already, with what has come
    /// with it.
    pub(crate) fn import_payload(
        &self,
        block: Block,
        hash: B256,
        known: Known,
    ) -> Result<Imported, ImportError> {
        self.import_noting((block, hash), known, None)
    }

    /// Like [`Chain::import_payload`], of a block that is noted meanwhile.
    pub(crate) fn import_noting(
        &self,
        (block, hash): (Block, B256),
        mut known: Known,
        note: Option<Note<'_>>,
    ) -> Result<Imported, ImportError> {
        let block = unrecovered(block, hash, std::mem::take(&mut known.senders));
        self.take_in(block, &known, note, false)
    }

    /// Takes in a block, which has the senders of what is `known` already.
    fn take_in(
        &self,
        block: RecoveredBlock,
        known: &Known,
        note: Option<Note<'_>>,
        may_lead: bool,
    ) -> Result<Imported, ImportError> {
        let _handling = self.handling();
        let _writer = self.writer();
        let (header, hash) = (&block.block.header, block.hash);
        let (number, parent) = (header.number, header.parent_hash);
        if let Some(stored) = self.header(&hash)? {
            return self.take_known(stored, block.block.body.transactions.len(), may_lead);
        }
        let block = Arc::new(block);
        self.try_take_in(&block, known, note, may_lead)
            .map_err(|refusal| {
                if matches!(refusal, Refusal::Invalid(_)) {
                    self.bad_blocks().put(block.block.clone(), hash);
                }
                refusal.of((number, hash), parent)
            })
    }

    /// Judges a stored block once more, as if it had just come. Nothing changes.
    ///
    /// # Errors
    /// [`ImportError`]: what such a block would be refused for.
    pub fn replay(&self, stored: &StoredHeader) -> Result<(), ImportError> {
        let parent = stored.header.parent_hash;
        let block = Block {
            header: stored.header.clone(),
            body: self.read_body(&stored.id)?,
        };
        let BlockId { number, hash } = stored.id;
        self.judge_again(block, hash)
            .map_err(|refusal| refusal.of((number, hash), parent))
    }

    fn judge_again(&self, block: Block, hash: B256) -> Result<(), Refusal> {
        let parent = self.header(&block.header.parent_hash).map_err(fault)?;
        let parent = parent.ok_or(Refusal::UnknownParent)?;
        let block = Arc::new(unrecovered(block, hash, []));
        let _recovering = recover_beside(&block, self.sender_threads());
        self.check_block(&block.block, body_roots(&block.block), &parent)?;
        let view = self.world().view_at(parent.id).map_err(fault)?;
        let view = view.ok_or(Refusal::OutOfReach)?;
        let (executed, _) = self.execute((&block, None), &view)?;
        let prepared = self
            .world()
            .compute_root(&view, &executed.diff)
            .map_err(fault)?;
        let receipts = Receipts::of(&executed.receipts);
        compare(
            self.spec(),
            &block.block,
            &executed,
            (prepared.root(), &receipts),
        )?;
        Ok(())
    }

    /// A stored block leads only if the head was set back, or never set to it.
    fn take_known(
        &self,
        stored: StoredHeader,
        transactions: usize,
        may_lead: bool,
    ) -> Result<Imported, ImportError> {
        let mut imported = Imported {
            id: stored.id,
            status: ImportStatus::Known,
            gas_used: stored.header.gas_used,
            transactions,
            shares: Shares::default(),
            early_root: false,
            root_begun: 0,
            listed: false,
            reads: HitRate::default(),
            waiting_batches: 0,
            timings: Timings::default(),
        };
        if may_lead && self.is_better(&stored) {
            let BlockId { number, hash } = stored.id;
            let parent = stored.header.parent_hash;
            self.lead(stored).map_err(|error| match error {
                SetHeadError::Fault(fault) => ImportError::Fault(fault),
                _ => ImportError::OutOfReach {
                    number,
                    hash,
                    parent,
                },
            })?;
            imported.status = ImportStatus::Canonical;
        }
        Ok(imported)
    }

    fn try_take_in(
        &self,
        block: &Arc<RecoveredBlock>,
        known: &Known,
        note: Option<Note<'_>>,
        may_lead: bool,
    ) -> Result<Imported, Refusal> {
        let list = known.access_list.as_deref();
        let mut timings = Timings::default();
        let mut clock = Instant::now();
        let mut lap = |phase: &mut Duration| {
            let now = Instant::now();
            *phase = now - clock;
            clock = now;
        };
        let parent = self
            .header(&block.block.header.parent_hash)
            .map_err(fault)?
            .ok_or(Refusal::UnknownParent)?;
        // Before others are called, which would count.
        self.choose_block_threads();
        let _recovering = recover_beside(block, self.sender_threads());
        let roots = known.roots.unwrap_or_else(|| body_roots(&block.block));
        self.check_block(&block.block, roots, &parent)?;
        lap(&mut timings.check);

        let view = self.world().view_at(parent.id).map_err(fault)?;
        let mut view = view.ok_or(Refusal::OutOfReach)?;
        let looked_up = self.world().value_hit_rate();
        let Ran {
            executed,
            shares,
            receipts,
            prepared,
            early_root,
            root_begun,
        } = self.run(block, list, &mut view, note)?;
        lap(&mut timings.execute);
        let ended = shares
            .ended
            .map(|ended| nanoseconds().saturating_sub(ended));
        let after = Duration::from_nanos(ended.unwrap_or_default());
        timings.root = after.min(timings.execute);
        timings.execute -= timings.root;
        timings.recover = Duration::from_nanos(block.senders.blocking_ns()).min(timings.execute);
        timings.execute -= timings.recover;

        let access_list = compare(
            self.spec(),
            &block.block,
            &executed,
            (prepared.root(), &receipts),
        )?;
        lap(&mut timings.compare);

        if let Some(note) = note {
            note(&block.block);
        }
        let (gas_used, transactions) = (executed.gas_used, block.block.body.transactions.len());
        let id = BlockId {
            number: block.block.header.number,
            hash: block.hash,
        };
        let status = self
            .write(
                (block, id),
                &parent,
                (view, executed, access_list, prepared),
                may_lead,
            )
            .map_err(fault)?;
        self.remember(block);
        lap(&mut timings.commit);
        Ok(Imported {
            id,
            status,
            gas_used,
            transactions,
            shares,
            early_root,
            root_begun,
            listed: list.is_some(),
            reads: self.world().value_hit_rate().since(looked_up),
            waiting_batches: self.database().pending_batches(),
            timings,
        })
    }

    /// Header, body and ommers, in the spec's order.
    fn check_block(
        &self,
        block: &Block,
        roots: BodyRoots,
        parent: &StoredHeader,
    ) -> Result<(), Refusal> {
        let header_parent = Parent {
            header: &parent.header,
            hash: parent.id.hash,
            total_difficulty: Some(parent.total_difficulty),
        };
        check_header(self.spec(), &block.header, &header_parent).map_err(InvalidBlock::from)?;

        let rules = BlockRules::new(self.spec(), &block.header);
        check_body(&rules, block, &roots).map_err(InvalidBlock::from)?;

        if !block.body.ommers.is_empty() {
            let ancestors = self.ommer_ancestors(parent).map_err(fault)?;
            check_ommers(self.spec(), &block.header, &block.body.ommers, &ancestors)
                .map_err(InvalidBlock::from)?;
        }
        Ok(())
    }

    /// Executes a block, with the access list that it has brought.
    fn execute(
        &self,
        (block, list): (&RecoveredBlock, Option<&[AccountChanges]>),
        view: &View,
    ) -> Result<(Executed, Shares), Refusal> {
        self.execute_then((block, list), view, (None, None), |executed| executed)
    }

    /// Executes a block, and does `then` with what came of it.
    fn execute_then<T>(
        &self,
        (block, list): (&RecoveredBlock, Option<&[AccountChanges]>),
        view: &View,
        (on_the_way, errands): (Option<OnTheWay<'_>>, Option<&dyn Errands>),
        then: impl FnOnce(Executed) -> T,
    ) -> Result<(T, Shares), Refusal> {
        let mut post_state = |diff: &StateDiff| {
            let prepared = self.world().compute_root(view, diff)?;
            Ok(prepared.root())
        };
        let meanwhile = Meanwhile::new(&mut post_state)
            .calling(on_the_way)
            .with_errands(errands);
        apply_body_then(
            self.parallelism(),
            self.spec(),
            (block, list),
            (view, meanwhile),
            then,
        )
        .map_err(execute_error)
    }

    fn write(
        &self,
        (block, id): (&Arc<RecoveredBlock>, BlockId),
        parent: &StoredHeader,
        (view, executed, access_list, prepared): (View, Executed, Option<Bytes>, ComputedRoot),
        may_lead: bool,
    ) -> Result<ImportStatus, Fault> {
        let Block { header, body } = &block.block;
        let stored = StoredHeader {
            id,
            total_difficulty: parent.total_difficulty.saturating_add(header.difficulty),
            header: header.clone(),
        };
        let (own, parent_hash) = (stored.id, parent.id.hash);
        let accounts = executed.diff.accounts.iter();
        let changed: Arc<[Address]> = accounts.map(|(address, _)| *address).collect();
        let rows = BlockRows {
            header: stored.clone(),
            block: Arc::clone(block),
            executed,
            access_list,
        };
        let mut batch = Batch::new();
        if !may_lead || !self.is_better(&stored) {
            // Encoded behind the answer.
            let log = self
                .world()
                .stage_side_block(&view, &prepared, own, parent_hash);
            let later = DeferredRows::new(rows.bytes() + prepared.trie_log_bytes(), move |batch| {
                rows.add_to(batch);
                log(batch);
            });
            self.database().write_deferred(batch, later, false)?;
            *self.pending() = Some((stored, prepared, changed));
            return Ok(ImportStatus::Side);
        }
        rows.add_to(&mut batch);
        drop((view, rows));
        let mut route = Route::default();
        if self.head().id == parent.id {
            route.changed = Some(changed);
        } else {
            route = self.reroute(parent, &mut batch)?;
        }
        route.added.push(stored.id);
        adopt(&stored.id, body, &mut batch);
        self.world()
            .commit(prepared, own, parent_hash, batch, false)?;
        self.put_head(stored, route);
        Ok(ImportStatus::Canonical)
    }
}

/// A block of whose senders so many are known.
fn unrecovered(
    block: Block,
    hash: B256,
    senders: impl IntoIterator<Item = Option<Address>>,
) -> RecoveredBlock {
    let senders = Senders::new(block.body.transactions.len(), senders);
    RecoveredBlock {
        block,
        hash,
        senders: senders.timed(nanoseconds),
    }
}

/// The roots that the header gives for the body.
pub(crate) fn body_roots(block: &Block) -> BodyRoots {
    let withdrawals = block.body.withdrawals.as_ref();
    BodyRoots {
        transactions: ordered_root(&block.body.transactions, |tx, out| tx.encode_2718(out)),
        withdrawals: withdrawals.map(|list| {
            ordered_root(list, |withdrawal: &Withdrawal, out| {
                alloy_rlp::Encodable::encode(withdrawal, out);
            })
        }),
    }
}

/// What the header claims against what execution gave; gives the bytes of the block access list,
/// which has to be one that a block may have.
///
/// Spec: execution-specs `amsterdam/fork.py`, `state_transition`, after `apply_body`; EIP-7928.
fn compare(
    spec: &ChainSpec,
    block: &Block,
    executed: &Executed,
    (state_root, receipts): (B256, &Receipts),
) -> Result<Option<Bytes>, InvalidBlock> {
    let header = &block.header;
    if let Some(list) = &executed.block_access_list {
        let transactions = block.body.transactions.len();
        check_access_list(spec, list, header, transactions)?;
    }

    let (got, expected) = (executed.gas_used, header.gas_used);
    if got != expected {
        return Err(InvalidBlock::GasUsed { got, expected });
    }

    let (got, expected) = (state_root, header.state_root);
    if got != expected {
        return Err(InvalidBlock::StateRoot { got, expected });
    }

    let (got, expected) = (receipts.root(), header.receipts_root);
    if got != expected {
        return Err(InvalidBlock::ReceiptsRoot { got, expected });
    }

    if receipts.logs_bloom() != header.logs_bloom {
        return Err(InvalidBlock::LogsBloom);
    }

    if let Some(expected) = header.blob_gas_used {
        let got = executed.blob_gas_used;
        if got != expected {
            return Err(InvalidBlock::BlobGasUsed { got, expected });
        }
    }

    if let Some(expected) = header.requests_hash {
        let got = requests_hash(&executed.requests);
        if got != expected {
            return Err(InvalidBlock::RequestsHash { got, expected });
        }
    }

    let access_list = executed.block_access_list.as_ref().map(encode_access_list);
    if let Some(expected) = header.block_access_list_hash {
        let got = access_list_hash(&access_list.clone().unwrap_or_default());
        if got != expected {
            return Err(InvalidBlock::BlockAccessListHash { got, expected });
        }
    }
    Ok(access_list)
}
