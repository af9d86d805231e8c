//! Small chains: generated, imported again, inspected.

use super::*;
use crate::chain_file;
use contracts::Contract;
use niwaki_chain::{ChainConfig, GenesisBlock};
use niwaki_primitives::{Address, Block, StateView, TxEnvelope, U256, rlp::Decodable};
use niwaki_rules::Genesis;
use std::collections::BTreeSet;

fn options(folder: &Path, fork: ChainFork) -> Options {
    Options {
        to: folder.to_owned(),
        blocks: 12,
        gas_limit: 36_000_000,
        fill: 95,
        fork,
        accounts: 300,
        slots: 5_000,
        grow_slots: 0,
        grow_accounts: 0,
        senders: 40,
        seed: 1,
    }
}

fn generated(options: &Options) -> Summary {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto).unwrap();
    generate(options, &AtomicBool::new(false)).unwrap()
}

fn blocks(folder: &Path) -> Vec<Block> {
    let bytes = std::fs::read(folder.join("chain.rlp")).unwrap();
    let mut rest = bytes.as_slice();
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        blocks.push(Block::decode(&mut rest).unwrap());
    }
    blocks
}

#[test]
fn a_chain_of_each_fork_imports_and_has_every_kind_and_type() {
    for fork in [ChainFork::Prague, ChainFork::Osaka, ChainFork::Amsterdam] {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("chain");
        let summary = generated(&options(&folder, fork));
        for kind in &summary.kinds {
            let shown = format!("{fork:?} {kind:?}");
            assert!(kind.count > 0, "{shown}");
            match kind.name {
                "revert" => assert_eq!(kind.failed, kind.count, "{shown}"),
                _ => assert_eq!(kind.failed, 0, "{shown}"),
            }
        }

        let genesis = std::fs::read_to_string(folder.join("genesis.json")).unwrap();
        let genesis = Genesis::from_json(&genesis).unwrap();
        let slots: usize = genesis.alloc.values().map(|a| a.storage.len()).sum();
        assert!(slots.abs_diff(5_000) < 10, "{slots}");
        let chain = Chain::open(ChainConfig {
            data_path: None,
            genesis: GenesisBlock::from(&genesis),
            spec: Arc::new(genesis.spec),
            storage: StorageOptions::default(),
            state: StateOptions::default(),
        })
        .unwrap();
        let blocks = blocks(&folder);
        let types: BTreeSet<_> = blocks
            .iter()
            .flat_map(|block| &block.body.transactions)
            .map(TxEnvelope::tx_type)
            .collect();
        assert_eq!(types.len(), 5, "{fork:?}: {types:?}");
        for block in blocks {
            let fill = block.header.gas_used * 100 / block.header.gas_limit;
            assert!((75..=100).contains(&fill), "{fork:?}: {fill} %");
            chain.import(block).unwrap();
        }
        let head = chain_file::read(&folder.join("chain.rlp")).unwrap().head;
        assert_eq!(chain.head().id.hash, head.hash);
        assert_eq!(head.number, 12);
        let lists = folder.join("access-lists.rlp");
        assert_eq!(lists.exists(), fork == ChainFork::Amsterdam);
    }
}

