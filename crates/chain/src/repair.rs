//! Rebuilds what a check finds damaged from data that is right.
//!
//! `niwaki-state` repairs the state. Of the blocks, the head's hash proves the headers, from the head down; indices and
//! total difficulties are rebuilt from them and from the bodies. Headers, bodies, receipts, block access lists and
//! codes are stored once, so they can't be rebuilt.

use crate::check::is_body_valid;
use crate::indices::TransactionPlace;
use crate::rows::encode_header;
use crate::tree::StoredHeader;
use crate::{BlockId, Chain};
use niwaki_primitives::{B256, Block, Encodable2718, Fault};
use niwaki_state::{Problem, RepairError, RepairSummary};
use niwaki_storage::{Batch, Segment};

/// What was rebuilt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainRepair {
    /// Of the state; `None` if its flat values are not those of the head, so that nothing could be done.
    pub state: Option<RepairSummary>,
    /// Rows from number to hash.
    pub canonical: u64,
    /// Rows from hash to number.
    pub numbers: u64,
    /// Rows from a transaction to its place.
    pub transactions: u64,
    /// Total difficulties.
    pub difficulties: u64,
}

/// Called with what can't be repaired, and why.
pub type RepairRefusal<'a> = dyn FnMut(Problem) + 'a;

/// How far a repair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repairing {
    /// Parts of the state done, of how many.
    State(u64, u64),
    /// Blocks done, of how many; each counts in three passes.
    Blocks(u64, u64),
}

/// Called with how far the repair is; `false` stops it.
pub type RepairingReport<'a> = dyn FnMut(Repairing) -> bool + 'a;

/// Why a repair ended early.
enum RepairAbort {
    Stopped,
    Fault(Fault),
}

impl From<Fault> for RepairAbort {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Chain {
    /// Rebuilds what follows from data that is right, and calls `refusal` with what does not. Each row is proven before
    /// it is written, so an interrupted repair does no damage. `None` if `report` stopped it. The caller opens the
    /// chain again afterwards, and checks it.
    ///
    /// # Errors
    /// A [`Fault`] if the storage can't be read or written.
    pub fn repair(
        self,
        report: &mut RepairingReport<'_>,
        refusal: &mut RepairRefusal<'_>,
    ) -> Result<Option<ChainRepair>, Fault> {
        let _writer = self.writer();
        match self.repair_all(report, refusal) {
            Ok(repair) => Ok(Some(repair)),
            Err(RepairAbort::Stopped) => Ok(None),
            Err(RepairAbort::Fault(fault)) => Err(fault),
        }
    }

    fn repair_all(
        &self,
        report: &mut RepairingReport<'_>,
        refusal: &mut RepairRefusal<'_>,
    ) -> Result<ChainRepair, RepairAbort> {
        let mut repair = ChainRepair::default();
        let repaired = self
            .world()
            .repair(&mut |done, of| report(Repairing::State(done, of)));
        match repaired {
            Ok(state) => repair.state = Some(state),
            Err(RepairError::Stopped) => return Err(RepairAbort::Stopped),
            Err(RepairError::Fault(fault)) => return Err(fault.into()),
            Err(error) => {
                refusal(Problem::new(Segment::Accounts, &[], error.to_string()));
                if let RepairError::Flat { damaged, .. } = error {
                    damaged.into_iter().for_each(&mut *refusal);
                }
            }
        }
        let mut repairer = Repairer {
            chain: self,
            report,
            seen: 0,
            refusal,
            batch: Batch::new(),
            repair,
        };
        repairer.numbers()?;
        repairer.canonical()?;
        repairer.blocks()?;
        self.reset_log_index(&mut repairer.batch)?;
        self.database()
            .write(std::mem::take(&mut repairer.batch), true)?;
        Ok(repairer.repair)
    }
}

struct Repairer<'a, 'b, 'c> {
    chain: &'a Chain,
    report: &'a mut RepairingReport<'c>,
    /// Blocks so far, each counted in every pass.
    seen: u64,
    refusal: &'a mut RepairRefusal<'b>,
    batch: Batch,
    repair: ChainRepair,
}

