//! EIP-7702: accounts that let another account's code act for them.

use niwaki_evm::{ACCOUNT_WRITE, AccountId, Message, StateGas, StatePrices, Target, World};
use niwaki_primitives::{Address, Bytes, Fault, SignedAuthorization, U256, map::HashMap};
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
        let Some((_, account)) = authority(world, authorization, chain_id)? else {
            continue;
        };
        if world.exists(account) {
            world.add_refund(REFUND_FOR_EXISTING);
        }
        apply(world, account, authorization);
    }
    Ok(())
}

/// As [`set_delegations`] from Amsterdam on, where what an authorization changes is charged when it is
/// applied, to the gas of `message`. The state gas that was charged; `None` if the gas ran out.
///
/// # Errors
/// A [`Fault`] of the state.
///
/// Spec: EIP-2780, EIP-8037, EIP-8038; execution-specs `amsterdam/vm/eoa_delegation.py`,
/// `set_delegation`.
pub(crate) fn delegate(
    world: &mut World<'_>,
    authorizations: &[SignedAuthorization],
    chain_id: u64,
    prices: &StatePrices,
    message: &mut Message,
) -> Result<Option<u64>, Fault> {
    let given = i64::try_from(message.gas).unwrap_or(i64::MAX);
    let mut left = given;
    let reservoir = i64::try_from(message.reservoir).unwrap_or(i64::MAX);
    let mut state = StateGas::with_reservoir(reservoir);
    // Whether an authority has a delegation that is old, or paid for.
    let mut seen: HashMap<Address, bool> = HashMap::default();
    for authorization in authorizations {
        let Some((address, account)) = authority(world, authorization, chain_id)? else {
            continue;
        };
        if world.is_empty(account) && !state.charge(prices.account, &mut left) {
            return Ok(None);
        }
        let code = world.code(account)?;
        let was_delegated = world.code_at(code).delegate().is_some();
        let is_first = !seen.contains_key(&address);
        if is_first && !is_written_by(message, &address) {
            left = left.saturating_sub(ACCOUNT_WRITE);
            if left < 0 {
                return Ok(None);
            }
        }
        let has_delegation = seen.entry(address).or_insert(was_delegated);
        let is_free = authorization.address == Address::ZERO || *has_delegation;
        if !is_free && !state.charge(prices.delegation, &mut left) {
            return Ok(None);
        }
        *has_delegation |= !is_free;
        apply(world, account, authorization);
    }
    let taken = |before: i64, after: i64| before.saturating_sub(after).unsigned_abs();
    message.gas = message.gas.saturating_sub(taken(given, left));
    let taken = taken(reservoir, state.reservoir);
    message.reservoir = message.reservoir.saturating_sub(taken);
    Ok(Some(u64::try_from(state.used).unwrap_or(0)))
}

/// Whether the intrinsic gas pays for a change of the account: the sender, and who gets the value.
fn is_written_by(message: &Message, address: &Address) -> bool {
    let receives = message.target == Target::Call(*address) && !message.value.is_zero();
    message.caller == *address || receives
}

/// The account of who has signed an authorization that holds; it is warm from then on, as it is if
/// only its state makes the authorization void.
fn authority(
    world: &mut World<'_>,
    authorization: &SignedAuthorization,
    chain_id: u64,
) -> Result<Option<(Address, AccountId)>, Fault> {
    if authorization.chain_id != U256::ZERO && authorization.chain_id != U256::from(chain_id) {
        return Ok(None);
    }
    if authorization.nonce == u64::MAX {
        return Ok(None);
    }
    let Some(authority) = recover_authority(authorization) else {
        return Ok(None);
    };
    let account = world.load_warm(&authority)?;
    let code = world.code(account)?;
    let code = world.code_at(code);
    if !code.bytes().is_empty() && code.delegate().is_none() {
        return Ok(None);
    }
    let is_next = world.nonce(account) == authorization.nonce;
    Ok(is_next.then_some((authority, account)))
}

fn apply(world: &mut World<'_>, account: AccountId, authorization: &SignedAuthorization) {
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
