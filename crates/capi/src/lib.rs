//! The EVM for programs in C, by the header `include/niwaki_evm.h`, which says what each function does.
//!
//! Opaque pointers are boxes; a panic never crosses the border; what failed is kept per thread.

mod frame;
mod machine;
mod state;
mod table;
mod types;

pub use frame::*;
pub use machine::*;
pub use table::*;
pub use types::*;

use std::{
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Keeps why a function failed.
fn fail(status: Status, reason: &str) -> Status {
    // What a reason has of zero bytes is of no use to C.
    let reason: Vec<u8> = reason.bytes().filter(|byte| *byte != 0).collect();
    let reason = CString::new(reason).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| *last = reason);
    status
}

/// Runs what a C program asked for; a panic becomes a status.
fn guarded(run: impl FnOnce() -> Status) -> Status {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        fail(Status::Panic, text.unwrap_or("the library panicked"))
    })
}

/// `NIWAKI_ABI_VERSION` of this library.
#[unsafe(no_mangle)]
pub extern "C" fn niwaki_abi_version() -> u32 {
    1
}

/// Why the last function that failed on this thread did.
#[unsafe(no_mangle)]
pub extern "C" fn niwaki_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}
