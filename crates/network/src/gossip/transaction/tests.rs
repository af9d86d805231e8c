//! Transactions in the forms of all versions.

use super::*;
use niwaki_crypto::{Blob, blob_cells};

/// A blob transaction whose commitments fit its versioned hashes; proofs are of no blob.
pub(in crate::gossip) struct BlobTransaction {
    /// As in a block, without the type.
    pub(in crate::gossip) own: Vec<u8>,
    commitments: Vec<u8>,
    proofs: Vec<u8>,
}

pub(in crate::gossip) fn blob_transaction(seed: u8, blobs: u8) -> BlobTransaction {
    let commitments: Vec<Bytes> = (0..blobs)
        .map(|blob| vec![seed ^ blob; 48].into())
        .collect();
    let hashes = commitments.iter().map(|commitment| {
        let mut hash = sha256(commitment);
        hash.0[0] = 1;
        hash
    });
    let fields: Vec<Vec<u8>> = (0..FIELDS_BEFORE_HASHES)
        .map(|_| encode(u64::from(seed)))
        .collect();
    let before: Vec<u8> = fields.concat();
    let hashes = encode(hashes.collect::<Vec<B256>>());
    let proofs = vec![Bytes::from(vec![seed; 48]); usize::from(blobs) * CELLS_PER_EXT_BLOB];
    BlobTransaction {
        own: list(&[
            &before,
            &hashes,
            &encode(1_u64),
            &encode(2_u64),
            &encode(3_u64),
        ]),
        commitments: encode(commitments),
        proofs: encode(proofs),
    }
}

impl BlobTransaction {
    pub(in crate::gossip) fn hash(&self) -> B256 {
        keccak256([&[BLOB_TYPE][..], &self.own].concat())
    }

    /// As eth/72 has it.
    pub(in crate::gossip) fn without_blobs(&self) -> Bytes {
        self.with(&[])
    }

    pub(in crate::gossip) fn with(&self, blobs: &[Bytes]) -> Bytes {
        let blobs = encode(blobs.to_vec());
        of(&[&self.own, &[1], &blobs, &self.commitments, &self.proofs])
    }
}

fn of(fields: &[&[u8]]) -> Bytes {
    [&[BLOB_TYPE][..], &list(fields)].concat().into()
}

const OLD: EthVersion = EthVersion::Eth71;
const NEW: EthVersion = EthVersion::Eth72;

fn is_refused(bytes: &Bytes, version: EthVersion) -> bool {
    let read = FromPeer::read(bytes.clone(), version);
    matches!(read, Err(GossipBreach::Sidecar(_)))
}

#[test]
fn the_type_is_the_first_byte_and_a_list_is_legacy() {
    for (bytes, tx_type) in [(vec![0xc1, 1], 0), (vec![2, 0xc1, 1], 2), (vec![], 0)] {
        let read = FromPeer::read(bytes.clone().into(), OLD).unwrap();
        assert_eq!((read.tx_type, read.hash), (tx_type, keccak256(&bytes)));
        assert_eq!(read.size() as usize, bytes.len());
    }
}

#[test]
fn a_blob_transactions_hash_is_of_what_blocks_have() {
    let transaction = blob_transaction(7, 2);
    let read = FromPeer::read(transaction.without_blobs(), NEW).unwrap();
    assert_eq!((read.hash, read.missing_blobs), (transaction.hash(), 2));
    let whole = transaction.with(&[vec![1; 9].into(), vec![2; 9].into()]);
    let read = FromPeer::read(whole, OLD).unwrap();
    assert_eq!((read.hash, read.missing_blobs), (transaction.hash(), 0));
}

#[test]
fn a_sidecar_of_one_proof_a_blob_has_no_version_and_is_read_up_to_eth_71() {
    let tx = blob_transaction(7, 1);
    let (blobs, proofs) = (
        encode(vec![Bytes::from(vec![1; 9])]),
        encode(vec![Bytes::from(vec![2; 48])]),
    );
    let old = of(&[&tx.own, &blobs, &tx.commitments, &proofs]);
    assert_eq!(FromPeer::read(old.clone(), OLD).unwrap().hash, tx.hash());
    assert!(is_refused(&old, NEW));
}

#[test]
fn sidecars_that_are_missing_or_do_not_fit_are_refused() {
    let tx = blob_transaction(7, 2);
    let none = encode(Vec::<Bytes>::new());
    let mut zeroed = tx.commitments.clone();
    zeroed[10] ^= 1;
    let few = encode(vec![Bytes::from(vec![7; 48])]);
    let mut bare = vec![BLOB_TYPE];
    bare.extend(&tx.own);
    for (name, bytes) in [
        ("no sidecar", bare.into()),
        (
            "another commitment",
            of(&[&tx.own, &[1], &none, &zeroed, &tx.proofs]),
        ),
        (
            "a commitment too few",
            of(&[&tx.own, &[1], &none, &few, &tx.proofs]),
        ),
        (
            "no proofs",
            of(&[&tx.own, &[1], &none, &tx.commitments, &none]),
        ),
        (
            "a proof too few",
            of(&[&tx.own, &[1], &none, &tx.commitments, &few]),
        ),
        (
            "another version",
            of(&[&tx.own, &[2], &none, &tx.commitments, &tx.proofs]),
        ),
        (
            "one field more",
            of(&[&tx.own, &[1], &none, &tx.commitments, &tx.proofs, &[1]]),
        ),
        (
            "blobs on eth/72",
            tx.with(&[vec![1; 9].into(), vec![2; 9].into()]),
        ),
        ("nothing", vec![BLOB_TYPE].into()),
    ] {
        assert!(is_refused(&bytes, NEW), "{name}");
    }
}

#[test]
fn the_data_columns_are_the_blob() {
    let blobs: Vec<Blob> = (1..=2_u8)
        .map(|seed| {
            let mut blob = Blob::default();
            // Below the modulus: the first byte of each element is zero.
            for (index, byte) in blob.iter_mut().enumerate().filter(|(at, _)| at % 32 != 0) {
                *byte = seed
                    .wrapping_mul(index.to_le_bytes()[0])
                    .wrapping_add(index.to_le_bytes()[1]);
            }
            blob
        })
        .collect();
    let tx = blob_transaction(7, 2);
    let read = FromPeer::read(tx.without_blobs(), NEW).unwrap();
    let of_blob: Vec<_> = blobs.iter().map(|blob| blob_cells(blob).unwrap()).collect();
    let cells: Vec<Bytes> = (0..DATA_COLUMNS)
        .flat_map(|column| {
            of_blob
                .iter()
                .map(move |cells| cells[column].to_vec().into())
        })
        .collect();
    let whole: Vec<Bytes> = blobs.iter().map(|blob| blob.to_vec().into()).collect();
    assert_eq!(with_blobs(&read, &cells), Ok(tx.with(&whole)));
    assert!(with_blobs(&read, &cells[1..]).is_err());
    let nothing_missing = FromPeer::read(tx.with(&whole), OLD).unwrap();
    assert!(with_blobs(&nothing_missing, &[]).is_err());
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        data in proptest::collection::vec(proptest::num::u8::ANY, 0..300), at in 0..7_000_usize, bit in 0..8_u32
    ) {
        let blobs = [&[BLOB_TYPE][..], &data].concat();
        let mut changed = blob_transaction(1, 1).without_blobs().to_vec();
        let at = at % changed.len();
        changed[at] ^= 1_u8 << bit;
        for bytes in [data, blobs, changed] {
            for version in EthVersion::ALL {
                let _ = FromPeer::read(bytes.clone().into(), version);
            }
        }
    }
}
