//! What host opcodes and host contracts can read and change: a safe view of the frame and of the state.
//!
//! A host is a program that embeds this crate with a [`crate::Table`] of its own. Nothing here hands out a pointer that
//! the interpreter uses while it runs.

use crate::{
    arena::STACK_WORDS,
    env::{BlockEnv, TxEnv},
    exit::HaltReason,
    frame::{CallRequest, Frame},
    ops::memory::expand,
    shared::SharedState,
    world::{AccountId, World},
};
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, Log, U256};

/// How a host opcode or host contract fails.
#[derive(Debug)]
pub enum HostError {
    /// The frame fails and loses its gas.
    Halt(HaltReason),
    /// The state could not be read; the run has no outcome.
    Fault(Fault),
}

impl From<HaltReason> for HostError {
    fn from(halt: HaltReason) -> Self {
        Self::Halt(halt)
    }
}

impl From<Fault> for HostError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Where the frame continues after a host opcode. Ranges are of memory, which is expanded and charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next opcode.
    Next,
    /// The frame ends as by STOP.
    Stop,
    /// The frame ends as by RETURN.
    Return {
        /// Start of the output.
        offset: U256,
        /// Its length, bytes.
        length: U256,
    },
    /// The frame ends as by REVERT.
    Revert {
        /// Start of the output.
        offset: U256,
        /// Its length, bytes.
        length: U256,
    },
}

/// A frame that is at a host opcode, or at an opcode with a guard.
#[derive(Debug)]
pub struct Machine<'a> {
    frame: &'a mut Frame,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(frame: &'a mut Frame) -> Self {
        Self { frame }
    }

    /// Gas left.
    pub fn gas_left(&self) -> u64 {
        self.frame.gas.max(0).unsigned_abs()
    }

    /// Takes `amount` of gas.
    ///
    /// # Errors
    /// There is less.
    pub fn charge(&mut self, amount: u64) -> Result<(), HaltReason> {
        let left = self.gas_left().checked_sub(amount);
        let left = left.ok_or(HaltReason::OutOfGas)?;
        // Less than an i64 is an i64.
        self.frame.gas = i64::try_from(left).map_err(|_| HaltReason::OutOfGas)?;
        Ok(())
    }

    /// Words on the stack.
    pub fn stack_len(&self) -> usize {
        self.frame.stack_len()
    }

    /// The word `depth` below the top.
    ///
    /// # Errors
    /// There is none.
    pub fn peek(&self, depth: usize) -> Result<U256, HaltReason> {
        if depth >= self.stack_len() {
            return Err(HaltReason::StackUnderflow);
        }
        // SAFETY: the stack holds more than `depth` words.
        Ok(unsafe { (*self.frame.sp.sub(depth + 1)).to_u256() })
    }

    /// Pops a word.
    ///
    /// # Errors
    /// There is none.
    pub fn pop(&mut self) -> Result<U256, HaltReason> {
        let top = self.peek(0)?;
        // SAFETY: there is a word.
        self.frame.sp = unsafe { self.frame.sp.sub(1) };
        Ok(top)
    }

    /// Pushes a word.
    ///
    /// # Errors
    /// There are 1024.
    pub fn push(&mut self, word: U256) -> Result<(), HaltReason> {
        if self.stack_len() >= STACK_WORDS {
            return Err(HaltReason::StackOverflow);
        }
        // SAFETY: there is room.
        unsafe {
            *self.frame.sp = word.into();
            self.frame.sp = self.frame.sp.add(1);
        }
        Ok(())
    }

    /// A range of memory, which is expanded and charged for; an empty range costs nothing.
    ///
    /// # Errors
    /// There is less gas than the expansion costs.
    pub fn memory(&mut self, offset: U256, length: U256) -> Result<&mut [u8], HaltReason> {
        if length.is_zero() {
            return Ok(&mut []);
        }
        let end = offset.saturating_add(length).saturating_to::<u64>();
        if end > self.frame.memory_len as u64 {
            let left = expand(self.frame, end, self.frame.gas);
            if left < 0 {
                return Err(HaltReason::OutOfGas);
            }
            self.frame.gas = left;
        }
        // Memory reaches `end`, so both are within it.
        let (offset, length) = (offset.to::<usize>(), length.to::<usize>());
        // SAFETY: the frame's memory is `memory_len` bytes, and nothing else refers to it while it is borrowed.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.frame.memory.add(offset), length) })
    }

    /// Program counter.
    pub fn pc(&self) -> usize {
        // SAFETY: `ip` points into the code that begins at `code_start`.
        let distance = unsafe { self.frame.ip.offset_from(self.frame.code_start) };
        distance.unsigned_abs()
    }

    /// The opcode.
    pub fn opcode(&self) -> u8 {
        // SAFETY: `ip` points into padded code.
        unsafe { *self.frame.ip }
    }

    /// The `N` bytes after the opcode, at most 32; bytes after the end of the code are zero.
    pub fn operand<const N: usize>(&self) -> [u8; N] {
        const { assert!(N <= 32, "more than the operand of a PUSH32") };
        let after = self.code().get(self.pc() + 1..).unwrap_or_default();
        std::array::from_fn(|at| after.get(at).copied().unwrap_or(0))
    }

    /// Account whose storage is used.
    pub fn address(&self) -> Address {
        self.frame.address
    }

    /// As CALLER.
    pub fn caller(&self) -> Address {
        self.frame.caller
    }

    /// As CALLVALUE, wei.
    pub fn value(&self) -> U256 {
        self.frame.value.to_u256()
    }

    /// Call data.
    pub fn input(&self) -> &[u8] {
        // SAFETY: it is in the caller's memory or in the message, and outlives the frame.
        unsafe { std::slice::from_raw_parts(self.frame.input, self.frame.input_len) }
    }

    /// The code that runs, as it was deployed.
    pub fn code(&self) -> &[u8] {
        // SAFETY: the code outlives the frame.
        unsafe { (*self.frame.code).bytes() }
    }

    /// Whether the frame may not write (STATICCALL).
    pub fn is_static(&self) -> bool {
        self.frame.is_static
    }

    /// Frames above this one; 0 is the transaction's own.
    pub fn depth(&self) -> usize {
        self.frame.depth
    }

    /// The block.
    pub fn block(&self) -> &BlockEnv {
        // SAFETY: shared state outlives the run and nothing writes to it while it is borrowed.
        unsafe { &(*self.frame.shared).block }
    }

    /// The transaction.
    pub fn tx(&self) -> &TxEnv {
        // SAFETY: as in `block`.
        unsafe { &(*self.frame.shared).tx }
    }

    /// The state.
    pub fn state(&mut self) -> HostState<'_> {
        HostState {
            is_static: self.frame.is_static,
            world: &mut self.frame.shared().world,
        }
    }
}

