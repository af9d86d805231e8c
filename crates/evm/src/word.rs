//! The 256-bit word of the stack, as four 64-bit limbs that are moved one by one.
//!
//! A word is never copied as one block: LLVM would make 16-byte moves of that, and a load of 16 bytes that were just
//! stored as two limbs misses store forwarding on every current x86 core.

use niwaki_primitives::{Address, B256, U256};
use std::ptr;

/// A stack word: limbs from least to most significant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(32))]
pub struct Word(pub [u64; 4]);

impl Word {
    /// Zero.
    pub const ZERO: Self = Self([0; 4]);

    /// Whether all limbs are zero.
    #[inline(always)]
    pub const fn is_zero(&self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }

    /// The value, if it fits in 64 bits.
    #[inline(always)]
    pub const fn as_u64(&self) -> Option<u64> {
        if self.0[1] | self.0[2] | self.0[3] == 0 {
            Some(self.0[0])
        } else {
            None
        }
    }

    /// The value, or `u64::MAX` if it does not fit in 64 bits.
    #[inline(always)]
    pub const fn saturating_u64(&self) -> u64 {
        match self.as_u64() {
            Some(value) => value,
            None => u64::MAX,
        }
    }

    /// As an integer.
    #[inline(always)]
    pub const fn to_u256(self) -> U256 {
        U256::from_limbs(self.0)
    }

    /// The low 20 bytes as an address.
    #[inline(always)]
    pub fn to_address(self) -> Address {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&self.0[2].to_be_bytes()[4..]);
        bytes[4..12].copy_from_slice(&self.0[1].to_be_bytes());
        bytes[12..].copy_from_slice(&self.0[0].to_be_bytes());
        Address::new(bytes)
    }

    /// As 32 big-endian bytes.
    #[inline(always)]
    pub fn to_b256(self) -> B256 {
        let mut bytes = [0; 32];
        // SAFETY: `bytes` has room for 32 bytes.
        unsafe { store_be(bytes.as_mut_ptr(), &raw const self) };
        B256::new(bytes)
    }
}

impl From<U256> for Word {
    #[inline(always)]
    fn from(value: U256) -> Self {
        Self(value.into_limbs())
    }
}

impl From<u64> for Word {
    #[inline(always)]
    fn from(value: u64) -> Self {
        Self([value, 0, 0, 0])
    }
}

impl From<Address> for Word {
    #[inline(always)]
    fn from(address: Address) -> Self {
        let mut padded = [0; 32];
        padded[12..].copy_from_slice(address.as_slice());
        Self::from(U256::from_be_bytes(padded))
    }
}

impl From<B256> for Word {
    #[inline(always)]
    fn from(value: B256) -> Self {
        Self::from(U256::from_be_bytes(value.0))
    }
}

/// Copies a word one limb at a time: more limbs in flight would make a handler save and restore a register.
///
/// # Safety
/// `to` must be valid for writing and `from` for reading a word.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut Word, from: *const Word) {
    let (to, from) = (to.cast::<u64>(), from.cast::<u64>());
    for at in 0..4 {
        // SAFETY: each word has four limbs. Volatile keeps LLVM from merging the moves.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
}

/// Exchanges two words limb by limb.
///
/// # Safety
/// Both must be valid for reading and writing a word.
#[inline(always)]
pub(crate) unsafe fn swap(a: *mut Word, b: *mut Word) {
    let (a, b) = (a.cast::<u64>(), b.cast::<u64>());
    for at in 0..4 {
        // SAFETY: as in `copy`.
        unsafe {
            let limb = a.add(at).read_volatile();
            a.add(at).write_volatile(b.add(at).read_volatile());
            b.add(at).write_volatile(limb);
        }
    }
}

/// Writes four limbs.
///
/// # Safety
/// `to` must be valid for writing a word.
#[inline(always)]
pub(crate) unsafe fn write(to: *mut Word, limbs: [u64; 4]) {
    let to = to.cast::<u64>();
    // SAFETY: a word has four limbs.
    unsafe {
        *to = limbs[0];
        *to.add(1) = limbs[1];
        *to.add(2) = limbs[2];
        *to.add(3) = limbs[3];
    }
}

/// Reads 32 big-endian bytes into a word.
///
/// # Safety
/// `from` must be valid for reading 32 bytes, `to` for writing a word.
#[inline(always)]
pub(crate) unsafe fn load_be(to: *mut Word, from: *const u8) {
    let from = from.cast::<u64>();
    // SAFETY: 32 bytes are four limbs; unaligned reads.
    unsafe {
        let limbs = [
            ptr::read_unaligned(from.add(3)).swap_bytes(),
            ptr::read_unaligned(from.add(2)).swap_bytes(),
            ptr::read_unaligned(from.add(1)).swap_bytes(),
            ptr::read_unaligned(from).swap_bytes(),
        ];
        write(to, limbs);
    }
}

/// Writes a word as 32 big-endian bytes.
///
/// # Safety
/// `to` must be valid for writing 32 bytes, `from` for reading a word.
#[inline(always)]
pub(crate) unsafe fn store_be(to: *mut u8, from: *const Word) {
    let (to, from) = (to.cast::<u64>(), from.cast::<u64>());
    for at in 0..4 {
        // SAFETY: 32 bytes are four limbs; unaligned writes.
        unsafe {
            let limb = from.add(3 - at).read_volatile();
            ptr::write_unaligned(to.add(at), limb.swap_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_to_bytes_and_back_is_the_same() {
        let word = Word([1, 2 << 40, 3 << 50, 4 << 60]);
        let bytes = word.to_b256();
        assert_eq!(U256::from_be_bytes(bytes.0), word.to_u256());
        assert_eq!(Word::from(bytes), word);
        let address = Address::repeat_byte(0xa7);
        assert_eq!(Word::from(address).to_address(), address);
    }
}
