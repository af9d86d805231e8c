//! EIP-7702: accounts that let another account's code act for them.

use niwaki_evm::World;
use niwaki_primitives::{Address, Bytes, Fault, SignedAuthorization, U256};
use niwaki_rules::recover_authority;

/// Paid by the intrinsic gas for an account that may be new, less the price of one that is not.
const REFUND_FOR_EXISTING: i64 = 25_000 - 12_500;

/// Applies each authorization that holds, in order; one that does not is skipped.
///
/// # Errors
/// A [`Fault`] of the state.
///
/// Spec: EIP-7702; execution-specs `prague/vm/eoa_delegation.py`, `set_delegation`.
pub(crate) fn set_delegations(
    world: &mut World<'_>,
    authorizations: &[SignedAuthorization],
    chain_id: u64,
) -> Result<(), Fault> {
    for authorization in authorizations {
        if authorization.chain_id != U256::ZERO && authorization.chain_id != U256::from(chain_id) {
            continue;
        }
        if authorization.nonce == u64::MAX {
            continue;
        }
        let Some(authority) = recover_authority(authorization) else {
            continue;
        };
        let account = world.warm_from_start(&authority)?;
        let code = world.code(account)?;
        let code = world.code_at(code);
        if !code.bytes().is_empty() && code.delegate().is_none() {
            continue;
        }
        if world.nonce(account) != authorization.nonce {
            continue;
        }
        if world.exists(account) {
            world.give_refund(REFUND_FOR_EXISTING);
        }
        let code = if authorization.address == Address::ZERO {
            Bytes::new()
        } else {
            [&[0xef, 0x01, 0x00], authorization.address.as_slice()]
                .concat()
                .into()
        };
        world.set_code(account, &code);
        world.set_nonce(account, authorization.nonce.saturating_add(1));
    }
    Ok(())
}