#[test]
fn the_first_blocks_make_slots_and_accounts_that_the_genesis_has_not() {
    let parent = tempfile::tempdir().unwrap();
    let grown = Options {
        grow_slots: 3_000,
        grow_accounts: 500,
        blocks: 3,
        ..options(&parent.path().join("chain"), ChainFork::Osaka)
    };
    let summary = generated(&grown);
    let growth = summary.kinds.last().unwrap();
    assert_eq!((growth.name, growth.failed), ("growth", 0));
    assert!(growth.gas / growth.count < 16_000_000);
    let blocks = blocks(&grown.to);
    assert!(blocks.len() > 6, "{}", blocks.len());
    assert!(
        blocks
            .iter()
            .all(|block| block.header.base_fee_per_gas.unwrap() < 100)
    );

    let data = tempfile::tempdir().unwrap();
    let chain = open(&grown.to.join("genesis.json"), data.path()).unwrap();
    for block in blocks {
        chain.import(block).unwrap();
    }
    let view = chain.view_at_head().unwrap();
    let mut found = 0;
    for number in 0..contracts::TOKENS {
        let address = Contract::Slots(number).address();
        let slots = (0..3_000).map(|slot| view.storage(&address, &U256::from(slot)).unwrap());
        found += slots.filter(|value| !value.is_zero()).count();
    }
    assert!((2_970..=3_000).contains(&found), "{found}");
    let exist = |number: &u64| {
        let hash = niwaki_crypto::keccak256(B256::from(U256::from(*number)));
        let account = view.account(&Address::from_word(hash)).unwrap();
        account.is_some()
    };
    assert_eq!((0..600).filter(exist).count(), 500);
}

#[test]
fn bytes_depend_on_the_options_and_the_seed_only() {
    let parent = tempfile::tempdir().unwrap();
    let bytes = |name: &str, seed: u64| {
        let folder = parent.path().join(name);
        generated(&Options {
            blocks: 3,
            seed,
            ..options(&folder, ChainFork::Osaka)
        });
        ["genesis.json", "chain.rlp", "chain.json"]
            .map(|file| std::fs::read(folder.join(file)).unwrap())
    };
    let first = bytes("a", 1);
    assert_eq!(first, bytes("b", 1));
    let other = bytes("c", 2);
    for (a, b) in first.iter().zip(&other) {
        assert_ne!(a, b);
    }
}

#[test]
fn a_stopped_chain_is_valid_and_shorter() {
    let parent = tempfile::tempdir().unwrap();
    let options = options(&parent.path().join("chain"), ChainFork::Osaka);
    let summary = generate(&options, &AtomicBool::new(true)).unwrap();
    assert_eq!(summary.transactions, 0);
    assert!(blocks(&options.to).is_empty());
}

#[test]
fn a_folder_that_is_not_empty_and_too_few_slots_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::write(parent.path().join("x"), []).unwrap();
    let text = |options: &Options| {
        let refused = generate(options, &AtomicBool::new(false)).unwrap_err();
        format!("{refused:#}")
    };
    let full = text(&options(parent.path(), ChainFork::Osaka));
    assert!(
        full.contains("not empty") && full.contains("--to"),
        "{full}"
    );
    let few = text(&Options {
        slots: 10,
        ..options(&parent.path().join("y"), ChainFork::Osaka)
    });
    assert!(
        few.contains("--slots 10 is less than") && few.contains("--senders"),
        "{few}"
    );
}

#[test]
fn a_chain_that_grows_needs_room_and_the_prices_before_amsterdam() {
    let parent = tempfile::tempdir().unwrap();
    let refused = |fork, gas_limit| {
        let grown = Options {
            grow_slots: 1,
            gas_limit,
            ..options(&parent.path().join("x"), fork)
        };
        generate(&grown, &AtomicBool::new(false))
            .unwrap_err()
            .to_string()
    };
    let fork = refused(ChainFork::Amsterdam, 36_000_000);
    assert!(fork.contains("--fork osaka"), "{fork}");
    let room = refused(ChainFork::Osaka, 31_999_999);
    assert!(room.contains("--gas-limit of at least 32000000"), "{room}");
}

#[test]
fn a_block_is_empty_while_the_base_fee_is_too_high() {
    let mut filler = Filler::new(36_000_000, 95);
    let size = options(Path::new("x"), ChainFork::Osaka).size();
    let filling = Filling::new(&size, 2).unwrap();
    let mut draw = Draw::new(&size, filling, Senders::new(1, 2));
    let mut next = |blobs| draw.next(blobs).map(Some);
    filler.begin(9, true);
    assert!(filler.next(&mut next, None).is_none());
    filler.begin(9, false);
    assert!(filler.next(&mut next, None).is_some());
    assert!(filler.end().is_ok());
}
