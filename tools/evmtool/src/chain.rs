//! A simple chain for block tests: every block with its whole state in memory.
//!
//! Import decodes, checks, executes and compares in the specification's order. The head is the block with the greatest
//! total difficulty until Paris, and the last block from then on.

use alloy_rlp::{BufMut, Decodable, Encodable};
use niwaki_evm::Dispatch;
use niwaki_execution::{
    BlockExecution, ExecuteError, ExecutedBlock, Executor, Parallelism, logs_bloom, recover_block,
};
use niwaki_primitives::{
    AccountChanges, B256, Block, Bytes, Encodable2718, Fork, Header, Receipt, StateDiff, U256,
};
use niwaki_rules::{
    Ancestor, BlockRules, BodyRoots, ChainSpec, InvalidBlock, InvalidBody, MAX_OMMER_DEPTH, Parent,
    check_body, check_header, check_ommers, requests_hash,
};
use niwaki_testkit::MemoryState;
use niwaki_testkit::state_root;
use std::collections::HashMap;
use std::rc::Rc;

/// An imported block.
struct Stored {
    header: Header,
    ommers: Vec<B256>,
    total_difficulty: U256,
    state: Rc<MemoryState>,
}

/// A chain in memory.
pub(crate) struct PlainChain {
    spec: ChainSpec,
    /// Dispatch of sequential execution.
    pub(crate) dispatch: Dispatch,
    /// How the transactions of a block run; `None` for sequentially. With it, the dispatch is the fastest.
    pub(crate) parallelism: Option<Parallelism>,
    blocks: HashMap<B256, Stored>,
    head: B256,
}

/// Why a block was not imported.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The block is invalid.
    Invalid(InvalidBlock),
    /// The client failed.
    Fault(String),
}

impl From<InvalidBlock> for Refusal {
    fn from(reason: InvalidBlock) -> Self {
        Self::Invalid(reason)
    }
}

impl From<ExecuteError> for Refusal {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Invalid(reason) => Self::Invalid(reason),
            ExecuteError::Fault(fault) => Self::Fault(fault.to_string()),
        }
    }
}

/// Root of the trie of items by their RLP-encoded index.
pub(crate) fn ordered_root(items: &[Bytes]) -> B256 {
    alloy_trie::root::ordered_trie_root_with_encoder(items, |item, out| out.put_slice(item))
}

impl PlainChain {
    /// A chain of its genesis block alone.
    ///
    /// # Errors
    /// A field of the genesis header that does not match the state.
    pub(crate) fn new(
        spec: ChainSpec,
        genesis: Header,
        hash: B256,
        mut state: MemoryState,
    ) -> Result<Self, String> {
        let root = state_root(&state);
        if root != genesis.state_root {
            return Err(format!(
                "genesis state root is {root}, the header says {}",
                genesis.state_root
            ));
        }
        let got = genesis.hash_slow();
        if got != hash {
            return Err(format!("genesis hash is {got}, the fixture says {hash}"));
        }
        state.block_hashes.insert(genesis.number, hash);
        let stored = Stored {
            total_difficulty: genesis.difficulty,
            header: genesis,
            ommers: Vec::new(),
            state: Rc::new(state),
        };
        Ok(Self {
            spec,
            dispatch: Dispatch::default(),
            parallelism: None,
            blocks: HashMap::from([(hash, stored)]),
            head: hash,
        })
    }

    /// The chain's parameters.
    pub(crate) fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// Hash of the head.
    pub(crate) fn head(&self) -> B256 {
        self.head
    }

    /// State after the head.
    pub(crate) fn head_state(&self) -> &MemoryState {
        &self.blocks[&self.head].state
    }

    /// Imports a block as RLP, and moves the head if it is better.
    pub(crate) fn import_rlp(&mut self, rlp: &[u8]) -> Result<(), Refusal> {
        let mut rest = rlp;
        let malformed = |reason: String| InvalidBlock::Encoding {
            what: "block".to_owned(),
            reason,
        };
        let block = Block::decode(&mut rest).map_err(|error| malformed(error.to_string()))?;
        if !rest.is_empty() {
            let reason = format!("{} bytes after its end", rest.len());
            return Err(malformed(reason).into());
        }
        let hash = block.header.hash_slow();
        self.import(block, hash, None)
    }

