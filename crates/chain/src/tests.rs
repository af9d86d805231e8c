//! Import, resume, refusal, reorganisation, damage: on the execution-apis chain and on fixtures.

use crate::tuning::Tuning;
use crate::{
    Chain, ChainConfig, GenesisBlock, ImportError, ImportRequest, ImportStatus, Imported,
    OpenError, PayloadHints, SetHeadError, StateOptions, StorageOptions,
};
use alloy_primitives::{B256, U256, b256};
use alloy_rlp::Decodable;
use niwaki_primitives::{Block, StateView};
use niwaki_rules::{Genesis, InvalidBlock};
use niwaki_storage::{Database, Segment};
use std::path::Path;
use std::sync::Arc;

mod access_list;
mod bal;
mod batch;
mod besu;
mod bft;
mod checking;
mod consensus;
mod crash;
mod ere;
mod fixtures;
mod history;
mod incremental_root;
mod journal;
mod listed;
mod log_index;
mod payload;
mod prewarm;
mod repairing;
mod resumed_import;
mod resuming;
mod senders;
mod skeleton;
mod state_download;
mod state_file;
mod trie_logs;
mod witness;

const HEAD: B256 = b256!("d226371d0b1551adb03fb52b71f08e3e11247fe9b1af994768af8cdaa8e7dcd7");

fn genesis() -> Genesis {
    let text = include_str!("../../../testdata/chain/genesis.json");
    Genesis::from_json(text).unwrap()
}

fn blocks() -> Vec<Block> {
    let mut rest = &include_bytes!("../../../testdata/chain/chain.rlp")[..];
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        blocks.push(Block::decode(&mut rest).unwrap());
    }
    blocks
}

fn config(path: Option<&Path>, genesis: &Genesis) -> ChainConfig {
    ChainConfig {
        data_path: path.map(Path::to_owned),
        spec: Arc::new(genesis.spec.clone()),
        genesis: GenesisBlock::from(genesis),
        storage: StorageOptions::default(),
        state: StateOptions {
            cache_bytes: 1 << 20,
            ..StateOptions::default()
        },
    }
}

/// Small blocks take every way of large ones.
const EAGER: Tuning = Tuning {
    clock: None,
    receipt_batch: 2,
    min_payload_txs: 2,
    waits_for_tasks: true,
};

fn open_eager(config: ChainConfig) -> Chain {
    let mut chain = Chain::open(config).unwrap();
    chain.tuning = EAGER;
    chain
}

fn open(path: Option<&Path>) -> Chain {
    open_eager(config(path, &genesis()))
}

fn import(chain: &Chain, block: &Block) -> Imported {
    chain.import(block.clone()).unwrap()
}

/// Imports a block that does not become the head.
fn import_side(chain: &Chain, block: Block) -> Imported {
    let request = ImportRequest {
        canonicalize: false,
        ..block.into()
    };
    chain.import(request).unwrap()
}

/// Imports a block as a payload with `hints`.
fn import_payload(
    chain: &Chain,
    block: Block,
    hash: B256,
    hints: PayloadHints,
) -> Result<Imported, ImportError> {
    chain.import(ImportRequest {
        hints,
        canonicalize: false,
        ..ImportRequest::with_hash(block, hash)
    })
}

fn import_all(chain: &Chain, blocks: &[Block]) {
    for block in blocks {
        import(chain, block);
    }
}

fn assert_clean(chain: &Chain) {
    let mut problems = Vec::new();
    let summary = chain.check(&mut |problem| problems.push(problem)).unwrap();
    assert_eq!(problems, []);
    assert!(summary.state.accounts > 0 && summary.blocks > 0);
}

/// Every row of every segment but the trie logs, which differ by what was rolled over.
fn dump(chain: &Chain) -> Vec<(Segment, niwaki_storage::Row)> {
    let segments = Segment::ALL.into_iter().filter(|s| *s != Segment::TrieLogs);
    let rows = segments.flat_map(|segment| {
        let rows = chain.database().prefix(segment, &[]);
        rows.map(move |row| (segment, row.unwrap()))
    });
    rows.collect()
}

