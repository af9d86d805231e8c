//! The messages of this node, signed.

use super::signed::{KeyError, seal};
use super::{
    CommitPayload, Form, PreparePayload, ProposalPayload, RoundChangePayload, Signed, View, ibft2,
    qbft, votes,
};
use niwaki_primitives::{Address, B256, Block, Bytes};
use niwaki_rules::{BftProtocol, Seal};

/// Signs what a validator says. All methods fail with a [`KeyError`] if its key is none.
#[derive(Clone)]
pub struct Signer {
    form: Form,
    key: B256,
    address: Address,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

impl Signer {
    /// Signs with this key messages of this form.
    ///
    /// # Errors
    /// [`KeyError`] if the key is none.
    pub fn new(form: Form, key: B256) -> Result<Self, KeyError> {
        let address = niwaki_crypto::address_of_secret_key(&key).map_err(|_| KeyError)?;
        Ok(Self { form, key, address })
    }

    /// In which form it writes.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The validator for which it signs.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Signs a proposal of a block, which has this digest.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn proposal(
        &self,
        view: View,
        block: &Block,
        access_list: Option<&Bytes>,
        digest: B256,
    ) -> Result<Signed<ProposalPayload>, KeyError> {
        match self.form.protocol {
            BftProtocol::Ibft2 => ibft2::sign_proposal(view, digest, &self.key),
            BftProtocol::Qbft => {
                let access_list = self.form.has_access_list.then_some(access_list);
                qbft::sign_proposal(view, block, access_list, &self.key)
            }
        }
    }

    /// Signs that a block is valid.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn prepare(&self, payload: PreparePayload) -> Result<Signed<PreparePayload>, KeyError> {
        votes::sign_prepare(self.form.protocol, payload, &self.key)
    }

    /// Signs that a quorum has prepared a block.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn commit(&self, payload: CommitPayload) -> Result<Signed<CommitPayload>, KeyError> {
        votes::sign_commit(self.form.protocol, payload, &self.key)
    }

    /// Signs that another round is wanted.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn round_change(
        &self,
        payload: RoundChangePayload,
    ) -> Result<Signed<RoundChangePayload>, KeyError> {
        match self.form.protocol {
            BftProtocol::Ibft2 => ibft2::sign_round_change(payload, &self.key),
            BftProtocol::Qbft => qbft::sign_round_change(payload, &self.key),
        }
    }

    /// A seal for a header.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn seal(&self, hash: &B256) -> Result<Seal, KeyError> {
        seal(hash, &self.key)
    }
}
