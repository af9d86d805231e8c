//! Overrides of a simulation: accounts (state) and fields of the block.

use super::block::SimulatedBlock;
use crate::RpcError;
use crate::params::Number;
use crate::quantity::{self, Integer};
use niwaki_primitives::{Address, B256, Bytes, Fork, Header, U256, Withdrawal};
use niwaki_rules::ChainSpec;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// State overrides by account.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct StateOverrides(BTreeMap<Address, AccountOverride>);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AccountOverride {
    nonce: Option<Integer>,
    #[serde(deserialize_with = "quantity::optional")]
    balance: Option<U256>,
    code: Option<Bytes>,
    /// The whole storage.
    state: Option<BTreeMap<B256, B256>>,
    /// Some slots.
    state_diff: Option<BTreeMap<B256, B256>>,
    #[serde(alias = "movePrecompileTo")]
    move_precompile_to_address: Option<Address>,
}

impl StateOverrides {
    /// Applies the overrides to the state of `block`, and moves its precompiled contracts.
    ///
    /// # Errors
    /// -32000 for overrides that contradict each other; a fault as -32603.
    pub(crate) fn apply(&self, block: &mut SimulatedBlock<'_>) -> Result<(), RpcError> {
        for (address, account) in &self.0 {
            self.move_precompiled(block, address, account.move_precompile_to_address)?;
            account.apply(block, address)?;
        }
        Ok(())
    }

    /// An override of a precompiled contract's account removes the contract from its address.
    fn move_precompiled(
        &self,
        block: &mut SimulatedBlock<'_>,
        from: &Address,
        to: Option<Address>,
    ) -> Result<(), RpcError> {
        let name = |address: &Address| address.to_string().to_lowercase();
        let contract = block.precompiled(from);
        if let Some(to) = to {
            if contract.is_none() {
                let message = format!("account {} is not a precompile", name(from));
                return Err(RpcError::server(message));
            }
            if self.0.contains_key(&to) {
                let message = format!("account {} is already overridden", name(&to));
                return Err(RpcError::server(message));
            }
            block.move_precompiled(to, contract);
        }
        if contract.is_some() {
            block.move_precompiled(*from, None);
        }
        Ok(())
    }
}

impl AccountOverride {
    fn apply(&self, block: &mut SimulatedBlock<'_>, address: &Address) -> Result<(), RpcError> {
        if self.state.is_some() && self.state_diff.is_some() {
            let name = address.to_string().to_lowercase();
            let message = format!("account {name} has both 'state' and 'stateDiff'");
            return Err(RpcError::server(message));
        }
        let overlay = block.overlay();
        if let Some(Integer(nonce)) = self.nonce {
            overlay.change_account(address, |account| account.nonce = nonce)?;
        }
        if let Some(code) = &self.code {
            overlay.set_code(address, code.clone())?;
        }
        if let Some(balance) = self.balance {
            overlay.change_account(address, |account| account.balance = balance)?;
        }
        if self.state.is_some() {
            overlay.clear_storage(address)?;
        }
        for (slot, value) in self.state.iter().chain(&self.state_diff).flatten() {
            let slot = U256::from_be_bytes(slot.0);
            overlay.set_slot(address, slot, U256::from_be_bytes(value.0))?;
        }
        Ok(())
    }
}

/// Block overrides.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BlockOverrides {
    #[serde(deserialize_with = "quantity::optional")]
    pub(crate) number: Option<U256>,
    #[serde(deserialize_with = "quantity::optional")]
    difficulty: Option<U256>,
    pub(crate) time: Option<Number>,
    gas_limit: Option<Number>,
    fee_recipient: Option<Address>,
    prev_randao: Option<B256>,
    #[serde(deserialize_with = "quantity::optional")]
    pub(crate) base_fee_per_gas: Option<U256>,
    #[serde(deserialize_with = "quantity::optional")]
    blob_base_fee: Option<U256>,
    pub(crate) beacon_root: Option<B256>,
    #[serde(deserialize_with = "withdrawals")]
    pub(crate) withdrawals: Option<Vec<Withdrawal>>,
}

/// A withdrawal in payload attributes or block overrides.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WithdrawalItem {
    index: Number,
    validator_index: Number,
    address: Address,
    /// Gwei.
    amount: Number,
}

impl From<&WithdrawalItem> for Withdrawal {
    fn from(item: &WithdrawalItem) -> Self {
        Self {
            index: item.index.0,
            validator_index: item.validator_index.0,
            address: item.address,
            amount: item.amount.0,
        }
    }
}

/// Reads a list of withdrawals, or null.
pub(crate) fn withdrawals<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Withdrawal>>, D::Error> {
    let items = Option::<Vec<WithdrawalItem>>::deserialize(deserializer)?;
    Ok(items.map(|items| items.iter().map(Withdrawal::from).collect()))
}

impl BlockOverrides {
    /// Refuses overrides that a single call can't have.
    ///
    /// # Errors
    /// -32000.
    pub(crate) fn check_for_call(&self) -> Result<(), RpcError> {
        let name = match (&self.beacon_root, &self.withdrawals) {
            (Some(_), _) => "beaconRoot",
            (_, Some(_)) => "withdrawals",
            _ => return Ok(()),
        };
        let message = format!("block override \"{name}\" is not supported for this RPC method");
        Err(RpcError::server(message))
    }

    /// Applies the overrides to `header`.
    ///
    /// # Errors
    /// -32602 for a number beyond 64 bits.
    pub(crate) fn apply(&self, header: &mut Header, spec: &ChainSpec) -> Result<(), RpcError> {
        let small = |name: &str, value: U256| {
            let message = format!("block override {name}: {value} does not fit 64 bits");
            u64::try_from(value).map_err(|_| RpcError::invalid_params(message))
        };
        if let Some(number) = self.number {
            header.number = small("number", number)?;
        }
        if let Some(Number(time)) = self.time {
            header.timestamp = time;
        }
        if let Some(Number(limit)) = self.gas_limit {
            header.gas_limit = limit;
        }
        if let Some(address) = self.fee_recipient {
            header.beneficiary = address;
        }
        if let Some(mix) = self.prev_randao {
            header.mix_hash = mix;
        }
        if let Some(fee) = self.base_fee_per_gas {
            header.base_fee_per_gas = Some(small("baseFeePerGas", fee)?);
        }
        // From Paris on the difficulty stays zero.
        if let Some(difficulty) = self.difficulty
            && spec.fork_of(header) < Fork::Paris
        {
            header.difficulty = difficulty;
        }
        Ok(())
    }

    /// The overridden blob base fee, wei.
    pub(crate) fn blob_fee(&self) -> Option<u128> {
        let fee = self.blob_base_fee?;
        Some(u128::try_from(fee).unwrap_or(u128::MAX))
    }
}
