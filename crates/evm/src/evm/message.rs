//! Messages from outside: what runs before and after their first frame.

use super::{Ended, Evm};
use crate::{
    env::{Message, Outcome, Target},
    frame::{Exit, Halt, Request},
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
    /// A [`Fault`] of the state; the world is then good for nothing.
    pub fn run(
        &mut self,
        message: &Message,
        mut tracer: Option<&mut dyn Tracer>,
    ) -> Result<Outcome, Fault> {
        self.frames.clear();
        self.shared().return_data.clear();
        // More gas than an i64 can't be spent by any block; it comes back unspent.
        let mut gas = i64::try_from(message.gas).unwrap_or(i64::MAX);
        let beyond = message.gas - gas.unsigned_abs();
        let reservoir = i64::try_from(message.reservoir).unwrap_or(i64::MAX);
        let set_aside_beyond = message.reservoir - reservoir.unsigned_abs();
        let mut state = StateGas::with_reservoir(reservoir);
        let (request, began) = self.request_from(message, &mut gas, &mut state)?;
        let exit = Exit::of(&message.target);
        if let Some(tracer) = tracer.as_deref_mut() {
            self.tell_entered(tracer, &request, exit);
        }
        let started = match exit {
            _ if !began => Some(Ended::halted(Halt::OutOfGas, &request)),
            Exit::Create => self.start_creation(&request)?,
            _ => self.start_call(&request)?,
        };
        let ended = match started {
            Some(done) => {
                if let Some(tracer) = tracer {
                    self.tell_done(tracer, &request, &done);
                }
                done
            }
            None => self.drive(tracer)?,
        };
        gas = ended.gas;
        self.take_back(&ended, request.new_account, &mut state, &mut gas);
        if matches!(ended.exit, Exit::Halt(_)) {
            // What a new account gave back is burnt with the rest.
            gas = 0;
        }
        let shared = self.shared();
        if !ended.exit.is_success() {
            shared.world.forget_kept_touch();
        }
        let output = Bytes::from(std::mem::take(&mut shared.return_data));
        shared.arena.trim();
        Ok(Outcome {
            exit: ended.exit,
            began,
            gas_left: gas.unsigned_abs() + if gas > 0 { beyond } else { 0 },
            output,
            reservoir: state.reservoir.unsigned_abs() + set_aside_beyond,
            state_gas: u64::try_from(state.used).unwrap_or(0),
        })
    }

    /// Ends a message whose gas has not even paid for what comes before its first frame, so that a
    /// tracer knows of it.
    ///
    /// # Errors
    /// A [`Fault`] of the state.
    pub fn refuse(
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
            let request = Request::of(message, address, target, gas);
            let exit = Exit::of(&message.target);
            self.tell_entered(tracer, &request, exit);
            self.tell_done(tracer, &request, &Ended::halted(Halt::OutOfGas, &request));
        }
        Ok(Outcome {
            exit: Exit::Halt(Halt::OutOfGas),
            began: false,
            gas_left: 0,
            output: Bytes::new(),
            reservoir: message.reservoir,
            state_gas: 0,
        })
    }

    /// What a message asks for, and whether its gas pays for what comes before the first frame: from
    /// Amsterdam on a new account for the value or the creation, and the target of a delegation.
    ///
    /// Spec: EIP-2780, EIP-8037; execution-specs `amsterdam/fork.py`, `process_transaction`.
    fn request_from(
        &mut self,
        message: &Message,
        gas: &mut i64,
        state: &mut StateGas,
    ) -> Result<(Request, bool), Fault> {
        let prices = self.table.schedule();
        let (Target::Call(address) | Target::Create(address)) = message.target;
        let is_call = matches!(message.target, Target::Call(_));
        let world = self.world();
        let target = world.look_at(&address)?;
        let mut new_account = prices.has_state_gas()
            && !(is_call && message.value.is_zero())
            && world.is_empty(target);
        let mut began = !new_account || state.charge(prices.state.account, gas);
        new_account &= began;
        let (mut code_account, mut delegated) = (target, false);
        if began && prices.delegates && is_call {
            let code = world.code(target)?;
            if let Some(delegate) = world.code_at(code).delegate() {
                delegated = true;
                match first_delegate(world, &delegate, gas, prices)? {
                    Some(account) => code_account = account,
                    None => began = false,
                }
            }
        }
        let request = Request {
            reservoir: state.reservoir,
            new_account,
            code_account,
            delegated,
            ..Request::of(message, address, target, *gas)
        };
        Ok((request, began))
    }
}

/// The account that the first frame's code comes from by delegation; `None` if `gas` does not pay for
/// looking at it. It costs nothing before Amsterdam.
fn first_delegate(
    world: &mut World<'_>,
    delegate: &Address,
    gas: &mut i64,
    prices: &GasSchedule,
) -> Result<Option<AccountId>, Fault> {
    if !prices.has_state_gas() {
        return world.warm_from_start(delegate).map(Some);
    }
    let mut left = *gas - WARM_ACCESS;
    let account = world.access(delegate, &mut left, prices.cold_account)?;
    if account.is_some() {
        *gas = left;
    }
    Ok(account)
}
