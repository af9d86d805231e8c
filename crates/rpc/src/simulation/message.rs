//! A message of `eth_call` and its kin, and its unsigned transaction.

use crate::RpcError;
use crate::params::Number;
use crate::quantity;
use niwaki_primitives::{
    AccessList, AccessListItem, Address, Authorization, B256, Bytes, SignableTransaction,
    Signature, Signed, SignedAuthorization, TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxEnvelope,
    TxKind, TxLegacy, U256,
};
use serde::Deserialize;

/// The fields of a transaction; each may be left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Message {
    pub(crate) from: Option<Address>,
    pub(crate) to: Option<Address>,
    pub(crate) gas: Option<Number>,
    #[serde(deserialize_with = "quantity::optional")]
    pub(crate) gas_price: Option<U256>,
    #[serde(deserialize_with = "quantity::optional")]
    pub(crate) max_fee_per_gas: Option<U256>,
    #[serde(deserialize_with = "quantity::optional")]
    pub(crate) max_priority_fee_per_gas: Option<U256>,
    #[serde(deserialize_with = "quantity::optional")]
    pub(crate) max_fee_per_blob_gas: Option<U256>,
    #[serde(deserialize_with = "quantity::optional")]
    pub(crate) value: Option<U256>,
    pub(crate) nonce: Option<Number>,
    pub(crate) data: Option<Bytes>,
    pub(crate) input: Option<Bytes>,
    pub(crate) access_list: Option<Vec<AccessItem>>,
    pub(crate) blob_versioned_hashes: Option<Vec<B256>>,
    pub(crate) authorization_list: Option<Vec<SignedItem>>,
    #[serde(deserialize_with = "quantity::optional")]
    pub(crate) chain_id: Option<U256>,
}

/// An item of an access list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccessItem {
    pub(crate) address: Address,
    #[serde(default)]
    pub(crate) storage_keys: Option<Vec<B256>>,
}

/// An authorization (EIP-7702).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SignedItem {
    #[serde(deserialize_with = "quantity::required")]
    chain_id: U256,
    address: Address,
    nonce: Number,
    y_parity: Number,
    #[serde(deserialize_with = "quantity::required")]
    r: U256,
    #[serde(deserialize_with = "quantity::required")]
    s: U256,
}

/// A price, cut to 128 bits: no account can pay more.
fn price(value: U256) -> u128 {
    u128::try_from(value).unwrap_or(u128::MAX)
}

impl Message {
    /// The sender; the zero address if it is left out.
    pub(crate) fn sender(&self) -> Address {
        self.from.unwrap_or_default()
    }

    /// Its gas, at most `cap`.
    pub(crate) fn gas_up_to(&self, cap: u64) -> u64 {
        self.gas.map_or(cap, |gas| gas.0.min(cap))
    }

    /// Call data or init code.
    pub(crate) fn call_data(&self) -> Bytes {
        let data = self.input.as_ref().or(self.data.as_ref());
        data.cloned().unwrap_or_default()
    }

    /// Checks that the fields do not contradict each other.
    ///
    /// # Errors
    /// -32000, in geth's words.
    pub(crate) fn check(&self, chain_id: u64) -> Result<(), RpcError> {
        let refuse = |message: String| Err(RpcError::server(message));
        if self.gas_price.is_some()
            && (self.max_fee_per_gas.is_some() || self.max_priority_fee_per_gas.is_some())
        {
            return refuse(
                "both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified".to_owned(),
            );
        }
        if let (Some(data), Some(input)) = (&self.data, &self.input)
            && data != input
        {
            return refuse(
                "both \"data\" and \"input\" are set and not equal. Please use \"input\" to pass \
                 transaction call data"
                    .to_owned(),
            );
        }
        if let Some(got) = self.chain_id.filter(|got| *got != U256::from(chain_id)) {
            return refuse(format!(
                "chainId does not match node's (have={got}, want={chain_id})"
            ));
        }
        if self.to.is_none() && self.blob_versioned_hashes.is_some() {
            return refuse("blob transaction of type create".to_owned());
        }
        if self.to.is_none() && self.authorization_list.is_some() {
            return refuse("EIP-7702 transaction cannot be used to create contract".to_owned());
        }
        Ok(())
    }

