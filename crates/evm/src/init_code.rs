//! Init code that came last. Factories create with the same again and again: it is prepared once, and hashed
//! once.

use crate::code::Code;
use niwaki_crypto::keccak256;
use niwaki_primitives::B256;
use std::sync::Arc;

/// The init code that came last, and its hash once that was asked for. To see whether other code is the same
/// costs a hundredth of hashing it.
#[derive(Debug, Default)]
pub(crate) struct LastInitCode {
    code: Option<Arc<Code>>,
    hash: Option<B256>,
}

impl LastInitCode {
    /// Code that is to run as init code.
    pub(crate) fn prepared(&mut self, bytes: &[u8]) -> Arc<Code> {
        if let Some(code) = self.code.as_ref().filter(|code| code.bytes() == bytes) {
            return code.clone();
        }
        let code = Arc::new(Code::init_code(bytes));
        self.hash = None;
        self.code.insert(code).clone()
    }

    /// Its Keccak-256 hash.
    pub(crate) fn hash(&mut self, bytes: &[u8]) -> B256 {
        self.prepared(bytes);
        *self.hash.get_or_insert_with(|| keccak256(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_code_are_those_of_the_bytes_in_any_order() {
        let mut last = LastInitCode::default();
        let codes: [&[u8]; 4] = [&[], &[0x5b], &[0x5c], &[0x5b, 0]];
        for order in [0, 0, 1, 2, 1, 1, 3, 0, 3, 3, 2] {
            let bytes = codes[order];
            for _ in 0..2 {
                assert_eq!(last.hash(bytes), keccak256(bytes));
                assert_eq!(last.prepared(bytes).bytes(), bytes);
            }
        }
        let first = last.prepared(codes[1]);
        assert!(Arc::ptr_eq(&first, &last.prepared(codes[1])));
        assert!(!Arc::ptr_eq(&first, &last.prepared(codes[2])));
    }
}
