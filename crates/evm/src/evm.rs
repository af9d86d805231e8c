//! The driver: frames, calls and creations.
//!
//! Calls do not recurse natively. A frame that calls leaves the interpreter with a [`Request`]; the
//! driver pushes the callee's frame, runs it, and takes the caller up where it left.

use crate::{
    arena::{Arena, FRAMES},
    division::LastDivisor,
    env::{BlockEnv, TxEnv},
    frame::{Exit, Frame, Halt, Kind, Request},
    interpreter::{self, Dispatch},
    modulus::Modulus,
    state_gas::StateGas,
    table::Table,
    tracer::{Failure, Left, Tracer},
    word::Word,
    world::World,
};
use niwaki_primitives::{Address, Fault, StateView, U256};
use std::ptr::NonNull;

mod calls;
mod message;
mod telling;

use telling::tell_destroyed;

/// What all frames of a run share.
#[derive(Debug)]
pub(crate) struct Shared<'v> {
    pub(crate) world: World<'v>,
    pub(crate) block: BlockEnv,
    pub(crate) tx: TxEnv,
    pub(crate) arena: Arena,
    /// Of the last division, and of the last sum or product modulo a number.
    pub(crate) divisor: LastDivisor,
    pub(crate) modulus: Modulus,
    /// What the last call returned.
    pub(crate) return_data: Vec<u8>,
    /// Who got how much by the last SELFDESTRUCT.
    pub(crate) heir: (Address, U256),
    /// Logs of the transaction that the tracer knows of.
    told_logs: usize,
    /// Why the state could not be read.
    pub(crate) fault: Option<Fault>,
}

/// An Ethereum virtual machine for the length of a block.
#[derive(Debug)]
pub struct Evm<'v> {
    table: &'v Table,
    dispatch: Dispatch,
    /// Longest code that can be deployed, bytes.
    max_code_bytes: usize,
    /// Owned; a pointer because frames point at it while the driver uses it too.
    shared: NonNull<Shared<'v>>,
    frames: Vec<Frame>,
}

/// How a call or creation left the machine when no frame is needed, or is done.
struct Ended {
    exit: Exit,
    gas: i64,
    state: StateGas,
}

impl Ended {
    /// With all gas that was given.
    fn untouched(exit: Exit, request: &Request) -> Self {
        Self {
            exit,
            gas: request.gas,
            state: StateGas::with_reservoir(request.reservoir),
        }
    }

    /// With an exceptional halt, which leaves the state gas that was given.
    fn halted(halt: Halt, request: &Request) -> Self {
        Self {
            gas: 0,
            ..Self::untouched(Exit::Halt(halt), request)
        }
    }
}

impl Drop for Evm<'_> {
    fn drop(&mut self) {
        // SAFETY: it came from a box in `new` and no frame is left to point at it.
        drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
    }
}

impl<'v> Evm<'v> {
    /// A machine for a block upon the state `view`, with the rules of `table`.
    pub fn new(view: &'v dyn StateView, table: &'v Table, block: BlockEnv) -> Self {
        let shared = Box::new(Shared {
            world: World::new(view, table),
            block,
            tx: TxEnv::default(),
            arena: Arena::new(),
            divisor: LastDivisor::default(),
            modulus: Modulus::default(),
            return_data: Vec::new(),
            heir: Default::default(),
            told_logs: 0,
            fault: None,
        });
        let shared = NonNull::from(Box::leak(shared));
        let mut evm = Self {
            table,
            dispatch: Dispatch::Threaded,
            max_code_bytes: table.schedule().max_code_bytes,
            shared,
            frames: Vec::new(),
        };
        evm.set_dispatch(Dispatch::default());
        evm
    }

    /// Chooses how opcodes are dispatched. A table with opcodes of a host's own in the place of those that
    /// are fused has none fused.
    pub fn set_dispatch(&mut self, dispatch: Dispatch) {
        self.dispatch = match dispatch {
            Dispatch::Fused if self.table.fused.is_none() => Dispatch::Threaded,
            dispatch => dispatch,
        };
    }

