//! The checks of a block before and after its execution, in the order of the specification.

use super::error::{ImportFailure, fault};
use super::tasks::receipt_root::Receipts;
use crate::Chain;
use crate::bft::Seals;
use crate::tree::StoredHeader;
use niwaki_execution::ExecutedBlock;
use niwaki_primitives::{B256, Block, BlockBody, Bytes, Encodable2718, Withdrawal};
use niwaki_rules::{
    BlockRules, BodyRoots, ChainSpec, InvalidBlock, Parent, access_list_hash, check_access_list,
    check_body, check_header, check_ommers, encode_access_list, requests_hash,
};
use niwaki_trie::ordered_root;

impl Chain {
    /// Checks header, body and ommers against the parent.
    pub(super) fn validate(
        &self,
        block: &Block,
        roots: &BodyRoots,
        parent: &StoredHeader,
        seals: Seals,
    ) -> Result<(), ImportFailure> {
        let header_parent = Parent {
            header: &parent.header,
            hash: parent.id.hash,
            total_difficulty: Some(parent.total_difficulty),
        };
        check_header(self.spec(), &block.header, &header_parent).map_err(InvalidBlock::from)?;
        self.check_validators(&block.header, parent, seals)?;

        let rules = BlockRules::new(self.spec(), &block.header);
        check_body(&rules, block, roots).map_err(InvalidBlock::from)?;

        if !block.body.ommers.is_empty() {
            let ancestors = self.ommer_ancestors(parent).map_err(fault)?;
            check_ommers(self.spec(), &block.header, &block.body.ommers, &ancestors)
                .map_err(InvalidBlock::from)?;
        }
        Ok(())
    }
}

/// The roots of a body, as its header must claim them.
pub fn body_roots(body: &BlockBody) -> BodyRoots {
    let withdrawals = body.withdrawals.as_ref();
    BodyRoots {
        transactions: ordered_root(&body.transactions, |tx, out| tx.encode_2718(out)),
        withdrawals: withdrawals.map(|list| {
            ordered_root(list, |withdrawal: &Withdrawal, out| {
                alloy_rlp::Encodable::encode(withdrawal, out);
            })
        }),
    }
}

/// Compares what the header claims with what the execution gave. Returns the RLP of the block access list, which is checked
/// too.
///
/// Spec: execution-specs `amsterdam/fork.py`, `state_transition`, after `apply_body`; EIP-7928.
pub(super) fn compare(
    spec: &ChainSpec,
    block: &Block,
    executed: &ExecutedBlock,
    state_root: B256,
    receipts: &Receipts,
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
