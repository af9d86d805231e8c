//! The whole database against itself: state, blocks, indices.

use crate::import::Receipts;
use crate::import::body_roots;
use crate::tree::StoredHeader;
use crate::{BlockId, Chain, TransactionPlace};
use niwaki_primitives::{B256, Block, BlockBody, Encodable2718, Fault, Header, Receipt, U256};
use niwaki_rules::access_list_hash;
use niwaki_state::{CheckSummary, Problem, StateHead};
use niwaki_storage::{Segment, missing};

/// What a check of a chain went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainCheck {
    /// The state.
    pub state: CheckSummary,
    /// Canonical blocks, the genesis included.
    pub blocks: u64,
    /// Their transactions.
    pub transactions: u64,
    /// Problems found, in state and blocks.
    pub problems: u64,
}

impl Chain {
    /// Compares the head's header with its hash, and its state root with the one that the state was written with and
    /// with the root of the trie. A few reads.
    ///
    /// # Errors
    /// A [`Fault`] if the storage can't be read.
    pub fn check_head(&self) -> Result<Option<Problem>, Fault> {
        let head = self.head();
        let bad = |what: String| Problem {
            segment: Segment::Headers.name(),
            key: head.id.to_string(),
            what,
        };
        let hash = self.spec().header_hash(&head.header);
        if hash != head.id.hash {
            return Ok(Some(bad(format!("the header hashes to {hash}"))));
        }
        let root = self.world().head().map_or(B256::ZERO, |head| head.root);
        if root != head.header.state_root {
            let expected = head.header.state_root;
            let what = format!("the header has state root {expected}, the state {root}");
            return Ok(Some(bad(what)));
        }
        self.world().check_root()
    }

    /// As [`Chain::check_head`], and compares `count` random accounts, their codes and a slot of each with the state
    /// root. Each problem goes to `report`.
    ///
    /// # Errors
    /// A [`Fault`] if the storage can't be read; what is wrong with its content is a problem, not a fault.
    pub fn check_sample(
        &self,
        count: u64,
        report: &mut dyn FnMut(Problem),
    ) -> Result<CheckSummary, Fault> {
        // Writers wait, so that head and state belong together.
        let _writer = self.writer();
        let head = self.check_head()?;
        let problems = u64::from(head.is_some());
        head.into_iter().for_each(&mut *report);
        let found = self.world().check_sample(count, report)?;
        Ok(CheckSummary {
            problems: problems + found.problems,
            ..found
        })
    }

    /// Checks the whole state against itself and the head, and every canonical block against its header, its parent and
    /// the indices. In an archive, checks every row of the history by itself, and for each block that the history leads
    /// to its state root. Each problem goes to `report`. Reads everything.
    ///
    /// # Errors
    /// As for [`Chain::check_sample`].
    pub fn check(&self, report: &mut dyn FnMut(Problem)) -> Result<ChainCheck, Fault> {
        // Writers wait, so that head and state belong together.
        let _writer = self.writer();
        let state = self.world().check(report)?;
        let mut check = Check {
            chain: self,
            report,
            summary: ChainCheck {
                state,
                problems: state.problems,
                ..ChainCheck::default()
            },
        };
        check.head();
        check.blocks()?;
        check.log_index()?;
        Ok(check.summary)
    }
}

struct Check<'a> {
    chain: &'a Chain,
    report: &'a mut dyn FnMut(Problem),
    summary: ChainCheck,
}

