//! Tables that differ from a fork's: host opcodes, guards, prices and precompiled contracts.
//!
//! A host opcode has a handler like any other, which calls the host's function, so stock opcodes are as fast as without
//! one. Only stock opcodes are part of superinstructions.
//!
//! ```text
//! set_opcode(0x0c, ..)   threaded[0x0c] = replaced     run_body: gas, stack, then the host's function
//! set_guard(0x55, ..)    threaded[0x55] = guarded      run_guard: the host's function, then stock SSTORE
//! ```

#[cfg(target_arch = "x86_64")]
use crate::interpreter::Handler;
use crate::{
    exit::{Exit, HaltReason},
    frame::Frame,
    gas::GasSchedule,
    interpreter::{Regs, StepFn},
    machine::{ContractCall, ContractOutput, Flow, HostError, Machine},
    table::{OpcodeInfo, Table},
    word::Word,
};
use niwaki_crypto::{PrecompileSet, Precompiled};
use niwaki_primitives::{Address, U256};
use std::{fmt, sync::Arc};

/// The body of a host opcode.
pub type OpcodeBody = Arc<dyn Fn(&mut Machine<'_>) -> Result<Flow, HostError> + Send + Sync>;
/// Runs before a stock opcode, for which nothing has been charged yet.
pub type Guard = Arc<dyn Fn(&mut Machine<'_>) -> Result<(), HostError> + Send + Sync>;
/// The body of a host contract.
pub type Contract =
    Arc<dyn Fn(ContractCall<'_>) -> Result<ContractOutput, HostError> + Send + Sync>;

/// A guard, and the two forms of the opcode that it guards.
#[derive(Clone)]
struct Guarded {
    guard: Guard,
    #[cfg(target_arch = "x86_64")]
    threaded: Handler,
    stepped: StepFn,
}

/// Host opcodes and guards.
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

    /// Whether the host has replaced or guarded `opcode`.
    pub(crate) fn contains(&self, opcode: u8) -> bool {
        let at = usize::from(opcode);
        self.bodies[at].is_some() || self.guards[at].is_some()
    }
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opcodes = (0..=u8::MAX).filter(|opcode| self.contains(*opcode));
        f.debug_set().entries(opcodes).finish()
    }
}

/// The precompiled contracts of a table.
#[derive(Clone)]
pub(crate) struct Precompiles {
    pub(crate) set: PrecompileSet,
    /// The host's changes by address, ascending: a few, looked up for each account that a block loads.
    host: Vec<(Address, Option<Contract>)>,
}

/// A precompiled contract.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BuiltIn {
    /// The fork's.
    Stock(Precompiled),
    /// The host's.
    Host,
}

impl Precompiles {
    pub(crate) fn of(set: PrecompileSet) -> Self {
        Self {
            set,
            host: Vec::new(),
        }
    }

    /// The contract at `address`.
    #[inline]
    pub(crate) fn get(&self, address: &Address) -> Option<BuiltIn> {
        match self.find(address) {
            Ok(at) => self.host[at].1.as_ref().map(|_| BuiltIn::Host),
            Err(_) => self.set.get(address).map(BuiltIn::Stock),
        }
    }

    /// The host's contract at `address`, if it has put one there.
    pub(crate) fn host_contract(&self, address: &Address) -> Option<&Contract> {
        self.host[self.find(address).ok()?].1.as_ref()
    }

    #[inline]
    fn find(&self, address: &Address) -> Result<usize, usize> {
        self.host.binary_search_by_key(address, |(at, _)| *at)
    }
}

