//! Blocks that bring their access list: taken in, or refused, as those that do not.

use super::access_list::{AMSTERDAM, template};
use super::*;
use crate::{BuiltBlock, Candidate, PayloadHints};
use niwaki_primitives::{
    AccountChanges, Address, BalanceChange, BlockAccessIndex, BlockAccessList, Bytes, CodeChange,
    NonceChange, SignableTransaction, Signature, SlotChanges, StorageChange, TxEip1559, TxKind,
};
use niwaki_rules::{access_list_hash, decode_access_list, encode_access_list};
use serde_json::json;

const SENDERS: u8 = 4;

pub(super) type Rows = Vec<(Segment, niwaki_storage::Row)>;

/// Sets the 40 slots above the one that the first word names.
const FILL: (Address, &str) = (
    Address::repeat_byte(0xa0),
    "0x5f3560285b808282015560019003806004570000",
);
/// Adds one to slot 0.
const COUNT: (Address, &str) = (Address::repeat_byte(0xa1), "0x5f546001015f5500");
/// Makes a contract with the code `00`.
const CREATE: &[u8] = &[0x60, 0x01, 0x5f, 0xf3];

fn sender(number: u8) -> Address {
    Address::repeat_byte(0x50 + number)
}

pub(super) fn open_with_contracts() -> Chain {
    open_storing(None, false)
}

/// The same on disk.
pub(super) fn open_with_contracts_at(path: &Path) -> Chain {
    open_storing(Some(path), false)
}

pub(super) fn open_archive_with_contracts() -> Chain {
    open_storing(None, true)
}

fn open_storing(path: Option<&Path>, archive: bool) -> Chain {
    let text = include_str!("../../../../testdata/amsterdam/genesis.json");
    let mut genesis: serde_json::Value = serde_json::from_str(text).unwrap();
    genesis["config"]["amsterdamTime"] = AMSTERDAM.into();
    for number in 0..SENDERS {
        genesis["alloc"][sender(number).to_string()] = json!({"balance": "0xde0b6b3a7640000"});
    }
    for (address, code) in [FILL, COUNT] {
        genesis["alloc"][address.to_string()] =
            json!({"balance": "0x0", "nonce": "0x1", "code": code});
    }
    let genesis = Genesis::from_json(&genesis.to_string()).unwrap();
    let mut config = config(path, &genesis);
    config.state.archive = archive;
    open_eager(config)
}

fn candidate(number: u8, nonce: u64, to: TxKind, input: Bytes) -> Candidate {
    let tx = TxEip1559 {
        chain_id: 7014,
        nonce,
        gas_limit: 8_000_000,
        max_fee_per_gas: 10_000_000_000,
        max_priority_fee_per_gas: 1,
        to,
        input,
        ..TxEip1559::default()
    };
    // It is never recovered; the transactions of two senders differ by it.
    let signature = Signature::new(U256::from(number + 1), U256::from(1), false);
    Candidate {
        tx: tx.into_signed(signature).into(),
        sender: sender(number),
    }
}

/// A block on top of the head, of transactions that fill slots, count in one, and make contracts; and who
/// sent them.
fn build(chain: &Chain, timestamp: u64, nonce: u64) -> (BuiltBlock, Vec<Address>) {
    let word = |number: u64| Bytes::from(B256::from(U256::from(number)).0);
    let mut offered = Vec::new();
    for number in 0..SENDERS {
        let at = 1000 * u64::from(number) + 20 * nonce;
        offered.push(candidate(number, 3 * nonce, TxKind::Call(FILL.0), word(at)));
        offered.push(candidate(
            number,
            3 * nonce + 1,
            TxKind::Call(COUNT.0),
            word(0),
        ));
        let input = Bytes::from_static(CREATE);
        offered.push(candidate(number, 3 * nonce + 2, TxKind::Create, input));
    }
    let senders = offered.iter().map(|candidate| candidate.sender).collect();
    let mut offered = offered.into_iter();
    let mut next = |refused: Option<&_>| {
        assert_eq!(refused, None);
        offered.next()
    };
    let parent = chain.head().header;
    let built = chain.build_best(template(&parent, timestamp), &mut next);
    let built = built.unwrap();
    assert_eq!(
        built.block.body.transactions.len(),
        3 * usize::from(SENDERS)
    );
    (built, senders)
}

pub(super) fn hints(senders: &[Address], access_list: Option<&BlockAccessList>) -> PayloadHints {
    PayloadHints {
        senders: senders.iter().copied().map(Some).collect(),
        access_list: access_list.cloned(),
        ..PayloadHints::default()
    }
}

fn list_of(built: &BuiltBlock) -> BlockAccessList {
    decode_access_list(built.block_access_list.as_ref().unwrap()).unwrap()
}

pub(super) fn import_built(
    chain: &Chain,
    block: &(BuiltBlock, Vec<Address>),
    with_list: bool,
) -> Imported {
    let (built, senders) = block;
    let list = list_of(built);
    let hints = hints(senders, with_list.then_some(&list));
    let taken = import_payload(chain, built.block.clone(), built.hash, hints);
    let imported = taken.unwrap();
    chain.set_head(&built.hash).unwrap();
    imported
}

