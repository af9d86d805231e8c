//! The driver: runs the frames of a message.
//!
//! Calls do not recurse on the native stack. A frame that calls leaves the interpreter with a [`CallRequest`]; the
//! driver pushes the callee's frame, runs it until it ends, writes the result into the caller and resumes it:
//!
//! ```text
//! frames = [A]      A: CALL B  -> exit Call, request {B}
//! frames = [A, B]   B: RETURN  -> exit Return, output in the return data
//! frames = [A]      A resumes after CALL with 1 on its stack
//! ```
//!
//! Precompiled contracts, accounts without code, and calls that are refused (too deep, too little balance) need no
//! frame: `start_call` and `start_creation` give their [`FrameResult`] at once.

use crate::{
    arena::{Arena, FRAMES},
    dispatch::Dispatch,
    division::DivisorCache,
    env::{BlockEnv, TxEnv},
    exit::{Exit, HaltReason},
    frame::{CallRequest, Frame, FrameKind},
    interpreter,
    modulus::ModulusCache,
    shared::SharedState,
    state_gas::StateGas,
    table::Table,
    tracer::{CallEnd, Failure, Tracer},
    word::Word,
    world::World,
};
use niwaki_primitives::{Fault, StateView, U256};
use std::ptr::NonNull;

mod calls;
mod message;
mod tracing;

use tracing::trace_selfdestruct;

/// An Ethereum virtual machine for the length of a block.
#[derive(Debug)]
pub struct Evm<'v> {
    table: &'v Table,
    dispatch: Dispatch,
    /// Longest code that can be deployed, bytes.
    max_code_bytes: usize,
    /// Owned. A pointer, because the frames point at it while the driver uses it.
    shared: NonNull<SharedState<'v>>,
    frames: Vec<Frame>,
}

/// How a call or creation ended, with a frame or without.
struct FrameResult {
    exit: Exit,
    gas: i64,
    state: StateGas,
}

impl FrameResult {
    /// All gas is left: the call was refused, or ran no code.
    fn untouched(exit: Exit, request: &CallRequest) -> Self {
        Self {
            exit,
            gas: request.gas,
            state: StateGas::with_reservoir(request.reservoir),
        }
    }

