//! Accounts with known secret keys.

use niwaki_crypto::{address_of_secret_key, keccak256, sign};
use niwaki_primitives::{
    Address, Authorization, B256, SignableTransaction, Signature, Signed, SignedAuthorization,
    TxEnvelope, U256,
};

/// A secret key and the address of its account.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    secret: B256,
    /// Address of the account.
    pub address: Address,
}

impl Key {
    /// The key with this secret. About 30 us.
    ///
    /// # Panics
    /// If `secret` is no valid key: zero, or not below the order of the curve.
    pub fn new(secret: B256) -> Self {
        let address = address_of_secret_key(&secret).expect("a valid secret key");
        Self { secret, address }
    }

    /// The key whose secret is the hash of `name` (invalid only with negligible probability).
    pub fn of(name: &str) -> Self {
        Self::new(keccak256(name))
    }

    /// Signs `hash`.
    pub fn signature(&self, hash: &B256) -> Signature {
        let (r, s, y_parity) = sign(hash, &self.secret).expect("a valid key signs");
        Signature::new(r, s, y_parity)
    }

    /// Signs `tx`.
    pub fn sign<T: SignableTransaction<Signature>>(&self, tx: T) -> TxEnvelope
    where
        TxEnvelope: From<Signed<T>>,
    {
        let signature = self.signature(&tx.signature_hash());
        tx.into_signed(signature).into()
    }

    /// An EIP-7702 authorization that delegates the account to `code`; `nonce` is the account's at that time.
    pub fn authorize(&self, chain_id: u64, code: Address, nonce: u64) -> SignedAuthorization {
        let authorization = Authorization {
            chain_id: U256::from(chain_id),
            address: code,
            nonce,
        };
        let signature = self.signature(&authorization.signature_hash());
        authorization.into_signed(signature)
    }
}
