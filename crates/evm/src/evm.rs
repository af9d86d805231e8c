//! The driver: frames, calls and creations.
//!
//! Calls do not recurse natively. A frame that calls leaves the interpreter with a [`Request`]; the
//! driver pushes the callee's frame, runs it, and takes the caller up where it left.

use crate::{
    arena::{Arena, FRAMES},
    code::Code,
    env::{BlockEnv, Message, Outcome, Target, TxEnv},
    frame::{Exit, Frame, Halt, Kind, Request},
    interpreter::{self, Dispatch},
    table::Table,
    tracer::{Failure, Left, Tracer},
    word::Word,
    world::{AccountId, CodeId, World},
};
use niwaki_crypto::PrecompileHalt;
use niwaki_primitives::{Address, Bytes, Fault, StateView, U256};
use std::ptr::NonNull;

mod telling;

use telling::tell_destroyed;

/// What all frames of a run share.
#[derive(Debug)]
pub(crate) struct Shared<'v> {
    pub(crate) world: World<'v>,
    pub(crate) block: BlockEnv,
    pub(crate) tx: TxEnv,
    pub(crate) arena: Arena,
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
    table: &'static Table,
    dispatch: Dispatch,
    /// Owned; a pointer because frames point at it while the driver uses it too.
    shared: NonNull<Shared<'v>>,
    frames: Vec<Frame>,
}

/// How a call or creation left the machine when no frame is needed, or is done.
struct Ended {
    exit: Exit,
    gas: i64,
}

impl Drop for Evm<'_> {
    fn drop(&mut self) {
        // SAFETY: it came from a box in `new` and no frame is left to point at it.
        drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
    }
}

impl<'v> Evm<'v> {
    /// A machine for a block upon the state `view`, with the rules of `table`.
    pub fn new(view: &'v dyn StateView, table: &'static Table, block: BlockEnv) -> Self {
        let shared = Box::new(Shared {
            world: World::new(view, table.fork(), table.precompiles()),
            block,
            tx: TxEnv::default(),
            arena: Arena::new(),
            return_data: Vec::new(),
            heir: Default::default(),
            told_logs: 0,
            fault: None,
        });
        let shared = NonNull::from(Box::leak(shared));
        Self {
            table,
            dispatch: Dispatch::default(),
            shared,
            frames: Vec::new(),
        }
    }

    /// Chooses how opcodes are dispatched.
    pub fn set_dispatch(&mut self, dispatch: Dispatch) {
        self.dispatch = dispatch;
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

    /// The opcodes and prices in force.
    pub fn table(&self) -> &'static Table {
        self.table
    }

    /// Begins a transaction: everything is cold again.
    pub fn begin_transaction(&mut self, tx: TxEnv) {
        let shared = self.shared();
        shared.tx = tx;
        shared.world.begin_transaction();
    }

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
        let gas = i64::try_from(message.gas).unwrap_or(i64::MAX);
        let beyond = message.gas - gas.unsigned_abs();
        let (Target::Call(address) | Target::Create(address)) = message.target;
        let request = self.request_from(message, address, gas)?;
        let exit = match message.target {
            Target::Call(_) => Exit::Call,
            Target::Create(_) => Exit::Create,
        };
        if let Some(tracer) = tracer.as_deref_mut() {
            self.tell_entered(tracer, &request, exit);
        }
        let started = match exit {
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
        let shared = self.shared();
        if !ended.exit.is_success() {
            shared.world.forget_kept_touch();
        }
        let output = Bytes::from(std::mem::take(&mut shared.return_data));
        shared.arena.trim();
        let gas_left = ended.gas.unsigned_abs() + if ended.gas > 0 { beyond } else { 0 };
        Ok(Outcome {
            exit: ended.exit,
            gas_left,
            output,
        })
    }