    /// An exceptional halt: the gas is gone, the state gas is all left.
    fn halted(halt: HaltReason, request: &CallRequest) -> Self {
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
    /// A machine for a block on top of the state `view`, with the rules of `table`.
    pub fn new(view: &'v dyn StateView, table: &'v Table, block: BlockEnv) -> Self {
        let shared = Box::new(SharedState {
            world: World::new(view, table),
            block,
            tx: TxEnv::default(),
            arena: Arena::new(),
            divisor: DivisorCache::default(),
            modulus: ModulusCache::default(),
            return_data: Vec::new(),
            last_selfdestruct: Default::default(),
            traced_logs: 0,
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

    /// Chooses how opcodes are dispatched. Where the host has replaced an opcode that superinstructions contain,
    /// [`Dispatch::Fused`] means [`Dispatch::Threaded`].
    pub fn set_dispatch(&mut self, dispatch: Dispatch) {
        self.dispatch = match dispatch {
            Dispatch::Fused if self.table.fused.is_none() => Dispatch::Threaded,
            dispatch => dispatch,
        };
    }

    fn shared(&mut self) -> &mut SharedState<'v> {
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

    /// Returns the callee's state gas to its caller, and the price of a new account if the callee failed.
    fn return_state_gas(
        &self,
        ended: &FrameResult,
        creates_account: bool,
        state: &mut StateGas,
        gas: &mut i64,
    ) {
        if ended.exit.is_success() {
            state.incorporate(ended.state, gas);
            return;
        }
        state.reservoir = ended.state.reservoir;
        if creates_account {
            state.refill(self.table.schedule().state.account, gas);
        }
    }

    /// Runs frames until the first one ends.
    fn run_frames(
        &mut self,
        mut tracer: Option<&mut (dyn Tracer + '_)>,
    ) -> Result<FrameResult, Fault> {
        loop {
            let frame: *mut Frame = self.frames.last_mut().expect("a frame was started");
            // SAFETY: the frame's code, stack, memory and shared state live as long as self.
            unsafe {
                match tracer
                    .as_deref_mut()
                    .filter(|tracer| tracer.should_trace_steps())
                {
                    Some(tracer) => interpreter::run_traced(frame, self.table, tracer),
                    None => interpreter::run(frame, self.table, self.dispatch),
                }
            }
            // SAFETY: nothing else refers to the frame here.
            let (exit, request) = unsafe { ((*frame).exit, (*frame).request.take()) };
            let interrupted = FrameResult {
                exit: Exit::Interrupted,
                gas: 0,
                state: StateGas::default(),
            };
            if exit == Exit::Interrupted {
                return Ok(interrupted);
            }
            if let Some(tracer) = tracer.as_deref_mut() {
                if tracer.should_stop() {
                    return Ok(interrupted);
                }
                self.trace_logs(tracer);
                if let Some(request) = &request {
                    self.trace_enter(tracer, request, exit);
                }
            }
            let Some(request) = request else {
                if exit == Exit::Fault {
                    return Err(self
                        .shared()
                        .fault
                        .take()
                        .expect("a fault is stored with its exit"));
                }
                let (kind, creates_account, ended) = self.finish_frame(tracer.as_deref_mut());
                if self.frames.is_empty() {
                    return Ok(ended);
                }
                self.resume_caller(kind, creates_account, &ended);
                continue;
            };
            let done = match exit {
                Exit::Create => self.start_creation(&request)?,
                _ => self.start_call(&request)?,
            };
            // No frame was needed: a precompiled contract, no code, or a refused call.
            if let Some(done) = done {
                if let Some(tracer) = tracer.as_deref_mut() {
                    self.trace_exit(tracer, &request, &done);
                }
                let kind = FrameKind::of(exit, &request);
                self.resume_caller(kind, request.creates_account, &done);
            }
        }
    }

    /// Whether a callee would be too deep.
    fn is_too_deep(&self) -> bool {
        self.frames.len() >= FRAMES
    }

    /// Pops the frame that ended: pays for deployed code, reverts what failed, and puts its output into the return
    /// data. Also returns the frame's kind, and whether its caller has paid for a new account.
    fn finish_frame(
        &mut self,
        tracer: Option<&mut (dyn Tracer + '_)>,
    ) -> (FrameKind, bool, FrameResult) {
        let mut frame = self.frames.pop().expect("a frame has ended");
        let (table, prices) = (self.table, self.table.schedule());
        let max_code_bytes = self.max_code_bytes;
        let shared = self.shared();
        let (mut exit, mut gas) = (frame.exit, frame.gas);
        // SAFETY: the range is in the frame's memory, which nothing has used since.
        let output = unsafe { std::slice::from_raw_parts(frame.output, frame.output_len) };
        shared.return_data.clear();
        if matches!(exit, Exit::Return | Exit::Revert) {
            shared.return_data.extend_from_slice(output);
        }
        let (mut is_deposit_unpaid, mut has_no_code) = (false, false);
        if matches!(frame.kind, FrameKind::Create { .. }) && exit.is_success() {
            let length = shared.return_data.len();
            let (bytes, words) = (length as i64, length.div_ceil(32) as i64);
            let deposit = prices.code_deposit.saturating_mul(bytes)
                + prices.code_deposit_word.saturating_mul(words);
            let state_deposit = prices.state.code_byte.saturating_mul(bytes);
            let mut rest = gas.saturating_sub(deposit);
            if prices.rejects_ef && shared.return_data.first() == Some(&0xef) {
                exit = Exit::Halt(HaltReason::InvalidContractPrefix);
            } else if deposit > gas && prices.deposit_must_be_paid {
                exit = Exit::Halt(HaltReason::OutOfGas);
                is_deposit_unpaid = true;
            } else if length > max_code_bytes {
                exit = Exit::Halt(HaltReason::CodeTooLong);
            } else if rest >= 0 && frame.state.charge(state_deposit, &mut rest) {
                gas = rest;
                shared.world.set_code(frame.account, &shared.return_data);
            } else if prices.has_state_gas() {
                exit = Exit::Halt(HaltReason::OutOfGas);
                is_deposit_unpaid = true;
            } else {
                // Before EIP-2, a contract that can't pay for its code is left without code.
                has_no_code = true;
            }
        }
        if !exit.is_success() {
            shared.world.revert(frame.checkpoint);
            gas += frame.state.from_gas_left;
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
                let (beneficiary, wei) = shared.last_selfdestruct;
                trace_selfdestruct(tracer, &frame, beneficiary, wei);
            }
            tracer.frame_end(frame.depth + 1, frame.gas, &shared.return_data, error);
            let failure = Failure::of(exit, &frame, table);
            tracer.exit(&CallEnd {
                depth: frame.depth,
                output: &shared.return_data,
                gas_used: (frame.gas_limit - gas).unsigned_abs(),
                failure: if is_deposit_unpaid {
                    Some(Failure::CodeDeposit)
                } else {
                    failure
                },
            });
            shared.traced_logs = shared.world.logs().len();
        }
        if has_no_code {
            shared.return_data.clear();
        }
        let state = frame.state;
        (
            frame.kind,
            frame.creates_account,
            FrameResult { exit, gas, state },
        )
    }

    /// Writes a result into the frame that waits for it: gas, output, and the word on the stack.
    fn resume_caller(&mut self, kind: FrameKind, creates_account: bool, ended: &FrameResult) {
        let frame: *mut Frame = self.frames.last_mut().expect("a frame waits");
        // SAFETY: nothing else refers to the frame.
        let (state, gas) = unsafe { (&mut (*frame).state, &mut (*frame).gas) };
        *gas += ended.gas;
        self.return_state_gas(ended, creates_account, state, gas);
        let shared = self.shared();
        // SAFETY: nothing else refers to the frame; the opcode has popped at least the word that is pushed.
        unsafe {
            let mut result = Word::from(u64::from(ended.exit.is_success()));
            match kind {
                FrameKind::Call { output, output_len } => {
                    let length = output_len.min(shared.return_data.len());
                    if length > 0 {
                        std::ptr::copy_nonoverlapping(shared.return_data.as_ptr(), output, length);
                    }
                }
                FrameKind::Create { address } => {
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