/// Two blocks, and every row after both, by a chain that knows no list.
pub(super) fn blocks_and_rows() -> ([(BuiltBlock, Vec<Address>); 2], Rows) {
    let plain = open_with_contracts();
    let first = build(&plain, AMSTERDAM, 0);
    assert!(!import_built(&plain, &first, false).has_bal_root);
    let second = build(&plain, AMSTERDAM + 12, 1);
    assert!(!import_built(&plain, &second, false).has_bal_root);
    plain.sync().unwrap();
    let rows = dump(&plain);
    ([first, second], rows)
}

#[test]
fn a_block_that_brings_its_list_leaves_what_it_leaves_without() {
    let (blocks, rows) = blocks_and_rows();
    assert!(blocks[0].0.block.header.gas_used > 4_000_000);
    for threads in [1, 2, 3, 8] {
        let chain = open_with_contracts();
        chain.set_transaction_threads(threads);
        for block in &blocks {
            let imported = import_built(&chain, block, true);
            assert!(imported.has_bal_root, "{threads}");
            assert_eq!(imported.tx_stats.reexecuted, 0, "{threads}");
        }
        chain.sync().unwrap();
        assert!(dump(&chain) == rows, "{threads}");
        assert_clean(&chain);
    }
}

/// Each of the lists is in order, and says something that does not happen in the block.
pub(super) fn false_lists(honest: &BlockAccessList) -> Vec<BlockAccessList> {
    let index = BlockAccessIndex;
    let at = |list: &BlockAccessList, address: Address| {
        list.iter()
            .position(|account| account.address == address)
            .unwrap()
    };
    let (filled, counted) = (at(honest, FILL.0), at(honest, COUNT.0));
    let paid = at(honest, sender(1));
    let made = honest
        .iter()
        .position(|account| !account.code_changes.is_empty());
    let changes: [&dyn Fn(&mut BlockAccessList); 13] = [
        &|list| list[paid].balance_changes[0].post_balance += U256::ONE,
        &|list| list[paid].nonce_changes[0].new_nonce += 1,
        &|list| list[made.unwrap()].code_changes[0].new_code = Bytes::from_static(&[0xfe]),
        &|list| list[counted].storage_changes[0].changes[0].new_value += U256::ONE,
        // Each a little early or late.
        &|list| list[paid].balance_changes[0].block_access_index.0 -= 1,
        &|list| {
            list[counted].storage_changes[0]
                .changes
                .last_mut()
                .unwrap()
                .block_access_index
                .0 += 1
        },
        // Too little.
        &|list| _ = list[filled].storage_changes.pop(),
        &|list| _ = list[counted].storage_changes[0].changes.pop(),
        &|list| _ = list.remove(paid),
        // Too much.
        &|list| {
            let change = StorageChange::new(index(1), U256::from(9));
            let slots = &mut list[filled].storage_changes;
            slots.push(SlotChanges::new(U256::MAX, vec![change]));
        },
        &|list| {
            let mut absent = AccountChanges::new(Address::repeat_byte(0xff));
            absent
                .balance_changes
                .push(BalanceChange::new(index(0), U256::from(1)));
            absent.nonce_changes.push(NonceChange::new(index(0), 1));
            list.push(absent);
        },
        &|list| list[counted].storage_reads.push(U256::MAX),
        &|list| {
            list[counted]
                .code_changes
                .push(CodeChange::new(index(2), Bytes::new()))
        },
    ];
    let false_lists = changes.iter().map(|change| {
        let mut list = honest.clone();
        change(&mut list);
        assert_ne!(list, *honest);
        list
    });
    false_lists.collect()
}

#[test]
fn a_false_access_list_is_refused_and_writes_nothing() {
    let (blocks, rows) = blocks_and_rows();
    for threads in [1, 2, 3] {
        let chain = open_with_contracts();
        chain.set_transaction_threads(threads);
        for block in &blocks {
            let (built, senders) = block;
            let honest = list_of(built);
            for lie in false_lists(&honest) {
                let mut lying = built.block.clone();
                let expected = access_list_hash(&encode_access_list(&lie));
                lying.header.block_access_list_hash = Some(expected);
                let hash = lying.header.hash_slow();
                let hints = hints(senders, Some(&lie));
                let error = import_payload(&chain, lying, hash, hints).unwrap_err();
                let ImportError::Invalid { reason, .. } = error else {
                    panic!("{error}");
                };
                let got = access_list_hash(&encode_access_list(&honest));
                assert_eq!(*reason, InvalidBlock::BlockAccessListHash { got, expected });
                assert_eq!(reason.spec_name(), "INVALID_BLOCK_ACCESS_LIST");
            }
            import_built(&chain, block, true);
        }
        chain.sync().unwrap();
        assert!(dump(&chain) == rows, "{threads}");
        assert_clean(&chain);
    }
}

/// The root that a block's list leads to is not the one of its header, though the list is its own.
#[test]
fn a_wrong_state_root_is_refused_whatever_brought_it() {
    let (blocks, _) = blocks_and_rows();
    let (built, senders) = &blocks[0];
    let chain = open_with_contracts();
    let mut wrong = built.block.clone();
    wrong.header.state_root = B256::repeat_byte(1);
    let hash = wrong.header.hash_slow();
    let hints = hints(senders, Some(&list_of(built)));
    let error = import_payload(&chain, wrong, hash, hints).unwrap_err();
    let ImportError::Invalid { reason, .. } = error else {
        panic!("{error}");
    };
    let got = built.block.header.state_root;
    let expected = B256::repeat_byte(1);
    assert_eq!(*reason, InvalidBlock::StateRoot { got, expected });
}