    fn request_from(
        &mut self,
        message: &Message,
        address: Address,
        gas: i64,
    ) -> Result<Request, Fault> {
        let delegates = self.table.schedule().delegates;
        let world = self.world();
        let target = world.load(&address)?;
        let (mut code_account, mut delegated) = (target, false);
        if delegates && matches!(message.target, Target::Call(_)) {
            let code = world.code(target)?;
            if let Some(delegate) = world.code_at(code).delegate() {
                code_account = world.warm_from_start(&delegate)?;
                delegated = true;
            }
        }
        Ok(Request {
            gas,
            code_address: address,
            code_account,
            delegated,
            target,
            caller: message.caller,
            value: message.value,
            transfers: true,
            is_static: false,
            input: message.input.as_ptr(),
            input_len: message.input.len(),
            output: std::ptr::null_mut(),
            output_len: 0,
        })
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
                let (kind, ended) = self.finish(tracer.as_deref_mut());
                if self.frames.is_empty() {
                    return Ok(ended);
                }
                self.resume(kind, &ended);
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
                let kind = match exit {
                    Exit::Create => Kind::Create {
                        address: request.code_address,
                    },
                    _ => Kind::Call {
                        output: request.output,
                        output_len: request.output_len,
                    },
                };
                self.resume(kind, &done);
            }
        }
    }

    /// Whether a callee would be too deep.
    fn too_deep(&self) -> bool {
        self.frames.len() >= FRAMES
    }

    /// Begins a call: pushes a frame, or says how it ended at once.
    fn start_call(&mut self, request: &Request) -> Result<Option<Ended>, Fault> {
        let refused = Ended {
            exit: Exit::Revert,
            gas: request.gas,
        };
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
            if world.balance(payer) < request.value {
                return Ok(Some(refused));
            }
            world.touch(request.target);
            let paid = world.transfer(payer, request.target, request.value);
            assert!(paid, "the balance was looked at above");
        } else {
            world.touch(request.target);
        }
        if let Some(contract) = world
            .precompiled(request.code_account)
            .filter(|_| !request.delegated)
        {
            // SAFETY: the range lies in the caller's memory, or in the message.
            let input = unsafe { std::slice::from_raw_parts(request.input, request.input_len) };
            return match contract.run(input, request.gas.unsigned_abs()) {
                Ok((used, output)) => {
                    shared.return_data.extend_from_slice(&output);
                    let left = request.gas - i64::try_from(used).unwrap_or(i64::MAX);
                    Ok(Some(Ended {
                        exit: Exit::Return,
                        gas: left,
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
                    Ok(Some(Ended {
                        exit: Exit::Halt(halt),
                        gas: 0,
                    }))
                }
            };
        }
        let code = world.code(request.code_account)?;
        if code == CodeId::EMPTY {
            return Ok(Some(Ended {
                exit: Exit::Stop,
                gas: request.gas,
            }));
        }
        let code: *const Code = world.code_at(code);
        let address = world.address(request.target);
        let kind = Kind::Call {
            output: request.output,
            output_len: request.output_len,
        };
        self.push_frame(request, (address, request.target), code, kind);
        let frame = self.frames.last_mut().expect("pushed");
        frame.checkpoint = checkpoint;
        Ok(None)
    }

    /// Begins a creation: pushes a frame, or says how it ended at once.
    ///
    /// Spec: execution-specs `vm/instructions/system.py`, `generic_create`; `vm/interpreter.py`,
    /// `process_create_message`; EIP-684, EIP-7610.
    fn start_creation(&mut self, request: &Request) -> Result<Option<Ended>, Fault> {
        let (is_nested, too_deep) = (!self.frames.is_empty(), self.too_deep());
        let prices = self.table.schedule();
        let shared = self.shared();
        shared.return_data.clear();
        let world = &mut shared.world;
        let creator = world.load(&request.caller)?;
        if is_nested {
            let nonce = world.nonce(creator);
            let poor = world.balance(creator) < request.value;
            if too_deep || poor || nonce == u64::MAX {
                return Ok(Some(Ended {
                    exit: Exit::Revert,
                    gas: request.gas,
                }));
            }
            world.set_nonce(creator, nonce + 1);
        }
        let created = world.load(&request.code_address)?;
        world.warm_account(created);
        if world.is_taken(created)? {
            return Ok(Some(Ended {
                exit: Exit::Halt(Halt::AddressCollision),
                gas: 0,
            }));
        }
        let checkpoint = world.checkpoint();
        world.mark_created(created);
        world.touch(created);
        if prices.contract_nonce > 0 {
            world.set_nonce(created, prices.contract_nonce);
        }
        if !request.value.is_zero() {
            let paid = world.transfer(creator, created, request.value);
            assert!(
                paid,
                "the balance was looked at above, or by the transaction's checks"
            );
        }
        // SAFETY: the range lies in the caller's memory, or in the message.
        let bytes = unsafe { std::slice::from_raw_parts(request.input, request.input_len) };
        let init_code = Box::new(Code::init_code(bytes));
        let runs = Request {
            input_len: 0,
            ..*request
        };
        let kind = Kind::Create {
            address: request.code_address,
        };
        self.push_frame(
            &runs,
            (request.code_address, created),
            &raw const *init_code,
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
        let start = unsafe { (*code).bytes().as_ptr() };
        let checkpoint = self.world().checkpoint();
        self.frames.push(Frame {
            ip: start,
            sp,
            gas: request.gas,
            given: request.gas,
            memory,
            memory_len: 0,
            memory_cost: 0,
            code,
            code_start: start,
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

    /// Takes the ended frame off and settles it; its output is in the return data.
    fn finish(&mut self, tracer: Option<&mut (dyn Tracer + '_)>) -> (Kind, Ended) {
        let frame = self.frames.pop().expect("a frame has ended");
        let (table, prices) = (self.table, self.table.schedule());
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
            let deposit = prices.code_deposit.saturating_mul(length as i64);
            if prices.rejects_ef && shared.return_data.first() == Some(&0xef) {
                exit = Exit::Halt(Halt::InvalidContractPrefix);
            } else if deposit > gas && prices.deposit_must_be_paid {
                exit = Exit::Halt(Halt::OutOfGas);
                unpaid = true;
            } else if length > prices.max_code_bytes {
                exit = Exit::Halt(Halt::CodeTooLong);
            } else if deposit <= gas {
                gas -= deposit;
                let code = Bytes::copy_from_slice(&shared.return_data);
                shared.world.set_code(frame.account, &code);
            } else {
                // Before EIP-2, a contract that can't pay for its code has none.
                has_no_code = true;
            }
        }
        if matches!(exit, Exit::Halt(_)) {
            gas = 0;
            shared.return_data.clear();
        }
        if !exit.is_success() {
            shared.world.revert(frame.checkpoint);
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
        (frame.kind, Ended { exit, gas })
    }

    /// Hands a result to the frame that waits for it.
    fn resume(&mut self, kind: Kind, ended: &Ended) {
        let frame: *mut Frame = self.frames.last_mut().expect("a frame waits");
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
            (*frame).gas += ended.gas;
        }
    }
}
