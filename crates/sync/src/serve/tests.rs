//! Requests to the chain of the testdata: 54 blocks, of which the test makes one more beside the last.

mod snap;

use super::*;
use niwaki_chain::{ChainConfig, ImportRequest};
use niwaki_network::wire::Answer;
use niwaki_primitives::{Block, rlp};
use niwaki_rules::Genesis;
use std::path::Path;
use std::sync::Arc;

/// The one transaction of the pool, whose cells it has in column 0.
const TRANSACTION: B256 = B256::repeat_byte(1);

fn testdata(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/chain");
    std::fs::read(folder.join(name)).unwrap()
}

fn blocks() -> Vec<Block> {
    let file = testdata("chain.rlp");
    let mut rest = &file[..];
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        blocks.push(rlp::Decodable::decode(&mut rest).unwrap());
    }
    blocks
}

fn chain() -> (Chain, Vec<Block>) {
    let genesis =
        Genesis::from_json(&String::from_utf8(testdata("genesis.json")).unwrap()).unwrap();
    let chain = Chain::open(ChainConfig {
        data_path: None,
        spec: Arc::new(genesis.spec.clone()),
        genesis: (&genesis).into(),
        storage: Default::default(),
        state: Default::default(),
    });
    let (chain, blocks) = (chain.unwrap(), blocks());
    for block in &blocks {
        chain.import(block.clone()).unwrap();
    }
    (chain, blocks)
}

fn ask(chain: &Chain, request: &Request, version: EthVersion) -> Answer {
    let transaction =
        |hash: &B256, _| (*hash == TRANSACTION).then(|| Bytes::from_static(&[2, 0xc0]));
    let cells = |hash: &B256, columns: CellMask| {
        let has_all = *hash == TRANSACTION && columns.count() == 1 && columns.has(0);
        has_all.then(|| vec![vec![7; 2048].into()])
    };
    let sources = Sources {
        chain,
        states: &RecentStates::default(),
        transaction: &transaction,
        cells: &cells,
    };
    let message = answer(sources, request, version, 77).unwrap();
    let (id, answer) = Answer::decode(request.kind(), &message, version).unwrap();
    assert_eq!(id, 77);
    answer
}

