//! A state that the C program reads by callbacks.

use crate::types::{CAccount, CAddress, CBytes, CWord};
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, StateView, U256};
use std::ffi::{c_int, c_void};

/// `niwaki_state`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CState {
    /// Passed to all callbacks.
    pub context: *mut c_void,
    /// Reads an account.
    pub account: Option<unsafe extern "C" fn(*mut c_void, *const CAddress, *mut CAccount) -> c_int>,
    /// Reads a slot.
    pub storage: Option<
        unsafe extern "C" fn(*mut c_void, *const CAddress, *const CWord, *mut CWord) -> c_int,
    >,
    /// Whether any slot is non-zero.
    pub has_storage: Option<unsafe extern "C" fn(*mut c_void, *const CAddress, *mut bool) -> c_int>,
    /// Reads code.
    pub code: Option<unsafe extern "C" fn(*mut c_void, *const CWord, *mut CBytes) -> c_int>,
    /// The hash of an ancestor.
    pub block_hash: Option<unsafe extern "C" fn(*mut c_void, u64, *mut CWord) -> c_int>,
}

/// Converts the status of a callback.
fn checked(status: c_int, what: &'static str, key: impl ToString) -> Result<(), Fault> {
    match status {
        0 => Ok(()),
        status => Err(Fault::Engine {
            operation: "read by a callback",
            segment: what,
            message: format!("{}: it returned {status}", key.to_string()),
        }),
    }
}

impl CState {
    /// The name of the first missing callback.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let there = [
            ("account", self.account.is_some()),
            ("storage", self.storage.is_some()),
            ("has_storage", self.has_storage.is_some()),
            ("code", self.code.is_some()),
            ("block_hash", self.block_hash.is_some()),
        ];
        let missing = there.into_iter().find(|(_, there)| !there);
        missing.map(|(name, _)| name)
    }
}

const CHECKED: &str = "looked for when the machine was made";

// SAFETY of all calls: the C program guarantees that callbacks and context outlive the machine.
impl StateView for CState {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        let mut account = CAccount::NONE;
        let key = CAddress::from(*address);
        // SAFETY: as above.
        let status = unsafe { (self.account.expect(CHECKED))(self.context, &key, &mut account) };
        checked(status, "account", address)?;
        Ok(account.exists.then(|| Account {
            nonce: account.nonce,
            balance: account.balance.into(),
            code_hash: B256::new(account.code_hash.bytes),
        }))
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let mut value = CWord::from(U256::ZERO);
        let (account, key) = (CAddress::from(*address), CWord::from(*slot));
        // SAFETY: as above.
        let status =
            unsafe { (self.storage.expect(CHECKED))(self.context, &account, &key, &mut value) };
        checked(status, "storage", address)?;
        Ok(value.into())
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        let mut has = false;
        let account = CAddress::from(*address);
        // SAFETY: as above.
        let status =
            unsafe { (self.has_storage.expect(CHECKED))(self.context, &account, &mut has) };
        checked(status, "has_storage", address)?;
        Ok(has)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        let mut code = CBytes::NONE;
        let key = CWord::from(*code_hash);
        // SAFETY: as above; the code is copied before the next callback.
        unsafe {
            let status = (self.code.expect(CHECKED))(self.context, &key, &mut code);
            checked(status, "code", code_hash)?;
            Ok(Bytes::copy_from_slice(code.slice()))
        }
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        let mut hash = CWord::from(B256::ZERO);
        // SAFETY: as above.
        let status = unsafe { (self.block_hash.expect(CHECKED))(self.context, number, &mut hash) };
        checked(status, "block_hash", number)?;
        Ok(B256::new(hash.bytes))
    }
}
