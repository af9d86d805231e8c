//! The C API of the EVM. The header `include/niwaki_evm.h` documents each function.
//!
//! Opaque pointers are boxes; a panic never crosses the border; the last error is stored per thread.
//!
//! | file | what it is |
//! |---|---|
//! | `types` | the plain structs of the header |
//! | `state` | a state that the C program reads by callbacks |
//! | `table` | opcode tables with opcodes and contracts of the C program |
//! | `frame` | the frame that such an opcode gets |
//! | `machine` | machines, runs and their changes |

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

/// Stores the error of this thread.
fn fail(status: Status, reason: &str) -> Status {
    // C strings can't contain zero bytes.
    let reason: Vec<u8> = reason.bytes().filter(|byte| *byte != 0).collect();
    let reason = CString::new(reason).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| *last = reason);
    status
}

/// Runs a function of the API; a panic becomes a status.
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

/// The last error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn niwaki_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}
