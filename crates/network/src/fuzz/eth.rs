//! The messages of `eth`, every version of each, and of `snap`.

use super::values::{body, bytes, encoded_transaction, hash, header, number, receipt, some};
use super::{Form, Target, snap};
use crate::wire::fields::list;
use crate::wire::{
    Announced, Announcement, Answer, BlockId, BlockRange, CellMask, EthVersion, Request,
    RequestKind, SnapKind, Status, TriePaths, cells_answer, decode_transactions, encode_item,
    encode_transactions, footprint, limits::CELL_BYTES, limits::MAX_LOOKED_UP, no_node_data,
    put_receipt,
};
use niwaki_primitives::rlp::{Decodable, encode};
use niwaki_primitives::{B256, Bytes, U256};
use niwaki_rules::ForkId;
use rand::Rng;
use rand::rngs::SmallRng;

pub(super) fn targets() -> Vec<Target> {
    let mut all = vec![range(), transactions(), node_data()];
    for version in EthVersion::ALL {
        all.extend([status(version), announcement(version)]);
        let spoken = RequestKind::ALL.into_iter();
        for kind in spoken.filter(|kind| kind.is_spoken(version)) {
            all.extend([request(kind, version), answer(kind, version)]);
        }
    }
    // They are the same with every version of eth.
    for kind in SnapKind::ALL.map(RequestKind::Snap) {
        let version = EthVersion::Eth72;
        all.extend([request(kind, version), answer(kind, version)]);
    }
    all
}

/// What a target is called after.
fn name(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Headers => "headers",
        RequestKind::Bodies => "bodies",
        RequestKind::Receipts => "receipts",
        RequestKind::PooledTransactions => "pooled-transactions",
        RequestKind::AccessLists => "access-lists",
        RequestKind::Cells => "cells",
        RequestKind::Snap(SnapKind::AccountRange) => "snap/account-range",
        RequestKind::Snap(SnapKind::StorageRanges) => "snap/storage-ranges",
        RequestKind::Snap(SnapKind::ByteCodes) => "snap/byte-codes",
        RequestKind::Snap(SnapKind::TrieNodes) => "snap/trie-nodes",
        RequestKind::Snap(SnapKind::AccessLists) => "snap/access-lists",
    }
}

fn block_range(rng: &mut SmallRng) -> BlockRange {
    let earliest = number(rng) / 2;
    BlockRange {
        earliest,
        latest: earliest + number(rng) / 2,
        latest_hash: hash(rng),
    }
}

fn range() -> Target {
    Target::new(
        "block-range",
        Form::Rlp(0),
        |rng| block_range(rng).encode(),
        |data| BlockRange::decode(data).ok(),
        BlockRange::encode,
    )
}

fn status(version: EthVersion) -> Target {
    let genesis = B256::repeat_byte(9);
    let fork_id = ForkId::decode(&mut &[0xc6, 0x84, 1, 2, 3, 4, 5][..]);
    let ours = Status {
        version,
        network_id: 1,
        genesis,
        fork_id: fork_id.expect("it is a fork id"),
        range: BlockRange::default(),
        total_difficulty: U256::ZERO,
    };
    let valid = move |rng: &mut SmallRng| {
        let status = Status {
            range: block_range(rng),
            total_difficulty: U256::from(number(rng)),
            ..ours
        };
        status.encode()
    };
    Target::new(
        format!("status/{}", version.number()),
        Form::Rlp(0),
        valid,
        move |data| ours.check(data, |_| true).ok(),
        Status::encode,
    )
}

fn announcement(version: EthVersion) -> Target {
    let valid = move |rng: &mut SmallRng| {
        let announced = |rng: &mut SmallRng| Announced {
            hash: hash(rng),
            tx_type: rng.random_range(0..5),
            size: rng.random::<u32>() >> rng.random_range(0..32),
        };
        let has_columns = version >= EthVersion::Eth72 && rng.random();
        let announcement = Announcement {
            transactions: some(rng, 20, announced),
            columns: has_columns.then(|| CellMask(rng.random())),
        };
        announcement.encode(version)
    };
    Target::new(
        format!("announcement/{}", version.number()),
        Form::Rlp(0),
        valid,
        move |data| Announcement::decode(data, version).ok(),
        move |announcement: &Announcement| announcement.encode(version),
    )
}

fn transactions() -> Target {
    Target::new(
        "transactions",
        Form::Rlp(0),
        |rng| encode_transactions(&some(rng, 8, encoded_transaction)),
        |data| decode_transactions(data).ok(),
        |all: &Vec<Bytes>| encode_transactions(all),
    )
    .allowed(48, 16 << 10)
}

/// The message GetNodeData of eth/66, of which only the id is kept.
fn node_data() -> Target {
    Target::new(
        "request/node-data/66",
        Form::Rlp(0),
        |rng| list(&[&encode(number(rng)), &encode(some(rng, 20, hash))]),
        |data| no_node_data(data).ok(),
        // An empty answer is a request for nothing.
        |answer: &Vec<u8>| answer.clone(),
    )
}

