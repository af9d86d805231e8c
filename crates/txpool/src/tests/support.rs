//! Wallets, transactions, and a chain of simple states for a pool.

use crate::sidecar::versioned_hash;
use crate::{Added, HeadUpdate, Incoming, Origin, Pool, PoolConfig, PoolError, Sidecar};
use alloy_consensus::SignableTransaction;
use alloy_eips::eip4844::BlobTransactionSidecar;
use alloy_eips::eip7594::BlobTransactionSidecarEip7594;
use alloy_primitives::Signature;
use niwaki_crypto::{Blob, blob_commitment, blob_proof, cell_proofs};
use niwaki_primitives::{
    Account, Address, B256, Bytes, Fault, Fork, Header, SignedAuthorization, StateView,
    Transaction, TxEip1559, TxEip4844, TxEip7702, TxEnvelope, TxKind, TxLegacy, U256,
};
use niwaki_rules::ChainSpec;
pub(crate) use niwaki_testkit::Key as Wallet;
use niwaki_testkit::{MemoryAccount, MemoryState};
use std::sync::Arc;

pub(crate) const CHAIN_ID: u64 = 1337;
pub(crate) const NOW: u64 = 1_000_000;
pub(crate) const GWEI: u128 = 1_000_000_000;
pub(crate) const ETHER: u128 = 1_000_000_000_000_000_000;

pub(crate) fn wallet(n: u64) -> Wallet {
    Wallet::new(B256::from(U256::from(n + 1)))
}

pub(crate) fn signed<T: SignableTransaction<Signature>>(
    tx: T,
    wallet: &Wallet,
) -> alloy_consensus::Signed<T> {
    let signature = wallet.signature(&tx.signature_hash());
    tx.into_signed(signature)
}

/// A transfer of one wei with a tip and a fee in gwei.
pub(crate) fn transfer(from: &Wallet, nonce: u64, tip: u64, fee: u64) -> TxEnvelope {
    let tx = TxEip1559 {
        max_fee_per_gas: u128::from(fee) * GWEI,
        max_priority_fee_per_gas: u128::from(tip) * GWEI,
        ..dynamic(nonce)
    };
    signed(tx, from).into()
}

/// A transfer of one wei, 100 gwei of fee and 1 of tip.
pub(crate) fn dynamic(nonce: u64) -> TxEip1559 {
    TxEip1559 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit: 21_000,
        max_fee_per_gas: 100 * GWEI,
        max_priority_fee_per_gas: GWEI,
        to: TxKind::Call(Address::repeat_byte(0xaa)),
        value: U256::from(1),
        ..TxEip1559::default()
    }
}

/// The same with a gas price of 100 gwei.
pub(crate) fn legacy(nonce: u64) -> TxLegacy {
    TxLegacy {
        chain_id: Some(CHAIN_ID),
        nonce,
        gas_price: 100 * GWEI,
        gas_limit: 21_000,
        to: TxKind::Call(Address::repeat_byte(0xaa)),
        value: U256::from(1),
        input: Bytes::new(),
    }
}

/// A set-code transaction with these authorizations.
pub(crate) fn set_code(from: &Wallet, nonce: u64, of: &[&Wallet]) -> TxEnvelope {
    let authorize = |wallet: &&Wallet| wallet.authorize(CHAIN_ID, Address::repeat_byte(0xcc), 0);
    let authorization_list: Vec<SignedAuthorization> = of.iter().map(authorize).collect();
    let tx = TxEip7702 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit: 200_000,
        max_fee_per_gas: 100 * GWEI,
        max_priority_fee_per_gas: GWEI,
        to: Address::repeat_byte(0xaa),
        authorization_list,
        ..TxEip7702::default()
    };
    signed(tx, from).into()
}

/// A blob that is different for each `seed`.
pub(crate) fn blob(seed: u8) -> Blob {
    let mut bytes = vec![0; size_of::<Blob>()];
    for element in bytes.chunks_mut(32) {
        element[31] = seed;
    }
    bytes[1] = seed;
    Blob::from_slice(&bytes)
}

