//! Accounts of known keys, and the transactions they send: every type.

use crate::genesis::CHAIN_ID;
use alloy_consensus::{TxEip1559, TxEip2930, TxEip7702};
use alloy_eips::eip7594::BlobTransactionSidecarEip7594;
use eyre::Result;
use niwaki_crypto::{Blob, blob_commitment, cell_proofs, sha256};
use niwaki_primitives::{AccessList, AccessListItem, Address, B256, Bytes, TxKind, U256, address};
use niwaki_testkit::Key;
use niwaki_testkit::transactions::{eip2930, eip4844, eip7702, legacy};
use niwaki_txpool::{Sidecar, encode_network};
use rand::Rng;
use rand::rngs::SmallRng;
use std::sync::Arc;

/// Address of the counter contract.
pub(crate) const CONTRACT: Address = address!("00000000000000000000000000000000000c0de0");

/// Kinds of transactions. Blob proofs are expensive, so blob transactions draw from [`BlobSidecars`].
pub(crate) const KINDS: [&str; 7] = [
    "legacy",
    "access list",
    "dynamic fee",
    "blob",
    "set code",
    "create",
    "revert",
];

/// Init code that deploys one byte, STOP.
const DEPLOYS_STOP: Bytes = Bytes::from_static(&[0x60, 0x01, 0x60, 0x00, 0xf3]);

/// An account of a known key.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) key: Key,
    /// Nonce of the next transaction.
    pub(crate) nonce: u64,
}

/// `count` accounts, always the same ones.
pub(crate) fn make(count: u64) -> Vec<Account> {
    let names = (0..count).map(|index| format!("niwaki devnet {index}"));
    let accounts = names.map(|name| Account {
        key: Key::of(&name),
        nonce: 0,
    });
    accounts.collect()
}

/// A transaction that was sent, in network encoding.
#[derive(Clone, Debug)]
pub(crate) struct SentTransaction {
    pub(crate) hash: B256,
    pub(crate) kind: &'static str,
    pub(crate) sender: usize,
    pub(crate) raw: Bytes,
}

/// Blobs with commitments and proofs, made once at the start.
#[derive(Clone, Debug)]
pub(crate) struct BlobSidecars(Vec<Arc<Sidecar>>);

impl BlobSidecars {
    /// `count` sidecars of one, two and three blobs in turn. About 0.3 s for each blob.
    pub(crate) fn new(count: u8) -> Result<Self> {
        let make = |number: u8| -> Result<_> {
            let mut sidecar = BlobTransactionSidecarEip7594::default();
            for seed in 0..=number % 3 {
                let mut blob = Box::new(Blob::ZERO);
                for (value, element) in (0..=250_u8).cycle().zip(blob.chunks_mut(32)) {
                    // The first byte of each element stays zero, so that it is below the modulus.
                    element[1..].fill((4 * number + seed).wrapping_add(value));
                }
                sidecar.commitments.push(blob_commitment(&blob)?);
                sidecar.cell_proofs.extend(cell_proofs(&blob)?);
                sidecar.blobs.push(*blob);
            }
            Ok(Arc::new(Sidecar::Eip7594(sidecar)))
        };
        (0..count).map(make).collect::<Result<_>>().map(Self)
    }

    /// Only one of them.
    pub(crate) fn only(&self, index: usize) -> Self {
        Self(self.0.get(index).into_iter().cloned().collect())
    }
}

/// An access list of the counter's storage slot.
fn counter_slot() -> AccessList {
    AccessList(vec![AccessListItem {
        address: CONTRACT,
        storage_keys: vec![B256::ZERO],
    }])
}

/// Spec: EIP-4844, `kzg_to_versioned_hash`.
pub(crate) fn versioned_hash(commitment: &[u8]) -> B256 {
    let mut hash = sha256(commitment);
    hash[0] = 1;
    hash
}

impl Account {
    /// Signs the account's next transaction of `kind`, an index into [`KINDS`].
    pub(crate) fn send(
        &mut self,
        sender: usize,
        kind: usize,
        sidecars: &BlobSidecars,
        rng: &mut SmallRng,
    ) -> SentTransaction {
        let (key, nonce) = (self.key, self.nonce);
        self.nonce += 1;
        let value = U256::from(rng.random_range(1..1_000_u64));
        let input = Bytes::from(vec![rng.random_range(0..200_u8); 8]);
        let tip = rng.random_range(1_000_000_000..3_000_000_000_u128);
        let kind = KINDS[kind];
        let mut sidecar = None;
        let tx = TxEip1559 {
            chain_id: CHAIN_ID,
            nonce,
            gas_limit: 100_000,
            max_fee_per_gas: 200_000_000_000,
            max_priority_fee_per_gas: tip,
            to: TxKind::Call(CONTRACT),
            value,
            access_list: AccessList::default(),
            input,
        };
        let tx = match kind {
            "legacy" => key.sign(legacy(tx)),
            "access list" => key.sign(TxEip2930 {
                access_list: counter_slot(),
                ..eip2930(tx)
            }),
            "dynamic fee" => key.sign(tx),
            "blob" => {
                let picked = &sidecars.0[rng.random_range(0..sidecars.0.len())];
                sidecar = Some(Arc::clone(picked));
                let commitments = picked.commitments().iter();
                let hashes = commitments.map(|point| versioned_hash(point.as_slice()));
                key.sign(eip4844(tx, CONTRACT, 1_000_000_000_000, hashes.collect()))
            }
            "set code" => {
                let authorization = key.authorize(CHAIN_ID, CONTRACT, nonce + 1);
                self.nonce += 1;
                key.sign(TxEip7702 {
                    gas_limit: 400_000,
                    ..eip7702(tx, key.address, vec![authorization])
                })
            }
            "create" => key.sign(TxEip1559 {
                gas_limit: 400_000,
                to: TxKind::Create,
                value: U256::ZERO,
                input: DEPLOYS_STOP,
                ..tx
            }),
            _ => key.sign(TxEip1559 {
                value: U256::ZERO,
                input: Bytes::from_static(&[0xff]),
                ..tx
            }),
        };
        SentTransaction {
            hash: *tx.tx_hash(),
            kind,
            sender,
            raw: encode_network(&tx, sidecar.as_deref()).into(),
        }
    }

    /// A call that sends one wei. `tip` is in wei per gas; the fee cap is a hundred times as much.
    pub(crate) fn call(
        &self,
        nonce: u64,
        to: Address,
        input: Bytes,
        gas_limit: u64,
        tip: u128,
    ) -> Bytes {
        let tx = self.key.sign(TxEip1559 {
            chain_id: CHAIN_ID,
            nonce,
            gas_limit,
            max_fee_per_gas: 100 * tip,
            max_priority_fee_per_gas: tip,
            to: TxKind::Call(to),
            value: U256::from(1),
            access_list: AccessList::default(),
            input,
        });
        encode_network(&tx, None).into()
    }
}
