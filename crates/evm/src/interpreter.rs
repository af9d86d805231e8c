//! Dispatch: how one opcode's body is reached from the last.
//!
//! A body is written once, as an [`Op`]. `threaded` wraps it in a handler whose last act is an
//! indirect call in tail position, which becomes a jump: the registers of the machine are the six
//! integer arguments of the System V ABI and never touch memory between opcodes. `stepped` wraps
//! the same body for a plain loop, which is what tracing, Miri and other targets use.

use crate::{
    cost::full_cost,
    frame::{Exit, Frame, Halt},
    gas::GasSchedule,
    table::Table,
    tracer::Tracer,
    word::Word,
};
use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU8, Ordering},
};

/// How opcodes are dispatched. What a run comes to does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Each handler jumps to the next, and in code that is hot one handler does what a common sequence of
    /// opcodes does.
    Fused,
    /// Each handler jumps to the next.
    Threaded,
    /// A loop calls one body after another; the only way where the processor is no x86-64.
    Loop,
}

/// What machines begin with.
static DEFAULT: AtomicU8 = AtomicU8::new(0);

impl Dispatch {
    /// All, the fastest first.
    pub const ALL: [Self; 3] = [Self::Fused, Self::Threaded, Self::Loop];

    /// The name, as a command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Threaded => "threaded",
            Self::Loop => "loop",
        }
    }

    /// Has machines of this process begin with it from now on.
    pub fn set_default(self) {
        DEFAULT.store(self as u8, Ordering::Relaxed);
    }
}

impl Default for Dispatch {
    fn default() -> Self {
        Self::ALL[usize::from(DEFAULT.load(Ordering::Relaxed))]
    }
}

impl FromStr for Dispatch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|way| way.name() == name);
        found.ok_or_else(|| format!("no dispatch is called {name}: use fused, threaded or loop"))
    }
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The machine state that changes with every opcode.
pub(crate) struct Regs {
    /// The current opcode.
    pub(crate) ip: *const u8,
    /// The first free slot of the stack.
    pub(crate) sp: *mut Word,
    /// Gas left; negative once it has run out.
    pub(crate) gas: i64,
    /// The frame that runs.
    pub(crate) frame: *mut Frame,
    /// The opcode table in force.
    pub(crate) table: *const Table,
    /// The start of the frame's memory.
    pub(crate) memory: *mut u8,
}

/// The body of an opcode, with what its wrapper checks.
pub(crate) trait Op {
    /// The opcode.
    const CODE: u8;
    /// Words taken from the stack.
    const IN: usize;
    /// Words put on the stack.
    const OUT: usize;
    /// Bytes to the next opcode; 0 if the body sets `ip`.
    const SIZE: usize = 1;

    /// Runs the body; false leaves the frame, whose `exit` says why.
    ///
    /// # Safety
    /// `r` must be the registers of a running frame, the static gas charged, and the stack hold
    /// `IN` words and have room for `OUT`.
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
/// A step of the loop form; false leaves the frame.
pub(crate) type StepFn = unsafe fn(&mut Regs) -> bool;

impl Regs {
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

    /// Takes `amount` of gas; false if there is not so much.
    ///
    /// # Safety
    /// The frame must be alive.
    #[inline(always)]
    pub(crate) unsafe fn charge(&mut self, amount: i64) -> bool {
        self.gas = self.gas.wrapping_sub(amount);
        if self.gas < 0 {
            // SAFETY: as the caller promises.
            return unsafe { self.halt(Halt::OutOfGas) };
        }
        true
    }

    /// Takes over the gas that a slow path left; negative if it ended the frame.
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
    pub(crate) unsafe fn halt(&mut self, halt: Halt) -> bool {
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

    /// The prices in force.
    #[inline(always)]
    pub(crate) fn schedule(&self) -> &GasSchedule {
        // SAFETY: tables are static or outlive the run.
        unsafe { &(*self.table).schedule }
    }

    /// Takes the registers from the frame that [`Regs::save`] has put there and others have changed.
    ///
    /// # Safety
    /// The frame must be alive.
    pub(crate) unsafe fn take_up(&mut self) {
        // SAFETY: the frame outlives the run.
        unsafe {
            self.ip = (*self.frame).ip;
            self.sp = (*self.frame).sp;
            self.gas = (*self.frame).gas;
        }
    }

    /// Puts the registers into the frame, to be taken up again or looked at.
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
            return r.halt(Halt::OutOfGas);
        }
        let height = r.sp as usize & HEIGHT_MASK;
        if O::IN > 0 && height < O::IN * WORD {
            return r.halt(Halt::StackUnderflow);
        }
        if O::OUT > O::IN && height > (STACK_WORDS + O::IN - O::OUT) * WORD {
            return r.halt(Halt::StackOverflow);
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
    // SAFETY: `enter` establishes what `run` asks for; code is padded, so the next opcode exists.
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
    // SAFETY: `enter` establishes what `run` asks for.
    unsafe {
        let goes_on = enter::<O>(r) && O::run(r);
        r.ip = r.ip.add(O::SIZE);
        goes_on
    }
}

/// Runs a frame from where it stands until it exits or calls.
///
/// # Safety
/// The frame must be set up: code, stack, memory and shared state alive for the run.
pub(crate) unsafe fn run(frame: *mut Frame, table: &Table, dispatch: Dispatch) {
    // SAFETY: as the caller promises.
    unsafe {
        let f = &*frame;
        #[cfg(target_arch = "x86_64")]
        if dispatch != Dispatch::Loop {
            let table = f.table_in_force();
            let first = table.threaded[*f.ip as usize];
            return first(f.ip, f.sp, f.gas, frame, table, f.memory);
        }
        let _ = dispatch;
        let (ip, sp, gas, memory) = (f.ip, f.sp, f.gas, f.memory);
        let mut r = Regs {
            ip,
            sp,
            gas,
            frame,
            table,
            memory,
        };
        while (table.stepped[*r.ip as usize])(&mut r) {}
        r.save();
    }
}

/// As [`run`], telling `tracer` of every opcode before it runs and after. Of one that fails the gas it
/// leaves is what is left of its price in full, below zero where that is more than there was.
///
/// # Safety
/// As for [`run`].
pub(crate) unsafe fn run_traced(frame: *mut Frame, table: &Table, tracer: &mut (dyn Tracer + '_)) {
    // SAFETY: as the caller promises.
    unsafe {
        (*frame).ip = (*frame).unfuse((*frame).ip);
        let f = &*frame;
        let (ip, sp, gas, memory) = (f.ip, f.sp, f.gas, f.memory);
        let mut r = Regs {
            ip,
            sp,
            gas,
            frame,
            table,
            memory,
        };
        let order = tracer.cost_order();
        loop {
            r.save();
            let (gas, full_cost) = (r.gas, full_cost(&*frame, table, order));
            tracer.step(&crate::tracer::Step::new(&*frame, table));
            let goes_on = (table.stepped[*r.ip as usize])(&mut r);
            let handed = (*frame).request.as_ref().map_or(0, |request| request.gas);
            let left = match ((*frame).exit, full_cost) {
                (Exit::Halt(_), Some(cost)) if !goes_on => gas - cost,
                _ => r.gas,
            };
            tracer.step_end(left, handed);
            if !goes_on {
                break;
            }
            if tracer.stops() {
                (*frame).exit = Exit::Interrupted;
                break;
            }
        }
        r.save();
    }
}
