//! The rules of a block for its transactions.

use crate::chain_spec::{BlobParams, ChainSpec};
use niwaki_primitives::{Fork, Header};

/// The rules of one block that apply to its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRules {
    /// The fork of the block.
    pub fork: Fork,
    /// The chain id that EIP-155 signatures must name.
    pub chain_id: u64,
    /// Base fee per gas, wei; `None` before London.
    pub base_fee: Option<u64>,
    /// Base fee per blob gas, wei; zero before Cancun, `u128::MAX` if it does not fit.
    pub blob_base_fee: u128,
    /// Blob parameters; `None` before Cancun.
    pub blob_params: Option<BlobParams>,
    /// The highest gas limit of a transaction.
    pub max_gas_limit: u64,
    /// Whether a transaction may have a gas price: not on a chain of GoQuorum that did not enable it.
    pub has_gas_price: bool,
}

impl BlockRules {
    /// The rules of the block with this header.
    pub fn new(spec: &ChainSpec, header: &Header) -> Self {
        let blob_params = spec.blob_params_at(header.timestamp);
        let blob_base_fee = match (blob_params, header.excess_blob_gas) {
            (Some(params), Some(excess)) => params.base_fee(excess),
            _ => 0,
        };
        Self {
            fork: spec.fork_of(header),
            chain_id: spec.chain_id,
            base_fee: header.base_fee_per_gas,
            blob_base_fee,
            blob_params,
            max_gas_limit: spec.max_gas_limit(
                header.number,
                header.timestamp,
                spec.fork_of(header),
            ),
            has_gas_price: spec.has_gas_price(header.number),
        }
    }

    /// Most blob gas that the block may use; zero before Cancun.
    pub fn max_blob_gas(&self) -> u64 {
        self.blob_params.map_or(0, |params| params.max_gas())
    }
}