/// The state as host opcodes and host contracts may read and change it. Changes are reverted with those of the frame.
/// Nothing is charged, and nothing becomes warm (EIP-2929).
#[derive(Debug)]
pub struct HostState<'a> {
    world: &'a mut World<'static>,
    is_static: bool,
}

impl HostState<'_> {
    fn load_for_write(&mut self, address: &Address) -> Result<AccountId, HostError> {
        if self.is_static {
            return Err(HaltReason::WriteInStaticContext.into());
        }
        Ok(self.world.load(address)?)
    }

    /// The account at `address`, if there is one.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn account(&mut self, address: &Address) -> Result<Option<Account>, Fault> {
        let id = self.world.load(address)?;
        Ok(self.world.code_hash(id).map(|code_hash| Account {
            nonce: self.world.nonce(id),
            balance: self.world.balance(id),
            code_hash,
        }))
    }

    /// The code of the account at `address`; empty if it has none.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn code(&mut self, address: &Address) -> Result<Bytes, Fault> {
        let id = self.world.load(address)?;
        let code = self.world.code(id)?;
        Ok(self.world.code_at(code).to_bytes())
    }

    /// The value of a slot.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn storage(&mut self, address: &Address, key: U256) -> Result<U256, Fault> {
        let account = self.world.load(address)?;
        let slot = self.world.slot(account, key)?;
        Ok(self.world.slot_value(slot))
    }

    /// The hash of an ancestor.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.world.block_hash(number)
    }

    /// Writes to a slot, without a refund.
    ///
    /// # Errors
    /// The frame is static, or a [`Fault`] of the view.
    pub fn set_storage(
        &mut self,
        address: &Address,
        key: U256,
        value: U256,
    ) -> Result<(), HostError> {
        let account = self.load_for_write(address)?;
        let slot = self.world.slot(account, key)?;
        self.world.set_slot(slot, value);
        Ok(())
    }

    /// Sets a balance, wei.
    ///
    /// # Errors
    /// The frame is static, or a [`Fault`] of the view.
    pub fn set_balance(&mut self, address: &Address, balance: U256) -> Result<(), HostError> {
        let account = self.load_for_write(address)?;
        self.world.set_balance(account, balance);
        Ok(())
    }

    /// Transfers wei, with the log of EIP-7708 where the fork has it. False, and nothing moved, if the payer has less
    /// or the payee would exceed 2^256.
    ///
    /// # Errors
    /// The frame is static, or a [`Fault`] of the view.
    pub fn transfer(&mut self, from: &Address, to: &Address, wei: U256) -> Result<bool, HostError> {
        let (from, to) = (self.load_for_write(from)?, self.load_for_write(to)?);
        let has_room = from == to || self.world.balance(to).checked_add(wei).is_some();
        let has_moved = has_room && self.world.transfer(from, to, wei);
        if has_moved {
            self.world.log_transfer(from, to, wei);
        }
        Ok(has_moved)
    }

    /// Emits a log.
    ///
    /// # Errors
    /// The frame is static.
    pub fn log(&mut self, log: Log) -> Result<(), HostError> {
        if self.is_static {
            return Err(HaltReason::WriteInStaticContext.into());
        }
        self.world.log(log);
        Ok(())
    }
}

/// A call of a host contract.
#[derive(Debug)]
pub struct ContractCall<'a> {
    /// Call data.
    pub input: &'a [u8],
    /// Gas given.
    pub gas: u64,
    /// As CALLER.
    pub caller: Address,
    /// As ADDRESS: the contract's own, or the caller's after DELEGATECALL and CALLCODE.
    pub address: Address,
    /// Wei, already transferred.
    pub value: U256,
    /// The block.
    pub block: &'a BlockEnv,
    /// The transaction.
    pub tx: &'a TxEnv,
    /// The state.
    pub state: HostState<'a>,
}

/// The result of a host contract.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContractOutput {
    /// Gas used; more than the gas given is out of gas.
    pub gas_used: u64,
    /// Returned data.
    pub output: Bytes,
    /// Whether it ends as by REVERT: its changes are reverted, and unused gas is returned.
    pub reverts: bool,
}

impl<'a> ContractCall<'a> {
    pub(crate) fn new(
        shared: &'a mut SharedState<'static>,
        request: &CallRequest,
        address: Address,
        input: &'a [u8],
    ) -> Self {
        Self {
            input,
            gas: request.gas.unsigned_abs(),
            caller: request.caller,
            address,
            value: request.value,
            block: &shared.block,
            tx: &shared.tx,
            state: HostState {
                world: &mut shared.world,
                is_static: request.is_static,
            },
        }
    }
}
