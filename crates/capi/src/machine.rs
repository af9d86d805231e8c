//! Machines, runs, and their changes.

use crate::{
    fail, guarded,
    state::CState,
    table::CTable,
    types::{
        CAccount, CAddress, CBlock, CBytes, CChanges, CLog, CMessage, COutcome, CWord, End, Status,
        slice,
    },
};
use niwaki_evm::{BlockEnv, Evm, Exit, Message, Outcome, Table, Target, TxEnv};
use niwaki_primitives::{B256, Bytes, Fault, Fork, Log};
use std::{mem::ManuallyDrop, sync::Arc};

/// `niwaki_evm`.
#[derive(Debug)]
pub struct CEvm {
    /// Borrows state and table below, and is dropped before them.
    evm: ManuallyDrop<Evm<'static>>,
    state: *mut CState,
    table: *const Table,
    /// Logs of the last run.
    output: Bytes,
    logs: Vec<Log>,
    topics: Vec<CWord>,
    /// Whether a run has failed without outcome, after which the world is undefined.
    is_spoilt: bool,
}

impl Drop for CEvm {
    fn drop(&mut self) {
        // SAFETY: the machine borrows the state and the table, and is dropped first; both came from `new`.
        unsafe {
            ManuallyDrop::drop(&mut self.evm);
            drop(Box::from_raw(self.state));
            drop(Arc::from_raw(self.table));
        }
    }
}

/// Creates a machine for a block.
///
/// # Safety
/// The pointers must be null or point at values of their type; callbacks and their context must outlive the machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_evm_new(
    table: *const CTable,
    block: *const CBlock,
    state: *const CState,
) -> *mut CEvm {
    // SAFETY: as the caller promises.
    let given = unsafe { (table.as_ref(), block.as_ref(), state.as_ref()) };
    let (Some(table), Some(block), Some(state)) = given else {
        fail(Status::Argument, "table, block or state is null");
        return std::ptr::null_mut();
    };
    if let Some(missing) = state.missing() {
        fail(
            Status::Argument,
            &format!("the state has no callback {missing}"),
        );
        return std::ptr::null_mut();
    }
    let block = BlockEnv {
        number: block.number,
        timestamp: block.timestamp,
        coinbase: block.coinbase.into(),
        gas_limit: block.gas_limit,
        base_fee: block.base_fee,
        prev_randao: block.prev_randao.into(),
        blob_base_fee: block.blob_base_fee.into(),
        chain_id: block.chain_id,
        slot_number: block.slot_number,
    };
    let mut made = std::ptr::null_mut();
    guarded(|| {
        let state = Box::into_raw(Box::new(*state));
        let table = Arc::into_raw(table.table.clone());
        // SAFETY: both live until the machine is dropped.
        let evm = unsafe { Evm::new(&*state, &*table, block) };
        made = Box::into_raw(Box::new(CEvm {
            evm: ManuallyDrop::new(evm),
            state,
            table,
            output: Bytes::new(),
            logs: Vec::new(),
            topics: Vec::new(),
            is_spoilt: false,
        }));
        Status::Ok
    });
    made
}

/// Frees a machine.
///
/// # Safety
/// `evm` must be null or come from [`niwaki_evm_new`] and not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_evm_free(evm: *mut CEvm) {
    if !evm.is_null() {
        // SAFETY: as the caller promises.
        let evm = unsafe { Box::from_raw(evm) };
        guarded(|| {
            drop(evm);
            Status::Ok
        });
    }
}

/// The machine at `evm`, if it is usable.
///
/// # Safety
/// `evm` must be null or come from [`niwaki_evm_new`].
unsafe fn usable<'a>(evm: *mut CEvm) -> Result<&'a mut CEvm, Status> {
    // SAFETY: as the caller promises.
    let evm = unsafe { evm.as_mut() };
    let evm = evm.ok_or_else(|| fail(Status::Argument, "the machine is null"))?;
    match evm.is_spoilt {
        true => Err(fail(
            Status::Argument,
            "a run of this machine had no outcome: free it and make another",
        )),
        false => Ok(evm),
    }
}

impl CEvm {
    fn run(&mut self, message: &CMessage) -> Result<(Outcome, i64), Fault> {
        // SAFETY: the caller's input is valid during the call.
        let input = Bytes::copy_from_slice(unsafe { message.input.slice() });
        // SAFETY: likewise.
        let (blob_hashes, access_list) = unsafe {
            (
                slice(message.blob_hashes, message.blob_hash_count),
                slice(message.access_list, message.access_count),
            )
        };
        let target = message.target.into();
        let target = match message.creates {
            true => Target::Create(target),
            false => Target::Call(target),
        };
        self.evm.begin_transaction(TxEnv {
            origin: message.origin.into(),
            gas_price: message.gas_price.into(),
            blob_hashes: blob_hashes
                .iter()
                .map(|hash| B256::new(hash.bytes))
                .collect(),
        });
        // From EIP-3651 on the coinbase is warm too.
        let coinbase = self.evm.block().coinbase;
        let coinbase = (self.evm.table().fork() >= Fork::Shanghai).then_some(coinbase);
        let (Target::Call(callee) | Target::Create(callee)) = target;
        let world = self.evm.world();
        for address in [message.origin.into(), callee].into_iter().chain(coinbase) {
            world.load_warm(&address)?;
        }
        for access in access_list {
            let address = access.address.into();
            world.warm_account(&address);
            // SAFETY: as above.
            for key in unsafe { slice(access.keys, access.key_count) } {
                world.warm_slot(&address, (*key).into());
            }
        }
        let message = Message {
            caller: message.caller.into(),
            target,
            value: message.value.into(),
            input,
            gas: message.gas,
            reservoir: message.reservoir,
        };
        let outcome = self.evm.run(&message, None)?;
        let world = self.evm.world();
        let refund = world.refund();
        world.end_transaction();
        self.logs = world.take_logs();
        Ok((outcome, refund))
    }
}

