//! Conversion of forks, blocks and transactions into revm's types.

use niwaki_primitives::{Address, Fork, Header, Transaction, TxEnvelope, TxKind, Typed2718, U256};
use niwaki_rules::BlockRules;
use revm::{
    context::{BlockEnv, TxEnv, either::Either},
    context_interface::block::BlobExcessGasAndPrice,
    primitives::hardfork::SpecId,
};

/// revm's id of `fork`; `None` for Constantinople, which revm lacks.
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

/// The transaction for revm.
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

/// The block for revm.
pub fn revm_block(header: &Header, rules: &BlockRules) -> BlockEnv {
    let blobs = header
        .excess_blob_gas
        .map(|excess_blob_gas| BlobExcessGasAndPrice {
            excess_blob_gas,
            blob_gasprice: rules.blob_base_fee,
        });
    BlockEnv {
        number: U256::from(header.number),
        timestamp: U256::from(header.timestamp),
        beneficiary: header.beneficiary,
        gas_limit: header.gas_limit,
        basefee: header.base_fee_per_gas.unwrap_or(0),
        difficulty: header.difficulty,
        slot_num: header.slot_number.unwrap_or(0),
        prevrandao: (rules.fork >= Fork::Paris).then_some(header.mix_hash),
        blob_excess_gas_and_price: blobs,
    }
}
