//! The network encoding of untrusted peers.

use super::support::{blob_tx, dynamic, legacy, proven_sidecar, set_code, signed, wallet};
use crate::{Incoming, encode_network};
use niwaki_primitives::{AccessList, AccessListItem, B256, TxEip1559, TxEnvelope};
use proptest::prelude::*;
use std::sync::OnceLock;

/// One of each type, encoded; the last two with blobs.
fn encoded() -> &'static [Vec<u8>] {
    static ENCODED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ENCODED.get_or_init(|| {
        let from = wallet(0);
        let listed = TxEip1559 {
            access_list: AccessList(vec![AccessListItem {
                address: from.address,
                storage_keys: vec![B256::ZERO; 2],
            }]),
            input: vec![7; 40].into(),
            ..dynamic(3)
        };
        let plain = [
            TxEnvelope::from(signed(legacy(1), &from)),
            TxEnvelope::from(signed(listed, &from)),
            set_code(&from, 2, &[&wallet(1)]),
        ];
        let plain = plain.iter().map(|tx| encode_network(tx, None));
        let blobs = [0, 1].map(|version| {
            let tx = blob_tx(&from, 0, 9, &proven_sidecar(&[1], version));
            encode_network(&tx.tx, tx.sidecar.as_deref())
        });
        plain.chain(blobs).collect()
    })
}

proptest! {
    /// Decoded bytes encode to themselves: each transaction has one encoding.
    #[test]
    fn damaged_bytes_are_refused_or_read_as_they_are(
        which in 0..5_usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        near_start: bool,
        cut in any::<prop::sample::Index>(),
        whole: bool,
    ) {
        let mut bytes = encoded()[which].clone();
        let range = if near_start { bytes.len().min(200) } else { bytes.len() };
        for (at, byte) in damage {
            bytes[at.index(range)] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(incoming) = Incoming::decode(&bytes) {
            let again = encode_network(&incoming.tx, incoming.sidecar.as_deref());
            prop_assert!(again == bytes, "another encoding of the same");
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, tx_type in 0..6_u8) {
        let _ = Incoming::decode(&bytes);
        let typed = [&[tx_type][..], &bytes].concat();
        let _ = Incoming::decode(&typed);
    }
}
