//! Blocks in batches give the chain that they give one by one.

use super::*;

fn import_batch(chain: &Chain, blocks: &[Block]) -> Vec<Result<Imported, ImportError>> {
    chain.import_batch(blocks.iter().cloned().map(ImportRequest::from).collect())
}

/// Blocks with ommers, and those before Byzantium, come one by one.
const FIRST: usize = 36;

#[test]
fn batches_of_any_size_give_the_rows_of_single_blocks() {
    let (expected, blocks) = (open(None), blocks());
    import_all(&expected, &blocks);
    for size in [2, 5, 16, 18] {
        let chain = open(None);
        import_all(&chain, &blocks[..FIRST]);
        for batch in blocks[FIRST..].chunks(size) {
            for (imported, block) in import_batch(&chain, batch).into_iter().zip(batch) {
                let imported = imported.unwrap();
                assert_eq!(imported.id.hash, block.header.hash_slow());
                assert_eq!(imported.status, ImportStatus::Canonical);
            }
            if let [.., below, _] = batch {
                let below = below.header.hash_slow();
                assert!(chain.view_at(&below).unwrap().is_none(), "no batch");
            }
        }
        assert_eq!(chain.head().id.hash, HEAD, "batches of {size}");
        assert!(dump(&chain) == dump(&expected), "batches of {size}");
        assert_clean(&chain);
    }
}

#[test]
fn a_batch_leaves_no_states_below_its_last_block() {
    let (chain, blocks) = (open(None), blocks());
    import_all(&chain, &blocks[..FIRST]);
    for result in import_batch(&chain, &blocks[FIRST..45]) {
        result.unwrap();
    }
    let below = blocks[43].header.hash_slow();
    assert!(matches!(
        chain.set_head(&below),
        Err(SetHeadError::OutOfReach(_))
    ));
    let mut side = blocks[44].clone();
    side.header.extra_data = vec![7].into();
    let error = chain.import(side).unwrap_err();
    assert!(matches!(error, ImportError::OutOfReach { .. }), "{error}");
    import_all(&chain, &blocks[45..]);
    assert_eq!(chain.head().id.hash, HEAD);
    assert_clean(&chain);
}

#[test]
fn an_invalid_block_of_a_batch_is_named_and_those_before_it_stay() {
    type Damage = fn(&mut Block);
    let damages: [Damage; 3] = [
        |block| block.header.state_root = B256::repeat_byte(1),
        |block| block.header.receipts_root = B256::repeat_byte(1),
        |block| block.header.gas_used += 1,
    ];
    for damage in damages {
        let (chain, mut blocks) = (open(None), blocks());
        blocks.truncate(45);
        damage(&mut blocks[44]);
        let hash = blocks[44].header.hash_slow();
        import_all(&chain, &blocks[..FIRST]);
        let mut results = import_batch(&chain, &blocks[FIRST..]);
        let error = results.pop().unwrap().unwrap_err();
        let ImportError::Invalid {
            number,
            hash: named,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((*number, *named), (45, hash));
        assert!(results.len() == 8 && results.iter().all(Result::is_ok));
        assert_eq!(chain.head().id.number, 44);
        assert_clean(&chain);
    }
}

#[test]
fn blocks_that_do_not_follow_the_head_are_imported_one_by_one() {
    let (chain, blocks) = (open(None), blocks());
    import_all(&chain, &blocks[..3]);
    // Two are here already.
    let results = import_batch(&chain, &blocks[1..6]);
    let statuses: Vec<ImportStatus> = results.iter().map(|r| r.as_ref().unwrap().status).collect();
    let (here, new) = (ImportStatus::AlreadyStored, ImportStatus::Canonical);
    assert_eq!(statuses, [here, here, new, new, new]);
    let results = import_batch(&chain, &[blocks[10].clone()]);
    assert!(matches!(
        results[..],
        [Err(ImportError::UnknownParent { .. })]
    ));
    assert!(import_batch(&chain, &[]).is_empty());
}

#[test]
fn an_archive_keeps_the_state_of_each_block_of_a_batch() {
    let genesis = genesis();
    let mut config = config(None, &genesis);
    config.state.archive = true;
    let (chain, blocks) = (open_eager(config), blocks());
    for result in import_batch(&chain, &blocks) {
        result.unwrap();
    }
    let below = blocks[9].header.hash_slow();
    let view = chain.view_at(&below).unwrap().unwrap();
    assert_eq!(view.block_hash(10).unwrap(), below);
}
