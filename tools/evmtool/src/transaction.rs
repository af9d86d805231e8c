//! The transaction of a state test's template.

use alloy_consensus::SignableTransaction;
use alloy_primitives::Signature;
use niwaki_primitives::{
    Authorization, SignedAuthorization, TxEip1559, TxEnvelope, TxLegacy, U256,
};
use niwaki_testkit::fixtures::{AuthorizationFields, Indexes, TransactionFields, Wide};
use niwaki_testkit::transactions::{eip2930, eip4844, eip7702, legacy};

/// A built template.
#[derive(Debug)]
pub(crate) enum Built {
    /// The transaction. Its signature is a valid placeholder, since the sender is known.
    Tx(Box<TxEnvelope>),
    /// Its fields fit in no transaction; the name of the error that a decoder would give.
    Unencodable(&'static str),
}

/// Builds the transaction of a choice.
///
/// # Errors
/// An index that the template does not have.
pub(crate) fn build(
    fields: &TransactionFields,
    indexes: Indexes,
    chain_id: u64,
) -> Result<Built, String> {
    let missing = |what: &str| format!("the transaction has no {what} of that index");
    let input = fields.data.get(indexes.data);
    let input = input.ok_or_else(|| missing("data"))?.clone();
    let gas_limit = fields.gas_limits.get(indexes.gas);
    let gas_limit = gas_limit.ok_or_else(|| missing("gasLimit"))?;
    let value = fields.values.get(indexes.value);
    let value = value.ok_or_else(|| missing("value"))?;
    let (Some(nonce), Some(gas_limit), Some(value)) =
        (fields.nonce.u64(), gas_limit.u64(), value.u256())
    else {
        return Ok(Built::Unencodable("VALUE_OVERFLOW"));
    };
    let access_list = fields.access_lists.get(indexes.data).cloned().flatten();
    let has_access_list = access_list.is_some();
    let tx = TxEip1559 {
        chain_id,
        nonce,
        gas_limit,
        to: fields.to,
        value,
        input,
        access_list: access_list.unwrap_or_default(),
        ..TxEip1559::default()
    };
    Ok(match envelope(fields, tx, has_access_list) {
        Ok(tx) => Built::Tx(Box::new(tx)),
        Err(reason) => Built::Unencodable(reason),
    })
}

pub(crate) fn sign<T: SignableTransaction<Signature>>(tx: T) -> alloy_consensus::Signed<T> {
    tx.into_signed(Signature::new(U256::ONE, U256::ONE, false))
}

/// A price per gas; 2^128 wei or more fits in no transaction.
fn price(wide: Option<Wide>) -> Result<u128, &'static str> {
    match wide {
        None => Ok(0),
        Some(wide) => wide.u128().ok_or("GASLIMIT_PRICE_PRODUCT_OVERFLOW"),
    }
}

/// The transaction of the type that the fields imply. `tx` has the fields of all types and the access list.
fn envelope(
    fields: &TransactionFields,
    mut tx: TxEip1559,
    has_access_list: bool,
) -> Result<TxEnvelope, &'static str> {
    let TransactionFields {
        authorizations,
        blob_hashes,
        max_fee,
        ..
    } = fields;
    if authorizations.is_none() && blob_hashes.is_none() && max_fee.is_none() {
        tx.max_fee_per_gas = price(fields.gas_price)?;
        return Ok(match has_access_list {
            true => sign(eip2930(tx)).into(),
            false => sign(TxLegacy {
                chain_id: None,
                ..legacy(tx)
            })
            .into(),
        });
    }
    tx.max_fee_per_gas = price(*max_fee)?;
    tx.max_priority_fee_per_gas = price(fields.max_priority_fee)?;
    let to = tx.to.to().copied();
    if let Some(authorizations) = authorizations {
        let to = to.ok_or("TYPE_4_TX_CONTRACT_CREATION")?;
        let list: Option<_> = authorizations.iter().map(authorization).collect();
        let list = list.ok_or("TYPE_4_INVALID_AUTHORIZATION_FORMAT")?;
        return Ok(sign(eip7702(tx, to, list)).into());
    }
    if let Some(hashes) = blob_hashes {
        let to = to.ok_or("TYPE_3_TX_CONTRACT_CREATION")?;
        let max_fee_per_blob_gas = price(fields.max_fee_per_blob_gas)?;
        return Ok(sign(eip4844(tx, to, max_fee_per_blob_gas, hashes.clone())).into());
    }
    Ok(sign(tx).into())
}

fn authorization(fields: &AuthorizationFields) -> Option<SignedAuthorization> {
    let inner = Authorization {
        chain_id: fields.chain_id.u256()?,
        address: fields.address,
        nonce: fields.nonce.u64()?,
    };
    let y_parity = u8::try_from(fields.y_parity.u64()?).ok()?;
    Some(SignedAuthorization::new_unchecked(
        inner,
        y_parity,
        fields.r.u256()?,
        fields.s.u256()?,
    ))
}
