//! Payloads of the Engine API, and their blocks.

use crate::Chain;
use niwaki_primitives::Bytes;
use niwaki_rules::{
    Payload, PayloadError, PayloadInput, PayloadVersion, decode_payload, decode_payload_with,
};
use niwaki_threads::WorkerPool;
use niwaki_trie::ordered_root;

impl Chain {
    /// Turns a payload into a block and the block's hash. If there are many transactions and a processor for it,
    /// another thread decodes them while the calling thread computes their root.
    ///
    /// # Errors
    /// As [`decode_payload`].
    pub fn decode_payload(
        &self,
        version: PayloadVersion,
        input: PayloadInput,
    ) -> Result<Payload, PayloadError> {
        let transactions = input.payload.as_v1().transactions.len();
        let is_shared = transactions >= self.tuning().min_payload_txs && self.sender_threads() > 1;
        let pool = is_shared.then(|| WorkerPool::named("payload", 1)).flatten();
        let root =
            |encoded: &[Bytes]| ordered_root(encoded, |bytes, out| out.extend_from_slice(bytes));
        match pool {
            Some(pool) => {
                let both = |decode: &mut (dyn FnMut() + Send), hash: &mut dyn FnMut()| {
                    pool.join(decode, hash);
                };
                decode_payload_with(self.spec(), version, input, root, both)
            }
            None => decode_payload(self.spec(), version, input, root),
        }
    }
}