impl Repairer<'_, '_, '_> {
    /// Counts a block of pass number `pass`, of which `done` blocks are done.
    fn block(&mut self, pass: u64, done: u64) -> Result<(), RepairAbort> {
        const PASSES: u64 = 3;
        const BLOCKS: u64 = 256;
        let is_due = self.seen.is_multiple_of(BLOCKS);
        self.seen += 1;
        if !is_due {
            return Ok(());
        }
        let each = self.chain.head().id.number.max(1);
        let done = pass.saturating_mul(each).saturating_add(done.min(each));
        match (self.report)(Repairing::Blocks(done, each.saturating_mul(PASSES))) {
            true => Ok(()),
            false => Err(RepairAbort::Stopped),
        }
    }

    /// From hash to number, of every header that is stored.
    fn numbers(&mut self) -> Result<(), RepairAbort> {
        let database = self.chain.database();
        for row in database.prefix(Segment::Headers, &[]) {
            let (key, _) = row?;
            let Some((number, hash)) = key.split_first_chunk::<8>() else {
                self.refuse(Segment::Headers, &key, "the key is not 40 bytes");
                continue;
            };
            self.block(0, u64::from_be_bytes(*number))?;
            if database.get(Segment::Numbers, hash)?.as_deref() != Some(number) {
                self.repair.numbers += 1;
                self.batch.put(Segment::Numbers, hash, number);
                self.write_if_large()?;
            }
        }
        // `canonical` finds headers by these rows.
        database.write(std::mem::take(&mut self.batch), false)?;
        Ok(())
    }

    /// From number to hash, down from the head.
    fn canonical(&mut self) -> Result<(), RepairAbort> {
        let database = self.chain.database();
        let mut numbers: Vec<u64> = self.chain.stored_numbers()?.collect();
        let genesis = self.chain.genesis_hash();
        let mut hash = self.chain.head().id.hash;
        let lowest = numbers.first().copied();
        while let Some(number) = numbers.pop() {
            if Some(number) == lowest {
                hash = genesis;
            }
            let head = self.chain.head().id.number;
            self.block(1, head.saturating_sub(number))?;
            let key = number.to_be_bytes();
            if database.get(Segment::Canonical, &key)?.as_deref() != Some(&hash[..]) {
                self.repair.canonical += 1;
                self.batch.put(Segment::Canonical, &key, hash.as_slice());
                self.write_if_large()?;
            }
            match self.header(BlockId { number, hash })? {
                Some(block) => hash = block.header.parent_hash,
                // Of the blocks below it only the genesis block is proven.
                None => numbers.truncate(1),
            }
        }
        let beyond = self.chain.head().id.number.saturating_add(1).to_be_bytes();
        for row in database.range(Segment::Canonical, &beyond, None) {
            self.repair.canonical += 1;
            self.batch.delete(Segment::Canonical, &row?.0);
        }
        database.write(std::mem::take(&mut self.batch), false)?;
        Ok(())
    }

    /// The header of a block that must be stored, if it is the right one; else calls `refusal`.
    fn header(&mut self, id: BlockId) -> Result<Option<StoredHeader>, Fault> {
        let what = match self.chain.read_header(id) {
            Ok(block) if self.chain.spec().header_hash(&block.header) == id.hash => {
                return Ok(Some(block));
            }
            Ok(_) => "the header is not the one of its key".to_owned(),
            Err(Fault::Corrupt { reason, .. }) => reason,
            Err(Fault::Missing { .. }) => "missing".to_owned(),
            Err(other) => return Err(other),
        };
        self.refuse(Segment::Headers, &id.to_key(), &what);
        Ok(None)
    }

    /// Total difficulties and the places of transactions, up from the genesis block.
    fn blocks(&mut self) -> Result<(), RepairAbort> {
        let mut parent: Option<StoredHeader> = None;
        for number in self.chain.stored_numbers()? {
            self.block(2, number)?;
            let stored = match self.chain.header_at(number) {
                Ok(stored) => stored
                    .filter(|block| self.chain.spec().header_hash(&block.header) == block.id.hash),
                // Reported already.
                Err(Fault::Corrupt { .. } | Fault::Missing { .. }) => None,
                Err(other) => return Err(other.into()),
            };
            let Some(mut block) = stored else {
                parent = None;
                continue;
            };
            let below = parent.filter(|p| p.id.number.checked_add(1) == Some(number));
            if let Some(below) = below {
                self.difficulty(&below, &mut block);
            }
            self.places(&block)?;
            self.write_if_large()?;
            parent = Some(block);
        }
        Ok(())
    }

    fn difficulty(&mut self, parent: &StoredHeader, block: &mut StoredHeader) {
        let total = parent
            .total_difficulty
            .saturating_add(block.header.difficulty);
        if block.total_difficulty != total {
            block.total_difficulty = total;
            self.repair.difficulties += 1;
            let key = block.id.to_key();
            self.batch.put_with(Segment::Headers, &key, |out| {
                encode_header(&block.header, &total, out);
            });
        }
    }

    fn places(&mut self, block: &StoredHeader) -> Result<(), Fault> {
        let key = block.id.to_key();
        let body = match self.chain.read_body(&block.id) {
            Ok(body) => body,
            Err(Fault::Corrupt { reason, .. }) => {
                self.refuse(Segment::Bodies, &key, &reason);
                return Ok(());
            }
            Err(Fault::Missing { .. }) => {
                self.refuse(Segment::Bodies, &key, "missing");
                return Ok(());
            }
            Err(other) => return Err(other),
        };
        let whole = Block {
            header: block.header.clone(),
            body,
        };
        if !is_body_valid(&whole) {
            let what = "the body is not the one of its header";
            self.refuse(Segment::Bodies, &key, what);
            return Ok(());
        }
        let number = block.id.number;
        for (index, tx) in (0_u32..).zip(&whole.body.transactions) {
            let hash: B256 = tx.trie_hash();
            let place = TransactionPlace { number, index };
            let stored = match self.chain.transaction_place(&hash) {
                Ok(stored) => stored,
                Err(Fault::Corrupt { .. }) => None,
                Err(other) => return Err(other),
            };
            if stored != Some(place) {
                self.repair.transactions += 1;
                let parts = [&number.to_be_bytes()[..], &index.to_be_bytes()];
                self.batch
                    .put_parts(Segment::Transactions, &[hash.as_slice()], &parts);
            }
        }
        Ok(())
    }

    fn refuse(&mut self, segment: Segment, key: &[u8], what: &str) {
        (self.refusal)(Problem::new(segment, key, what));
    }

    fn write_if_large(&mut self) -> Result<(), Fault> {
        self.chain.database().write_if_large(&mut self.batch)
    }
}