#[test]
fn the_execution_apis_chain_imports_to_its_head() {
    let chain = open(None);
    let blocks = blocks();
    assert_eq!(blocks.len(), 54);
    for block in &blocks {
        let imported = import(&chain, block);
        assert_eq!(imported.status, ImportStatus::Canonical);
        assert_eq!(imported.gas_used, block.header.gas_used);
    }
    let head = chain.head();
    assert_eq!((head.id.hash, head.id.number), (HEAD, 54));
    assert_clean(&chain);

    for block in &blocks {
        let number = block.header.number;
        let hash = chain.canonical_hash(number).unwrap().unwrap();
        assert_eq!(chain.block(&hash).unwrap().as_ref(), Some(block));
        assert_eq!(chain.block_at(number).unwrap().as_ref(), Some(block));
        assert_eq!(chain.body(&hash).unwrap().as_ref(), Some(&block.body));
        assert_eq!(
            chain.header_at(number).unwrap(),
            chain.header(&hash).unwrap()
        );
        let receipts = chain.receipts(&hash).unwrap().unwrap();
        assert_eq!(receipts.len(), block.body.transactions.len());
        for (index, tx) in (0..).zip(&block.body.transactions) {
            let place = chain.transaction_place(tx.tx_hash()).unwrap().unwrap();
            assert_eq!((place.number, place.index), (number, index));
        }
    }
    assert_eq!(chain.header(&B256::ZERO).unwrap(), None);
    assert_eq!(chain.block_at(55).unwrap(), None);
    assert_eq!(chain.transaction_place(&B256::ZERO).unwrap(), None);
}

#[test]
fn a_stopped_import_resumes_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = blocks();
    let chain = open(Some(dir.path()));
    import_all(&chain, &blocks[..20]);
    drop(chain);

    let chain = open(Some(dir.path()));
    assert_eq!(chain.head().id.number, 20);
    for (at, block) in blocks.iter().enumerate() {
        let status = import(&chain, block).status;
        let expected = if at < 20 {
            ImportStatus::AlreadyStored
        } else {
            ImportStatus::Canonical
        };
        assert_eq!(status, expected, "block {}", at + 1);
    }
    assert_eq!(chain.head().id.hash, HEAD);
    assert_clean(&chain);
}

#[test]
fn a_bad_block_is_named_and_leaves_everything_before_it() {
    let chain = open(None);
    let blocks = blocks();
    import_all(&chain, &blocks[..30]);
    let before = dump(&chain);

    let mut bad = Vec::new();
    let mut spoil = |spoil: fn(&mut Block), expected: &'static str| {
        let mut block = blocks[30].clone();
        spoil(&mut block);
        bad.push((block, expected));
    };
    spoil(|b| b.header.state_root = B256::ZERO, "INVALID_STATE_ROOT");
    spoil(
        |b| b.header.receipts_root = B256::ZERO,
        "INVALID_RECEIPTS_ROOT",
    );
    spoil(|b| b.header.gas_used -= 1, "INVALID_GAS_USED");
    spoil(|b| b.header.logs_bloom.0[0] ^= 1, "INVALID_LOG_BLOOM");
    spoil(
        |b| b.header.transactions_root = B256::ZERO,
        "INVALID_TRANSACTIONS_ROOT",
    );
    spoil(|b| b.header.gas_limit *= 2, "INVALID_GASLIMIT");
    for (block, expected) in bad {
        let hash = block.header.hash_slow();
        match chain.import(block).unwrap_err() {
            ImportError::Invalid {
                number,
                hash: named,
                reason,
            } => {
                assert_eq!((number, named), (31, hash));
                assert_eq!(reason.spec_name(), expected);
            }
            other => panic!("{expected}: {other}"),
        }
        assert!(dump(&chain) == before, "{expected}");
    }

    let error = chain.import(blocks[31].clone()).unwrap_err();
    assert!(
        matches!(error, ImportError::UnknownParent { number: 32, .. }),
        "{error}"
    );
    import_all(&chain, &blocks[30..]);
    assert_eq!(chain.head().id.hash, HEAD);
}

#[test]
fn execution_that_disagrees_names_got_and_expected() {
    let chain = open(None);
    let mut block = blocks()[0].clone();
    let right = block.header.state_root;
    block.header.state_root = B256::repeat_byte(1);
    let Err(ImportError::Invalid { reason, .. }) = chain.import(block) else {
        panic!("a wrong state root was taken");
    };
    let expected = B256::repeat_byte(1);
    assert_eq!(
        *reason,
        InvalidBlock::StateRoot {
            got: right,
            expected
        }
    );
}