fn request(kind: RequestKind, version: EthVersion) -> Target {
    let target = Target::new(
        format!("request/{}/{}", name(kind), version.number()),
        Form::Rlp(0),
        move |rng| random_request(kind, rng).encode(number(rng), version),
        move |data| Request::decode(kind, data, version).ok(),
        move |(id, request): &(u64, Request)| request.encode(*id, version),
    );
    match kind {
        // A path may have one byte: what is kept of each is bounded by their number, in lists that double as they grow.
        RequestKind::Snap(SnapKind::TrieNodes) => {
            let paths = 4 * MAX_LOOKED_UP * size_of::<TriePaths>();
            target.allowed(8, (16 << 10) + paths)
        }
        _ => target,
    }
}

fn random_request(kind: RequestKind, rng: &mut SmallRng) -> Request {
    let hashes = some(rng, 20, hash);
    match kind {
        RequestKind::Headers => Request::Headers {
            start: match rng.random() {
                true => BlockId::Hash(hash(rng)),
                false => BlockId::Number(number(rng)),
            },
            limit: number(rng),
            skip: number(rng),
            reverse: rng.random(),
        },
        RequestKind::Bodies => Request::Bodies(hashes),
        RequestKind::Receipts => Request::Receipts {
            blocks: hashes,
            first_receipt: number(rng),
        },
        RequestKind::PooledTransactions => Request::PooledTransactions(hashes),
        RequestKind::AccessLists => Request::AccessLists(hashes),
        RequestKind::Cells => Request::Cells {
            transactions: hashes,
            columns: CellMask(rng.random()),
        },
        RequestKind::Snap(kind) => Request::Snap(snap::random_request(kind, rng)),
    }
}

/// As the task reads it that reads a peer's messages: room is taken for the footprint, which bounds what the answer takes.
fn answer(kind: RequestKind, version: EthVersion) -> Target {
    let read = move |data: &[u8]| {
        footprint(kind, data, version).ok()?;
        Answer::decode(kind, data, version).ok()
    };
    Target {
        allowance: Box::new(move |data| {
            // Errors may have a text.
            footprint(kind, data, version).unwrap_or_default() + 512
        }),
        ..Target::new(
            format!("answer/{}/{}", name(kind), version.number()),
            Form::Rlp(0),
            move |rng| written(number(rng), &random_answer(kind, rng), version),
            read,
            move |(id, answer): &(u64, Answer)| written(*id, answer, version),
        )
    }
}

fn random_answer(kind: RequestKind, rng: &mut SmallRng) -> Answer {
    match kind {
        RequestKind::Headers => Answer::Headers(some(rng, 4, header)),
        RequestKind::Bodies => Answer::Bodies(some(rng, 4, body)),
        RequestKind::Receipts => Answer::Receipts {
            blocks: some(rng, 4, |rng| some(rng, 4, receipt)),
            is_last_incomplete: false,
        },
        RequestKind::PooledTransactions => {
            Answer::PooledTransactions(some(rng, 6, encoded_transaction))
        }
        RequestKind::AccessLists => {
            let access_list = |rng: &mut SmallRng| match rng.random() {
                true => Some(list(&[&encode(bytes(rng, 60))]).into()),
                false => None,
            };
            Answer::AccessLists(some(rng, 6, access_list))
        }
        RequestKind::Cells => {
            let transactions = some(rng, 3, hash);
            let cell = |rng: &mut SmallRng| Bytes::from(vec![rng.random(); CELL_BYTES]);
            let cells = transactions.iter().map(|_| some(rng, 3, cell)).collect();
            Answer::Cells {
                transactions,
                cells,
                columns: CellMask(rng.random()),
            }
        }
        RequestKind::Snap(kind) => Answer::Snap(snap::random_answer(kind, rng)),
    }
}

/// The message of an answer, with the writers that serving uses.
fn written(id: u64, answer: &Answer, version: EthVersion) -> Vec<u8> {
    let items = match answer {
        Answer::Headers(headers) => headers.iter().flat_map(encode).collect(),
        Answer::Bodies(bodies) => bodies.iter().flat_map(encode).collect(),
        Answer::Receipts {
            blocks,
            is_last_incomplete,
        } => {
            let block = |receipts: &Vec<_>| {
                let mut all = Vec::new();
                receipts
                    .iter()
                    .for_each(|receipt| put_receipt(receipt, version, &mut all));
                list(&[&all])
            };
            let blocks: Vec<u8> = blocks.iter().flat_map(block).collect();
            if version >= EthVersion::Eth70 {
                let flag = encode(*is_last_incomplete);
                return list(&[&encode(id), &flag, &list(&[&blocks])]);
            }
            blocks
        }
        Answer::PooledTransactions(all) => all.iter().flat_map(encode_item).collect(),
        Answer::AccessLists(all) => {
            let item = |item: &Option<Bytes>| match item {
                Some(list) => list.to_vec(),
                None => vec![0x80],
            };
            all.iter().flat_map(item).collect::<Vec<u8>>()
        }
        Answer::Cells {
            transactions,
            cells,
            columns,
        } => return cells_answer(id, transactions, cells, *columns),
        Answer::Snap(answer) => return snap::written(id, answer),
    };
    list(&[&encode(id), &list(&[&items])])
}
