//! `--required-blocks NUMBER=HASH`: blocks that the chain must contain.

use eyre::{Result, eyre};
use niwaki_chain::Chain;
use niwaki_primitives::B256;
use tracing::info;

/// Compares the chain's blocks with `required`. Logs those that the chain has not reached.
pub(super) fn check(chain: &Chain, required: &[(u64, B256)]) -> Result<()> {
    for (number, hash) in required {
        match chain.canonical_hash(*number)? {
            Some(found) if found != *hash => {
                return Err(eyre!(
                    "block {number} of this chain is {found}, --required-blocks asks for {hash}; \
                     leave the flag out, or start a new chain in another --data-path"
                ));
            }
            Some(_) => {}
            None => info!(
                "Block {number}, which --required-blocks names, is not there: it is compared at a \
                 start that finds it; peers are not asked, since this version has none"
            ),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_chain::{ChainConfig, GenesisBlock, StateOptions, StorageOptions};
    use niwaki_rules::Network;
    use std::sync::Arc;

    #[test]
    fn a_different_block_is_refused_and_a_future_one_is_not() {
        let genesis = Network::Dev.genesis();
        let config = ChainConfig {
            data_path: None,
            genesis: GenesisBlock::from(&genesis),
            spec: Arc::new(genesis.spec),
            storage: StorageOptions::default(),
            state: StateOptions::default(),
        };
        let chain = Chain::open(config).unwrap();
        let hash = chain.genesis_hash();
        let other = B256::repeat_byte(1);
        assert!(check(&chain, &[(0, hash), (7, other)]).is_ok());
        let error = check(&chain, &[(0, other)]).unwrap_err().to_string();
        assert!(error.contains(&hash.to_string()) && error.contains("--required-blocks"));
    }
}
