//! The transactions of a transition: objects, signed or with the key to sign them with, or RLP.

use super::Failure;
use super::input::bytes_of;
use alloy_consensus::SignableTransaction;
use alloy_primitives::Signature;
use alloy_rlp::{Decodable, PayloadView};
use niwaki_primitives::{
    AccessList, AccessListItem, Address, Authorization, B256, Bytes, SignedAuthorization,
    TxEip1559, TxEnvelope, TxKind, TxLegacy, U256,
};
use niwaki_testkit::fixtures::{Data, FixtureAddress, Quantity};
use niwaki_testkit::transactions::{eip2930, eip4844, eip7702, legacy};
use serde::Deserialize;

/// An entry of the list of transactions.
#[derive(Clone, Debug)]
pub(super) enum Signed {
    /// A transaction.
    Tx(Box<TxEnvelope>),
    /// An invalid entry, and why.
    Refused(String),
}

/// A transaction as an object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fields {
    #[serde(rename = "type")]
    kind: Option<Quantity>,
    chain_id: Option<Quantity>,
    #[serde(default)]
    nonce: Quantity,
    gas_price: Option<Quantity>,
    max_fee_per_gas: Option<Quantity>,
    max_priority_fee_per_gas: Option<Quantity>,
    max_fee_per_blob_gas: Option<Quantity>,
    gas: Option<Quantity>,
    gas_limit: Option<Quantity>,
    to: Option<Data>,
    #[serde(default)]
    value: Quantity,
    input: Option<Data>,
    data: Option<Data>,
    access_list: Option<Vec<AccessFields>>,
    blob_versioned_hashes: Option<Vec<B256>>,
    authorization_list: Option<Vec<AuthorizationFields>>,
    v: Option<Quantity>,
    y_parity: Option<Quantity>,
    #[serde(default)]
    r: Quantity,
    #[serde(default)]
    s: Quantity,
    secret_key: Option<B256>,
    /// Whether the signature names the chain (EIP-155).
    protected: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessFields {
    address: FixtureAddress,
    #[serde(default)]
    storage_keys: Vec<B256>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthorizationFields {
    chain_id: Quantity,
    address: FixtureAddress,
    nonce: Quantity,
    /// One of `yParity` and `v`, or both.
    y_parity: Option<Quantity>,
    v: Option<Quantity>,
    r: Quantity,
    s: Quantity,
}

/// The transactions of `objects`, on a chain of `chain_id`. An invalid entry is rejected at its index.
pub(super) fn from_json(objects: &[Fields], chain_id: u64) -> Vec<Signed> {
    let envelope = |fields: &Fields| match fields.envelope(chain_id) {
        Ok(tx) => Signed::Tx(Box::new(tx)),
        Err(reason) => Signed::Refused(reason),
    };
    objects.iter().map(envelope).collect()
}

/// The transactions of an RLP list in hex. An invalid entry is rejected at its index.
///
/// # Errors
/// [`Failure`] if it is not a list.
pub(super) fn from_rlp(hex: &str) -> Result<Vec<Signed>, Failure> {
    let bytes = bytes_of("txs", hex)?;
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let view = alloy_rlp::Header::decode_raw(&mut bytes.as_ref())
        .map_err(|error| Failure::rlp(format!("txs is no RLP: {error}")))?;
    let PayloadView::List(items) = view else {
        return Err(Failure::rlp("txs is no list".to_owned()));
    };
    let decoded = |mut item: &[u8]| match TxEnvelope::decode(&mut item) {
        Ok(tx) => Signed::Tx(Box::new(tx)),
        Err(error) => Signed::Refused(format!("no transaction: {error}")),
    };
    Ok(items.into_iter().map(decoded).collect())
}

impl Fields {
    /// The given type, or the one that the fields imply.
    fn tx_type(&self) -> Result<u64, String> {
        if let Some(kind) = self.kind {
            return number("type", kind);
        }
        Ok(if self.authorization_list.is_some() {
            4
        } else if self.blob_versioned_hashes.is_some() {
            3
        } else if self.max_fee_per_gas.is_some() {
            2
        } else {
            u64::from(self.access_list.is_some())
        })
    }

    fn envelope(&self, chain: u64) -> Result<TxEnvelope, String> {
        let chain_id = match self.chain_id {
            Some(id) => number("chainId", id)?,
            None => chain,
        };
        let mut tx = TxEip1559 {
            chain_id,
            nonce: number("nonce", self.nonce)?,
            gas_limit: number("gas", self.gas.or(self.gas_limit).unwrap_or_default())?,
            max_fee_per_gas: price(self.max_fee_per_gas.or(self.gas_price))?,
            max_priority_fee_per_gas: price(self.max_priority_fee_per_gas.or(self.gas_price))?,
            to: TxKind::Create,
            value: self.value.0,
            access_list: self.access_list(),
            input: self.input(),
        };
        let tx_type = self.tx_type()?;
        if tx_type < 2 {
            tx.max_fee_per_gas = price(self.gas_price)?;
        }
        if tx_type < 3 {
            tx.to = self.kind()?;
        }
        match tx_type {
            0 => self.sign_legacy(legacy(tx), chain),
            1 => self.sign(eip2930(tx)),
            2 => self.sign(tx),
            3 => {
                let (to, fee) = (self.receiver()?, price(self.max_fee_per_blob_gas)?);
                let hashes = self.blob_versioned_hashes.clone().unwrap_or_default();
                self.sign(eip4844(tx, to, fee, hashes))
            }
            4 => self.sign(eip7702(tx, self.receiver()?, self.authorizations()?)),
            other => Err(format!(
                "{other} is no type of transaction; there are 0 to 4"
            )),
        }
    }

    fn sign_legacy(&self, mut tx: TxLegacy, chain: u64) -> Result<TxEnvelope, String> {
        if self.is_unsigned() {
            tx.chain_id = self.protected.unwrap_or(true).then_some(chain);
            return self.sign(tx);
        }
        let v = number("v", self.v.unwrap_or_default())?;
        // EIP-155: twice the chain id and 35 or 36.
        let (chain_id, parity) = match v {
            27 | 28 => (None, v == 28),
            35.. => (Some((v - 35) / 2), v % 2 == 0),
            _ => return Err(format!("v {v} is of no signature")),
        };
        tx.chain_id = chain_id;
        let signature = Signature::new(self.r.0, self.s.0, parity);
        Ok(tx.into_signed(signature).into())
    }

    /// Whether it has a key to sign with.
    fn is_unsigned(&self) -> bool {
        self.secret_key.is_some() && self.r.0.is_zero() && self.s.0.is_zero()
    }

    fn sign<T: SignableTransaction<Signature>>(&self, tx: T) -> Result<TxEnvelope, String>
    where
        TxEnvelope: From<alloy_consensus::Signed<T>>,
    {
        let signature = match self.secret_key.filter(|_| self.is_unsigned()) {
            Some(key) => {
                let signed = niwaki_crypto::sign(&tx.signature_hash(), &key);
                let (r, s, parity) = signed.map_err(|error| format!("secretKey: {error}"))?;
                Signature::new(r, s, parity)
            }
            None => {
                let v = self.y_parity.or(self.v).unwrap_or_default().0;
                if v > U256::from(1) {
                    return Err(format!("v {v} is of no signature of this type"));
                }
                Signature::new(self.r.0, self.s.0, !v.is_zero())
            }
        };
        Ok(tx.into_signed(signature).into())
    }

    fn input(&self) -> Bytes {
        let input = self.input.as_ref().or(self.data.as_ref());
        input.map(|input| input.0.clone()).unwrap_or_default()
    }

    fn kind(&self) -> Result<TxKind, String> {
        let Some(to) = self.to.as_ref().filter(|to| !to.0.is_empty()) else {
            return Ok(TxKind::Create);
        };
        let address = Address::try_from(to.0.as_ref());
        let wrong = |_| format!("to is of {} bytes, an address has 20", to.0.len());
        address.map(TxKind::Call).map_err(wrong)
    }

    /// The receiver, which must be set.
    fn receiver(&self) -> Result<Address, String> {
        match self.kind()? {
            TxKind::Call(to) => Ok(to),
            TxKind::Create => Err("to is missing; this type can't create a contract".to_owned()),
        }
    }

    fn access_list(&self) -> AccessList {
        let items = self
            .access_list
            .iter()
            .flatten()
            .map(|item| AccessListItem {
                address: item.address.0,
                storage_keys: item.storage_keys.clone(),
            });
        AccessList(items.collect())
    }

    fn authorizations(&self) -> Result<Vec<SignedAuthorization>, String> {
        let signed = |fields: &AuthorizationFields| {
            let inner = Authorization {
                chain_id: fields.chain_id.0,
                address: fields.address.0,
                nonce: number("an authorization's nonce", fields.nonce)?,
            };
            let parity = fields.y_parity.or(fields.v).unwrap_or_default().0;
            let parity =
                u8::try_from(parity).map_err(|_| format!("an authorization's parity {parity}"))?;
            Ok(SignedAuthorization::new_unchecked(
                inner, parity, fields.r.0, fields.s.0,
            ))
        };
        self.authorization_list
            .iter()
            .flatten()
            .map(signed)
            .collect()
    }
}

fn number(what: &str, quantity: Quantity) -> Result<u64, String> {
    u64::try_from(quantity.0).map_err(|_| format!("{what} {} is beyond 64 bits", quantity.0))
}

fn price(quantity: Option<Quantity>) -> Result<u128, String> {
    let wei: U256 = quantity.unwrap_or_default().0;
    u128::try_from(wei).map_err(|_| format!("a price of {wei} wei is beyond 128 bits"))
}
