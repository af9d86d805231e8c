//! The start of calls and creations: transfer of value, precompiled contracts, new frames.

use super::{Evm, FrameResult};
use crate::{
    code::Code,
    exit::{Exit, HaltReason},
    frame::{CallRequest, Frame, FrameKind},
    machine::{ContractCall, HostError},
    overrides::BuiltIn,
    shared::SharedState,
    state_gas::StateGas,
    word::Word,
    world::{AccountId, Checkpoint, CodeId},
};
use niwaki_crypto::PrecompileHalt;
use niwaki_primitives::{Address, Fault};
use std::sync::Arc;

impl Evm<'_> {
    /// Begins a call: pushes a frame and returns `None`, or returns its result if it needs no frame.
    pub(super) fn start_call(
        &mut self,
        request: &CallRequest,
    ) -> Result<Option<FrameResult>, Fault> {
        let refused = FrameResult::untouched(Exit::Revert, request);
        let is_too_deep = self.is_too_deep();
        let shared = self.shared();
        shared.return_data.clear();
        if is_too_deep {
            return Ok(Some(refused));
        }
        let world = &mut shared.world;
        let checkpoint = world.checkpoint();
        // The payer is loaded only if it pays: the caller of a system call is no account.
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
            .filter(|_| !request.is_delegated)
        {
            // SAFETY: the range is in the caller's memory, or in the message.
            let input = unsafe { std::slice::from_raw_parts(request.input, request.input_len) };
            let BuiltIn::Stock(contract) = contract else {
                return self.run_host_contract(request, input, checkpoint).map(Some);
            };
            return match contract.run(input, request.gas.unsigned_abs()) {
                Ok((used, output)) => {
                    shared.return_data.extend_from_slice(&output);
                    let left = request.gas - i64::try_from(used).unwrap_or(i64::MAX);
                    Ok(Some(FrameResult {
                        gas: left,
                        ..FrameResult::untouched(Exit::Return, request)
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
                        PrecompileHalt::OutOfGas => HaltReason::OutOfGas,
                        _ => HaltReason::Precompile,
                    };
                    Ok(Some(FrameResult::halted(halt, request)))
                }
            };
        }
        let code = world.code(request.code_account)?;
        if code == CodeId::EMPTY {
            return Ok(Some(FrameResult::untouched(Exit::Stop, request)));
        }
        let code: *const Code = world.code_at(code);
        let address = world.address(request.target);
        let kind = FrameKind::of(Exit::Call, request);
        self.push_frame(request, address, request.target, code, kind);
        let frame = self.frames.last_mut().expect("pushed");
        frame.checkpoint = checkpoint;
        Ok(None)
    }

    /// Runs a precompiled contract that the host has added.
    #[cold]
    fn run_host_contract(
        &mut self,
        request: &CallRequest,
        input: &[u8],
        checkpoint: Checkpoint,
    ) -> Result<FrameResult, Fault> {
        // SAFETY: nothing else refers to the shared state, and nothing that the contract is given outlives the call.
        let shared = unsafe { &mut *self.shared.as_ptr().cast::<SharedState<'static>>() };
        let contract = self.table.precompiles.host_contract(&request.code_address);
        let contract = contract.expect("the account was found to hold one");
        let address = shared.world.address(request.target);
        let call = ContractCall::new(shared, request, address, input);
        let ended = match contract(call) {
            Err(HostError::Fault(fault)) => return Err(fault),
            Err(HostError::Halt(halt)) => FrameResult::halted(halt, request),
            Ok(output) => match request.gas.checked_sub_unsigned(output.gas_used) {
                Some(gas) if gas >= 0 => {
                    shared.return_data.extend_from_slice(&output.output);
                    let exit = match output.reverts {
                        true => Exit::Revert,
                        false => Exit::Return,
                    };
                    FrameResult {
                        gas,
                        ..FrameResult::untouched(exit, request)
                    }
                }
                _ => FrameResult::halted(HaltReason::OutOfGas, request),
            },
        };
        if !ended.exit.is_success() {
            shared.world.revert(checkpoint);
        }
        Ok(ended)
    }

    /// Begins a creation: pushes a frame and returns `None`, or returns its result if it needs no frame.
    ///
    /// Spec: execution-specs `vm/instructions/system.py`, `generic_create`; `vm/interpreter.py`,
    /// `process_create_message`; EIP-684, EIP-7610.
    pub(super) fn start_creation(
        &mut self,
        request: &CallRequest,
    ) -> Result<Option<FrameResult>, Fault> {
        let (is_nested, is_too_deep) = (!self.frames.is_empty(), self.is_too_deep());
        let prices = self.table.schedule();
        let shared = self.shared();
        shared.return_data.clear();
        let world = &mut shared.world;
        let creator = world.load(&request.caller)?;
        if is_nested {
            let nonce = world.nonce(creator);
            let is_too_poor = !world.can_pay(creator, request.value);
            if is_too_deep || is_too_poor || nonce == u64::MAX {
                return Ok(Some(FrameResult::untouched(Exit::Revert, request)));
            }
            world.set_nonce(creator, nonce + 1);
        }
        let created = world.access(&request.code_address, &mut 0, 0)?;
        let created = created.expect("it costs nothing");
        if world.has_collision(created)? {
            return Ok(Some(FrameResult::halted(
                HaltReason::AddressCollision,
                request,
            )));
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
                // Only for a message whose balance the caller has not checked; opcodes are checked above.
                world.revert(checkpoint);
                return Ok(Some(FrameResult::untouched(Exit::Revert, request)));
            }
            world.log_transfer(creator, created, request.value);
        }
        // SAFETY: the range is in the caller's memory, or in the message.
        let bytes = unsafe { std::slice::from_raw_parts(request.input, request.input_len) };
        let init_code = world.init_code_cache.prepare(bytes);
        let without_input = CallRequest {
            input_len: 0,
            ..*request
        };
        let kind = FrameKind::of(Exit::Create, request);
        let code = Arc::as_ptr(&init_code);
        self.push_frame(&without_input, request.code_address, created, code, kind);
        let frame = self.frames.last_mut().expect("pushed");
        frame.checkpoint = checkpoint;
        frame.init_code = Some(init_code);
        Ok(None)
    }

    fn push_frame(
        &mut self,
        request: &CallRequest,
        address: Address,
        account: AccountId,
        code: *const Code,
        kind: FrameKind,
    ) {
        let depth = self.frames.len();
        let shared: *mut SharedState<'static> = self.shared.as_ptr().cast();
        let memory = match self.frames.last() {
            // SAFETY: the end of the caller's memory is in the arena.
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
            gas_limit: request.gas,
            state: StateGas::with_reservoir(request.reservoir),
            reservoir: request.reservoir,
            creates_account: request.creates_account,
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
