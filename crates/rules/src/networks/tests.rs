//! Genesis hashes and fork ids of the built-in chains.

use super::*;
use crate::fork_id::fork_id;
use crate::genesis::{GenesisAccount, decode_alloc, encode_alloc};
use alloy_primitives::{Address, U256, keccak256};
use alloy_trie::{TrieAccount, root};
use std::collections::BTreeMap;

/// The state root of an alloc, by another implementation of the trie.
pub(crate) fn state_root(alloc: &BTreeMap<Address, GenesisAccount>) -> B256 {
    root::state_root_unhashed(alloc.iter().map(|(address, account)| {
        let storage = account
            .storage
            .iter()
            .map(|(slot, value)| (B256::from(*slot), *value));
        let trie_account = TrieAccount {
            nonce: account.nonce,
            balance: account.balance,
            storage_root: root::storage_root_unhashed(storage),
            code_hash: keccak256(&account.code),
        };
        (*address, trie_account)
    }))
}

#[test]
fn every_built_in_genesis_hashes_to_the_hash_of_its_network() {
    for network in Network::ALL {
        let genesis = network.genesis();
        let header = genesis.header(state_root(&genesis.alloc));
        assert_eq!(
            header.hash_slow(),
            network.genesis_hash(),
            "{}",
            network.name()
        );
    }
}

#[test]
fn every_built_in_alloc_is_in_the_form_that_the_encoder_writes() {
    for network in Network::ALL {
        let alloc = network.genesis().alloc;
        let bytes = encode_alloc(&alloc);
        assert_eq!(decode_alloc(&bytes), Ok(alloc));
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(decode_alloc(&longer).is_err());
        assert!(decode_alloc(&bytes[..bytes.len() - 1]).is_err());
    }
    assert_eq!(Network::Mainnet.genesis().alloc.len(), 8893);
}

#[test]
fn networks_are_found_by_name_in_any_letter_case() {
    for network in Network::ALL {
        assert_eq!(
            Network::from_name(&network.name().to_uppercase()),
            Some(network)
        );
    }
    assert_eq!(Network::from_name("goerli"), None);
}

/// Fork id of a network at a head.
fn id_at(network: Network, number: u64, timestamp: u64) -> (u32, u64) {
    let genesis = network.genesis();
    let hash = network.genesis_hash();
    let genesis_time = genesis.header(B256::ZERO).timestamp;
    let id = fork_id(&genesis.spec, hash, genesis_time, number, timestamp);
    (u32::from_be_bytes(id.hash.0), id.next)
}

/// Head number, head timestamp, fork hash, next fork: before and after each fork of mainnet.
const MAINNET: &[(u64, u64, u32, u64)] = &[
    (0, 0, 0xfc64ec04, 1150000),
    (1149999, 0, 0xfc64ec04, 1150000),
    (1150000, 0, 0x97c2c34c, 1920000),
    (1919999, 0, 0x97c2c34c, 1920000),
    (1920000, 0, 0x91d1f948, 2463000),
    (2462999, 0, 0x91d1f948, 2463000),
    (2463000, 0, 0x7a64da13, 2675000),
    (2674999, 0, 0x7a64da13, 2675000),
    (2675000, 0, 0x3edd5b10, 4370000),
    (4369999, 0, 0x3edd5b10, 4370000),
    (4370000, 0, 0xa00bc324, 7280000),
    (7279999, 0, 0xa00bc324, 7280000),
    (7280000, 0, 0x668db0af, 9069000),
    (9068999, 0, 0x668db0af, 9069000),
    (9069000, 0, 0x879d6e30, 9200000),
    (9199999, 0, 0x879d6e30, 9200000),
    (9200000, 0, 0xe029e991, 12244000),
    (12243999, 0, 0xe029e991, 12244000),
    (12244000, 0, 0x0eb440f6, 12965000),
    (12964999, 0, 0x0eb440f6, 12965000),
    (12965000, 0, 0xb715077d, 13773000),
    (13772999, 0, 0xb715077d, 13773000),
    (13773000, 0, 0x20c327fc, 15050000),
    (15049999, 0, 0x20c327fc, 15050000),
    (15050000, 0, 0xf0afd0e3, 1681338455),
    (15150000, 1681338454, 0xf0afd0e3, 1681338455),
    (15150000, 1681338455, 0xdce96c2d, 1710338135),
    (15150000, 1710338134, 0xdce96c2d, 1710338135),
    (15150000, 1710338135, 0x9f3d2254, 1746612311),
    (15150000, 1746612310, 0x9f3d2254, 1746612311),
    (15150000, 1746612311, 0xc376cf8b, 1764798551),
    (15150000, 1764798550, 0xc376cf8b, 1764798551),
    (15150000, 1764798551, 0x5167e2a6, 1765290071),
    (15150000, 1765290070, 0x5167e2a6, 1765290071),
    (15150000, 1765290071, 0xcba2a1c0, 1767747671),
    (15150000, 1767747670, 0xcba2a1c0, 1767747671),
    (15150000, 1767747671, 0x07c9462e, 0),
];

