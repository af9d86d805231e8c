//! Signature recovery: the sender of a transaction, the authority of an authorization.

use crate::invalid::InvalidTransaction;
use crate::transaction::SECP256K1_HALF_N;
use alloy_consensus::SignableTransaction;
use niwaki_crypto::{Signed, keccak256_batch, recover_signer, recover_signers};
use niwaki_primitives::{Address, B256, SignedAuthorization, TxEnvelope};

/// The sender of a transaction. About 30 us.
///
/// # Errors
/// [`InvalidTransaction::SignatureRecovery`] if the signature recovers to no key.
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

/// Senders per batch. Larger batches gain little, and after an invalid signature the rest of a batch is wasted work.
const BATCH: usize = 64;

/// The senders of `transactions` in order, as [`recover_sender`] gives them, recovered in batches as the iterator
/// advances. With a dozen transactions or more, each takes less than two thirds of the time.
pub fn recover_senders<'a>(
    transactions: impl IntoIterator<Item = &'a TxEnvelope>,
) -> impl Iterator<Item = Result<Address, InvalidTransaction>> {
    let mut rest = transactions.into_iter();
    let batches = std::iter::from_fn(move || {
        let batch: Vec<_> = rest.by_ref().take(BATCH).collect();
        (!batch.is_empty()).then(|| recover_batch(&batch))
    });
    batches.flatten()
}

fn recover_batch(transactions: &[&TxEnvelope]) -> Vec<Result<Address, InvalidTransaction>> {
    let payloads: Vec<_> = transactions.iter().map(|tx| signed_payload(tx)).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let signed = |(tx, hash): (&&TxEnvelope, B256)| {
        let signature = tx.signature();
        Signed {
            hash,
            r: signature.r(),
            s: signature.s(),
            y_parity: signature.v(),
        }
    };
    let hashes = keccak256_batch(&payloads);
    let signed: Vec<_> = transactions.iter().zip(hashes).map(signed).collect();
    let signers = recover_signers(&signed).into_iter();
    let senders = signers.map(|signer| signer.map_err(|_| InvalidTransaction::SignatureRecovery));
    senders.collect()
}

/// The bytes whose hash the sender has signed.
fn signed_payload(tx: &TxEnvelope) -> Vec<u8> {
    match tx {
        TxEnvelope::Legacy(tx) => tx.tx().encoded_for_signing(),
        TxEnvelope::Eip2930(tx) => tx.tx().encoded_for_signing(),
        TxEnvelope::Eip1559(tx) => tx.tx().encoded_for_signing(),
        TxEnvelope::Eip4844(tx) => tx.tx().encoded_for_signing(),
        TxEnvelope::Eip7702(tx) => tx.tx().encoded_for_signing(),
    }
}

/// The authority of an authorization, if its signature is valid. About 30 us.
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_consensus::{TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy};
    use alloy_primitives::Signature;
    use niwaki_primitives::U256;

    #[test]
    fn batch_recovery_finds_the_same_senders_as_single_recovery() {
        let mut all: Vec<TxEnvelope> = Vec::new();
        for r in 1..20_u64 {
            let signature = Signature::new(U256::from(r), U256::from(r * r), r % 2 == 0);
            let legacy = TxLegacy {
                chain_id: (r % 3 == 0).then_some(r),
                nonce: r,
                ..TxLegacy::default()
            };
            all.push(legacy.into_signed(signature).into());
            all.push(TxEip2930::default().into_signed(signature).into());
            all.push(TxEip1559::default().into_signed(signature).into());
            all.push(TxEip4844::default().into_signed(signature).into());
            all.push(TxEip7702::default().into_signed(signature).into());
        }
        let expected: Vec<_> = all.iter().map(recover_sender).collect();
        assert!(expected.iter().any(Result::is_ok) && expected.iter().any(Result::is_err));
        assert!(all.len() > BATCH);
        assert_eq!(recover_senders(&all).collect::<Vec<_>>(), expected);
        assert_eq!(recover_senders([]).next(), None);
    }

    #[test]
    fn transactions_after_a_batch_with_an_invalid_signature_are_not_recovered() {
        let invalid = Signature::new(U256::ZERO, U256::ZERO, false);
        let tx: TxEnvelope = TxLegacy::default().into_signed(invalid).into();
        let looked_at = std::cell::Cell::new(0);
        let transactions = std::iter::repeat_n(&tx, 10 * BATCH);
        let transactions = transactions.inspect(|_| looked_at.set(looked_at.get() + 1));
        let senders: Result<Vec<_>, _> = recover_senders(transactions).collect();
        assert_eq!(senders, Err(InvalidTransaction::SignatureRecovery));
        assert_eq!(looked_at.get(), BATCH);
    }
}