impl Table {
    /// Replaces `opcode`, or adds it where the fork has none: its static gas is charged, the stack is checked, and
    /// `body` runs. After the end of code execution stops, also if STOP is replaced.
    ///
    /// # Panics
    /// If `info` has an operand of more than 32 bytes or more than 1024 words, or as [`Table::set_static_gas`].
    pub fn set_opcode(
        &mut self,
        opcode: u8,
        info: OpcodeInfo,
        gas: i64,
        body: impl Fn(&mut Machine<'_>) -> Result<Flow, HostError> + Send + Sync + 'static,
    ) {
        use crate::arena::STACK_WORDS;
        assert!(
            info.immediate <= 32,
            "{} has an operand over 32 bytes",
            info.mnemonic
        );
        assert!(
            info.input.max(info.output) <= STACK_WORDS,
            "{} needs more words than a stack holds",
            info.mnemonic
        );
        let at = usize::from(opcode);
        self.overrides.bodies[at] = Some(Arc::new(body));
        self.info[at] = Some(info);
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
        self.rebuild_fused();
    }

    /// Runs `guard` before each `opcode`, instead of a guard that was set before. It may read the operands, charge for
    /// them, change the state, or end the frame.
    pub fn set_guard(
        &mut self,
        opcode: u8,
        guard: impl Fn(&mut Machine<'_>) -> Result<(), HostError> + Send + Sync + 'static,
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
        self.rebuild_fused();
    }

    /// Changes the static gas of `opcode`.
    ///
    /// # Panics
    /// If the price is negative or exceeds `u32::MAX`.
    pub fn set_static_gas(&mut self, opcode: u8, gas: i64) {
        self.set_price(opcode, gas);
        self.rebuild_fused();
    }

    /// Sets a price, bounded so that no sum of prices overflows.
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
        self.rebuild_fused();
    }

    /// Puts a host contract at `address`, or removes the fork's precompiled contract there. It is warm, as all
    /// precompiled contracts are (EIP-2929).
    pub fn set_precompile(&mut self, address: Address, contract: Option<Contract>) {
        match self.precompiles.find(&address) {
            Ok(at) => self.precompiles.host[at].1 = contract,
            Err(at) => self.precompiles.host.insert(at, (address, contract)),
        }
        self.rebuild_fused();
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
}

/// Runs the guard of the opcode at `ip`; false if the frame has ended.
#[inline(never)]
unsafe fn run_guard(frame: *mut Frame, table: *const Table) -> bool {
    // SAFETY: the frame is at an opcode with a guard; frame and table outlive the run, and nothing else refers to the
    // frame during the call.
    unsafe {
        let guarded = guarded_at(table, (*frame).ip);
        if (*frame).gas < 0 {
            // A fused jump has charged for its JUMPDEST and leaves this check to the next opcode.
            (*frame).fail(HaltReason::OutOfGas);
            return false;
        }
        let verdict = (guarded.guard)(&mut Machine::new(&mut *frame));
        verdict.map_err(|error| (*frame).end_with(error)).is_ok()
    }
}

/// Runs the host opcode at `ip` and moves `ip` after it; false if the frame has ended.
#[inline(never)]
unsafe fn run_body(frame: *mut Frame, table: *const Table) -> bool {
    // SAFETY: as in `run_guard`.
    unsafe {
        let frame = &mut *frame;
        let at = usize::from(*frame.ip);
        if frame.ip.offset_from(frame.code_start).unsigned_abs() >= (*frame.code).bytes().len() {
            frame.exit = Exit::Stop;
            return false;
        }
        let info = (*table).info[at].expect("set with the body");
        let body = (*table).overrides.bodies[at].as_ref();
        let body = body.expect("the handler is in the table with the body");
        let ended = match enter(frame, &*table, &info) {
            Err(halt) => Err(halt.into()),
            Ok(()) => body(&mut Machine::new(frame)),
        };
        let ended = ended.and_then(|flow| frame.follow(flow));
        frame.ip = frame.ip.add(1 + info.immediate);
        ended.unwrap_or_else(|error| {
            frame.end_with(error);
            false
        })
    }
}

/// Charges the static gas and checks the stack, in the order of stock opcodes.
fn enter(frame: &mut Frame, table: &Table, info: &OpcodeInfo) -> Result<(), HaltReason> {
    use crate::arena::{HEIGHT_MASK, STACK_WORDS};
    // SAFETY: `ip` points into padded code.
    frame.gas -= table.static_gas(unsafe { *frame.ip });
    if frame.gas < 0 {
        return Err(HaltReason::OutOfGas);
    }
    let height = (frame.sp as usize & HEIGHT_MASK) / size_of::<Word>();
    if height < info.input {
        return Err(HaltReason::StackUnderflow);
    }
    if height - info.input + info.output > STACK_WORDS {
        return Err(HaltReason::StackOverflow);
    }
    Ok(())
}

impl Frame {
    /// Ends the frame with the error of a host function.
    #[cold]
    fn end_with(&mut self, error: HostError) {
        match error {
            HostError::Halt(halt) => self.fail(halt),
            HostError::Fault(fault) => self.fault(fault),
        };
    }

    /// Continues as a host opcode says; false if the frame has ended.
    fn follow(&mut self, flow: Flow) -> Result<bool, HostError> {
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

/// The handler of a host opcode.
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
    // SAFETY: the frame outlives the run; an opcode is followed by code or padding.
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
        if run_guard(frame, table) {
            let (sp, gas) = ((*frame).sp, (*frame).gas);
            let then = guarded_at(table, ip).threaded;
            return then(ip, sp, gas, frame, table, memory);
        }
        (*frame).ip = ip.add(1);
    }
}

/// The loop form of a host opcode.
unsafe fn step_replaced(r: &mut Regs) -> bool {
    // SAFETY: the frame outlives the run.
    unsafe {
        r.save();
        let is_running = run_body(r.frame, r.table);
        r.load();
        is_running
    }
}

/// The loop form of an opcode with a guard.
unsafe fn step_guarded(r: &mut Regs) -> bool {
    // SAFETY: the frame outlives the run.
    unsafe {
        r.save();
        if !run_guard(r.frame, r.table) {
            r.ip = r.ip.add(1);
            return false;
        }
        r.load();
        (guarded_at(r.table, r.ip).stepped)(r)
    }
}

/// The guard of the opcode at `ip`, and the opcode.
#[inline(always)]
unsafe fn guarded_at<'t>(table: *const Table, ip: *const u8) -> &'t Guarded {
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
