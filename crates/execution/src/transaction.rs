//! One transaction.

use crate::{authorization::set_delegations, executor::Executor};
use niwaki_evm::{Exit, Message, Outcome, Target, Tracer, TxEnv, World};
use niwaki_primitives::{Address, Bytes, Fault, Fork, Log, Transaction, TxEnvelope, U256};
use niwaki_rules::{
    IntrinsicGas, InvalidTransaction, blob_gas_of, check_transaction, effective_gas_price,
    upfront_cost,
};

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
    /// [`TransactionError::Invalid`] leaves the world as it was; after a fault it is good for
    /// nothing.
    ///
    /// Spec: execution-specs `osaka/fork.py`, `process_transaction`.
    pub fn process_transaction(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
        tracer: Option<&mut dyn Tracer>,
    ) -> Result<TransactionResult, TransactionError> {
        let gas_available = self.evm.block().gas_limit.saturating_sub(self.gas_used);
        let blob_gas_available = self.rules.max_blob_gas().saturating_sub(self.blob_gas_used);
        let gas = check_transaction(tx, &self.rules, gas_available, blob_gas_available)?;
        self.check_sender(tx, sender)?;

        let price = effective_gas_price(tx, self.rules.base_fee);
        let result = self.finish_transaction(tx, sender, (gas, price), tracer)?;
        Ok(result)
    }

    /// Runs a transaction that has been checked, and settles what it used.
    pub(crate) fn finish_transaction(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
        (gas, price): (IntrinsicGas, u128),
        tracer: Option<&mut dyn Tracer>,
    ) -> Result<TransactionResult, Fault> {
        let outcome = self.run_transaction(tx, sender, (gas, price), tracer)?;
        let refund = self.evm.world().refund();
        let gas_used = self.settle(tx, sender, (gas, price), outcome.gas_left, refund)?;

        let world = self.evm.world();
        world.end_transaction();
        let logs = world.take_logs();
        self.gas_used = self.gas_used.saturating_add(gas_used);
        self.blob_gas_used = self.blob_gas_used.saturating_add(blob_gas_of(tx));
        let created = tx.to().is_none() && outcome.exit.is_success();
        Ok(TransactionResult {
            exit: outcome.exit,
            gas_used,
            gas_before_refund: tx
                .gas_limit()
                .saturating_sub(outcome.gas_left)
                .max(gas.floor),
            output: outcome.output,
            logs,
            created: created.then(|| sender.create(tx.nonce())),
        })
    }

    /// The checks that need the sender's account.
    fn check_sender(&mut self, tx: &TxEnvelope, sender: Address) -> Result<(), TransactionError> {
        let delegates = self.rules.fork >= Fork::Prague;
        let world = self.evm.world();
        let account = world.load(&sender)?;

        let nonce = world.nonce(account);
        if tx.nonce() < nonce {
            let error = InvalidTransaction::NonceTooLow {
                got: tx.nonce(),
                expected: nonce,
            };
            return Err(error.into());
        }
        if tx.nonce() > nonce {
            let error = InvalidTransaction::NonceTooHigh {
                got: tx.nonce(),
                expected: nonce,
            };
            return Err(error.into());
        }

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
        (gas, price): (IntrinsicGas, u128),
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
        // That of the transaction, unless it is a simulated one whose nonce nobody looks at.
        let nonce = world.nonce(payer);
        world.set_nonce(payer, nonce.wrapping_add(1));
        let rest = world
            .balance(payer)
            .saturating_sub(fee)
            .saturating_sub(blob_fee);
        world.set_balance(payer, rest);

        let target = match tx.to() {
            Some(to) => Target::Call(to),
            None => Target::Create(sender.create(nonce)),
        };
        let (Target::Call(first) | Target::Create(first)) = target;
        warm_up(world, tx, [sender, first]);
        if fork >= Fork::Shanghai {
            world.declare_account(&coinbase); // EIP-3651
        }
        if let Some(authorizations) = tx.authorization_list() {
            set_delegations(world, authorizations, chain_id)?;
        }

        let message = Message {
            caller: sender,
            target,
            value: tx.value(),
            input: tx.input().clone(),
            gas: tx.gas_limit().saturating_sub(gas.intrinsic),
        };
        self.evm.run(&message, tracer)
    }

    /// Gives unused gas back, pays the coinbase, and says what gas was used.
    fn settle(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
        (gas, price): (IntrinsicGas, u128),
        gas_left: u64,
        refund: i64,
    ) -> Result<u64, Fault> {
        let before_refund = tx.gas_limit().saturating_sub(gas_left);
        // EIP-3529 lowered the cap from a half to a fifth.
        let share = if self.rules.fork >= Fork::London {
            5
        } else {
            2
        };
        let cap = before_refund.checked_div(share).unwrap_or(0);
        let refund = u64::try_from(refund).unwrap_or(0).min(cap);
        let gas_used = before_refund.saturating_sub(refund).max(gas.floor);

        let base_fee = u128::from(self.rules.base_fee.unwrap_or(0));
        let unused = tx.gas_limit().saturating_sub(gas_used);
        let back = U256::from(unused).saturating_mul(U256::from(price));
        let tip = U256::from(gas_used).saturating_mul(U256::from(price.saturating_sub(base_fee)));
        let coinbase = self.evm.block().coinbase;
        let world = self.evm.world();
        let payer = world.load(&sender)?;
        world.add_balance(payer, back);
        let coinbase = world.load(&coinbase)?;
        world.add_balance(coinbase, tip);
        Ok(gas_used)
    }
}

/// Declares warm what a transaction may touch at the warm price from its start. Precompiled
/// contracts always are.
///
/// Spec: EIP-2929, EIP-2930. (Before Berlin, nothing looks at warmth.)
fn warm_up(world: &mut World<'_>, tx: &TxEnvelope, first: [Address; 2]) {
    for address in first {
        world.declare_account(&address);
    }
    for item in tx.access_list().into_iter().flat_map(|list| list.iter()) {
        world.declare_account(&item.address);
        for key in &item.storage_keys {
            world.declare_slot(&item.address, U256::from_be_bytes(key.0));
        }
    }
}
