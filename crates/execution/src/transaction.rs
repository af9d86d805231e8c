//! One transaction.

use crate::{
    authorization::{delegate, set_delegations},
    executor::Executor,
};
use niwaki_evm::{Exit, Message, Outcome, Target, Tracer, TxEnv, World};
use niwaki_primitives::{
    Address, Bytes, Fault, Fork, Log, SignedAuthorization, Transaction, TxEnvelope, U256,
};
use niwaki_rules::{
    IntrinsicGas, InvalidTransaction, blob_gas_of, check_transaction, effective_gas_price,
    upfront_cost,
};
use std::cmp::Ordering;

/// Why a transaction was not run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TransactionError {
    /// It breaks the protocol; a block with it is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidTransaction),
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// What a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionResult {
    /// How its first frame ended.
    pub exit: Exit,
    /// Gas paid for, after refunds and the floor.
    pub gas_used: u64,
    /// Gas needed before refunds, and after the floor.
    pub gas_before_refund: u64,
    /// What it takes of the block's gas for execution: before refunds and without state gas from
    /// Amsterdam on (EIP-7778, EIP-8037).
    pub execution_gas: u64,
    /// State gas (EIP-8037); zero before Amsterdam.
    pub state_gas: u64,
    /// Returned data.
    pub output: Bytes,
    /// Logs in order.
    pub logs: Vec<Log>,
    /// Address of the contract it created, if that succeeded.
    pub created: Option<Address>,
}

