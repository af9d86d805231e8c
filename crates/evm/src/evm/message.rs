//! Messages from outside: what happens before and after their first frame.

use super::{Evm, FrameResult};
use crate::{
    env::{Message, Outcome, Target},
    exit::{Exit, HaltReason},
    frame::CallRequest,
    gas::{GasSchedule, WARM_ACCESS},
    state_gas::StateGas,
    tracer::Tracer,
    world::{AccountId, World},
};
use niwaki_primitives::{Address, Bytes, Fault};

impl Evm<'_> {
    /// Runs a message to its end. What it changed stays in the world unless it failed.
    ///
    /// # Errors
    /// A [`Fault`] of the state; the world must then be dropped.
    pub fn run(
        &mut self,
        message: &Message,
        mut tracer: Option<&mut dyn Tracer>,
    ) -> Result<Outcome, Fault> {
        self.frames.clear();
        self.shared().return_data.clear();
        // No block can spend more gas than an i64 holds; the excess is returned unspent.
        let mut gas = i64::try_from(message.gas).unwrap_or(i64::MAX);
        let excess_gas = message.gas - gas.unsigned_abs();
        let reservoir = i64::try_from(message.reservoir).unwrap_or(i64::MAX);
        let excess_reservoir = message.reservoir - reservoir.unsigned_abs();
        let mut state = StateGas::with_reservoir(reservoir);
        let (request, has_started) = self.request_from(message, &mut gas, &mut state)?;
        let exit = Exit::of(&message.target);
        if let Some(tracer) = tracer.as_deref_mut() {
            self.trace_enter(tracer, &request, exit);
        }
        let started = match exit {
            _ if !has_started => Some(FrameResult::halted(HaltReason::OutOfGas, &request)),
            Exit::Create => self.start_creation(&request)?,
            _ => self.start_call(&request)?,
        };
        let ended = match started {
            Some(done) => {
                if let Some(tracer) = tracer {
                    self.trace_exit(tracer, &request, &done);
                }
                done
            }
            None => self.run_frames(tracer)?,
        };
        gas = ended.gas;
        self.return_state_gas(&ended, request.creates_account, &mut state, &mut gas);
        if matches!(ended.exit, Exit::Halt(_)) {
            // The price of the new account, which was just returned, burns with the rest.
            gas = 0;
        }
        let shared = self.shared();
        if !ended.exit.is_success() {
            shared.world.forget_ripemd_touch();
        }
        let output = Bytes::from(std::mem::take(&mut shared.return_data));
        shared.arena.trim();
        Ok(Outcome {
            exit: ended.exit,
            has_started,
            gas_left: gas.unsigned_abs() + if gas > 0 { excess_gas } else { 0 },
            output,
            reservoir: state.reservoir.unsigned_abs() + excess_reservoir,
            state_gas: u64::try_from(state.used).unwrap_or(0),
        })
    }

    /// Ends a message that runs out of gas before its first frame, and calls the tracer as if it had begun.
    ///
    /// # Errors
    /// A [`Fault`] of the state.
    pub fn halt_before_first_frame(
        &mut self,
        message: &Message,
        tracer: Option<&mut dyn Tracer>,
    ) -> Result<Outcome, Fault> {
        self.frames.clear();
        self.shared().return_data.clear();
        if let Some(tracer) = tracer {
            let gas = i64::try_from(message.gas).unwrap_or(i64::MAX);
            let (Target::Call(address) | Target::Create(address)) = message.target;
            let target = self.world().load(&address)?;
            let request = CallRequest::of(message, address, target, gas);
            let exit = Exit::of(&message.target);
            self.trace_enter(tracer, &request, exit);
            self.trace_exit(
                tracer,
                &request,
                &FrameResult::halted(HaltReason::OutOfGas, &request),
            );
        }
        Ok(Outcome {
            exit: Exit::Halt(HaltReason::OutOfGas),
            has_started: false,
            gas_left: 0,
            output: Bytes::new(),
            reservoir: message.reservoir,
            state_gas: 0,
        })
    }

    /// The call that a message makes, and whether its gas pays for what precedes the first frame: from Amsterdam on
    /// a new account for the value or the creation, and the target of a delegation.
    ///
    /// Spec: EIP-2780, EIP-8037; execution-specs `amsterdam/fork.py`, `process_transaction`.
    fn request_from(
        &mut self,
        message: &Message,
        gas: &mut i64,
        state: &mut StateGas,
    ) -> Result<(CallRequest, bool), Fault> {
        let prices = self.table.schedule();
        let (Target::Call(address) | Target::Create(address)) = message.target;
        let is_call = matches!(message.target, Target::Call(_));
        let world = self.world();
        let target = world.load_accessed(&address)?;
        let mut creates_account = prices.has_state_gas()
            && !(is_call && message.value.is_zero())
            && world.is_empty(target);
        let mut has_started = !creates_account || state.charge(prices.state.account, gas);
        creates_account &= has_started;
        let (mut code_account, mut is_delegated) = (target, false);
        if has_started && prices.delegates && is_call {
            let code = world.code(target)?;
            if let Some(delegate) = world.code_at(code).delegate() {
                is_delegated = true;
                match first_delegate(world, &delegate, gas, prices)? {
                    Some(account) => code_account = account,
                    None => has_started = false,
                }
            }
        }
        let request = CallRequest {
            reservoir: state.reservoir,
            creates_account,
            code_account,
            is_delegated,
            ..CallRequest::of(message, address, target, *gas)
        };
        Ok((request, has_started))
    }
}

/// Loads the account whose code the first frame runs by delegation; `None` if `gas` does not pay for that access.
/// Before Amsterdam it is free.
fn first_delegate(
    world: &mut World<'_>,
    delegate: &Address,
    gas: &mut i64,
    prices: &GasSchedule,
) -> Result<Option<AccountId>, Fault> {
    if !prices.has_state_gas() {
        return world.load_warm(delegate).map(Some);
    }
    let mut left = *gas - WARM_ACCESS;
    let account = world.access(delegate, &mut left, prices.cold_account)?;
    if account.is_some() {
        *gas = left;
    }
    Ok(account)
}
