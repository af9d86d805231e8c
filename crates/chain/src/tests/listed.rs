//! Blocks whose access lists are applied give the chain that executing them gives.

use super::bal::{
    blocks_and_rows, false_lists, import_built, open_with_contracts, open_with_contracts_at,
};
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

/// Applies the lists of all blocks together.
fn apply(chain: &Chain, blocks: Vec<DownloadedBlock>) -> Result<(), ImportError> {
    let mut listed = chain.listed_blocks().unwrap();
    listed.add(blocks)?;
    listed.commit()
}

/// All rows but the parts of blocks that no header names.
fn named_rows(chain: &Chain) -> bal::Rows {
    let mut rows = dump(chain);
    rows.retain(|(segment, _)| {
        !matches!(
            segment,
            Segment::Bodies | Segment::Receipts | Segment::AccessLists | Segment::Transactions
        )
    });
    rows
}

#[test]
fn lists_lead_to_the_rows_of_an_execution() {
    let Listed {
        built,
        blocks,
        rows,
    } = listed();
    let together = open_with_contracts();
    apply(&together, blocks.clone()).unwrap();
    assert!(dump(&together) == rows, "together");
    assert_clean(&together);

    let one_by_one = open_with_contracts();
    for block in blocks.clone() {
        apply(&one_by_one, vec![block]).unwrap();
    }
    assert!(dump(&one_by_one) == rows, "one by one");

    let added_twice = open_with_contracts();
    let mut listed = added_twice.listed_blocks().unwrap();
    for block in blocks.clone() {
        listed.add(vec![block]).unwrap();
    }
    assert_eq!(added_twice.head().id.number, 0, "before the commit");
    listed.commit().unwrap();
    assert!(dump(&added_twice) == rows, "added twice");

    let after_an_execution = open_with_contracts();
    import_built(&after_an_execution, &built[0], true);
    let second = blocks[1].clone();
    apply(&after_an_execution, vec![second]).unwrap();
    assert!(dump(&after_an_execution) == rows, "after an execution");
    assert_eq!(apply(&together, Vec::new()).ok(), Some(()));
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
        let error = apply(&chain, blocks.clone()).unwrap_err();
        assert!(
            is_invalid(&error, "BlockAccessListHash"),
            "{index}: {error}"
        );
        assert!(dump(&chain) == before, "{index}");

        // Of a header that claims it, the state root tells.
        blocks[0].header.header.block_access_list_hash = Some(access_list_hash(&rlp));
        let chain = open_with_contracts();
        blocks.truncate(1);
        let before = named_rows(&chain);
        let imported = apply(&chain, blocks);
        match imported {
            // A change in the middle of the block is another one, and the state in the end the same.
            Ok(()) => assert!(ends(list) == ends(&honest), "{index}"),
            Err(error) => {
                assert!(is_invalid(&error, "StateRoot"), "{index}: {error}");
                assert!(named_rows(&chain) == before, "{index}");
                // Parts that no header names are no damage, and the blocks can be executed.
                assert_clean(&chain);
                import_built(&chain, &built[0], false);
                assert_clean(&chain);
            }
        }
    }
    let mut without = blocks.clone();
    without[1].access_list = None;
    assert!(apply(&chain, without).is_err());
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
        let error = apply(&chain, wrong).unwrap_err();
        assert!(
            matches!(error, ImportError::UnknownParent { .. }),
            "{error}"
        );
        assert!(dump(&chain) == before);
    }
}

#[test]
fn lists_are_not_applied_on_a_head_that_has_moved() {
    let Listed { built, blocks, .. } = listed();
    let chain = open_with_contracts();
    let mut listed = chain.listed_blocks().unwrap();
    listed.add(blocks).unwrap();
    import_built(&chain, &built[0], true);
    let before = named_rows(&chain);
    let error = listed.commit().unwrap_err();
    assert!(
        matches!(error, ImportError::UnknownParent { .. }),
        "{error}"
    );
    assert!(named_rows(&chain) == before);
    // Nothing is left of them.
    listed.commit().unwrap();
    assert!(named_rows(&chain) == before);
}

#[test]
fn parts_that_are_written_as_tables_are_those_of_an_execution() {
    let Listed { blocks, rows, .. } = listed();
    let dir = tempfile::tempdir().unwrap();
    let chain = open_with_contracts_at(dir.path());
    let mut listed = chain.listed_blocks().unwrap();
    listed.table_bytes = 0;
    for block in blocks {
        listed.add(vec![block]).unwrap();
    }
    listed.commit().unwrap();
    assert!(dump(&chain) == rows);
    assert!(!dir.path().join("loading").exists());
    drop(chain);
    let chain = open_with_contracts_at(dir.path());
    assert!(dump(&chain) == rows, "opened again");
    assert_clean(&chain);
}

#[test]
fn parts_whose_blocks_were_never_applied_are_written_again_or_read() {
    [false, true].into_iter().for_each(apply_after_kill);
}

fn apply_after_kill(is_read: bool) {
    let Listed { blocks, rows, .. } = listed();
    let dir = tempfile::tempdir().unwrap();
    let chain = open_with_contracts_at(dir.path());
    let mut listed = chain.listed_blocks().unwrap();
    listed.table_bytes = 0;
    let id = blocks[0].header.id;
    assert!(!chain.has_parts(&id).unwrap());
    listed.add(blocks.clone()).unwrap();
    assert!(chain.has_parts(&id).unwrap());
    drop(listed);
    // As after a kill before the commit.
    drop(chain);
    let chain = open_with_contracts_at(dir.path());
    assert_eq!(chain.head().id.number, 0);
    assert_clean(&chain);
    if is_read {
        let headers = blocks.iter().map(|block| block.header.clone());
        let mut listed = chain.listed_blocks().unwrap();
        listed.add_stored(headers.collect()).unwrap();
        listed.commit().unwrap();
    } else {
        apply(&chain, blocks).unwrap();
    }
    assert!(dump(&chain) == rows);
    assert_clean(&chain);
}
