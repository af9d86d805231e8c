//! A cache of one init code: factories create many contracts with the same, which is then prepared and hashed once.

use crate::code::Code;
use niwaki_crypto::keccak256;
use niwaki_primitives::B256;
use std::sync::Arc;

/// The last init code, and its hash once that was requested. Comparing code costs a hundredth of hashing it.
#[derive(Debug, Default)]
pub(crate) struct InitCodeCache {
    code: Option<Arc<Code>>,
    hash: Option<B256>,
}

impl InitCodeCache {
    /// The prepared form of init code.
    pub(crate) fn prepare(&mut self, bytes: &[u8]) -> Arc<Code> {
        if let Some(code) = self.code.as_ref().filter(|code| code.bytes() == bytes) {
            return code.clone();
        }
        let code = Arc::new(Code::init_code(bytes));
        self.hash = None;
        self.code.insert(code).clone()
    }

    /// Its Keccak-256 hash.
    pub(crate) fn hash(&mut self, bytes: &[u8]) -> B256 {
        self.prepare(bytes);
        *self.hash.get_or_insert_with(|| keccak256(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_hash_match_the_bytes_in_any_order_of_4_codes() {
        let mut last = InitCodeCache::default();
        let codes: [&[u8]; 4] = [&[], &[0x5b], &[0x5c], &[0x5b, 0]];
        for order in [0, 0, 1, 2, 1, 1, 3, 0, 3, 3, 2] {
            let bytes = codes[order];
            for _ in 0..2 {
                assert_eq!(last.hash(bytes), keccak256(bytes));
                assert_eq!(last.prepare(bytes).bytes(), bytes);
            }
        }
        let first = last.prepare(codes[1]);
        assert!(Arc::ptr_eq(&first, &last.prepare(codes[1])));
        assert!(!Arc::ptr_eq(&first, &last.prepare(codes[2])));
    }
}