    /// Imports a block, with its access list if it has one, and moves the head if it is better.
    pub(crate) fn import(
        &mut self,
        block: Block,
        hash: B256,
        bal: Option<&[AccountChanges]>,
    ) -> Result<(), Refusal> {
        if self.blocks.contains_key(&hash) {
            self.choose_head(hash);
            return Ok(());
        }
        let header = block.header.clone();
        let parent = self.blocks.get(&header.parent_hash);
        let parent = parent.ok_or(InvalidBlock::UnknownParent {
            parent: header.parent_hash,
        })?;
        let total_difficulty = parent.total_difficulty.saturating_add(header.difficulty);
        // The specification compares the transactions root after execution, so an invalid transaction is reported
        // first.
        let wrong_root = match self.check(&block, parent) {
            Err(InvalidBlock::Body(reason @ InvalidBody::TransactionsRoot { .. })) => Some(reason),
            result => result.map(|()| None)?,
        };

        let ommers = block.body.ommers.iter().map(Header::hash_slow).collect();
        let recovered = recover_block(block, hash)?.into();
        let before = Rc::clone(&parent.state);
        let mut post_state = |diff: &StateDiff| {
            let mut state = MemoryState::clone(&before);
            state.apply(diff);
            Ok(state_root(&state))
        };
        let executed = match self.parallelism {
            Some(parallelism) => {
                BlockExecution {
                    bal,
                    parallelism,
                    ..BlockExecution::new(&self.spec, &recovered, &*before)
                }
                .run(&mut post_state)?
                .0
            }
            None => {
                let mut executor = Executor::new(&self.spec, &header, &*before);
                executor.evm().set_dispatch(self.dispatch);
                executor.apply_body(&self.spec, &recovered, &mut post_state)?
            }
        };
        if let Some(reason) = wrong_root {
            return Err(InvalidBlock::Body(reason).into());
        }
        let mut state = MemoryState::clone(&before);
        state.apply(&executed.diff);
        state.block_hashes.insert(header.number, hash);
        check_executed(&header, &executed, state_root(&state))?;

        let stored = Stored {
            header,
            ommers,
            total_difficulty,
            state: Rc::new(state),
        };
        self.blocks.insert(hash, stored);
        self.choose_head(hash);
        Ok(())
    }

    /// The checks before execution.
    fn check(&self, block: &Block, parent: &Stored) -> Result<(), InvalidBlock> {
        let header = &block.header;
        let above = Parent {
            header: &parent.header,
            hash: header.parent_hash,
            total_difficulty: Some(parent.total_difficulty),
        };
        check_header(&self.spec, header, &above)?;
        let rules = BlockRules::new(&self.spec, header);
        let transactions: Vec<Bytes> = block
            .body
            .transactions
            .iter()
            .map(|tx| tx.encoded_2718().into())
            .collect();
        let withdrawals = block.body.withdrawals.as_ref().map(|list| {
            let encoded: Vec<Bytes> = list.iter().map(|w| alloy_rlp::encode(w).into()).collect();
            ordered_root(&encoded)
        });
        let roots = BodyRoots {
            transactions: ordered_root(&transactions),
            withdrawals,
        };
        check_body(&rules, block, &roots)?;
        let ancestors = self.ancestors(header.parent_hash);
        check_ommers(&self.spec, header, &block.body.ommers, &ancestors)?;
        Ok(())
    }

    /// The nearest ancestors, from the block `hash` downwards.
    fn ancestors(&self, mut hash: B256) -> Vec<Ancestor> {
        let mut ancestors = Vec::new();
        for _ in 0..=MAX_OMMER_DEPTH {
            let Some(stored) = self.blocks.get(&hash) else {
                break;
            };
            ancestors.push(Ancestor {
                header: stored.header.clone(),
                hash,
                total_difficulty: Some(stored.total_difficulty),
                ommers: stored.ommers.clone(),
            });
            hash = stored.header.parent_hash;
        }
        ancestors
    }

    fn choose_head(&mut self, hash: B256) {
        let (new, head) = (&self.blocks[&hash], &self.blocks[&self.head]);
        if self.spec.fork_of(&new.header) >= Fork::Paris
            || new.total_difficulty > head.total_difficulty
        {
            self.head = hash;
        }
    }
}

/// Compares the header with the result of execution.
fn check_executed(
    header: &Header,
    executed: &ExecutedBlock,
    state_root: B256,
) -> Result<(), InvalidBlock> {
    if executed.gas_used != header.gas_used {
        return Err(InvalidBlock::GasUsed {
            got: executed.gas_used,
            expected: header.gas_used,
        });
    }
    let receipts: Vec<Bytes> = executed.receipts.iter().map(encode_receipt).collect();
    let got = ordered_root(&receipts);
    if state_root != header.state_root {
        return Err(InvalidBlock::StateRoot {
            got: state_root,
            expected: header.state_root,
        });
    }
    if got != header.receipts_root {
        return Err(InvalidBlock::ReceiptsRoot {
            got,
            expected: header.receipts_root,
        });
    }
    if logs_bloom(&executed.receipts) != header.logs_bloom {
        return Err(InvalidBlock::LogsBloom);
    }
    if let Some(expected) = header.requests_hash {
        let got = requests_hash(&executed.requests);
        if got != expected {
            return Err(InvalidBlock::RequestsHash { got, expected });
        }
    }
    Ok(())
}

/// The encoding of a receipt in the receipts trie.
pub(crate) fn encode_receipt(receipt: &Receipt) -> Bytes {
    let mut fields = Vec::new();
    match (receipt.status, receipt.post_state) {
        (Some(status), _) => status.encode(&mut fields),
        (None, root) => root.unwrap_or_default().encode(&mut fields),
    }
    receipt.cumulative_gas_used.encode(&mut fields);
    receipt.bloom().encode(&mut fields);
    receipt.logs.encode(&mut fields);
    let mut out = Vec::new();
    if receipt.tx_type > 0 {
        out.push(receipt.tx_type);
    }
    alloy_rlp::Header {
        list: true,
        payload_length: fields.len(),
    }
    .encode(&mut out);
    out.extend_from_slice(&fields);
    out.into()
}