impl Check<'_> {
    /// The state on disk is the head's.
    fn head(&mut self) {
        let head = self.chain.head();
        let state = self.chain.world().head();
        let is_same = state
            .is_some_and(|state| state.block == head.id && state.root == head.header.state_root);
        if !is_same {
            let what = "the state is not that of the head's header";
            self.problem(Segment::Meta, b"head", what);
        }
    }

    /// From genesis to head.
    fn blocks(&mut self) -> Result<(), Fault> {
        let head = self.chain.head().id;
        let mut parent: Option<StoredHeader> = None;
        let numbers = match self.chain.stored_numbers() {
            Ok(numbers) => numbers,
            Err(fault) => return self.report_damage(Err(fault)),
        };
        for number in numbers {
            let key = number.to_be_bytes();
            let block = self.chain.header_at(number);
            match block.and_then(|block| block.ok_or_else(|| missing(Segment::Canonical, &key))) {
                Ok(block) => {
                    // Above the genesis block of an imported state there is a gap.
                    let below = number.checked_sub(1);
                    let parent_of = parent.as_ref().filter(|p| Some(p.id.number) == below);
                    let header = self.header(&block, parent_of);
                    self.report_damage(header)?;
                    let body = self.body(&block);
                    self.report_damage(body)?;
                    let past_state = self.past_state(&block);
                    self.report_damage(past_state)?;
                    self.summary.blocks += 1;
                    parent = Some(block);
                }
                Err(fault) => {
                    self.report_damage(Err(fault))?;
                    parent = None;
                }
            }
        }
        let beyond = head.number.saturating_add(1);
        if self.chain.canonical_hash(beyond)?.is_some() {
            let key = beyond.to_be_bytes();
            let what = "a canonical block beyond the head";
            self.problem(Segment::Canonical, &key, what);
        }
        Ok(())
    }

    /// The index of logs is that of the canonical headers.
    fn log_index(&mut self) -> Result<(), Fault> {
        let chain = self.chain;
        let mut bad = |key: &[u8], what: String| self.problem(Segment::LogIndex, key, &what);
        let outcome = chain.check_log_index(&mut bad);
        self.report_damage(outcome)
    }

    fn header(&mut self, block: &StoredHeader, parent: Option<&StoredHeader>) -> Result<(), Fault> {
        let BlockId { number, hash } = block.id;
        let header = &block.header;
        let key = hash.as_slice();
        if self.chain.spec().header_hash(header) != hash || header.number != number {
            let what = "the header is not the one of its key";
            self.problem(Segment::Headers, key, what);
        }
        if self.chain.number_of(&hash)? != Some(number) {
            let what = "not the number of its canonical block";
            self.problem(Segment::Numbers, key, what);
        }
        let Some(parent) = parent else {
            return Ok(());
        };
        if header.parent_hash != parent.id.hash {
            let what = "its parent is not the canonical block before it";
            self.problem(Segment::Canonical, &number.to_be_bytes(), what);
        }
        let total: U256 = parent.total_difficulty.saturating_add(header.difficulty);
        if block.total_difficulty != total {
            let what = "not its parent's total difficulty and its own";
            self.problem(Segment::Headers, key, what);
        }
        Ok(())
    }

    /// Compares the body, receipts and block access list with the header, and the transactions with their index.
    fn body(&mut self, stored: &StoredHeader) -> Result<(), Fault> {
        let hash = stored.id.hash;
        let (key, header) = (hash.as_slice(), &stored.header);
        let body = self.chain.read_body(&stored.id)?;
        let block = Block {
            header: header.clone(),
            body,
        };
        if !is_body_valid(&block) {
            let what = "the body is not the one of its header";
            self.problem(Segment::Bodies, key, what);
        }
        let receipts = self.chain.receipts(&hash)?.unwrap_or_default();
        if !are_receipts_valid(&receipts, header) {
            let what = "the receipts are not those of the header";
            self.problem(Segment::Receipts, key, what);
        }
        // A block may be without its list.
        let access_list = self.chain.block_access_list(&hash)?;
        let access_list = access_list.map(|list| access_list_hash(&list));
        if access_list.is_some() && access_list != header.block_access_list_hash {
            let what = "the block access list is not the one of the header";
            self.problem(Segment::AccessLists, key, what);
        }
        self.places(&block.body, header)
    }

    /// In an archive, the state after the block is there: reads and hashes the trie path to its coinbase. Says nothing
    /// of other accounts.
    fn past_state(&self, block: &StoredHeader) -> Result<(), Fault> {
        let past = StateHead {
            block: block.id,
            root: block.header.state_root,
        };
        if let Some(view) = self.chain.historical_view(past)? {
            view.prove_account(&block.header.beneficiary)?;
        }
        Ok(())
    }

    fn places(&mut self, body: &BlockBody, header: &Header) -> Result<(), Fault> {
        for (index, tx) in (0_u32..).zip(&body.transactions) {
            self.summary.transactions += 1;
            let hash: B256 = tx.trie_hash();
            let place = TransactionPlace {
                number: header.number,
                index,
            };
            let stored = self.chain.transaction_place(&hash)?;
            if stored != Some(place) {
                let key = hash.as_slice();
                let what = "not the place of the transaction";
                self.problem(Segment::Transactions, key, what);
            }
        }
        Ok(())
    }

    /// Reports a stored value that is damaged or absent; any other fault ends the check.
    fn report_damage(&mut self, outcome: Result<(), Fault>) -> Result<(), Fault> {
        let (segment, key, what) = match outcome {
            Ok(()) => return Ok(()),
            Err(Fault::Corrupt {
                segment,
                key,
                reason,
            }) => (segment, key, reason),
            Err(Fault::Missing { segment, key }) => (segment, key, "missing".to_owned()),
            Err(other) => return Err(other),
        };
        self.summary.problems += 1;
        (self.report)(Problem { segment, key, what });
        Ok(())
    }

    fn problem(&mut self, segment: Segment, key: &[u8], what: &str) {
        self.summary.problems += 1;
        (self.report)(Problem::new(segment, key, what));
    }
}

/// Whether the roots in the header are those of the body.
pub(crate) fn is_body_valid(block: &Block) -> bool {
    let roots = body_roots(&block.body);
    roots.transactions == block.header.transactions_root
        && roots.withdrawals == block.header.withdrawals_root
        && block.body.calculate_ommers_root() == block.header.ommers_hash
}

/// Whether the root in the header is that of the receipts.
pub(crate) fn are_receipts_valid(receipts: &[Receipt], header: &Header) -> bool {
    receipts_root(receipts) == header.receipts_root
}

/// The root of a block's receipts.
pub fn receipts_root(receipts: &[Receipt]) -> B256 {
    Receipts::of(receipts).root()
}