    /// The most it pays per gas, wei.
    pub(crate) fn max_fee(&self) -> U256 {
        self.gas_price.or(self.max_fee_per_gas).unwrap_or_default()
    }

    /// Whether it pays nothing for gas.
    pub(crate) fn is_free(&self) -> bool {
        let tip = self.max_priority_fee_per_gas.unwrap_or_default();
        self.max_fee().is_zero() && tip.is_zero()
    }

    /// The unsigned transaction with this nonce and gas limit. Its fields determine its type; if they do not, it is
    /// `or_else`.
    pub(crate) fn transaction(
        &self,
        nonce: u64,
        gas_limit: u64,
        chain_id: u64,
        or_else: u8,
    ) -> TxEnvelope {
        let tx_type = self.tx_type(or_else);
        let to = self.to.map_or(TxKind::Create, TxKind::Call);
        let (value, input) = (self.value.unwrap_or_default(), self.call_data());
        let tip = self.max_priority_fee_per_gas.unwrap_or_default();
        let (max_fee, tip) = (price(self.max_fee()), price(tip));
        let (address, list) = (self.to.unwrap_or_default(), self.access_list());
        match tx_type {
            4 => unsigned(TxEip7702 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: max_fee,
                max_priority_fee_per_gas: tip,
                to: address,
                value,
                access_list: list,
                authorization_list: self.authorizations(),
                input,
            }),
            3 => unsigned(TxEip4844 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: max_fee,
                max_priority_fee_per_gas: tip,
                to: address,
                value,
                access_list: list,
                blob_versioned_hashes: self.blob_versioned_hashes.clone().unwrap_or_default(),
                max_fee_per_blob_gas: price(self.max_fee_per_blob_gas.unwrap_or_default()),
                input,
            }),
            2 => unsigned(TxEip1559 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: max_fee,
                max_priority_fee_per_gas: tip,
                to,
                value,
                access_list: list,
                input,
            }),
            1 => unsigned(TxEip2930 {
                chain_id,
                nonce,
                gas_price: max_fee,
                gas_limit,
                to,
                value,
                access_list: list,
                input,
            }),
            _ => unsigned(TxLegacy {
                chain_id: None,
                nonce,
                gas_price: max_fee,
                gas_limit,
                to,
                value,
                input,
            }),
        }
    }

    fn tx_type(&self, or_else: u8) -> u8 {
        if self.authorization_list.is_some() {
            return 4;
        }
        if self.blob_versioned_hashes.is_some() {
            return 3;
        }
        let has_fees = self.max_fee_per_gas.is_some() || self.max_priority_fee_per_gas.is_some();
        if has_fees || or_else == 2 && self.gas_price.is_none() {
            return 2;
        }
        u8::from(self.access_list.is_some())
    }

    fn access_list(&self) -> AccessList {
        let items = self.access_list.iter().flatten();
        let items = items.map(|item| AccessListItem {
            address: item.address,
            storage_keys: item.storage_keys.clone().unwrap_or_default(),
        });
        AccessList(items.collect())
    }

    fn authorizations(&self) -> Vec<SignedAuthorization> {
        let items = self.authorization_list.iter().flatten();
        let signed = items.map(|item| {
            let authorization = Authorization {
                chain_id: item.chain_id,
                address: item.address,
                nonce: item.nonce.0,
            };
            let parity = u8::try_from(item.y_parity.0).unwrap_or(u8::MAX);
            SignedAuthorization::new_unchecked(authorization, parity, item.r, item.s)
        });
        signed.collect()
    }
}

/// A transaction with a signature of zeros.
pub(crate) fn unsigned<T>(tx: T) -> TxEnvelope
where
    T: SignableTransaction<Signature>,
    TxEnvelope: From<Signed<T>>,
{
    let signature = Signature::new(U256::ZERO, U256::ZERO, false);
    tx.into_signed(signature).into()
}

#[cfg(test)]
mod tests;
