//! The plain types of the header.

use niwaki_primitives::{Account, Address, B256, U256};
use std::ffi::c_void;

/// `niwaki_address`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CAddress {
    /// In the order in which it is written.
    pub bytes: [u8; 20],
}

/// `niwaki_word`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CWord {
    /// Big-endian.
    pub bytes: [u8; 32],
}

/// `niwaki_bytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CBytes {
    /// May be null if the length is 0.
    pub data: *const u8,
    /// Bytes.
    pub length: usize,
}

/// `niwaki_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// An argument is invalid.
    Argument = 1,
    /// A callback of the state has failed.
    Fault = 2,
    /// An error of this library.
    Panic = 3,
}

/// `niwaki_account`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CAccount {
    /// Whether it exists.
    pub exists: bool,
    /// Nonce.
    pub nonce: u64,
    /// Wei.
    pub balance: CWord,
    /// Keccak-256 of its code.
    pub code_hash: CWord,
}

/// `niwaki_block`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CBlock {
    /// Block number.
    pub number: u64,
    /// Seconds.
    pub timestamp: u64,
    /// Recipient of priority fees.
    pub coinbase: CAddress,
    /// Gas limit.
    pub gas_limit: u64,
    /// Wei per gas.
    pub base_fee: u64,
    /// Difficulty before Paris.
    pub prev_randao: CWord,
    /// Wei.
    pub blob_base_fee: CWord,
    /// Chain id.
    pub chain_id: u64,
    /// Slot of the beacon chain.
    pub slot_number: u64,
}

/// `niwaki_message`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CMessage {
    /// ORIGIN.
    pub origin: CAddress,
    /// Wei.
    pub gas_price: CWord,
    /// CALLER.
    pub caller: CAddress,
    /// The account to call, or the address to create.
    pub target: CAddress,
    /// Whether the input is init code.
    pub creates: bool,
    /// Wei.
    pub value: CWord,
    /// Call data or init code.
    pub input: CBytes,
    /// Gas.
    pub gas: u64,
    /// State gas reservoir.
    pub reservoir: u64,
    /// Versioned hashes.
    pub blob_hashes: *const CWord,
    /// How many there are.
    pub blob_hash_count: usize,
    /// Accounts and slots that are warm from the start.
    pub access_list: *const CAccess,
    /// How many there are.
    pub access_count: usize,
}

/// `niwaki_access`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CAccess {
    /// The account.
    pub address: CAddress,
    /// Its slots.
    pub keys: *const CWord,
    /// How many there are.
    pub key_count: usize,
}

/// `niwaki_end`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// STOP, RETURN, SELFDESTRUCT.
    Success = 0,
    /// REVERT.
    Revert = 1,
    /// An exceptional halt.
    Halt = 2,
}

/// `niwaki_outcome`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct COutcome {
    /// How it ended.
    pub end: End,
    /// Before any refund.
    pub gas_left: u64,
    /// Gas.
    pub refund: i64,
    /// State gas left of the reservoir.
    pub reservoir_left: u64,
    /// State gas used.
    pub state_gas: u64,
    /// Returned data.
    pub output: CBytes,
    /// How many there are.
    pub logs: usize,
}

/// `niwaki_log`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CLog {
    /// The emitter.
    pub address: CAddress,
    /// Topics.
    pub topics: *const CWord,
    /// How many there are.
    pub topic_count: usize,
    /// Data.
    pub data: CBytes,
}

/// `niwaki_changes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CChanges {
    /// Passed to both callbacks.
    pub context: *mut c_void,
    /// Called for each changed account.
    pub account:
        Option<unsafe extern "C" fn(*mut c_void, *const CAddress, *const CAccount, bool, CBytes)>,
    /// Called for each changed slot.
    pub storage:
        Option<unsafe extern "C" fn(*mut c_void, *const CAddress, *const CWord, *const CWord)>,
}

impl CBytes {
    /// No bytes.
    pub(crate) const NONE: Self = Self {
        data: std::ptr::null(),
        length: 0,
    };

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            length: bytes.len(),
        }
    }

    /// The bytes.
    ///
    /// # Safety
    /// They must outlive the result.
    pub(crate) unsafe fn slice<'a>(self) -> &'a [u8] {
        // SAFETY: as the caller promises.
        unsafe { slice(self.data, self.length) }
    }
}

/// A C array; empty if null.
///
/// # Safety
/// It must outlive the result.
pub(crate) unsafe fn slice<'a, T>(data: *const T, length: usize) -> &'a [T] {
    if length == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(data, length) }
}

impl From<Address> for CAddress {
    fn from(address: Address) -> Self {
        Self {
            bytes: address.into_array(),
        }
    }
}

impl From<CAddress> for Address {
    fn from(address: CAddress) -> Self {
        Self::new(address.bytes)
    }
}

impl From<U256> for CWord {
    fn from(word: U256) -> Self {
        Self {
            bytes: word.to_be_bytes(),
        }
    }
}

impl From<CWord> for U256 {
    fn from(word: CWord) -> Self {
        Self::from_be_bytes(word.bytes)
    }
}

impl From<B256> for CWord {
    fn from(hash: B256) -> Self {
        Self { bytes: hash.0 }
    }
}

impl CAccount {
    /// The value before a callback writes it.
    pub(crate) const NONE: Self = Self {
        exists: false,
        nonce: 0,
        balance: CWord { bytes: [0; 32] },
        code_hash: CWord { bytes: [0; 32] },
    };

    pub(crate) fn of(account: Option<&Account>) -> Self {
        account.map_or(Self::NONE, |account| Self {
            exists: true,
            nonce: account.nonce,
            balance: account.balance.into(),
            code_hash: account.code_hash.into(),
        })
    }
}
