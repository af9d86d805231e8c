//! Contracts that say how a network is run, asked in the state after a block. What they change is dropped.

use crate::Chain;
use crate::tree::StoredHeader;
use niwaki_execution::Executor;
use niwaki_primitives::{Address, Bytes, Fault, StateView};

/// What a contract answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContractAnswer {
    /// There is no account at the address.
    Absent,
    /// The call was reverted, or failed.
    Failed,
    /// What it returned.
    Output(Bytes),
}

impl Chain {
    /// Calls a contract in the state after a block; `None` if that state is out of reach.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn ask_contract(
        &self,
        block: &StoredHeader,
        contract: Address,
        input: Bytes,
    ) -> Result<Option<ContractAnswer>, Fault> {
        let Some(view) = self.world().view_at(block.id)? else {
            return Ok(None);
        };
        if view.account(&contract)?.is_none() {
            return Ok(Some(ContractAnswer::Absent));
        }
        let mut executor = Executor::new(self.spec(), &block.header, &view);
        let output = executor.read_contract(contract, input)?;
        Ok(Some(
            output.map_or(ContractAnswer::Failed, ContractAnswer::Output),
        ))
    }
}