#[test]
fn the_head_moves_back_and_forth_and_the_indices_with_it() {
    let chain = open(None);
    let blocks = blocks();
    let hash = |number: usize| blocks[number - 1].header.hash_slow();
    let mut dumps = vec![];
    for block in &blocks {
        import(&chain, block);
        dumps.push(dump(&chain));
    }
    let state = |rows: &[(Segment, niwaki_storage::Row)]| -> Vec<_> {
        let is_kept = |segment: &Segment| {
            !matches!(
                segment,
                Segment::Headers
                    | Segment::Bodies
                    | Segment::Receipts
                    | Segment::Numbers
                    | Segment::Code
            )
        };
        rows.iter()
            .filter(|(segment, _)| is_kept(segment))
            .cloned()
            .collect()
    };
    for number in [20, 54, 1, 30, 54] {
        chain.set_head(&hash(number)).unwrap();
        assert_eq!(chain.head().id.hash, hash(number));
        assert!(
            state(&dump(&chain)) == state(&dumps[number - 1]),
            "block {number}"
        );
        let view = chain.view_at(&hash(10)).unwrap().unwrap();
        assert_eq!(view.block().number, 10);
    }
    assert!(dump(&chain) == *dumps.last().unwrap());
    assert_clean(&chain);
    let error = chain.set_head(&B256::ZERO).unwrap_err();
    assert!(matches!(error, SetHeadError::Unknown(_)), "{error}");
}

#[test]
fn known_blocks_become_canonical_again_after_the_head_was_set_back() {
    let chain = open(None);
    let blocks = blocks();
    import_all(&chain, &blocks);
    let whole = dump(&chain);
    chain.set_head(&blocks[19].header.hash_slow()).unwrap();
    for (number, block) in (1..).zip(&blocks) {
        let expected = if number <= 20 {
            ImportStatus::AlreadyStored
        } else {
            ImportStatus::Canonical
        };
        assert_eq!(import(&chain, block).status, expected, "block {number}");
    }
    assert!(dump(&chain) == whole);
    assert_clean(&chain);
}

#[test]
fn a_side_block_becomes_the_head_only_by_set_head() {
    let chain = open(None);
    let blocks = blocks();
    let genesis = chain.head().id;
    for block in &blocks {
        let imported = import_side(&chain, block.clone());
        assert_eq!(imported.status, ImportStatus::Side);
    }
    assert_eq!(chain.head().id, genesis);
    assert_eq!(chain.block_at(1).unwrap(), None);
    chain.set_head(&HEAD).unwrap();
    let straight = open(None);
    import_all(&straight, &blocks);
    assert!(dump(&chain) == dump(&straight));
    assert_clean(&chain);
}

#[test]
fn a_view_at_a_block_has_its_balances() {
    let chain = open(None);
    let blocks = blocks();
    import_all(&chain, &blocks);
    let genesis_view = chain.view_at(&chain.genesis_hash()).unwrap().unwrap();
    for (address, account) in &genesis().alloc {
        let held = genesis_view.account(address).unwrap().unwrap();
        assert_eq!((held.balance, held.nonce), (account.balance, account.nonce));
        for (slot, value) in &account.storage {
            assert_eq!(genesis_view.storage(address, slot).unwrap(), *value);
        }
    }
    assert!(chain.view_at(&B256::ZERO).unwrap().is_none());
    assert_eq!(chain.view_at_head().unwrap().block().hash, HEAD);
}

#[test]
fn another_genesis_is_refused_and_nothing_changed() {
    let dir = tempfile::tempdir().unwrap();
    let chain = open(Some(dir.path()));
    import(&chain, &blocks()[0]);
    drop(chain);
    let mut other = genesis();
    let account = other.alloc.values_mut().next().unwrap();
    account.balance += U256::ONE;
    let error = Chain::open(config(Some(dir.path()), &other)).unwrap_err();
    assert!(matches!(error, OpenError::OtherGenesis { .. }), "{error}");
    assert_eq!(open(Some(dir.path())).head().id.number, 1);

    let mut config = config(None, &genesis());
    config.genesis.header.state_root = B256::repeat_byte(1);
    let error = Chain::open(config).unwrap_err();
    assert!(matches!(error, OpenError::GenesisRoot { .. }), "{error}");
}

#[test]
fn a_genesis_with_another_hash_than_the_chain_is_known_by_is_refused_and_can_be_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = genesis();
    wrong.spec.genesis_hash = Some(B256::repeat_byte(1));
    let error = Chain::open(config(Some(dir.path()), &wrong)).unwrap_err();
    assert!(matches!(error, OpenError::GenesisHash { .. }), "{error}");
    let chain = open(Some(dir.path()));
    import(&chain, &blocks()[0]);
    assert_clean(&chain);
}

#[test]
fn a_data_path_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let chain = open(Some(dir.path()));
    let error = Chain::open(config(Some(dir.path()), &genesis())).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    drop(chain);
    assert!(Database::open(dir.path(), &StorageOptions::default()).is_ok());
}