/// As [`MAINNET`], of Sepolia.
const SEPOLIA: &[(u64, u64, u32, u64)] = &[
    (0, 1633267481, 0xfe3366e7, 1735371),
    (1735370, 1633267481, 0xfe3366e7, 1735371),
    (1735371, 1633267481, 0xb96cbd13, 1677557088),
    (1835371, 1677557087, 0xb96cbd13, 1677557088),
    (1835371, 1677557088, 0xf7f9bc08, 1706655072),
    (1835371, 1706655071, 0xf7f9bc08, 1706655072),
    (1835371, 1706655072, 0x88cf81d9, 1741159776),
    (1835371, 1741159775, 0x88cf81d9, 1741159776),
    (1835371, 1741159776, 0xed88b5fd, 1760427360),
    (1835371, 1760427359, 0xed88b5fd, 1760427360),
    (1835371, 1760427360, 0xe2ae4999, 1761017184),
    (1835371, 1761017183, 0xe2ae4999, 1761017184),
    (1835371, 1761017184, 0x56078a1e, 1761607008),
    (1835371, 1761607007, 0x56078a1e, 1761607008),
    (1835371, 1761607008, 0x268956b6, 1791294816),
    (1835371, 1791294815, 0x268956b6, 1791294816),
    (1835371, 1791294816, 0x6c1d9423, 0),
];

/// As [`MAINNET`], of Hoodi.
const HOODI: &[(u64, u64, u32, u64)] = &[
    (0, 1742212800, 0xbef71d30, 1742999832),
    (100000, 0, 0xbef71d30, 1742999832),
    (100000, 1742999831, 0xbef71d30, 1742999832),
    (100000, 1742999832, 0x0929e24e, 1761677592),
    (100000, 1761677591, 0x0929e24e, 1761677592),
    (100000, 1761677592, 0xe7e0e7ff, 1762365720),
    (100000, 1762365719, 0xe7e0e7ff, 1762365720),
    (100000, 1762365720, 0x3893353e, 1762955544),
    (100000, 1762955543, 0x3893353e, 1762955544),
    (100000, 1762955544, 0x23aa1351, 0),
];

#[test]
fn fork_ids_change_at_each_fork_and_not_before() {
    for (network, rows) in [
        (Network::Mainnet, MAINNET),
        (Network::Sepolia, SEPOLIA),
        (Network::Hoodi, HOODI),
    ] {
        for (number, timestamp, hash, next) in rows {
            let got = id_at(network, *number, *timestamp);
            assert_eq!(
                got,
                (*hash, *next),
                "{} {number} {timestamp}",
                network.name()
            );
        }
    }
}

#[test]
fn holesky_has_the_fork_ids_of_eip_2124() {
    // From the announcement of each fork on Holesky.
    assert_eq!(id_at(Network::Holesky, 0, 1_695_902_400).0, 0xc61a_6098);
    assert_eq!(id_at(Network::Holesky, 1, 1_696_000_704).0, 0xfd4f_016b);
    assert_eq!(id_at(Network::Holesky, 1, 1_707_305_664).0, 0x9b19_2ad0);
    assert_eq!(id_at(Network::Holesky, 1, 1_740_434_112).0, 0xdfbd_9bed);
}

#[test]
fn the_dev_chain_runs_osaka_with_its_system_contracts_and_the_keys_that_everybody_knows() {
    let genesis = Network::Dev.genesis();
    let spec = &genesis.spec;
    assert_eq!(spec.fork_at(0, 0, true), niwaki_primitives::Fork::Osaka);
    assert_eq!((spec.chain_id, spec.network_id), (1337, 2018));
    assert_eq!(spec.contract_size_limit(0), Some(2_147_483_647));
    for contract in [
        spec.withdrawal_request_contract,
        spec.consolidation_request_contract,
    ] {
        assert!(!genesis.alloc[&contract].code.is_empty(), "{contract}");
    }
    let funded = genesis
        .alloc
        .values()
        .filter(|account| account.balance > U256::ZERO);
    assert_eq!(funded.count(), 3);
}

#[test]
fn the_built_in_chains_agree_with_the_published_files() {
    let Some(folder) = niwaki_testkit::corpus("mainnet-blocks/genesis") else {
        return; // The hashes above already pin every byte; this only shows where one differs.
    };
    // Besu's chain for development ends with London; ours has its accounts and later rules.
    for network in Network::ALL
        .into_iter()
        .filter(|network| *network != Network::Dev)
    {
        let path = folder.join(format!("besu-{}.json", network.name()));
        let text = std::fs::read_to_string(&path).expect("the corpus holds it");
        let published = Genesis::from_json(&text).expect("it parses");
        let built_in = network.genesis();
        assert_eq!(built_in.alloc, published.alloc, "{}", network.name());
        assert_eq!(built_in.header(B256::ZERO), published.header(B256::ZERO));
        if network != Network::Sepolia {
            assert_eq!(built_in.spec.activations, published.spec.activations);
        }
        assert_eq!(built_in.spec.blob_schedule, published.spec.blob_schedule);
    }
}

#[test]
fn the_development_accounts_are_funded_and_their_keys_are_theirs() {
    let genesis = Network::Dev.genesis();
    for (address, key) in DEV_ACCOUNTS {
        assert_eq!(niwaki_crypto::address_of_secret_key(&key), Ok(address));
        assert!(!genesis.alloc[&address].balance.is_zero(), "{address}");
    }
}
