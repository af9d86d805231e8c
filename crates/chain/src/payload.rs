//! Payloads of the Engine API, and their blocks.

use crate::Chain;
use niwaki_primitives::Bytes;
use niwaki_rules::{
    Payload, PayloadError, PayloadInput, PayloadVersion, decode_payload, decode_payload_with,
};
use niwaki_threads::WorkerPool;
use niwaki_trie::ordered_root;

/// Fewer transactions are decoded before a thread would have been woken for it.
const MANY: usize = if cfg!(test) { 2 } else { 128 };

impl Chain {
    /// Turns a payload into a block and the block's hash: its transactions are decoded on another thread while
    /// their root is made on this one, if they are many and there is a processor for it.
    ///
    /// # Errors
    /// As [`decode_payload`].
    pub fn decode_payload(
        &self,
        version: PayloadVersion,
        input: PayloadInput,
    ) -> Result<Payload, PayloadError> {
        let are_many = input.payload.as_v1().transactions.len() >= MANY;
        let is_shared = are_many && self.sender_threads() > 1;
        let crew = is_shared.then(|| WorkerPool::named("payload", 1)).flatten();
        let root =
            |encoded: &[Bytes]| ordered_root(encoded, |bytes, out| out.extend_from_slice(bytes));
        match crew {
            Some(crew) => {
                let both = |decode: &mut (dyn FnMut() + Send), hash: &mut dyn FnMut()| {
                    crew.join(decode, hash);
                };
                decode_payload_with(self.spec(), version, input, root, both)
            }
            None => decode_payload(self.spec(), version, input, root),
        }
    }
}
