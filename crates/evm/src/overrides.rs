//! Tables that differ from a fork's: opcodes, prices and contracts of a host's own.
//!
//! A row of a host's own has a handler like any other, which calls the host's function; stock rows know
//! nothing of it and are as fast as they were. Sequences of opcodes are fused over stock rows only.

#[cfg(target_arch = "x86_64")]
use crate::interpreter::Handler;
use crate::{
    frame::{Exit, Frame, Halt},
    gas::GasSchedule,
    interpreter::{Regs, StepFn},
    machine::{Abort, ContractCall, ContractOutput, Flow, Machine},
    table::{Meta, Table},
    word::Word,
};
use niwaki_crypto::{PrecompileSet, Precompiled};
use niwaki_primitives::{Address, U256};
use std::{fmt, sync::Arc};

/// What an opcode of a host's own does.
pub type OpcodeBody = Arc<dyn Fn(&mut Machine<'_>) -> Result<Flow, Abort> + Send + Sync>;
/// What is asked before a stock opcode runs; nothing has been charged for it yet.
pub type Guard = Arc<dyn Fn(&mut Machine<'_>) -> Result<(), Abort> + Send + Sync>;
/// What a contract of a host's own does.
pub type Contract = Arc<dyn Fn(ContractCall<'_>) -> Result<ContractOutput, Abort> + Send + Sync>;

/// A guard, and the forms of the opcode behind it.
#[derive(Clone)]
struct Guarded {
    guard: Guard,
    #[cfg(target_arch = "x86_64")]
    threaded: Handler,
    stepped: StepFn,
}

/// The rows of a host's own.
#[derive(Clone)]
pub(crate) struct Overrides {
    bodies: [Option<OpcodeBody>; 256],
    guards: [Option<Guarded>; 256],
}

impl Overrides {
    pub(crate) const NONE: Self = Self {
        bodies: [const { None }; 256],
        guards: [const { None }; 256],
    };
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = |opcode: &u8| {
            let at = usize::from(*opcode);
            self.bodies[at].is_some() || self.guards[at].is_some()
        };
        f.debug_set().entries((0..=u8::MAX).filter(own)).finish()
    }
}

/// The precompiled contracts of a table.
#[derive(Clone)]
pub(crate) struct Precompiles {
    pub(crate) set: PrecompileSet,
    /// By address; few, and asked for each account that a block sees.
    own: Vec<(Address, Option<Contract>)>,
}

/// A contract that is no code.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BuiltIn {
    /// Of the fork.
    Stock(Precompiled),
    /// Of the host.
    Own,
}

impl Precompiles {
    pub(crate) fn of(set: PrecompileSet) -> Self {
        Self {
            set,
            own: Vec::new(),
        }
    }

    /// The contract at `address`.
    #[inline]
    pub(crate) fn get(&self, address: &Address) -> Option<BuiltIn> {
        match self.find(address) {
            Ok(at) => self.own[at].1.as_ref().map(|_| BuiltIn::Own),
            Err(_) => self.set.get(address).map(BuiltIn::Stock),
        }
    }

    /// The host's contract at `address`.
    pub(crate) fn own(&self, address: &Address) -> Option<&Contract> {
        self.own[self.find(address).ok()?].1.as_ref()
    }

    #[inline]
    fn find(&self, address: &Address) -> Result<usize, usize> {
        self.own.binary_search_by_key(address, |(own, _)| *own)
    }
}

impl Table {
    /// Puts an opcode of the host's own in the place of `opcode`, whether the fork has one there or not:
    /// its static gas is taken, its operands are checked for, and `body` runs. Behind the end of code
    /// execution stops, whatever stands in the place of STOP.
    ///
    /// # Panics
    /// `meta` has an operand of more than 32 bytes or more than 1024 words, or as [`Table::set_static_gas`].
    pub fn set_opcode(
        &mut self,
        opcode: u8,
        meta: Meta,
        gas: i64,
        body: impl Fn(&mut Machine<'_>) -> Result<Flow, Abort> + Send + Sync + 'static,
    ) {
        use crate::arena::STACK_WORDS;
        assert!(
            meta.immediate <= 32,
            "{} has an operand over 32 bytes",
            meta.mnemonic
        );
        assert!(
            meta.input.max(meta.output) <= STACK_WORDS,
            "{} needs more words than a stack holds",
            meta.mnemonic
        );
        let at = usize::from(opcode);
        self.overrides.bodies[at] = Some(Arc::new(body));
        self.meta[at] = Some(meta);
        self.set_price(opcode, gas);
        match &mut self.overrides.guards[at] {
            Some(guarded) => {
                #[cfg(target_arch = "x86_64")]
                {
                    guarded.threaded = replaced;
                }
                guarded.stepped = step_replaced;
            }
            None => self.set_row(
                opcode,
                #[cfg(target_arch = "x86_64")]
                replaced,
                step_replaced,
            ),
        }
        self.fuse_again();
    }

    /// Has `guard` asked before `opcode` runs, in the place of a guard that was there. It may look at the
    /// operands, charge for them, change the state, or end the frame.
    pub fn set_guard(
        &mut self,
        opcode: u8,
        guard: impl Fn(&mut Machine<'_>) -> Result<(), Abort> + Send + Sync + 'static,
    ) {
        let at = usize::from(opcode);
        let guard: Guard = Arc::new(guard);
        match &mut self.overrides.guards[at] {
            Some(guarded) => guarded.guard = guard,
            None => {
                self.overrides.guards[at] = Some(Guarded {
                    guard,
                    #[cfg(target_arch = "x86_64")]
                    threaded: self.threaded[at],
                    stepped: self.stepped[at],
                });
                self.set_row(
                    opcode,
                    #[cfg(target_arch = "x86_64")]
                    guarded,
                    step_guarded,
                );
            }
        }
        self.fuse_again();
    }

    /// Changes the static gas of `opcode`.
    ///
    /// # Panics
    /// The price is below zero or beyond `u32::MAX`.
    pub fn set_static_gas(&mut self, opcode: u8, gas: i64) {
        self.set_price(opcode, gas);
        self.fuse_again();
    }

    /// Prices are bounded so that their sums are.
    fn set_price(&mut self, opcode: u8, gas: i64) {
        assert!(
            u32::try_from(gas).is_ok(),
            "opcode 0x{opcode:02x} can't cost {gas} gas"
        );
        self.gas[usize::from(opcode)] = gas;
    }

    /// Changes the prices and limits that opcodes compute with.
    pub fn change_schedule(&mut self, change: impl FnOnce(&mut GasSchedule)) {
        change(&mut self.schedule);
        self.fuse_again();
    }

    /// Puts a contract of the host's own at `address`, or none where the fork has one. As all precompiled
    /// contracts it is warm (EIP-2929).
    pub fn set_precompile(&mut self, address: Address, contract: Option<Contract>) {
        match self.precompiles.find(&address) {
            Ok(at) => self.precompiles.own[at].1 = contract,
            Err(at) => self.precompiles.own.insert(at, (address, contract)),
        }
        self.fuse_again();
    }

    fn set_row(
        &mut self,
        opcode: u8,
        #[cfg(target_arch = "x86_64")] threaded: Handler,
        stepped: StepFn,
    ) {
        let at = usize::from(opcode);
        #[cfg(target_arch = "x86_64")]
        {
            self.threaded[at] = threaded;
        }
        self.stepped[at] = stepped;
    }

    /// Whether the host has a say in what `opcode` does.
    pub(crate) fn is_overridden(&self, opcode: u8) -> bool {
        let at = usize::from(opcode);
        self.overrides.bodies[at].is_some() || self.overrides.guards[at].is_some()
    }
}

/// Runs the host's guard; false if the frame has ended.
#[inline(never)]
unsafe fn ask(frame: *mut Frame, table: *const Table) -> bool {
    // SAFETY: the frame stands at an opcode with a guard; both outlive the run, and nothing else refers to
    // the frame meanwhile.
    unsafe {
        let guarded = (*table).overrides.guards[usize::from(*(*frame).ip)].as_ref();
        let guarded = guarded.expect("the handler is in the table with the guard");
        if (*frame).gas < 0 {
            // Of the JUMPDEST before it, which fused jumps leave to the next opcode to find out.
            (*frame).fail(Halt::OutOfGas);
            return false;
        }
        let verdict = (guarded.guard)(&mut Machine::new(&mut *frame));
        verdict.map_err(|abort| (*frame).abort(abort)).is_ok()
    }
}

/// Runs the host's opcode at which the frame stands, and moves it behind; false if the frame has ended.
#[inline(never)]
unsafe fn run_body(frame: *mut Frame, table: *const Table) -> bool {
    // SAFETY: as in `ask`.
    unsafe {
        let frame = &mut *frame;
        let at = usize::from(*frame.ip);
        if frame.ip.offset_from(frame.code_start).unsigned_abs() >= (*frame.code).bytes().len() {
            frame.exit = Exit::Stop;
            return false;
        }
        let meta = (*table).meta[at].expect("set with the body");
        let body = (*table).overrides.bodies[at].as_ref();
        let body = body.expect("the handler is in the table with the body");
        let ended = match enter(frame, &*table, &meta) {
            Err(halt) => Err(halt.into()),
            Ok(()) => body(&mut Machine::new(frame)),
        };
        let ended = ended.and_then(|flow| frame.flow(flow));
        frame.ip = frame.ip.add(1 + meta.immediate);
        ended.unwrap_or_else(|abort| {
            frame.abort(abort);
            false
        })
    }
}

/// Charges the static gas and checks the stack, in the order of stock opcodes.
fn enter(frame: &mut Frame, table: &Table, meta: &Meta) -> Result<(), Halt> {
    use crate::arena::{HEIGHT_MASK, STACK_WORDS};
    // SAFETY: `ip` points into padded code.
    frame.gas -= table.static_gas(unsafe { *frame.ip });
    if frame.gas < 0 {
        return Err(Halt::OutOfGas);
    }
    let height = (frame.sp as usize & HEIGHT_MASK) / size_of::<Word>();
    if height < meta.input {
        return Err(Halt::StackUnderflow);
    }
    if height - meta.input + meta.output > STACK_WORDS {
        return Err(Halt::StackOverflow);
    }
    Ok(())
}

impl Frame {
    /// Ends by what a function of the host's says.
    #[cold]
    fn abort(&mut self, abort: Abort) {
        match abort {
            Abort::Halt(halt) => self.fail(halt),
            Abort::Fault(fault) => self.fault(fault),
        };
    }

    /// Goes where an opcode of the host's says; false if the frame has ended.
    fn flow(&mut self, flow: Flow) -> Result<bool, Abort> {
        let (exit, offset, length) = match flow {
            Flow::Next => return Ok(true),
            Flow::Stop => (Exit::Stop, U256::ZERO, U256::ZERO),
            Flow::Return { offset, length } => (Exit::Return, offset, length),
            Flow::Revert { offset, length } => (Exit::Revert, offset, length),
        };
        let mut machine = Machine::new(self);
        let output = machine.memory(offset, length)?;
        let (start, length) = (output.as_ptr(), output.len());
        (self.output, self.output_len) = (start, length);
        self.exit = exit;
        Ok(false)
    }
}

/// The handler of an opcode of the host's own.
///
/// # Safety
/// As for [`crate::interpreter::threaded`].
#[cfg(target_arch = "x86_64")]
unsafe extern "sysv64-unwind" fn replaced(
    ip: *const u8,
    sp: *mut Word,
    gas: i64,
    frame: *mut Frame,
    table: *const Table,
    memory: *mut u8,
) {
    // SAFETY: the frame outlives the run; behind an opcode there is code or padding.
    unsafe {
        save(frame, ip, sp, gas);
        if run_body(frame, table) {
            let (ip, sp, gas) = ((*frame).ip, (*frame).sp, (*frame).gas);
            let next = (*table).threaded[*ip as usize];
            next(ip, sp, gas, frame, table, memory)
        }
    }
}

/// The handler of an opcode with a guard.
///
/// # Safety
/// As for [`crate::interpreter::threaded`].
#[cfg(target_arch = "x86_64")]
unsafe extern "sysv64-unwind" fn guarded(
    ip: *const u8,
    sp: *mut Word,
    gas: i64,
    frame: *mut Frame,
    table: *const Table,
    memory: *mut u8,
) {
    // SAFETY: the frame outlives the run.
    unsafe {
        save(frame, ip, sp, gas);
        if ask(frame, table) {
            let (sp, gas) = ((*frame).sp, (*frame).gas);
            let then = behind(table, ip).threaded;
            return then(ip, sp, gas, frame, table, memory);
        }
        (*frame).ip = ip.add(1);
    }
}

/// The loop form of an opcode of the host's own.
unsafe fn step_replaced(r: &mut Regs) -> bool {
    // SAFETY: the frame outlives the run.
    unsafe {
        r.save();
        let goes_on = run_body(r.frame, r.table);
        r.take_up();
        goes_on
    }
}

/// The loop form of an opcode with a guard.
unsafe fn step_guarded(r: &mut Regs) -> bool {
    // SAFETY: the frame outlives the run.
    unsafe {
        r.save();
        if !ask(r.frame, r.table) {
            r.ip = r.ip.add(1);
            return false;
        }
        r.take_up();
        (behind(r.table, r.ip).stepped)(r)
    }
}

/// The opcode behind the guard of the one at `ip`.
#[inline(always)]
unsafe fn behind<'t>(table: *const Table, ip: *const u8) -> &'t Guarded {
    // SAFETY: the table outlives the run, and `ip` points at an opcode with a guard.
    unsafe {
        let guarded = (*table).overrides.guards[*ip as usize].as_ref();
        guarded.expect("the handler is in the table with the guard")
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn save(frame: *mut Frame, ip: *const u8, sp: *mut Word, gas: i64) {
    // SAFETY: the frame outlives the run.
    unsafe {
        (*frame).ip = ip;
        (*frame).sp = sp;
        (*frame).gas = gas;
    }
}
