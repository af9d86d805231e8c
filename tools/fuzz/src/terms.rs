//! What revm calls a fork and a transaction.

use niwaki_primitives::{Address, Fork, Transaction, TxEnvelope, TxKind, Typed2718};
use revm::{
    context::{TxEnv, either::Either},
    primitives::hardfork::SpecId,
};

/// revm's name of the rules of `fork`; `None` for Constantinople, which it has no rules of.
pub fn spec_id(fork: Fork) -> Option<SpecId> {
    Some(match fork {
        f if f >= Fork::Amsterdam => SpecId::AMSTERDAM,
        f if f >= Fork::Osaka => SpecId::OSAKA,
        f if f >= Fork::Prague => SpecId::PRAGUE,
        f if f >= Fork::Cancun => SpecId::CANCUN,
        f if f >= Fork::Shanghai => SpecId::SHANGHAI,
        f if f >= Fork::Paris => SpecId::MERGE,
        f if f >= Fork::London => SpecId::LONDON,
        f if f >= Fork::Berlin => SpecId::BERLIN,
        f if f >= Fork::Istanbul => SpecId::ISTANBUL,
        f if f >= Fork::Petersburg => SpecId::PETERSBURG,
        Fork::Constantinople => return None,
        f if f >= Fork::Byzantium => SpecId::BYZANTIUM,
        f if f >= Fork::SpuriousDragon => SpecId::SPURIOUS_DRAGON,
        f if f >= Fork::TangerineWhistle => SpecId::TANGERINE,
        f if f >= Fork::Homestead => SpecId::HOMESTEAD,
        _ => SpecId::FRONTIER,
    })
}

/// The transaction as revm takes it.
pub fn tx_env(tx: &TxEnvelope, sender: Address) -> TxEnv {
    TxEnv {
        tx_type: tx.ty(),
        caller: sender,
        gas_limit: tx.gas_limit(),
        gas_price: tx.max_fee_per_gas(),
        kind: tx.to().map_or(TxKind::Create, TxKind::Call),
        value: tx.value(),
        data: tx.input().clone(),
        nonce: tx.nonce(),
        chain_id: tx.chain_id(),
        access_list: tx.access_list().cloned().unwrap_or_default(),
        gas_priority_fee: tx.max_priority_fee_per_gas(),
        blob_hashes: tx.blob_versioned_hashes().unwrap_or_default().to_vec(),
        max_fee_per_blob_gas: tx.max_fee_per_blob_gas().unwrap_or(0),
        authorization_list: tx
            .authorization_list()
            .into_iter()
            .flatten()
            .map(|signed| Either::Left(signed.clone()))
            .collect(),
    }
}
