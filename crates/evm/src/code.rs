//! Code prepared for the interpreter: padded with zeros, jump destinations analysed, and once it is hot in a second
//! form with superinstructions ([`crate::fused`]).

use crate::dispatch::Dispatch;
use niwaki_primitives::{Address, B256, Bytes, EMPTY_CODE_HASH};
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;
use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// Zero bytes after the code: a PUSH32 as the last byte reads 32 of them, and execution that reaches them stops.
const PADDING: usize = 40;

/// Runs after which code is fused; see [`set_hot_threshold`].
static HOT_THRESHOLD: AtomicU32 = AtomicU32::new(4);

/// Sets after how many runs code is fused; 0 and 1 mean the first. No result depends on it.
pub fn set_hot_threshold(runs: u32) {
    HOT_THRESHOLD.store(runs, Ordering::Relaxed);
}

/// Whether hot code is queued for [`crate::fuse_hot_codes`].
static IS_FUSING_DEFERRED: AtomicBool = AtomicBool::new(false);

/// From now on hot code is not fused by the thread that runs it, but queued until a call of [`crate::fuse_hot_codes`].
/// No result depends on it.
pub fn defer_fusing() {
    IS_FUSING_DEFERRED.store(true, Ordering::Relaxed);
}

/// Code that the interpreter can run. Immutable; shared between accounts by hash.
#[derive(Debug)]
pub struct Code {
    padded: Box<[u8]>,
    /// One bit per byte of code.
    jumpdests: Box<[u8]>,
    length: usize,
    hash: B256,
    delegate: Option<Address>,
    /// How often it has run, counted until it is fused.
    runs: AtomicU32,
    /// The code with superinstructions, once it is hot.
    #[cfg(target_arch = "x86_64")]
    fused: OnceLock<Box<[u8]>>,
}

impl Code {
    /// Prepares code whose hash is known. Linear in its length.
    pub fn new(code: &[u8], hash: B256) -> Self {
        let mut padded = Vec::with_capacity(code.len() + PADDING);
        padded.extend_from_slice(code);
        padded.resize(code.len() + PADDING, 0);
        Self {
            jumpdests: crate::jumpdests::analyze(code),
            padded: padded.into(),
            length: code.len(),
            hash,
            delegate: delegation(code),
            runs: AtomicU32::new(0),
            #[cfg(target_arch = "x86_64")]
            fused: OnceLock::new(),
        }
    }

    /// Prepares init code, whose hash is not needed.
    pub(crate) fn init_code(code: &[u8]) -> Self {
        Self::new(code, B256::ZERO)
    }

    /// No code at all.
    pub(crate) fn empty() -> Arc<Self> {
        static EMPTY: LazyLock<Arc<Code>> =
            LazyLock::new(|| Arc::new(Code::new(&[], EMPTY_CODE_HASH)));
        EMPTY.clone()
    }

    /// The code as deployed.
    pub fn bytes(&self) -> &[u8] {
        &self.padded[..self.length]
    }

    /// A copy of the code as deployed.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.bytes())
    }

    /// Keccak-256 of the code.
    pub fn hash(&self) -> B256 {
        self.hash
    }

    /// Memory that it takes once it is fused, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 2 * self.padded.len() + self.jumpdests.len()
    }

    /// The first byte of the form to run; counts the run.
    pub(crate) fn start(&self, dispatch: Dispatch) -> *const u8 {
        #[cfg(target_arch = "x86_64")]
        if dispatch == Dispatch::Fused {
            if let Some(fused) = self.fused.get() {
                return fused.as_ptr();
            }
            // Not atomic: two threads may count one run, which only delays fusing.
            let runs = self.runs.load(Ordering::Relaxed).saturating_add(1);
            self.runs.store(runs, Ordering::Relaxed);
            if runs >= HOT_THRESHOLD.load(Ordering::Relaxed) {
                if !IS_FUSING_DEFERRED.load(Ordering::Relaxed) {
                    return self.fuse();
                }
                // Again at each power of two, in case the queue was full.
                if runs.is_power_of_two() {
                    crate::code_cache::queue_hot(self.hash);
                }
            }
        }
        let _ = dispatch;
        self.padded.as_ptr()
    }

    /// Fuses the code unless it is fused already; returns the first byte of the fused form.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn fuse(&self) -> *const u8 {
        let fuse = || crate::fused::fuse(self.bytes(), PADDING, |at| self.is_jumpdest(at));
        self.fused.get_or_init(fuse).as_ptr()
    }

    /// The account that this delegation designator points at, if the code is one (EIP-7702).
    pub fn delegate(&self) -> Option<Address> {
        self.delegate
    }

    /// Whether a jump to `at` is allowed.
    #[inline(always)]
    pub(crate) fn is_jumpdest(&self, at: u64) -> bool {
        let Ok(at) = usize::try_from(at) else {
            return false;
        };
        match self.jumpdests.get(at / 8) {
            Some(byte) => byte >> (at % 8) & 1 == 1,
            None => false,
        }
    }
}

/// The target of a delegation designator, `0xef0100 ++ address` (EIP-7702).
pub fn delegation(code: &[u8]) -> Option<Address> {
    match code {
        [0xef, 0x01, 0x00, address @ ..] if address.len() == 20 => {
            Some(Address::from_slice(address))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumpdest_byte_in_push_operand_is_no_destination() {
        let code = Code::init_code(&[0x60, 0x5b, 0x5b, 0x61, 0x5b]);
        let marked: Vec<u64> = (0..64).filter(|at| code.is_jumpdest(*at)).collect();
        assert_eq!(marked, [2]);
        assert!(!code.is_jumpdest(u64::MAX));
    }

    #[test]
    fn designator_of_23_bytes_delegates_and_of_24_does_not() {
        let mut designator = vec![0xef, 0x01, 0x00];
        designator.extend([0x11; 20]);
        assert_eq!(delegation(&designator), Some(Address::repeat_byte(0x11)));
        designator.push(0);
        assert_eq!(delegation(&designator), None);
        assert_eq!(delegation(&[]), None);
    }
}