/// A sidecar with valid proofs, of version 0 or 1.
pub(crate) fn proven_sidecar(seeds: &[u8], version: u8) -> Sidecar {
    let blobs: Vec<Blob> = seeds.iter().map(|seed| blob(*seed)).collect();
    let commitments: Vec<_> = blobs
        .iter()
        .map(|blob| blob_commitment(blob).expect("small elements"))
        .collect();
    if version == 0 {
        let pairs = blobs.iter().zip(&commitments);
        let proofs = pairs.map(|(blob, c)| blob_proof(blob, c).expect("small elements"));
        Sidecar::Eip4844(BlobTransactionSidecar {
            proofs: proofs.collect(),
            blobs,
            commitments,
        })
    } else {
        let proofs = blobs
            .iter()
            .map(|b| cell_proofs(b).expect("small elements"));
        Sidecar::Eip7594(BlobTransactionSidecarEip7594 {
            cell_proofs: proofs.flatten().collect(),
            blobs,
            commitments,
        })
    }
}

/// A blob transaction for a sidecar, with fees in gwei.
pub(crate) fn blob_tx(from: &Wallet, nonce: u64, fee: u64, sidecar: &Sidecar) -> Incoming {
    let hashes = sidecar.commitments().iter().map(versioned_hash).collect();
    let tx = TxEip4844 {
        blob_versioned_hashes: hashes,
        max_fee_per_blob_gas: u128::from(fee) * GWEI,
        max_fee_per_gas: u128::from(fee) * GWEI,
        max_priority_fee_per_gas: u128::from(fee) * GWEI,
        ..blob_fields(nonce)
    };
    Incoming {
        tx: TxEnvelope::Eip4844(signed(tx, from)),
        sidecar: Some(Arc::new(sidecar.clone())),
    }
}

pub(crate) fn blob_fields(nonce: u64) -> TxEip4844 {
    TxEip4844 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit: 21_000,
        max_fee_per_gas: 100 * GWEI,
        max_priority_fee_per_gas: GWEI,
        to: Address::repeat_byte(0xaa),
        max_fee_per_blob_gas: GWEI,
        ..TxEip4844::default()
    }
}

/// A block of the test chain: the state before it, and its transactions.
#[derive(Clone)]
struct Mined {
    before: MemoryState,
    txs: Vec<(TxEnvelope, Address)>,
}

/// A chain of simple states with a pool.
pub(crate) struct Chain {
    pub(crate) pool: Pool,
    pub(crate) state: MemoryState,
    pub(crate) header: Header,
    mined: Vec<Mined>,
}

