//! How calls and creations begin.

use super::{Ended, Evm, Shared};
use crate::{
    code::Code,
    frame::{Exit, Frame, Halt, Kind, Request},
    machine::{Abort, ContractCall},
    overrides::BuiltIn,
    state_gas::StateGas,
    word::Word,
    world::{AccountId, Checkpoint, CodeId},
};
use niwaki_crypto::PrecompileHalt;
use niwaki_primitives::{Address, Fault};
use std::sync::Arc;

impl Evm<'_> {
    /// Begins a call: pushes a frame, or says how it ended at once.
    pub(super) fn start_call(&mut self, request: &Request) -> Result<Option<Ended>, Fault> {
        let refused = Ended::untouched(Exit::Revert, request);
        let too_deep = self.too_deep();
        let shared = self.shared();
        shared.return_data.clear();
        if too_deep {
            return Ok(Some(refused));
        }
        let world = &mut shared.world;
        let checkpoint = world.checkpoint();
        // The payer is not looked at unless it pays: the caller of a system call is nobody.
        if request.transfers && !request.value.is_zero() {
            let payer = world.load(&request.caller)?;
            if !world.transfer(payer, request.target, request.value) {
                return Ok(Some(refused));
            }
            world.log_transfer(payer, request.target, request.value);
        } else {
            world.touch(request.target);
        }
        if let Some(contract) = world
            .precompiled(request.code_account)
            .filter(|_| !request.delegated)
        {
            // SAFETY: the range lies in the caller's memory, or in the message.
            let input = unsafe { std::slice::from_raw_parts(request.input, request.input_len) };
            let BuiltIn::Stock(contract) = contract else {
                return self.run_own(request, input, checkpoint).map(Some);
            };
            return match contract.run(input, request.gas.unsigned_abs()) {
                Ok((used, output)) => {
                    shared.return_data.extend_from_slice(&output);
                    let left = request.gas - i64::try_from(used).unwrap_or(i64::MAX);
                    Ok(Some(Ended {
                        gas: left,
                        ..Ended::untouched(Exit::Return, request)
                    }))
                }
                Err(PrecompileHalt::Fault(message)) => Err(Fault::Engine {
                    operation: "run precompiled contract",
                    segment: "crypto",
                    message,
                }),
                Err(halt) => {
                    world.revert(checkpoint);
                    let halt = match halt {
                        PrecompileHalt::OutOfGas => Halt::OutOfGas,
                        _ => Halt::Precompile,
                    };
                    Ok(Some(Ended::halted(halt, request)))
                }
            };
        }
        let code = world.code(request.code_account)?;
        if code == CodeId::EMPTY {
            return Ok(Some(Ended::untouched(Exit::Stop, request)));
        }
        let code: *const Code = world.code_at(code);
        let address = world.address(request.target);
        let kind = Kind::of(Exit::Call, request);
        self.push_frame(request, (address, request.target), code, kind);
        let frame = self.frames.last_mut().expect("pushed");
        frame.checkpoint = checkpoint;
        Ok(None)
    }

    /// Runs a contract of the host's own.
    #[cold]
    fn run_own(
        &mut self,
        request: &Request,
        input: &[u8],
        checkpoint: Checkpoint,
    ) -> Result<Ended, Fault> {
        // SAFETY: nothing else refers to what frames share, and nothing that the contract is given outlives
        // the call.
        let shared = unsafe { &mut *self.shared.as_ptr().cast::<Shared<'static>>() };
        let contract = self.table.precompiles.own(&request.code_address);
        let contract = contract.expect("the account was found to hold one");
        let address = shared.world.address(request.target);
        let call = ContractCall::new(
            shared,
            (input, request.gas.unsigned_abs()),
            (request.caller, address, request.value),
            request.is_static,
        );
        let ended = match contract(call) {
            Err(Abort::Fault(fault)) => return Err(fault),
            Err(Abort::Halt(halt)) => Ended::halted(halt, request),
            Ok(output) => match request.gas.checked_sub_unsigned(output.gas_used) {
                Some(gas) if gas >= 0 => {
                    shared.return_data.extend_from_slice(&output.output);
                    let exit = match output.reverts {
                        true => Exit::Revert,
                        false => Exit::Return,
                    };
                    Ended {
                        gas,
                        ..Ended::untouched(exit, request)
                    }
                }
                _ => Ended::halted(Halt::OutOfGas, request),
            },
        };
        if !ended.exit.is_success() {
            shared.world.revert(checkpoint);
        }
        Ok(ended)
    }

    /// Begins a creation: pushes a frame, or says how it ended at once.
    ///
    /// Spec: execution-specs `vm/instructions/system.py`, `generic_create`; `vm/interpreter.py`,
    /// `process_create_message`; EIP-684, EIP-7610.
    pub(super) fn start_creation(&mut self, request: &Request) -> Result<Option<Ended>, Fault> {
        let (is_nested, too_deep) = (!self.frames.is_empty(), self.too_deep());
        let prices = self.table.schedule();
        let shared = self.shared();
        shared.return_data.clear();
        let world = &mut shared.world;
        let creator = world.load(&request.caller)?;
        if is_nested {
            let nonce = world.nonce(creator);
            let poor = !world.can_pay(creator, request.value);
            if too_deep || poor || nonce == u64::MAX {
                return Ok(Some(Ended::untouched(Exit::Revert, request)));
            }
            world.set_nonce(creator, nonce + 1);
        }
        let created = world.access(&request.code_address, &mut 0, 0)?;
        let created = created.expect("it costs nothing");
        if world.is_taken(created)? {
            return Ok(Some(Ended::halted(Halt::AddressCollision, request)));
        }
        let checkpoint = world.checkpoint();
        world.clear_for_creation(created)?;
        world.mark_created(created);
        world.touch(created);
        if prices.contract_nonce > 0 {
            world.set_nonce(created, prices.contract_nonce);
        }
        if !request.value.is_zero() {
            if !world.transfer(creator, created, request.value) {
                // A message that nobody has checked; of code the balance was looked at above.
                world.revert(checkpoint);
                return Ok(Some(Ended::untouched(Exit::Revert, request)));
            }
            world.log_transfer(creator, created, request.value);
        }
        // SAFETY: the range lies in the caller's memory, or in the message.
        let bytes = unsafe { std::slice::from_raw_parts(request.input, request.input_len) };
        let init_code = world.last_init_code.prepared(bytes);
        let runs = Request {
            input_len: 0,
            ..*request
        };
        let kind = Kind::of(Exit::Create, request);
        self.push_frame(
            &runs,
            (request.code_address, created),
            Arc::as_ptr(&init_code),
            kind,
        );
        let frame = self.frames.last_mut().expect("pushed");
        frame.checkpoint = checkpoint;
        frame.init_code = Some(init_code);
        Ok(None)
    }

    fn push_frame(
        &mut self,
        request: &Request,
        (address, account): (Address, AccountId),
        code: *const Code,
        kind: Kind,
    ) {
        let depth = self.frames.len();
        let shared: *mut Shared<'static> = self.shared.as_ptr().cast();
        let memory = match self.frames.last() {
            // SAFETY: the end of the caller's memory lies in the arena.
            Some(caller) => unsafe { caller.memory.add(caller.memory_len) },
            None => self.shared().arena.memory(),
        };
        let sp = self.shared().arena.stack(depth);
        // SAFETY: the code is owned by the world or by the frame.
        let start = unsafe { (*code).start(self.dispatch) };
        let checkpoint = self.world().checkpoint();
        self.frames.push(Frame {
            ip: start,
            sp,
            gas: request.gas,
            given: request.gas,
            state: StateGas::with_reservoir(request.reservoir),
            reservoir: request.reservoir,
            new_account: request.new_account,
            memory,
            memory_len: 0,
            memory_cost: 0,
            code,
            code_start: start,
            table: self.table,
            input: request.input,
            input_len: request.input_len,
            shared,
            account,
            is_static: request.is_static,
            depth,
            address,
            caller: request.caller,
            value: Word::from(request.value),
            exit: Exit::Stop,
            output: memory,
            output_len: 0,
            request: None,
            kind,
            checkpoint,
            init_code: None,
        });
    }
}
