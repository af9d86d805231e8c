//! Tables of opcodes, prices and contracts.

use crate::{
    fail,
    frame::CFrame,
    guarded,
    types::{CAddress, CBytes, Status},
};
use niwaki_evm::{ContractOutput, Flow, HaltReason, OpcodeInfo, Table};
use niwaki_primitives::{Bytes, Fork};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::Arc,
};

/// `niwaki_table`.
#[derive(Debug)]
pub struct CTable {
    pub(crate) table: Arc<Table>,
}

/// `niwaki_opcode`.
pub type OpcodeFn = unsafe extern "C" fn(*mut c_void, *mut CFrame<'_, '_>) -> c_int;
/// `niwaki_contract`.
pub type ContractFn =
    unsafe extern "C" fn(*mut c_void, CBytes, u64, *mut u64, *mut CBytes) -> c_int;

/// A pointer of the C program, usable by any thread that runs a machine.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: the header requires contexts to be usable from all threads that use the table.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn get(self) -> *mut c_void {
        self.0
    }
}

const STOP: c_int = 1;
const OUT_OF_GAS: c_int = 3;

/// Creates the table of a fork.
///
/// # Safety
/// `fork` must be null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_table_new(fork: *const c_char) -> *mut CTable {
    if fork.is_null() {
        fail(Status::Argument, "no fork is named");
        return std::ptr::null_mut();
    }
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(fork) }.to_string_lossy();
    let fork: Fork = match name.parse() {
        Ok(fork) => fork,
        Err(error) => {
            fail(Status::Argument, &error);
            return std::ptr::null_mut();
        }
    };
    let table = Arc::new(Table::of(fork).clone());
    Box::into_raw(Box::new(CTable { table }))
}

/// Frees a table.
///
/// # Safety
/// `table` must be null or come from [`niwaki_table_new`] and not be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_table_free(table: *mut CTable) {
    if !table.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(table) });
    }
}

/// Changes a table; copies it first if machines share it.
///
/// # Safety
/// `table` must be null or come from [`niwaki_table_new`].
unsafe fn change(table: *mut CTable, change: impl FnOnce(&mut Table)) -> Status {
    // SAFETY: as the caller promises.
    let Some(table) = (unsafe { table.as_mut() }) else {
        return fail(Status::Argument, "the table is null");
    };
    guarded(|| {
        change(Arc::make_mut(&mut table.table));
        Status::Ok
    })
}

/// Changes a price.
///
/// # Safety
/// `table` must be null or come from [`niwaki_table_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_table_set_static_gas(
    table: *mut CTable,
    opcode: u8,
    gas: u32,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(table, |table| table.set_static_gas(opcode, gas.into())) }
}

/// Sets a host opcode.
///
/// # Safety
/// `table` must be null or come from [`niwaki_table_new`]; `body` must be callable with `context` as long as the table
/// or a machine with it exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_table_set_opcode(
    table: *mut CTable,
    opcode: u8,
    input: usize,
    output: usize,
    gas: u32,
    body: Option<OpcodeFn>,
    context: *mut c_void,
) -> Status {
    let Some(body) = body else {
        return fail(Status::Argument, "the opcode has no body");
    };
    if input.max(output) > 1024 {
        return fail(Status::Argument, "a stack holds 1024 words");
    }
    let info = OpcodeInfo {
        mnemonic: "CUSTOM",
        input,
        output,
        immediate: 0,
    };
    let context = Context(context);
    let run = move |machine: &mut niwaki_evm::Machine<'_>| {
        let mut frame = CFrame::new(machine);
        // SAFETY: as the caller promises.
        let flow = unsafe { body(context.get(), &mut frame) };
        match (frame.failed.take(), flow) {
            (Some(abort), _) => Err(abort),
            (None, 0) => Ok(Flow::Next),
            (None, STOP) => Ok(Flow::Stop),
            (None, OUT_OF_GAS) => Err(HaltReason::OutOfGas.into()),
            (None, _) => Err(HaltReason::Host("an opcode of the host's failed").into()),
        }
    };
    // SAFETY: as the caller promises.
    unsafe {
        change(table, |table| {
            table.set_opcode(opcode, info, gas.into(), run)
        })
    }
}

/// Sets a host contract.
///
/// # Safety
/// As for [`niwaki_table_set_opcode`]; `address` must be null or point at an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_table_set_contract(
    table: *mut CTable,
    address: *const CAddress,
    body: Option<ContractFn>,
    context: *mut c_void,
) -> Status {
    // SAFETY: as the caller promises.
    let (Some(address), Some(body)) = (unsafe { address.as_ref() }, body) else {
        return fail(Status::Argument, "the contract has no address or no body");
    };
    let context = Context(context);
    let run = move |call: niwaki_evm::ContractCall<'_>| {
        let (mut gas_used, mut output) = (0, CBytes::NONE);
        let input = CBytes::of(call.input);
        // SAFETY: as the caller promises; the output is copied at once.
        let (flow, output) = unsafe {
            let flow = body(context.get(), input, call.gas, &mut gas_used, &mut output);
            (flow, Bytes::copy_from_slice(output.slice()))
        };
        match flow {
            0 | STOP => Ok(ContractOutput {
                gas_used,
                output,
                reverts: false,
            }),
            OUT_OF_GAS => Err(HaltReason::OutOfGas.into()),
            _ => Err(HaltReason::Host("a contract of the host's failed").into()),
        }
    };
    let address = (*address).into();
    // SAFETY: as the caller promises.
    unsafe {
        change(table, |table| {
            table.set_precompile(address, Some(Arc::new(run)))
        })
    }
}