    fn shared(&mut self) -> &mut Shared<'v> {
        // SAFETY: owned by self, and no other reference is alive while self is borrowed.
        unsafe { self.shared.as_mut() }
    }

    /// The world as changed so far.
    pub fn world(&mut self) -> &mut World<'v> {
        &mut self.shared().world
    }

    /// The block being run.
    pub fn block(&mut self) -> &BlockEnv {
        &self.shared().block
    }

    /// Sets the price of blob gas, wei, for a simulation.
    pub fn set_blob_base_fee(&mut self, fee: u128) {
        self.shared().block.blob_base_fee = U256::from(fee);
    }

    /// Sets the longest code that can be deployed, bytes, in place of the table's (EIP-170): a private
    /// chain's own limit. Init code has the table's still.
    pub fn set_max_code_bytes(&mut self, bytes: usize) {
        self.max_code_bytes = bytes;
    }

    /// The opcodes and prices in force.
    pub fn table(&self) -> &'v Table {
        self.table
    }

    /// Begins a transaction: everything is cold again.
    pub fn begin_transaction(&mut self, tx: TxEnv) {
        let shared = self.shared();
        shared.tx = tx;
        shared.world.begin_transaction();
    }

    /// Gives a caller what its callee has left of the state gas, and what a new account has cost if
    /// the callee failed.
    fn take_back(&self, ended: &Ended, new_account: bool, state: &mut StateGas, gas: &mut i64) {
        if ended.exit.is_success() {
            state.take_over(ended.state, gas);
            return;
        }
        state.reservoir = ended.state.reservoir;
        if new_account {
            state.refill(self.table.schedule().state.account, gas);
        }
    }

    /// Runs frames until the first one ends.
    fn drive(&mut self, mut tracer: Option<&mut (dyn Tracer + '_)>) -> Result<Ended, Fault> {
        loop {
            let frame: *mut Frame = self.frames.last_mut().expect("a frame was started");
            // SAFETY: the frame's code, stack, memory and shared state live as long as self.
            unsafe {
                match tracer.as_deref_mut().filter(|tracer| tracer.wants_steps()) {
                    Some(tracer) => interpreter::run_traced(frame, self.table, tracer),
                    None => interpreter::run(frame, self.table, self.dispatch),
                }
            }
            // SAFETY: nothing else refers to the frame here.
            let (exit, request) = unsafe { ((*frame).exit, (*frame).request.take()) };
            let interrupted = Ended {
                exit: Exit::Interrupted,
                gas: 0,
                state: StateGas::default(),
            };
            if exit == Exit::Interrupted {
                return Ok(interrupted);
            }
            if let Some(tracer) = tracer.as_deref_mut() {
                if tracer.stops() {
                    return Ok(interrupted);
                }
                self.tell_logs(tracer);
                if let Some(request) = &request {
                    self.tell_entered(tracer, request, exit);
                }
            }
            let Some(request) = request else {
                if exit == Exit::Fault {
                    return Err(self
                        .shared()
                        .fault
                        .take()
                        .expect("a fault is kept with its exit"));
                }
                let (kind, new_account, ended) = self.finish(tracer.as_deref_mut());
                if self.frames.is_empty() {
                    return Ok(ended);
                }
                self.resume(kind, new_account, &ended);
                continue;
            };
            let done = match exit {
                Exit::Create => self.start_creation(&request)?,
                _ => self.start_call(&request)?,
            };
            // No frame was needed: a precompiled contract, no code, or a refusal.
            if let Some(done) = done {
                if let Some(tracer) = tracer.as_deref_mut() {
                    self.tell_done(tracer, &request, &done);
                }
                let kind = Kind::of(exit, &request);
                self.resume(kind, request.new_account, &done);
            }
        }
    }

    /// Whether a callee would be too deep.
    fn too_deep(&self) -> bool {
        self.frames.len() >= FRAMES
    }

    /// Takes the ended frame off and settles it; its output is in the return data. Also gives whether
    /// its caller has paid for a new account.
    fn finish(&mut self, tracer: Option<&mut (dyn Tracer + '_)>) -> (Kind, bool, Ended) {
        let mut frame = self.frames.pop().expect("a frame has ended");
        let (table, prices) = (self.table, self.table.schedule());
        let max_code_bytes = self.max_code_bytes;
        let shared = self.shared();
        let (mut exit, mut gas) = (frame.exit, frame.gas);
        // SAFETY: the range lies in the frame's memory, which nothing has used since.
        let output = unsafe { std::slice::from_raw_parts(frame.output, frame.output_len) };
        shared.return_data.clear();
        if matches!(exit, Exit::Return | Exit::Revert) {
            shared.return_data.extend_from_slice(output);
        }
        let (mut unpaid, mut has_no_code) = (false, false);
        if matches!(frame.kind, Kind::Create { .. }) && exit.is_success() {
            let length = shared.return_data.len();
            let (bytes, words) = (length as i64, length.div_ceil(32) as i64);
            let deposit = prices.code_deposit.saturating_mul(bytes)
                + prices.code_deposit_word.saturating_mul(words);
            let state_deposit = prices.state.code_byte.saturating_mul(bytes);
            let mut rest = gas.saturating_sub(deposit);
            if prices.rejects_ef && shared.return_data.first() == Some(&0xef) {
                exit = Exit::Halt(Halt::InvalidContractPrefix);
            } else if deposit > gas && prices.deposit_must_be_paid {
                exit = Exit::Halt(Halt::OutOfGas);
                unpaid = true;
            } else if length > max_code_bytes {
                exit = Exit::Halt(Halt::CodeTooLong);
            } else if rest >= 0 && frame.state.charge(state_deposit, &mut rest) {
                gas = rest;
                shared.world.set_code(frame.account, &shared.return_data);
            } else if prices.has_state_gas() {
                exit = Exit::Halt(Halt::OutOfGas);
                unpaid = true;
            } else {
                // Before EIP-2, a contract that can't pay for its code has none.
                has_no_code = true;
            }
        }
        if !exit.is_success() {
            shared.world.revert(frame.checkpoint);
            gas += frame.state.lent;
            frame.state = StateGas::with_reservoir(frame.reservoir);
        }
        if matches!(exit, Exit::Halt(_)) {
            gas = 0;
            shared.return_data.clear();
        }
        if let Some(tracer) = tracer {
            let error = match exit {
                Exit::Halt(halt) => Some(halt.to_string()),
                Exit::Revert => Some("execution reverted".into()),
                _ => None,
            };
            if exit == Exit::SelfDestruct {
                tell_destroyed(tracer, &frame, shared.heir);
            }
            tracer.frame_end(frame.depth + 1, frame.gas, &shared.return_data, error);
            let failure = Failure::of(exit, &frame, table);
            tracer.leave(&Left {
                depth: frame.depth,
                output: &shared.return_data,
                gas_used: (frame.given - gas).unsigned_abs(),
                failure: if unpaid {
                    Some(Failure::CodeDeposit)
                } else {
                    failure
                },
            });
            shared.told_logs = shared.world.logs().len();
        }
        if has_no_code {
            shared.return_data.clear();
        }
        let state = frame.state;
        (frame.kind, frame.new_account, Ended { exit, gas, state })
    }

    /// Hands a result to the frame that waits for it.
    fn resume(&mut self, kind: Kind, new_account: bool, ended: &Ended) {
        let frame: *mut Frame = self.frames.last_mut().expect("a frame waits");
        // SAFETY: nothing else refers to the frame.
        let (state, gas) = unsafe { (&mut (*frame).state, &mut (*frame).gas) };
        *gas += ended.gas;
        self.take_back(ended, new_account, state, gas);
        let shared = self.shared();
        // SAFETY: nothing else refers to the frame; a word was taken for each that is put.
        unsafe {
            let mut result = Word::from(u64::from(ended.exit.is_success()));
            match kind {
                Kind::Call { output, output_len } => {
                    let length = output_len.min(shared.return_data.len());
                    if length > 0 {
                        std::ptr::copy_nonoverlapping(shared.return_data.as_ptr(), output, length);
                    }
                }
                Kind::Create { address } => {
                    if ended.exit.is_success() {
                        shared.return_data.clear();
                        result = Word::from(address);
                    }
                }
            }
            crate::word::write((*frame).sp, result.0);
            (*frame).sp = (*frame).sp.add(1);
        }
    }
}