impl Chain {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self::of(Fork::Osaka, config)
    }

    /// A chain of one fork on which the first 64 wallets have a thousand ether each.
    pub(crate) fn of(fork: Fork, config: PoolConfig) -> Self {
        let mut state = MemoryState::default();
        for n in 0..64 {
            state.insert(wallet(n).address, funds(1_000 * ETHER));
        }
        Self::upon(ChainSpec::single(CHAIN_ID, fork), state, config)
    }

    pub(crate) fn upon(spec: ChainSpec, state: MemoryState, config: PoolConfig) -> Self {
        let header = Header {
            gas_limit: 30_000_000,
            gas_used: 15_000_000,
            base_fee_per_gas: Some(7),
            excess_blob_gas: Some(0),
            timestamp: NOW,
            ..Header::default()
        };
        let view = Arc::new(state.clone());
        Self {
            pool: Pool::new(config, Arc::new(spec), header.clone(), view, NOW),
            state,
            header,
            mined: Vec::new(),
        }
    }

    pub(crate) fn local(&self, tx: impl Into<Incoming>) -> Result<Added, PoolError> {
        self.pool.add(tx.into(), Origin::Local, NOW)
    }

    pub(crate) fn remote(&self, tx: impl Into<Incoming>) -> Result<Added, PoolError> {
        self.pool.add(tx.into(), Origin::Remote, NOW)
    }

    /// Adds a block with these transactions.
    pub(crate) fn mine(&mut self, txs: &[TxEnvelope]) {
        let (before, included) = self.execute(txs);
        self.mined.push(Mined {
            before,
            txs: included,
        });
        self.announce(&[], txs);
    }

    /// Replaces the last `depth` blocks by one with these transactions.
    pub(crate) fn reorganise(&mut self, depth: usize, txs: &[TxEnvelope]) {
        let at = self.mined.len() - depth;
        let gone = self.mined.split_off(at);
        if let Some(first) = gone.first() {
            self.state = first.before.clone();
        }
        let removed: Vec<_> = gone.into_iter().flat_map(|block| block.txs).collect();
        let (before, included) = self.execute(txs);
        self.mined.push(Mined {
            before,
            txs: included,
        });
        self.announce(&removed, txs);
    }

    pub(crate) fn height(&self) -> usize {
        self.mined.len()
    }

    /// Sets the balance of an account from the next block on.
    pub(crate) fn set_balance(&mut self, address: Address, wei: u128) {
        let account = self.state.accounts.entry(address).or_default();
        account.balance = U256::from(wei);
    }

    /// Sets the next block's base fee and updates the pool.
    pub(crate) fn set_base_fee(&mut self, wei: u64) {
        self.header.base_fee_per_gas = Some(wei);
        self.announce(&[], &[]);
    }

    fn execute(&mut self, txs: &[TxEnvelope]) -> (MemoryState, Vec<(TxEnvelope, Address)>) {
        let before = self.state.clone();
        let mut included = Vec::new();
        for tx in txs {
            let sender = niwaki_rules::recover_sender(tx).expect("signed by a wallet");
            let account = self.state.accounts.entry(sender).or_default();
            assert_eq!(account.nonce, tx.nonce(), "a block holds nonces in order");
            account.nonce += 1;
            account.balance = account.balance.saturating_sub(tx.value());
            included.push((tx.clone(), sender));
        }
        (before, included)
    }

    fn announce(&mut self, removed: &[(TxEnvelope, Address)], txs: &[TxEnvelope]) {
        self.header.number += 1;
        self.header.timestamp += 12;
        let sender =
            |tx: &TxEnvelope| niwaki_rules::recover_sender(tx).expect("signed by a wallet");
        let included: Vec<_> = txs.iter().map(|tx| (*tx.tx_hash(), sender(tx))).collect();
        let change = HeadUpdate {
            header: self.header.clone(),
            view: Arc::new(self.state.clone()),
            removed,
            included: &included,
            changed: None,
        };
        let timestamp = self.header.timestamp;
        self.pool
            .update_head(&change, timestamp)
            .expect("memory does not fail");
        self.pool.read().check();
    }

    /// The pending and the queued nonces of a wallet.
    pub(crate) fn nonces(&self, wallet: &Wallet) -> (Vec<u64>, Vec<u64>) {
        let content = self.pool.content_of(&wallet.address);
        let nonces =
            |txs: Vec<Arc<crate::PooledTransaction>>| txs.iter().map(|t| t.nonce()).collect();
        (nonces(content.pending), nonces(content.queued))
    }

    /// The hashes of the best transactions at the next fees, in order.
    pub(crate) fn offered(&self) -> Vec<B256> {
        let (base_fee, blob_base_fee) = self.pool.next_fees();
        let best = self.pool.best(base_fee, blob_base_fee);
        best.map(|tx| tx.hash).collect()
    }
}

pub(crate) fn funds(wei: u128) -> MemoryAccount {
    MemoryAccount {
        balance: U256::from(wei),
        ..MemoryAccount::default()
    }
}

/// A state whose reads all fail.
pub(crate) struct Unreadable;

impl StateView for Unreadable {
    fn account(&self, _: &Address) -> Result<Option<Account>, Fault> {
        Err(Fault::Missing {
            segment: "accounts",
            key: "00".to_owned(),
        })
    }

    fn storage(&self, _: &Address, _: &U256) -> Result<U256, Fault> {
        Ok(U256::ZERO)
    }

    fn has_storage(&self, _: &Address) -> Result<bool, Fault> {
        Ok(false)
    }

    fn code(&self, _: &B256) -> Result<Bytes, Fault> {
        Ok(Bytes::new())
    }

    fn block_hash(&self, _: u64) -> Result<B256, Fault> {
        Ok(B256::ZERO)
    }
}

/// The message of an error.
pub(crate) fn text(refused: Result<Added, PoolError>) -> String {
    refused.expect_err("it must be refused").to_string()
}
