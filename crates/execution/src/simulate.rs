//! Unsigned transactions: calls, estimates and simulated blocks.
//!
//! They are executed as those of a block are; only the checks before differ.

use crate::executor::{Executor, Used};
use crate::transaction::{TransactionError, TransactionResult, check_nonce};
use niwaki_evm::Tracer;
use niwaki_primitives::{Address, Header, StateView, Transaction, TxEnvelope};
use niwaki_rules::{
    ChainSpec, InvalidTransaction, SimulationLimits, check_unsigned, effective_gas_price,
    upfront_cost,
};

impl<'v> Executor<'v> {
    /// As [`Executor::new`], after transactions that have used `used`.
    pub fn resumed(spec: &ChainSpec, header: &Header, view: &'v dyn StateView, used: Used) -> Self {
        let mut executor = Self::new(spec, header, view);
        executor.used = used;
        executor
    }

    /// Sets the price of blob gas, wei, whatever the header says of it.
    pub fn set_blob_base_fee(&mut self, fee: u128) {
        self.rules.blob_base_fee = fee;
        self.evm.set_blob_base_fee(fee);
    }

    /// Executes an unsigned transaction. Signature and code of the sender are not checked, and the limits of the block
    /// are the caller's to check. Unless it `is_strict`, the nonce is not checked either, and a transaction without a
    /// gas price pays nothing, whatever the base fee.
    ///
    /// # Errors
    /// As [`Executor::process_transaction`].
    pub fn simulate_transaction(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
        is_strict: bool,
        tracer: Option<&mut dyn Tracer>,
    ) -> Result<TransactionResult, TransactionError> {
        let world = self.evm.world();
        let account = world.load(&sender)?;
        if is_strict {
            check_nonce(tx.nonce(), world.nonce(account))?;
            if tx.nonce() == u64::MAX {
                return Err(InvalidTransaction::NonceIsMax.into());
            }
        }
        let balance = world.balance(account);
        let cost = upfront_cost(tx);
        let limits = SimulationLimits {
            is_free_allowed: !is_strict,
            execution_cap: self.execution_cap,
        };
        let gas = check_unsigned(tx, sender, &self.rules, limits, || match cost {
            Some(cost) if balance >= cost => Ok(()),
            _ => Err(InvalidTransaction::InsufficientFunds { balance, cost }),
        })?;
        let price = effective_gas_price(tx, self.rules.base_fee).min(tx.max_fee_per_gas());
        self.finish_transaction(tx, sender, gas, price, tracer)
            .map_err(TransactionError::Fault)
    }
}
