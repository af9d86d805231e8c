//! The transaction of a state test's template.

use alloy_consensus::SignableTransaction;
use alloy_primitives::Signature;
use niwaki_primitives::{
    Address, Authorization, Bytes, SignedAuthorization, TxEip1559, TxEip2930, TxEip4844, TxEip7702,
    TxEnvelope, TxKind, TxLegacy, U256,
};
use niwaki_testkit::fixtures::{AuthorizationFields, Indexes, TransactionFields, Wide};

/// A built template.
#[derive(Debug)]
pub(crate) enum Built {
    /// The transaction. Its signature is a valid placeholder, since the sender is known.
    Tx(Box<TxEnvelope>),
    /// Its fields fit in no transaction; the name of the error that a decoder would give.
    Unencodable(&'static str),
}

/// The choice of one state test, all numbers in range.
struct Chosen<'a> {
    fields: &'a TransactionFields,
    chain_id: u64,
    nonce: u64,
    gas_limit: u64,
    value: U256,
    data: Bytes,
    index: usize,
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
    let data = fields
        .data
        .get(indexes.data)
        .ok_or_else(|| missing("data"))?;
    let gas = fields
        .gas_limits
        .get(indexes.gas)
        .ok_or_else(|| missing("gasLimit"))?;
    let value = fields
        .values
        .get(indexes.value)
        .ok_or_else(|| missing("value"))?;
    let (Some(nonce), Some(gas_limit), Some(value)) = (fields.nonce.u64(), gas.u64(), value.u256())
    else {
        return Ok(Built::Unencodable("VALUE_OVERFLOW"));
    };
    let chosen = Chosen {
        fields,
        chain_id,
        nonce,
        gas_limit,
        value,
        data: data.clone(),
        index: indexes.data,
    };
    Ok(match chosen.envelope() {
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

impl Chosen<'_> {
    fn envelope(self) -> Result<TxEnvelope, &'static str> {
        let fields = self.fields;
        let access_list = fields.access_lists.get(self.index).cloned().flatten();
        if let Some(authorizations) = &fields.authorizations {
            return self.set_code(authorizations);
        }
        if fields.blob_hashes.is_some() {
            return self.blob();
        }
        if fields.max_fee.is_some() {
            let tx = TxEip1559 {
                chain_id: self.chain_id,
                nonce: self.nonce,
                gas_limit: self.gas_limit,
                max_fee_per_gas: price(fields.max_fee)?,
                max_priority_fee_per_gas: price(fields.max_priority_fee)?,
                to: fields.to,
                value: self.value,
                access_list: access_list.unwrap_or_default(),
                input: self.data,
            };
            return Ok(sign(tx).into());
        }
        if let Some(access_list) = access_list {
            let tx = TxEip2930 {
                chain_id: self.chain_id,
                nonce: self.nonce,
                gas_price: price(fields.gas_price)?,
                gas_limit: self.gas_limit,
                to: fields.to,
                value: self.value,
                access_list,
                input: self.data,
            };
            return Ok(sign(tx).into());
        }
        let tx = TxLegacy {
            chain_id: None,
            nonce: self.nonce,
            gas_price: price(fields.gas_price)?,
            gas_limit: self.gas_limit,
            to: fields.to,
            value: self.value,
            input: self.data,
        };
        Ok(sign(tx).into())
    }

    /// The receiver of a transaction whose type allows no creation.
    fn receiver(&self, refusal: &'static str) -> Result<Address, &'static str> {
        match self.fields.to {
            TxKind::Call(to) => Ok(to),
            TxKind::Create => Err(refusal),
        }
    }

    fn blob(self) -> Result<TxEnvelope, &'static str> {
        let fields = self.fields;
        let tx = TxEip4844 {
            chain_id: self.chain_id,
            nonce: self.nonce,
            gas_limit: self.gas_limit,
            max_fee_per_gas: price(fields.max_fee)?,
            max_priority_fee_per_gas: price(fields.max_priority_fee)?,
            to: self.receiver("TYPE_3_TX_CONTRACT_CREATION")?,
            value: self.value,
            access_list: fields
                .access_lists
                .get(self.index)
                .cloned()
                .flatten()
                .unwrap_or_default(),
            blob_versioned_hashes: fields.blob_hashes.clone().unwrap_or_default(),
            max_fee_per_blob_gas: price(fields.max_fee_per_blob_gas)?,
            input: self.data,
        };
        Ok(sign(tx).into())
    }

    fn set_code(self, authorizations: &[AuthorizationFields]) -> Result<TxEnvelope, &'static str> {
        let fields = self.fields;
        let list: Option<Vec<_>> = authorizations.iter().map(authorization).collect();
        let tx = TxEip7702 {
            chain_id: self.chain_id,
            nonce: self.nonce,
            gas_limit: self.gas_limit,
            max_fee_per_gas: price(fields.max_fee)?,
            max_priority_fee_per_gas: price(fields.max_priority_fee)?,
            to: self.receiver("TYPE_4_TX_CONTRACT_CREATION")?,
            value: self.value,
            access_list: fields
                .access_lists
                .get(self.index)
                .cloned()
                .flatten()
                .unwrap_or_default(),
            authorization_list: list.ok_or("TYPE_4_INVALID_AUTHORIZATION_FORMAT")?,
            input: self.data,
        };
        Ok(sign(tx).into())
    }
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
