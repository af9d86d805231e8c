//! Blocks whose access lists are applied give the chain that executing them gives.

use super::bal::{blocks_and_rows, false_lists, import_built, open_with_contracts};
use super::state_download::downloaded;
use super::*;
use crate::{BuiltBlock, DownloadedBlock};
use niwaki_primitives::{Address, BlockAccessList, Bytes};
use niwaki_rules::{access_list_hash, decode_access_list, encode_access_list};

/// Two blocks as they were built, the same as peers give them, and all rows after both.
struct Listed {
    built: [(BuiltBlock, Vec<Address>); 2],
    blocks: Vec<DownloadedBlock>,
    rows: bal::Rows,
}

fn listed() -> Listed {
    let (built, rows) = blocks_and_rows();
    let plain = open_with_contracts();
    for block in &built {
        import_built(&plain, block, false);
    }
    Listed {
        built,
        blocks: downloaded(&plain, 1..=2),
        rows,
    }
}

#[test]
fn lists_lead_to_the_rows_of_an_execution() {
    let Listed {
        built,
        blocks,
        rows,
    } = listed();
    let together = open_with_contracts();
    together.import_by_access_lists(blocks.clone()).unwrap();
    assert!(dump(&together) == rows, "together");
    assert_clean(&together);

    let one_by_one = open_with_contracts();
    for block in blocks.clone() {
        one_by_one.import_by_access_lists(vec![block]).unwrap();
    }
    assert!(dump(&one_by_one) == rows, "one by one");

    let after_an_execution = open_with_contracts();
    import_built(&after_an_execution, &built[0], true);
    let second = blocks[1].clone();
    after_an_execution
        .import_by_access_lists(vec![second])
        .unwrap();
    assert!(dump(&after_an_execution) == rows, "after an execution");
    assert_eq!(together.import_by_access_lists(Vec::new()).ok(), Some(()));
}

fn is_invalid(error: &ImportError, reason: &str) -> bool {
    let ImportError::Invalid { reason: why, .. } = error else {
        return false;
    };
    format!("{why:?}").starts_with(reason)
}

/// Where the accounts of a list that change end.
fn ends(list: &BlockAccessList) -> Vec<AccountEnd> {
    let changed = list.iter().filter(|account| account.has_changes());
    changed
        .map(|account| AccountEnd {
            address: account.address,
            balance: account.balance_post_state(),
            nonce: account.nonce_post_state(),
            code: account.code_post_state().cloned(),
            slots: account.storage_post_states().collect(),
        })
        .collect()
}

#[derive(PartialEq)]
struct AccountEnd {
    address: Address,
    balance: Option<U256>,
    nonce: Option<u64>,
    code: Option<Bytes>,
    slots: Vec<(U256, U256)>,
}

#[test]
fn false_lists_are_refused_and_nothing_is_written() {
    let Listed { built, blocks, .. } = listed();
    let chain = open_with_contracts();
    let before = dump(&chain);
    let honest = decode_access_list(blocks[0].access_list.as_ref().unwrap()).unwrap();
    for (index, list) in false_lists(&honest).iter().enumerate() {
        let mut blocks = blocks.clone();
        let rlp = encode_access_list(list);
        blocks[0].access_list = Some(rlp.clone());
        let error = chain.import_by_access_lists(blocks.clone()).unwrap_err();
        assert!(
            is_invalid(&error, "BlockAccessListHash"),
            "{index}: {error}"
        );
        assert!(dump(&chain) == before, "{index}");

        // Of a header that claims it, the state root tells.
        blocks[0].header.header.block_access_list_hash = Some(access_list_hash(&rlp));
        let chain = open_with_contracts();
        blocks.truncate(1);
        let imported = chain.import_by_access_lists(blocks);
        match imported {
            // A change in the middle of the block is another one, and the state in the end the same.
            Ok(()) => assert!(ends(list) == ends(&honest), "{index}"),
            Err(error) => {
                assert!(is_invalid(&error, "StateRoot"), "{index}: {error}");
                assert!(dump(&chain) == before, "{index}");
            }
        }
    }
    let mut without = blocks.clone();
    without[1].access_list = None;
    assert!(chain.import_by_access_lists(without).is_err());
    // The caches are those of the state that is there.
    import_built(&chain, &built[0], false);
    import_built(&chain, &built[1], true);
    assert_clean(&chain);
}

#[test]
fn lists_of_blocks_that_do_not_follow_the_head_are_refused() {
    let Listed { blocks, .. } = listed();
    let chain = open_with_contracts();
    let before = dump(&chain);
    let [first, second] = [0, 1].map(|index| blocks[index].clone());
    for wrong in [
        vec![second.clone()],
        vec![second, first.clone()],
        vec![first.clone(), first],
    ] {
        let error = chain.import_by_access_lists(wrong).unwrap_err();
        assert!(
            matches!(error, ImportError::UnknownParent { .. }),
            "{error}"
        );
        assert!(dump(&chain) == before);
    }
}
