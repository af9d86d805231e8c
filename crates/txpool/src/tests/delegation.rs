//! EIP-7702: delegated accounts have few transactions in flight.

use super::support::{CHAIN_ID, Chain, funds, set_code, text, transfer, wallet};
use crate::PoolConfig;
use niwaki_primitives::{Bytes, Fork};
use niwaki_rules::ChainSpec;
use niwaki_testkit::MemoryState;

const LIMIT: &str = "in-flight transaction limit reached for delegated accounts";
const GAP: &str = "gapped-nonce tx from delegated accounts";

/// A chain on which wallet 0 is delegated.
fn chain(config: PoolConfig) -> Chain {
    let mut delegating = funds(1 << 80);
    let code = [&[0xef, 0x01, 0x00][..], &[0xcc; 20]].concat();
    delegating.code = Bytes::from(code).into();
    let mut state = MemoryState::default();
    state.insert(wallet(0).address, delegating);
    for n in 1..4 {
        state.insert(wallet(n).address, funds(1 << 80));
    }
    Chain::upon(ChainSpec::single(CHAIN_ID, Fork::Osaka), state, config)
}

#[test]
fn a_delegated_account_has_1_transaction_in_flight() {
    let chain = chain(PoolConfig::default());
    let from = wallet(0);
    assert_eq!(text(chain.remote(transfer(&from, 1, 1, 10))), GAP);
    assert!(
        chain
            .remote(transfer(&from, 0, 1, 10))
            .expect("first")
            .pending
    );
    assert_eq!(text(chain.remote(transfer(&from, 1, 1, 10))), LIMIT);
    assert!(chain.remote(transfer(&from, 0, 2, 20)).is_ok(), "replaced");
}

#[test]
fn the_in_flight_limit_is_configurable() {
    let chain = chain(PoolConfig {
        max_delegated_in_flight: 2,
        ..PoolConfig::default()
    });
    let from = wallet(0);
    for nonce in 0..2 {
        assert!(chain.remote(transfer(&from, nonce, 1, 10)).is_ok());
    }
    assert_eq!(text(chain.remote(transfer(&from, 2, 1, 10))), LIMIT);
}

#[test]
fn an_account_about_to_delegate_has_1_transaction_in_flight() {
    let mut chain = chain(PoolConfig::default());
    let (sponsor, authority) = (wallet(1), wallet(2));
    let tx = set_code(&sponsor, 0, &[&authority, &authority]);
    chain
        .remote(tx.clone())
        .expect("no account is concerned yet");
    assert!(chain.remote(transfer(&authority, 0, 1, 10)).is_ok());
    assert_eq!(text(chain.remote(transfer(&authority, 1, 1, 10))), LIMIT);
    assert!(chain.remote(transfer(&sponsor, 1, 1, 10)).is_ok(), "free");
    chain.mine(&[tx]);
    // The test chain does not execute it, so the account is a plain one again.
    assert!(chain.remote(transfer(&authority, 1, 1, 10)).is_ok());
}

#[test]
fn an_authority_with_pending_transactions_is_reserved() {
    let chain = chain(PoolConfig::default());
    let (sponsor, authority) = (wallet(1), wallet(2));
    for nonce in 0..2 {
        chain
            .remote(transfer(&authority, nonce, 1, 10))
            .expect("plain");
    }
    assert_eq!(
        text(chain.remote(set_code(&sponsor, 0, &[&authority]))),
        "authority already reserved"
    );
    assert!(
        chain.remote(set_code(&authority, 2, &[&authority])).is_ok(),
        "its own"
    );
}

#[test]
fn reorganized_delegated_accounts_may_get_back_several_transactions() {
    let mut chain = chain(PoolConfig::default());
    let txs: Vec<_> = (0..3)
        .map(|nonce| transfer(&wallet(0), nonce, 1, 10))
        .collect();
    chain.mine(&txs);
    chain.reorganise(1, &[]);
    assert_eq!(chain.nonces(&wallet(0)), (vec![0, 1, 2], vec![]));
}