impl Executor<'_> {
    /// Checks and runs the next transaction of the block.
    ///
    /// # Errors
    /// [`TransactionError::Invalid`] leaves the world as it was; after a fault the world must not be used.
    ///
    /// Spec: execution-specs `amsterdam/fork.py`, `process_transaction`; of earlier forks likewise.
    pub fn process_transaction(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
        tracer: Option<&mut dyn Tracer>,
    ) -> Result<TransactionResult, TransactionError> {
        let gas = self.check(tx, sender)?;
        let price = effective_gas_price(tx, self.rules.base_fee);
        let result = self.finish_transaction(tx, sender, gas, price, tracer)?;
        Ok(result)
    }

    /// Whether the transaction may be the next of the block.
    pub(crate) fn check(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
    ) -> Result<IntrinsicGas, TransactionError> {
        let room = self.gas_available();
        let blob_gas = self.blob_gas_available();
        let gas = check_transaction(tx, sender, &self.rules, room, blob_gas)?;
        self.check_sender(tx, sender)?;
        Ok(gas)
    }

    /// Runs a transaction that has been checked, and settles what it used.
    pub(crate) fn finish_transaction(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
        gas: IntrinsicGas,
        price: u128,
        tracer: Option<&mut dyn Tracer>,
    ) -> Result<TransactionResult, Fault> {
        let mut result = self.run_and_pay(tx, sender, gas, price, tracer)?;
        result.logs = self.end_transaction(&result, blob_gas_of(tx));
        Ok(result)
    }

    /// Ends the transaction that gave `result`, which from then on counts, and takes its logs.
    pub(crate) fn end_transaction(&mut self, result: &TransactionResult, blob: u64) -> Vec<Log> {
        let world = self.evm.world();
        world.end_transaction();
        world.close_access_index();
        let logs = world.take_logs();
        self.used.add(result, blob);
        logs
    }

    /// Runs a transaction that has been checked, and has it paid for; its logs stay in the world.
    pub(crate) fn run_and_pay(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
        gas: IntrinsicGas,
        price: u128,
        tracer: Option<&mut dyn Tracer>,
    ) -> Result<TransactionResult, Fault> {
        let outcome = self.run_transaction(tx, sender, gas, price, tracer)?;
        let unspent = outcome.gas_left.saturating_add(outcome.reservoir);
        let before_refund = tx.gas_limit().saturating_sub(unspent);
        let refund = self.evm.world().refund();
        let gas_used = self.refunded(before_refund, refund).max(gas.floor);
        self.pay(tx, sender, gas_used, price)?;

        let created = tx.to().is_none() && outcome.exit.is_success();
        let execution_gas = before_refund.saturating_sub(outcome.state_gas);
        Ok(TransactionResult {
            exit: outcome.exit,
            gas_used,
            gas_before_refund: before_refund.max(gas.floor),
            execution_gas: execution_gas.max(gas.floor),
            state_gas: outcome.state_gas,
            output: outcome.output,
            logs: Vec::new(),
            created: created.then(|| sender.create(tx.nonce())),
        })
    }

    /// The checks that need the sender's account.
    fn check_sender(&mut self, tx: &TxEnvelope, sender: Address) -> Result<(), TransactionError> {
        let delegates = self.rules.fork >= Fork::Prague;
        let world = self.evm.world();
        let account = world.load(&sender)?;

        check_nonce(tx.nonce(), world.nonce(account))?;

        let (balance, cost) = (world.balance(account), upfront_cost(tx));
        if cost.is_none_or(|cost| balance < cost) {
            return Err(InvalidTransaction::InsufficientFunds { balance, cost }.into());
        }

        let code = world.code(account)?;
        let code = world.code_at(code);
        let may_send = code.bytes().is_empty() || delegates && code.delegate().is_some();
        if !may_send {
            return Err(InvalidTransaction::SenderNotEoa { sender }.into());
        }
        Ok(())
    }

    /// Takes the price of all gas, warms what is warm from the start, and runs the message.
    fn run_transaction(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
        gas: IntrinsicGas,
        price: u128,
        tracer: Option<&mut dyn Tracer>,
    ) -> Result<Outcome, Fault> {
        let blob_fee =
            U256::from(blob_gas_of(tx)).saturating_mul(U256::from(self.rules.blob_base_fee));
        let fee = U256::from(tx.gas_limit()).saturating_mul(U256::from(price));
        self.evm.begin_transaction(TxEnv {
            origin: sender,
            gas_price: U256::from(price),
            blob_hashes: tx.blob_versioned_hashes().unwrap_or_default().to_vec(),
        });
        let (fork, chain_id) = (self.rules.fork, self.rules.chain_id);
        let coinbase = self.evm.block().coinbase;
        let world = self.evm.world();
        let payer = world.load(&sender)?;
        // The nonce of the transaction, unless it is a simulated one, whose nonce is not checked.
        let nonce = world.nonce(payer);
        world.set_nonce(payer, nonce.wrapping_add(1));
        world.pay(payer, fee.saturating_add(blob_fee));

        let target = match tx.to() {
            Some(to) => Target::Call(to),
            None => Target::Create(sender.create(nonce)),
        };
        let (Target::Call(first) | Target::Create(first)) = target;
        warm_up(world, tx, [sender, first]);
        if fork >= Fork::Shanghai {
            world.warm_account(&coinbase); // EIP-3651
        }
        let mut message = Message {
            caller: sender,
            target,
            value: tx.value(),
            input: tx.input().clone(),
            gas: tx.gas_limit().saturating_sub(gas.intrinsic),
            reservoir: 0,
        };
        if fork >= Fork::Amsterdam {
            message.gas = message
                .gas
                .min(self.execution_cap.saturating_sub(gas.intrinsic));
            message.reservoir = tx
                .gas_limit()
                .saturating_sub(gas.intrinsic)
                .saturating_sub(message.gas);
            return self.run_metered(message, tx.authorization_list(), tracer);
        }
        if let Some(authorizations) = tx.authorization_list() {
            set_delegations(self.evm.world(), authorizations, chain_id)?;
        }
        self.evm.run(&message, tracer)
    }

    /// Runs a message of Amsterdam, where what comes before the first frame is paid for too: without enough gas for
    /// that the transaction has failed, and its authorizations are reverted.
    ///
    /// Spec: EIP-2780, EIP-8037; execution-specs `amsterdam/fork.py`, `process_transaction`.
    fn run_metered(
        &mut self,
        mut message: Message,
        authorizations: Option<&[SignedAuthorization]>,
        tracer: Option<&mut dyn Tracer>,
    ) -> Result<Outcome, Fault> {
        let (reservoir, chain_id) = (message.reservoir, self.rules.chain_id);
        let prices = self.evm.table().schedule().state;
        let world = self.evm.world();
        let checkpoint = world.checkpoint();
        let paid = match authorizations {
            Some(list) => delegate(world, list, chain_id, &prices, &mut message)?,
            None => Some(0),
        };
        let mut outcome = match paid {
            Some(_) => self.evm.run(&message, tracer)?,
            None => self.evm.halt_before_first_frame(&message, tracer)?,
        };
        if outcome.has_started {
            outcome.state_gas = outcome.state_gas.saturating_add(paid.unwrap_or_default());
        } else {
            self.evm.world().revert(checkpoint);
            outcome.reservoir = reservoir;
        }
        Ok(outcome)
    }

    /// What is left to pay of so much gas after a refund.
    fn refunded(&self, before_refund: u64, refund: i64) -> u64 {
        // EIP-3529 lowered the cap from a half to a fifth.
        let share = if self.rules.fork >= Fork::London {
            5
        } else {
            2
        };
        let cap = before_refund.checked_div(share).unwrap_or(0);
        let refund = u64::try_from(refund).unwrap_or(0).min(cap);
        before_refund.saturating_sub(refund)
    }

    /// Gives unused gas back and pays the beneficiary.
    fn pay(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
        gas_used: u64,
        price: u128,
    ) -> Result<(), Fault> {
        let base_fee = u128::from(self.rules.base_fee.unwrap_or(0));
        let unused = tx.gas_limit().saturating_sub(gas_used);
        let back = U256::from(unused).saturating_mul(U256::from(price));
        let tip = U256::from(gas_used).saturating_mul(U256::from(price.saturating_sub(base_fee)));
        let world = self.evm.world();
        let payer = world.load(&sender)?;
        world.add_balance(payer, back);
        let beneficiary = world.load(&self.beneficiary)?;
        world.add_balance(beneficiary, tip);
        Ok(())
    }
}

pub(crate) fn check_nonce(got: u64, expected: u64) -> Result<(), InvalidTransaction> {
    match got.cmp(&expected) {
        Ordering::Less => Err(InvalidTransaction::NonceTooLow { got, expected }),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(InvalidTransaction::NonceTooHigh { got, expected }),
    }
}

/// Declares warm what a transaction may touch at the warm price from its start. Precompiled contracts always are.
///
/// Spec: EIP-2929, EIP-2930. (Before Berlin, nothing looks at warmth.)
fn warm_up(world: &mut World<'_>, tx: &TxEnvelope, first: [Address; 2]) {
    for address in first {
        world.warm_account(&address);
    }
    for item in tx.access_list().into_iter().flat_map(|list| list.iter()) {
        world.warm_account(&item.address);
        for key in &item.storage_keys {
            world.warm_slot(&item.address, U256::from_be_bytes(key.0));
        }
    }
}
