//! Dispatch: how the interpreter gets from one opcode to the next.
//!
//! A body is written once, as an [`Op`], and compiled twice. [`threaded`] wraps it in a handler that ends in an
//! indirect call in tail position, which the compiler turns into a jump. The interpreter's registers are the six
//! integer arguments of the System V ABI, so between opcodes they stay in processor registers:
//!
//! ```text
//! handler of ADD:   gas -= 3; if gas < 0 or height < 2 words: leave      (enter)
//!                   *(sp-2) += *(sp-1); sp -= 1                          (Op::run)
//!                   ip += 1; jump table.threaded[*ip]                    -> handler of the next opcode
//! ```
//!
//! [`stepped`] wraps the same body for a plain loop, which tracing, Miri and other targets use. A handler must not need
//! a stack frame of its own, or the call stays a call and long code overflows the native stack: anything that takes the
//! address of a local is in a function that is never inlined. `cargo xtask handlers` checks the machine code, and
//! [`crate::has_tail_calls`] the running program.

use crate::{
    cost::full_cost,
    dispatch::Dispatch,
    env::BlockEnv,
    exit::{Exit, HaltReason},
    frame::Frame,
    gas::GasSchedule,
    table::Table,
    tracer::Tracer,
    word::Word,
};

/// The registers of the interpreter: the state that changes with every opcode.
pub(crate) struct Regs {
    /// The current opcode.
    pub(crate) ip: *const u8,
    /// The first free slot of the stack.
    pub(crate) sp: *mut Word,
    /// Gas left; negative once it has run out.
    pub(crate) gas: i64,
    /// The running frame.
    pub(crate) frame: *mut Frame,
    /// The opcode table in force.
    pub(crate) table: *const Table,
    /// The start of the frame's memory.
    pub(crate) memory: *mut u8,
}

/// The body of an opcode, and what the wrapper checks before it.
pub(crate) trait Op {
    /// The opcode.
    const CODE: u8;
    /// Words popped.
    const IN: usize;
    /// Words pushed.
    const OUT: usize;
    /// Bytes to the next opcode; 0 if the body moves `ip` itself.
    const SIZE: usize = 1;

    /// Runs the body. False leaves the frame; its `exit` says why.
    ///
    /// # Safety
    /// `r` must be the registers of a running frame, the static gas charged, and the stack must hold `IN` words and
    /// have room for `OUT`.
    unsafe fn run(r: &mut Regs) -> bool;
}

/// A threaded handler.
#[cfg(target_arch = "x86_64")]
pub(crate) type Handler = unsafe extern "sysv64-unwind" fn(
    ip: *const u8,
    sp: *mut Word,
    gas: i64,
    frame: *mut Frame,
    table: *const Table,
    memory: *mut u8,
);
/// A step of the loop; false leaves the frame.
pub(crate) type StepFn = unsafe fn(&mut Regs) -> bool;

impl Regs {
    /// The registers as the frame has saved them.
    ///
    /// # Safety
    /// The frame must be alive.
    unsafe fn of(frame: *mut Frame, table: *const Table) -> Self {
        // SAFETY: as the caller promises.
        let f = unsafe { &*frame };
        Self {
            ip: f.ip,
            sp: f.sp,
            gas: f.gas,
            frame,
            table,
            memory: f.memory,
        }
    }

    /// The word `depth` below the top.
    ///
    /// # Safety
    /// The stack must hold more than `depth` words.
    #[inline(always)]
    pub(crate) unsafe fn peek(&self, depth: usize) -> *mut Word {
        // SAFETY: as the caller promises.
        unsafe { self.sp.sub(depth + 1) }
    }

    /// Drops `count` words.
    ///
    /// # Safety
    /// The stack must hold `count` words.
    #[inline(always)]
    pub(crate) unsafe fn pop(&mut self, count: usize) {
        // SAFETY: as the caller promises.
        self.sp = unsafe { self.sp.sub(count) };
    }

    /// Takes `amount` of gas; false if there is less.
    ///
    /// # Safety
    /// The frame must be alive.
    #[inline(always)]
    pub(crate) unsafe fn charge(&mut self, amount: i64) -> bool {
        self.gas = self.gas.wrapping_sub(amount);
        if self.gas < 0 {
            // SAFETY: as the caller promises.
            return unsafe { self.halt(HaltReason::OutOfGas) };
        }
        true
    }

    /// Sets the gas that an out-of-line function left; negative if it ended the frame.
    #[inline(always)]
    pub(crate) fn gas_from(&mut self, left: i64) -> bool {
        self.gas = left;
        left >= 0
    }