/// Runs a message.
///
/// # Safety
/// The pointers must be null or point at values of their type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_evm_run(
    evm: *mut CEvm,
    message: *const CMessage,
    outcome: *mut COutcome,
) -> Status {
    // SAFETY: as the caller promises.
    let (evm, message) = match unsafe { (usable(evm), message.as_ref()) } {
        (Err(status), _) => return status,
        (Ok(evm), Some(message)) if !outcome.is_null() => (evm, message),
        _ => return fail(Status::Argument, "message or outcome is null"),
    };
    evm.is_spoilt = true;
    let status = guarded(|| match evm.run(message) {
        Err(fault) => fail(Status::Fault, &fault.to_string()),
        Ok((ran, refund)) => {
            evm.output = ran.output;
            let end = match ran.exit {
                Exit::Revert => End::Revert,
                exit if exit.is_success() => End::Success,
                _ => End::Halt,
            };
            let logs = evm.logs.len();
            let output = CBytes::of(&evm.output);
            let gas_left = ran.gas_left;
            let (reservoir_left, state_gas) = (ran.reservoir, ran.state_gas);
            // SAFETY: as the caller promises.
            unsafe {
                outcome.write(COutcome {
                    end,
                    gas_left,
                    refund,
                    reservoir_left,
                    state_gas,
                    output,
                    logs,
                });
            }
            Status::Ok
        }
    });
    evm.is_spoilt = status != Status::Ok;
    status
}

/// A log of the last run.
///
/// # Safety
/// The pointers must be null or point at values of their type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_evm_log(evm: *mut CEvm, index: usize, log: *mut CLog) -> Status {
    // SAFETY: as the caller promises.
    let evm = match unsafe { usable(evm) } {
        Err(status) => return status,
        Ok(evm) => evm,
    };
    let Some(found) = evm.logs.get(index).filter(|_| !log.is_null()) else {
        let count = evm.logs.len();
        let reason = format!("there is no log {index} of {count}, or no place for it");
        return fail(Status::Argument, &reason);
    };
    evm.topics = found
        .topics()
        .iter()
        .map(|topic| CWord::from(*topic))
        .collect();
    // SAFETY: as the caller promises.
    unsafe {
        log.write(CLog {
            address: found.address.into(),
            topics: evm.topics.as_ptr(),
            topic_count: evm.topics.len(),
            data: CBytes::of(&found.data.data),
        });
    }
    Status::Ok
}

/// The changes of all runs.
///
/// # Safety
/// The pointers must be null or point at values of their type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_evm_changes(evm: *mut CEvm, changes: *const CChanges) -> Status {
    // SAFETY: as the caller promises.
    let (evm, changes) = match unsafe { (usable(evm), changes.as_ref()) } {
        (Err(status), _) => return status,
        (_, None) => return fail(Status::Argument, "the callbacks for the changes are null"),
        (Ok(evm), Some(changes)) => (evm, changes),
    };
    guarded(|| {
        let diff = evm.evm.world().diff();
        for (address, account) in &diff.accounts {
            let address = CAddress::from(*address);
            if let Some(on_account) = changes.account {
                let now = CAccount::of(account.new.as_ref());
                let prior_code = account.prior.map(|prior| prior.code_hash);
                let hash = account.new.map(|new| new.code_hash);
                let code = hash.filter(|_| hash != prior_code).and_then(|hash| {
                    let at = diff.codes.binary_search_by_key(&hash, |(hash, _)| *hash);
                    at.ok().map(|at| CBytes::of(&diff.codes[at].1))
                });
                let code = code.unwrap_or(CBytes::NONE);
                // SAFETY: the caller's callback, with its context.
                unsafe { on_account(changes.context, &address, &now, account.storage_wiped, code) };
            }
            let slots = changes.storage.into_iter();
            for (on_slot, (key, slot)) in
                slots.flat_map(|on_slot| account.slots.iter().map(move |slot| (on_slot, slot)))
            {
                let (key, value) = (CWord::from(*key), CWord::from(slot.new));
                // SAFETY: as above.
                unsafe { on_slot(changes.context, &address, &key, &value) };
            }
        }
        Status::Ok
    })
}