fn numbers(chain: &Chain, start: BlockId, limit: u64, skip: u64, reverse: bool) -> Vec<u64> {
    let request = Request::Headers {
        start,
        limit,
        skip,
        reverse,
    };
    match ask(chain, &request, EthVersion::Eth69) {
        Answer::Headers(headers) => headers.iter().map(|header| header.number).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn headers_go_up_and_down_in_steps_and_end_with_the_chain() {
    let (chain, blocks) = chain();
    let last = blocks.len() as u64;
    let number = BlockId::Number;
    assert_eq!(numbers(&chain, number(3), 3, 0, false), [3, 4, 5]);
    assert_eq!(numbers(&chain, number(3), 3, 1, false), [3, 5, 7]);
    assert_eq!(numbers(&chain, number(3), 9, 0, true), [3, 2, 1, 0]);
    assert_eq!(numbers(&chain, number(5), 9, 1, true), [5, 3, 1]);
    assert_eq!(
        numbers(&chain, number(last - 1), 9, 0, false),
        [last - 1, last]
    );
    assert_eq!(numbers(&chain, number(1), u64::MAX, u64::MAX, false), [1]);
    assert_eq!(numbers(&chain, number(1), 9, u64::MAX, true), [1]);
    assert_eq!(numbers(&chain, number(1), 0, 0, false), [0_u64; 0]);
    assert_eq!(numbers(&chain, number(u64::MAX), 9, 0, false), [0_u64; 0]);
    let hash = BlockId::Hash(blocks[9].header.hash_slow());
    assert_eq!(numbers(&chain, hash, 2, 0, false), [10, 11]);
    assert_eq!(
        numbers(&chain, BlockId::Hash(B256::ZERO), 2, 0, false),
        [0_u64; 0]
    );
}

/// A block that lost has ancestors and no block above it.
#[test]
fn a_side_block_has_its_ancestors_and_nothing_above() {
    let (chain, blocks) = chain();
    let last = blocks.len() as u64;
    let mut side = blocks[blocks.len() - 2].clone();
    side.header.extra_data = Bytes::from_static(b"another");
    let hash = side.header.hash_slow();
    let request = ImportRequest {
        canonicalize: false,
        ..ImportRequest::with_hash(side, hash)
    };
    chain.import(request).unwrap();
    let start = BlockId::Hash(hash);
    assert_eq!(numbers(&chain, start, 3, 0, false), [last - 1]);
    assert_eq!(
        numbers(&chain, start, 3, 0, true),
        [last - 1, last - 2, last - 3]
    );
    assert_eq!(numbers(&chain, start, 2, 1, true), [last - 1, last - 3]);
}

#[test]
fn bodies_and_receipts_are_those_of_the_blocks_that_are_known() {
    let (chain, blocks) = chain();
    let mut hashes: Vec<B256> = blocks
        .iter()
        .map(|block| block.header.hash_slow())
        .collect();
    let bodies: Vec<_> = blocks.iter().map(|block| block.body.clone()).collect();
    let receipts: Vec<_> = hashes
        .iter()
        .map(|hash| chain.receipts(hash).unwrap().unwrap())
        .collect();
    hashes.insert(1, B256::ZERO);
    assert_eq!(
        ask(&chain, &Request::Bodies(hashes.clone()), EthVersion::Eth69),
        Answer::Bodies(bodies)
    );
    hashes.remove(1);
    let request = Request::Receipts {
        blocks: hashes[..1].to_vec(),
        first_receipt: 0,
    };
    let first = Answer::Receipts {
        blocks: receipts[..1].to_vec(),
        is_last_incomplete: false,
    };
    for version in [EthVersion::Eth66, EthVersion::Eth68, EthVersion::Eth69] {
        assert_eq!(ask(&chain, &request, version), first);
    }
    assert!(all_receipts(&chain, &hashes) == receipts);
}

/// The receipts of blocks, asked for until all have come: they are more than one answer holds, and those of some blocks too.
fn all_receipts(chain: &Chain, blocks: &[B256]) -> Vec<Vec<Receipt>> {
    let mut all: Vec<Vec<Receipt>> = Vec::new();
    let (mut answers, mut is_incomplete) = (0, false);
    while all.len() < blocks.len() || is_incomplete {
        let done = all.len() - usize::from(is_incomplete);
        let part = if is_incomplete {
            all.pop().unwrap()
        } else {
            Vec::new()
        };
        let request = Request::Receipts {
            blocks: blocks[done..].to_vec(),
            first_receipt: part.len() as u64,
        };
        let Answer::Receipts {
            mut blocks,
            is_last_incomplete,
        } = ask(chain, &request, EthVersion::Eth70)
        else {
            panic!("receipts were asked for");
        };
        blocks[0].splice(..0, part);
        all.extend(blocks);
        (answers, is_incomplete) = (answers + 1, is_last_incomplete);
    }
    assert!(answers > 2, "{answers}");
    all
}

#[test]
fn receipts_begin_where_eth_70_asks_and_are_cut_after_at_least_one() {
    let (chain, blocks) = chain();
    let is_small =
        |block: &&Block| block.body.transactions.len() > 2 && block.header.gas_used < 1_000_000;
    let many = blocks.iter().find(is_small).unwrap();
    let hash = many.header.hash_slow();
    let all = chain.receipts(&hash).unwrap().unwrap();
    assert!(all.len() > 2);
    let request = Request::Receipts {
        blocks: vec![hash],
        first_receipt: 2,
    };
    let expected = Answer::Receipts {
        blocks: vec![all[2..].to_vec()],
        is_last_incomplete: false,
    };
    assert_eq!(ask(&chain, &request, EthVersion::Eth70), expected);
    let beyond = Request::Receipts {
        blocks: vec![hash],
        first_receipt: u64::MAX,
    };
    let expected = Answer::Receipts {
        blocks: vec![vec![]],
        is_last_incomplete: false,
    };
    assert_eq!(ask(&chain, &beyond, EthVersion::Eth70), expected);
    assert_eq!(receipt_list(&all, EthVersion::Eth70, Some(0)).1, 1);
    assert_eq!(receipt_list(&all, EthVersion::Eth70, None).1, all.len());
    let two = receipt_list(&all[..2], EthVersion::Eth70, None).0.len();
    assert_eq!(receipt_list(&all, EthVersion::Eth70, Some(two)).1, 2);
}

#[test]
fn a_missing_access_list_keeps_its_place() {
    let (chain, blocks) = chain();
    let hashes = vec![B256::ZERO, blocks[0].header.hash_slow()];
    let answer = ask(&chain, &Request::AccessLists(hashes), EthVersion::Eth71);
    assert_eq!(answer, Answer::AccessLists(vec![None, None]));
}

#[test]
fn transactions_and_cells_that_the_pool_does_not_have_are_left_out() {
    let (chain, _) = chain();
    let hashes = vec![B256::ZERO, TRANSACTION];
    let answer = ask(
        &chain,
        &Request::PooledTransactions(hashes.clone()),
        EthVersion::Eth72,
    );
    assert_eq!(
        answer,
        Answer::PooledTransactions(vec![Bytes::from_static(&[2, 0xc0])])
    );
    let mut columns = CellMask::default();
    columns.set(0);
    let request = Request::Cells {
        transactions: hashes,
        columns,
    };
    let expected = Answer::Cells {
        transactions: vec![TRANSACTION],
        cells: vec![vec![vec![7; 2048].into()]],
        columns,
    };
    assert_eq!(ask(&chain, &request, EthVersion::Eth72), expected);
}

#[test]
fn no_answer_has_more_than_1024_items() {
    let (chain, blocks) = chain();
    let request = Request::Bodies(vec![blocks[0].header.hash_slow(); 3000]);
    let Answer::Bodies(bodies) = ask(&chain, &request, EthVersion::Eth69) else {
        panic!("bodies were asked for");
    };
    assert_eq!(bodies.len(), MAX_SERVED);
}

#[test]
fn an_answer_with_nothing_can_be_read_whatever_was_asked_for() {
    use niwaki_network::wire::{SnapRequest, TriePaths};
    let (root, bytes, all) = (B256::ZERO, 9, vec![B256::ZERO]);
    let (origin, limit) = (B256::ZERO, B256::ZERO);
    let paths = vec![TriePaths {
        account: Bytes::new(),
        slots: Vec::new(),
    }];
    let snap = [
        SnapRequest::AccountRange {
            root,
            origin,
            limit,
            bytes,
        },
        SnapRequest::StorageRanges {
            root,
            accounts: all.clone(),
            origin,
            limit,
            bytes,
        },
        SnapRequest::ByteCodes {
            hashes: all.clone(),
            bytes,
        },
        SnapRequest::TrieNodes { root, paths, bytes },
        SnapRequest::AccessLists {
            blocks: all.clone(),
            bytes,
        },
    ];
    let eth = [
        Request::Bodies(all.clone()),
        Request::PooledTransactions(all.clone()),
        Request::AccessLists(all.clone()),
        Request::Receipts {
            blocks: all.clone(),
            first_receipt: 0,
        },
        Request::Cells {
            transactions: all,
            columns: CellMask::default(),
        },
    ];
    for version in [EthVersion::Eth69, EthVersion::Eth72] {
        for request in eth
            .iter()
            .cloned()
            .chain(snap.iter().cloned().map(Request::Snap))
        {
            let message = nothing(&request, version, 5);
            let read = Answer::decode(request.kind(), &message, version);
            assert_eq!(read.map(|(id, _)| id), Ok(5), "{request:?} {version:?}");
        }
    }
}
