//! Signatures of validators.

use alloy_primitives::{Address, B256, U256};
use niwaki_crypto::recover_signer;

/// The signature of a validator: r, s, and 0 or 1 for the parity of y.
pub type Seal = [u8; 65];

/// No key can have made a seal: the parity is neither 0 nor 1, or there is no such point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signature that no key can have made")]
pub struct BadSeal;

/// Who made a seal of a hash, whose s may be in either half, as in Besu. About 30 us.
///
/// # Errors
/// [`BadSeal`].
pub fn recover_seal(hash: &B256, seal: &Seal) -> Result<Address, BadSeal> {
    let [r, s] = [0, 32].map(|at: usize| {
        let number = seal.get(at..at.saturating_add(32));
        U256::from_be_slice(number.unwrap_or_default())
    });
    let y_parity = match seal {
        [.., 0] => false,
        [.., 1] => true,
        _ => return Err(BadSeal),
    };
    recover_signer(hash, &r, &s, y_parity).map_err(|_| BadSeal)
}