    /// Ends the frame with an exceptional halt.
    ///
    /// # Safety
    /// The frame must be alive.
    #[inline(always)]
    pub(crate) unsafe fn halt(&mut self, halt: HaltReason) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.exit(Exit::Halt(halt)) }
    }

    /// Leaves the frame.
    ///
    /// # Safety
    /// The frame must be alive.
    #[inline(always)]
    pub(crate) unsafe fn exit(&mut self, exit: Exit) -> bool {
        // SAFETY: as the caller promises.
        unsafe { (*self.frame).exit = exit };
        false
    }

    /// The block that runs.
    ///
    /// # Safety
    /// The frame must be alive.
    #[inline(always)]
    pub(crate) unsafe fn block(&self) -> &BlockEnv {
        // SAFETY: as the caller promises; nothing writes to the block during a run.
        unsafe { &(*(*self.frame).shared).block }
    }

    /// The prices in force.
    #[inline(always)]
    pub(crate) fn schedule(&self) -> &GasSchedule {
        // SAFETY: tables are static or outlive the run.
        unsafe { &(*self.table).schedule }
    }

    /// Loads the registers from the frame: saved by [`Regs::save`], and changed by a host function since.
    ///
    /// # Safety
    /// The frame must be alive.
    pub(crate) unsafe fn load(&mut self) {
        // SAFETY: the frame outlives the run.
        unsafe {
            self.ip = (*self.frame).ip;
            self.sp = (*self.frame).sp;
            self.gas = (*self.frame).gas;
        }
    }

    /// Saves the registers in the frame, to be loaded again or inspected.
    ///
    /// # Safety
    /// The frame must be alive.
    #[inline(always)]
    pub(crate) unsafe fn save(&self) {
        // SAFETY: the frame outlives the run.
        unsafe {
            (*self.frame).ip = self.ip;
            (*self.frame).sp = self.sp;
            (*self.frame).gas = self.gas;
        }
    }
}

/// Charges the static gas and checks the stack.
#[inline(always)]
unsafe fn enter<O: Op>(r: &mut Regs) -> bool {
    use crate::arena::{HEIGHT_MASK, STACK_WORDS};
    const WORD: usize = size_of::<Word>();
    // SAFETY: the table and the frame outlive the run.
    unsafe {
        r.gas -= (*r.table).gas[O::CODE as usize];
        if r.gas < 0 {
            return r.halt(HaltReason::OutOfGas);
        }
        let height = r.sp as usize & HEIGHT_MASK;
        if O::IN > 0 && height < O::IN * WORD {
            return r.halt(HaltReason::StackUnderflow);
        }
        if O::OUT > O::IN && height > (STACK_WORDS + O::IN - O::OUT) * WORD {
            return r.halt(HaltReason::StackOverflow);
        }
    }
    true
}

/// The threaded form of an opcode.
///
/// # Safety
/// The arguments must be those of a running frame; `ip` points at this opcode.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe extern "sysv64-unwind" fn threaded<O: Op>(
    ip: *const u8,
    sp: *mut Word,
    gas: i64,
    frame: *mut Frame,
    table: *const Table,
    memory: *mut u8,
) {
    let mut r = Regs {
        ip,
        sp,
        gas,
        frame,
        table,
        memory,
    };
    // SAFETY: `enter` establishes what `run` requires; code is padded, so the next opcode exists.
    unsafe {
        if enter::<O>(&mut r) && O::run(&mut r) {
            r.ip = r.ip.add(O::SIZE);
            let next = (*r.table).threaded[*r.ip as usize];
            return next(r.ip, r.sp, r.gas, r.frame, r.table, r.memory);
        }
        r.ip = r.ip.add(O::SIZE);
        r.save();
    }
}

/// The loop form of an opcode.
///
/// # Safety
/// `r` must be the registers of a running frame; `ip` points at this opcode.
pub(crate) unsafe fn stepped<O: Op>(r: &mut Regs) -> bool {
    // SAFETY: `enter` establishes what `run` requires.
    unsafe {
        let is_running = enter::<O>(r) && O::run(r);
        r.ip = r.ip.add(O::SIZE);
        is_running
    }
}

/// Runs a frame from its `ip` until it ends or calls.
///
/// # Safety
/// The frame must be set up: code, stack, memory and shared state alive for the run.
pub(crate) unsafe fn run(frame: *mut Frame, table: &Table, dispatch: Dispatch) {
    // SAFETY: as the caller promises.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if dispatch != Dispatch::Loop {
            let f = &*frame;
            let table = f.table_in_force();
            let first = table.threaded[*f.ip as usize];
            return first(f.ip, f.sp, f.gas, frame, table, f.memory);
        }
        let _ = dispatch;
        let mut r = Regs::of(frame, table);
        while (table.stepped[*r.ip as usize])(&mut r) {}
        r.save();
    }
}

/// As [`run`], calling `tracer` before and after every opcode. After an opcode that fails, the reported gas is the gas
/// before it less its full price, and negative if there was less.
///
/// # Safety
/// As for [`run`].
pub(crate) unsafe fn run_traced(frame: *mut Frame, table: &Table, tracer: &mut (dyn Tracer + '_)) {
    // SAFETY: as the caller promises.
    unsafe {
        (*frame).ip = (*frame).unfuse((*frame).ip);
        let mut r = Regs::of(frame, table);
        let order = tracer.cost_order();
        loop {
            r.save();
            let (gas, full_cost) = (r.gas, full_cost(&*frame, table, order));
            tracer.step(&crate::tracer::Step::new(&*frame, table));
            let is_running = (table.stepped[*r.ip as usize])(&mut r);
            let forwarded = (*frame).request.as_ref().map_or(0, |request| request.gas);
            let left = match ((*frame).exit, full_cost) {
                (Exit::Halt(_), Some(cost)) if !is_running => gas - cost,
                _ => r.gas,
            };
            tracer.step_end(left, forwarded);
            if !is_running {
                break;
            }
            if tracer.should_stop() {
                (*frame).exit = Exit::Interrupted;
                break;
            }
        }
        r.save();
    }
}
