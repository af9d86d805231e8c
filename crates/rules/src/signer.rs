//! Who signed what: the sender of a transaction, the authority of an authorization.

use crate::invalid::InvalidTransaction;
use crate::transaction::SECP256K1_HALF_N;
use niwaki_crypto::recover_signer;
use niwaki_primitives::{Address, SignedAuthorization, TxEnvelope};

/// The sender of a transaction. About 30 us.
///
/// # Errors
/// [`InvalidTransaction::SignatureRecovery`] if no key made the signature.
pub fn recover_sender(tx: &TxEnvelope) -> Result<Address, InvalidTransaction> {
    let signature = tx.signature();
    recover_signer(
        &tx.signature_hash(),
        &signature.r(),
        &signature.s(),
        signature.v(),
    )
    .map_err(|_| InvalidTransaction::SignatureRecovery)
}

/// Who signed the authorization, if anybody did. About 30 us.
///
/// Spec: EIP-7702; execution-specs `prague/vm/eoa_delegation.py`, `recover_authority`.
pub fn recover_authority(signed: &SignedAuthorization) -> Option<Address> {
    let y_parity = match signed.y_parity() {
        0 => false,
        1 => true,
        _ => return None,
    };
    if signed.s() > SECP256K1_HALF_N {
        return None;
    }
    recover_signer(&signed.signature_hash(), &signed.r(), &signed.s(), y_parity).ok()
}
