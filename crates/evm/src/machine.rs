//! What opcodes and contracts of a host's own get to see and to change.
//!
//! All of it is safe: nothing here hands out what the machine points at while it runs.

use crate::{
    arena::STACK_WORDS,
    env::{BlockEnv, TxEnv},
    evm::Shared,
    frame::{Frame, Halt},
    ops::memory::grow,
    world::{AccountId, World},
};
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, Log, U256};

/// Why an opcode or a contract of a host's own does not come to its end.
#[derive(Debug)]
pub enum Abort {
    /// The frame fails and loses its gas.
    Halt(Halt),
    /// The machine failed; the run has no outcome.
    Fault(Fault),
}

impl From<Halt> for Abort {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

impl From<Fault> for Abort {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Where the frame goes on after an opcode of a host's own. Ranges are of memory, which grows to hold them
/// and is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// At the next opcode.
    Next,
    /// It ends as by STOP.
    Stop,
    /// It ends as by RETURN.
    Return {
        /// Where the output begins.
        offset: U256,
        /// Bytes of it.
        length: U256,
    },
    /// It ends as by REVERT.
    Revert {
        /// Where the output begins.
        offset: U256,
        /// Bytes of it.
        length: U256,
    },
}

/// A frame that stands at an opcode of a host's own.
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
    /// There is not so much.
    pub fn charge(&mut self, amount: u64) -> Result<(), Halt> {
        let left = self.gas_left().checked_sub(amount);
        let left = left.ok_or(Halt::OutOfGas)?;
        // What is left of an i64 is one.
        self.frame.gas = i64::try_from(left).map_err(|_| Halt::OutOfGas)?;
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
    pub fn peek(&self, depth: usize) -> Result<U256, Halt> {
        if depth >= self.stack_len() {
            return Err(Halt::StackUnderflow);
        }
        // SAFETY: so many words lie below the stack pointer.
        Ok(unsafe { (*self.frame.sp.sub(depth + 1)).to_u256() })
    }

    /// Takes the word on top.
    ///
    /// # Errors
    /// There is none.
    pub fn pop(&mut self) -> Result<U256, Halt> {
        let top = self.peek(0)?;
        // SAFETY: there is a word.
        self.frame.sp = unsafe { self.frame.sp.sub(1) };
        Ok(top)
    }

    /// Puts a word on top.
    ///
    /// # Errors
    /// There are 1024.
    pub fn push(&mut self, word: U256) -> Result<(), Halt> {
        if self.stack_len() >= STACK_WORDS {
            return Err(Halt::StackOverflow);
        }
        // SAFETY: there is room.
        unsafe {
            *self.frame.sp = word.into();
            self.frame.sp = self.frame.sp.add(1);
        }
        Ok(())
    }

    /// A range of memory, which grows to hold it and is paid for; an empty range costs nothing.
    ///
    /// # Errors
    /// There is not so much gas.
    pub fn memory(&mut self, offset: U256, length: U256) -> Result<&mut [u8], Halt> {
        if length.is_zero() {
            return Ok(&mut []);
        }
        let end = offset.saturating_add(length).saturating_to::<u64>();
        if end > self.frame.memory_len as u64 {
            let left = grow(self.frame, end, self.frame.gas);
            if left < 0 {
                return Err(Halt::OutOfGas);
            }
            self.frame.gas = left;
        }
        // Memory reaches `end`, so both are within it.
        let (offset, length) = (offset.to::<usize>(), length.to::<usize>());
        // SAFETY: the frame's memory is `memory_len` bytes, and nothing else refers to it meanwhile.
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

    /// Up to 32 bytes behind the opcode; what lies beyond the code is zero.
    pub fn operand<const N: usize>(&self) -> [u8; N] {
        const { assert!(N <= 32, "more than the operand of a PUSH32") };
        let behind = self.code().get(self.pc() + 1..).unwrap_or_default();
        std::array::from_fn(|at| behind.get(at).copied().unwrap_or(0))
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
        // SAFETY: it lies in the caller's memory or in the message, and outlives the frame.
        unsafe { std::slice::from_raw_parts(self.frame.input, self.frame.input_len) }
    }

    /// The code that runs, as it was deployed.
    pub fn code(&self) -> &[u8] {
        // SAFETY: the code outlives the frame.
        unsafe { (*self.frame.code).bytes() }
    }

    /// Whether nothing may be written.
    pub fn is_static(&self) -> bool {
        self.frame.is_static
    }

    /// Frames above this one; 0 is the transaction's own.
    pub fn depth(&self) -> usize {
        self.frame.depth
    }

    /// The block.
    pub fn block(&self) -> &BlockEnv {
        // SAFETY: shared state outlives the run and nothing writes to it meanwhile.
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

/// The state as an opcode or a contract of a host's own may read and change it. Changes are taken back with
/// those of the frame; nothing is charged, and warm stays warm (EIP-2929).
#[derive(Debug)]
pub struct HostState<'a> {
    world: &'a mut World<'static>,
    is_static: bool,
}

impl HostState<'_> {
    fn writes(&mut self, address: &Address) -> Result<AccountId, Abort> {
        if self.is_static {
            return Err(Halt::WriteInStaticContext.into());
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
    /// Nothing may be written, or a [`Fault`] of the view.
    pub fn set_storage(&mut self, address: &Address, key: U256, value: U256) -> Result<(), Abort> {
        let account = self.writes(address)?;
        let slot = self.world.slot(account, key)?;
        self.world.set_slot(slot, value);
        Ok(())
    }

    /// Sets a balance, wei.
    ///
    /// # Errors
    /// Nothing may be written, or a [`Fault`] of the view.
    pub fn set_balance(&mut self, address: &Address, balance: U256) -> Result<(), Abort> {
        let account = self.writes(address)?;
        self.world.set_balance(account, balance);
        Ok(())
    }

    /// Moves ether, wei, with the log that the fork leaves of it (EIP-7708); false if the payer has less, or
    /// the payee would have more than a word holds.
    ///
    /// # Errors
    /// Nothing may be written, or a [`Fault`] of the view.
    pub fn transfer(&mut self, from: &Address, to: &Address, wei: U256) -> Result<bool, Abort> {
        let (from, to) = (self.writes(from)?, self.writes(to)?);
        let has_room = from == to || self.world.balance(to).checked_add(wei).is_some();
        let moves = has_room && self.world.transfer(from, to, wei);
        if moves {
            self.world.log_transfer(from, to, wei);
        }
        Ok(moves)
    }

    /// Leaves a log.
    ///
    /// # Errors
    /// Nothing may be written.
    pub fn log(&mut self, log: Log) -> Result<(), Abort> {
        if self.is_static {
            return Err(Halt::WriteInStaticContext.into());
        }
        self.world.log(log);
        Ok(())
    }
}

/// A call of a contract of the host's own.
#[derive(Debug)]
pub struct ContractCall<'a> {
    /// Call data.
    pub input: &'a [u8],
    /// Gas given.
    pub gas: u64,
    /// As CALLER.
    pub caller: Address,
    /// As ADDRESS: the contract's own, unless its caller has DELEGATECALLed or CALLCODEd it.
    pub address: Address,
    /// Wei; they have moved already.
    pub value: U256,
    /// The block.
    pub block: &'a BlockEnv,
    /// The transaction.
    pub tx: &'a TxEnv,
    /// The state.
    pub state: HostState<'a>,
}

/// What a contract of the host's own comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContractOutput {
    /// Gas used; more than was given is out of gas.
    pub gas_used: u64,
    /// Returned data.
    pub output: Bytes,
    /// Whether it ends as by REVERT: its changes are taken back, the gas it has not used is not lost.
    pub reverts: bool,
}

impl<'a> ContractCall<'a> {
    pub(crate) fn new(
        shared: &'a mut Shared<'static>,
        (input, gas): (&'a [u8], u64),
        (caller, address, value): (Address, Address, U256),
        is_static: bool,
    ) -> Self {
        let world = &mut shared.world;
        Self {
            input,
            gas,
            caller,
            address,
            value,
            block: &shared.block,
            tx: &shared.tx,
            state: HostState { world, is_static },
        }
    }
}
