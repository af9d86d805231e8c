//! Verdicts, fork choice, blocks that come before their parents, blocks made here.

use super::*;
use crate::{
    BlockTemplate, Candidate, Consensus, ForkChoice, ForkChoiceError, HeadChange, PayloadHints,
    StoredHeader, Verdict,
};
use niwaki_rules::recover_sender;
use std::sync::Mutex;

fn driven() -> (Consensus, Vec<Block>) {
    (Consensus::new(Arc::new(open(None))), blocks())
}

pub(super) fn hash(block: &Block) -> B256 {
    block.header.hash_slow()
}

pub(super) fn new_payload(consensus: &Consensus, block: &Block) -> Verdict {
    consensus
        .new_payload(block.clone(), hash(block), PayloadHints::default())
        .unwrap()
}

/// Sets the head alone.
pub(super) fn choose(consensus: &Consensus, head: B256) -> Result<Verdict, ForkChoiceError> {
    consensus.fork_choice(ForkChoice {
        head,
        safe: B256::ZERO,
        finalized: B256::ZERO,
    })
}

pub(super) fn empty_upon(chain: &Chain, parent: B256, extra: u8) -> Block {
    let timestamp = chain.header(&parent).unwrap().unwrap().header.timestamp + 10;
    let template = BlockTemplate {
        parent,
        timestamp,
        extra_data: vec![extra].into(),
        ..BlockTemplate::default()
    };
    chain.build(template, Vec::new()).unwrap().block
}

#[test]
fn blocks_in_reverse_order_wait_and_are_imported_with_the_one_that_connects_them() {
    let (consensus, blocks) = driven();
    for block in blocks[1..].iter().rev() {
        assert!(matches!(new_payload(&consensus, block), Verdict::Syncing));
    }
    assert!(matches!(choose(&consensus, HEAD), Ok(Verdict::Syncing)));
    assert_eq!(consensus.target(), Some(54));
    assert!(matches!(
        new_payload(&consensus, &blocks[0]),
        Verdict::Valid(Some(_))
    ));
    assert_eq!(
        consensus.chain().head().id.number,
        0,
        "a payload moves no head"
    );
    assert!(matches!(choose(&consensus, HEAD), Ok(Verdict::Valid(_))));
    assert_eq!(consensus.chain().head().id.hash, HEAD);
    assert_eq!(consensus.target(), None);
    assert!(matches!(
        new_payload(&consensus, &blocks[53]),
        Verdict::Valid(None)
    ));
    assert_clean(consensus.chain());
}

#[test]
fn descendants_of_an_invalid_block_are_invalid_with_the_same_latest_valid_hash() {
    let (consensus, blocks) = driven();
    import_all(consensus.chain(), &blocks[..50]);
    let mut bad = blocks[50].clone();
    bad.header.state_root = B256::repeat_byte(1);
    let mut child = blocks[51].clone();
    child.header.parent_hash = hash(&bad);
    let mut grandchild = blocks[52].clone();
    grandchild.header.parent_hash = hash(&child);

    // The grandchild comes first: nothing can be said of it yet.
    assert!(matches!(
        new_payload(&consensus, &grandchild),
        Verdict::Syncing
    ));
    let last_valid = Some(hash(&blocks[49]));
    for block in [&bad, &child, &grandchild, &bad] {
        match new_payload(&consensus, block) {
            Verdict::Invalid(refused) => {
                assert_eq!(refused.latest_valid, last_valid);
                assert!(refused.reason.contains("state root"), "{}", refused.reason);
            }
            other => panic!("{other:?}"),
        }
        let chosen = choose(&consensus, hash(block)).unwrap();
        assert!(matches!(chosen, Verdict::Invalid(_)), "{chosen:?}");
    }
    assert_eq!(consensus.chain().head().id.number, 50);
    assert!(matches!(
        new_payload(&consensus, &blocks[50]),
        Verdict::Valid(Some(_))
    ));
}

#[test]
fn an_invalid_child_of_a_proof_of_work_block_has_latest_valid_hash_zero() {
    let (consensus, blocks) = driven();
    import_all(consensus.chain(), &blocks[..35]);
    let mut first = blocks[35].clone();
    assert!(first.header.difficulty.is_zero() && !blocks[34].header.difficulty.is_zero());
    first.header.gas_used += 1;
    match new_payload(&consensus, &first) {
        Verdict::Invalid(refused) => assert_eq!(refused.latest_valid, Some(B256::ZERO)),
        other => panic!("{other:?}"),
    }
    let early = choose(&consensus, hash(&blocks[10])).unwrap();
    assert!(
        matches!(early, Verdict::Invalid(_)),
        "below the terminal difficulty: {early:?}"
    );
}

#[test]
fn safe_and_finalized_blocks_are_in_the_chain_of_the_head_or_nothing_changes() {
    let (consensus, blocks) = driven();
    import_all(consensus.chain(), &blocks);
    let chain = consensus.chain();
    let side = empty_upon(chain, hash(&blocks[51]), 1);
    assert!(matches!(
        new_payload(&consensus, &side),
        Verdict::Valid(Some(_))
    ));
    let upon_side = empty_upon(chain, hash(&side), 2);
    assert!(matches!(
        new_payload(&consensus, &upon_side),
        Verdict::Valid(Some(_))
    ));
    let unknown = B256::repeat_byte(9);
    for (head, safe, finalized, what) in [
        (HEAD, hash(&side), B256::ZERO, "safe"),
        (HEAD, B256::ZERO, hash(&side), "finalized"),
        (HEAD, unknown, B256::ZERO, "safe"),
        (hash(&upon_side), hash(&blocks[52]), B256::ZERO, "safe"),
        (hash(&blocks[40]), hash(&blocks[41]), B256::ZERO, "safe"),
    ] {
        let chosen = consensus.fork_choice(ForkChoice {
            head,
            safe,
            finalized,
        });
        match chosen {
            Err(ForkChoiceError::Inconsistent { what: told, .. }) => assert_eq!(told, what),
            other => panic!("{other:?}"),
        }
        assert_eq!(chain.head().id.hash, HEAD);
        assert_eq!(
            (chain.safe().unwrap(), chain.finalized().unwrap()),
            (None, None)
        );
    }
    let choice = ForkChoice {
        head: hash(&upon_side),
        safe: hash(&side),
        finalized: hash(&blocks[51]),
    };
    assert!(matches!(
        consensus.fork_choice(choice),
        Ok(Verdict::Valid(_))
    ));
    assert_eq!(chain.head().id.hash, hash(&upon_side));
    assert_eq!(chain.safe().unwrap().unwrap().id.hash, hash(&side));
    let finalized = chain.finalized().unwrap().unwrap();
    assert_eq!(finalized.id.hash, hash(&blocks[51]));

    // Upon what was chosen the same marks hold, and others are looked at.
    let next = empty_upon(chain, hash(&upon_side), 3);
    assert!(matches!(
        new_payload(&consensus, &next),
        Verdict::Valid(Some(_))
    ));
    let choice = ForkChoice {
        head: hash(&next),
        ..choice
    };
    for wrong in [unknown, HEAD] {
        let chosen = consensus.fork_choice(ForkChoice {
            finalized: wrong,
            ..choice
        });
        assert!(matches!(chosen, Err(ForkChoiceError::Inconsistent { .. })));
    }
    assert!(matches!(
        consensus.fork_choice(choice),
        Ok(Verdict::Valid(_))
    ));
    assert_eq!(chain.head().id.hash, hash(&next));
    // Not on another branch, which does not contain the safe and the finalized block.
    let other = ForkChoice {
        head: HEAD,
        ..choice
    };
    let chosen = consensus.fork_choice(other);
    assert!(matches!(chosen, Err(ForkChoiceError::Inconsistent { .. })));

    // A head before what is final is answered and not followed.
    let behind = choose(&consensus, hash(&blocks[45]));
    assert!(matches!(behind, Ok(Verdict::Valid(None))));
    assert_eq!(chain.head().id.hash, hash(&next));
}

/// The numbers of the safe and the finalized block.
fn marked(chain: &Chain) -> (Option<u64>, Option<u64>) {
    let number = |block: Option<StoredHeader>| block.map(|block| block.id.number);
    (
        number(chain.safe().unwrap()),
        number(chain.finalized().unwrap()),
    )
}

#[test]
fn a_fork_choice_of_zero_hashes_keeps_safe_45_and_finalized_40() {
    let (consensus, blocks) = driven();
    import_all(consensus.chain(), &blocks);
    let chain = consensus.chain();
    let mut choice = ForkChoice {
        head: hash(&blocks[50]),
        safe: hash(&blocks[44]),
        finalized: hash(&blocks[39]),
    };
    consensus.fork_choice(choice).unwrap();
    assert_eq!(marked(chain), (Some(45), Some(40)));

    // The same head, the next one, and one that is not the child of the last: each keeps both.
    for head in [50, 51, 53] {
        choose(&consensus, hash(&blocks[head])).unwrap();
        assert_eq!(chain.head().id.number, head as u64 + 1);
        assert_eq!(marked(chain), (Some(45), Some(40)));
    }
    // One alone is kept beside another that is named.
    choice.head = HEAD;
    choice.safe = hash(&blocks[49]);
    choice.finalized = B256::ZERO;
    consensus.fork_choice(choice).unwrap();
    assert_eq!(marked(chain), (Some(50), Some(40)));
}

#[test]
fn a_safe_block_on_another_branch_than_the_head_is_dropped() {
    let (consensus, blocks) = driven();
    import_all(consensus.chain(), &blocks);
    let chain = consensus.chain();
    let choice = ForkChoice {
        head: HEAD,
        safe: hash(&blocks[52]),
        finalized: hash(&blocks[39]),
    };
    consensus.fork_choice(choice).unwrap();
    let side = empty_upon(chain, hash(&blocks[49]), 1);
    new_payload(&consensus, &side);
    choose(&consensus, hash(&side)).unwrap();
    assert_eq!(chain.head().id.hash, hash(&side));
    assert_eq!(marked(chain), (None, Some(40)));
}

#[test]
fn safe_and_finalized_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks();
    {
        let consensus = Consensus::new(Arc::new(open(Some(folder.path()))));
        import_all(consensus.chain(), &blocks);
        let choice = ForkChoice {
            head: hash(&blocks[50]),
            safe: hash(&blocks[44]),
            finalized: hash(&blocks[39]),
        };
        consensus.fork_choice(choice).unwrap();
    }
    {
        let consensus = Consensus::new(Arc::new(open(Some(folder.path()))));
        choose(&consensus, HEAD).unwrap();
        assert_eq!(marked(consensus.chain()), (Some(45), Some(40)));
    }
    assert_eq!(marked(&open(Some(folder.path()))), (Some(45), Some(40)));
}

#[test]
fn an_operator_that_sets_the_head_to_42_takes_safe_45_back_and_keeps_finalized_40() {
    let (consensus, blocks) = driven();
    import_all(consensus.chain(), &blocks);
    let chain = consensus.chain();
    let choice = ForkChoice {
        head: hash(&blocks[50]),
        safe: hash(&blocks[44]),
        finalized: hash(&blocks[39]),
    };
    consensus.fork_choice(choice).unwrap();
    consensus.set_head(&hash(&blocks[41])).unwrap();
    assert_eq!(marked(chain), (None, Some(40)));
}

#[test]
fn head_safe_and_finalized_are_restored_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks();
    let choice = ForkChoice {
        head: hash(&blocks[47]),
        safe: hash(&blocks[45]),
        finalized: hash(&blocks[40]),
    };
    {
        let consensus = Consensus::new(Arc::new(open(Some(folder.path()))));
        import_all(consensus.chain(), &blocks);
        consensus.fork_choice(choice).unwrap();
    }
    let chain = open(Some(folder.path()));
    assert_eq!(chain.head().id.hash, choice.head);
    assert_eq!(chain.safe().unwrap().unwrap().id.hash, choice.safe);
    let finalized = chain.finalized().unwrap().unwrap();
    assert_eq!(finalized.id.hash, choice.finalized);
}

#[test]
fn listeners_are_notified_of_every_head_change_with_the_blocks_between() {
    let (consensus, blocks) = driven();
    let chain = consensus.chain();
    let heard: Arc<Mutex<Vec<HeadChange>>> = Arc::default();
    let ear = Arc::clone(&heard);
    import_all(chain, &blocks[..52]);
    chain.on_head(Box::new(move |change| {
        ear.lock().unwrap().push(change.clone())
    }));
    import(chain, &blocks[52]);
    let side = empty_upon(chain, hash(&blocks[50]), 1);
    new_payload(&consensus, &side);
    assert_eq!(heard.lock().unwrap().len(), 1, "a payload moves no head");
    choose(&consensus, hash(&side)).unwrap();
    choose(&consensus, hash(&side)).unwrap();
    choose(&consensus, hash(&blocks[50])).unwrap();
    let coinbase = blocks[51].header.beneficiary;
    {
        let upon = empty_upon(chain, hash(&blocks[50]), 9);
        new_payload(&consensus, &upon);
        choose(&consensus, hash(&upon)).unwrap();
        let last = heard.lock().unwrap().pop().unwrap();
        let changed = last.changed.expect("a child of the head");
        assert!(
            !changed.is_empty() && !changed.contains(&coinbase),
            "{changed:?}"
        );
    }
    let heard = heard.lock().unwrap();
    let told: Vec<_> = heard
        .iter()
        .map(|change| {
            let hashes = |ids: &[crate::BlockId]| ids.iter().map(|id| id.hash).collect::<Vec<_>>();
            (
                change.head.id.hash,
                hashes(&change.removed),
                hashes(&change.added),
            )
        })
        .collect();
    // A child of the head says which accounts it changes, whichever way it became the head.
    let known: Vec<bool> = heard
        .iter()
        .map(|change| change.changed.is_some())
        .collect();
    assert_eq!(known, [true, false, false]);
    let [b50, b51, b52, side] = [&blocks[50], &blocks[51], &blocks[52], &side].map(hash);
    assert_eq!(
        told,
        [
            (b52, vec![], vec![b52]),
            (side, vec![b52, b51], vec![side]),
            (b50, vec![side], vec![]),
        ]
    );
}

#[test]
fn building_from_the_transactions_of_a_block_gives_that_block() {
    let (chain, blocks) = (open(None), blocks());
    for block in &blocks {
        let header = &block.header;
        let template = BlockTemplate {
            parent: header.parent_hash,
            coinbase: header.beneficiary,
            timestamp: header.timestamp,
            extra_data: header.extra_data.clone(),
            prev_randao: header.mix_hash,
            withdrawals: block
                .body
                .withdrawals
                .clone()
                .unwrap_or_default()
                .into_inner(),
            parent_beacon_block_root: header.parent_beacon_block_root.unwrap_or_default(),
            slot_number: header.slot_number.unwrap_or_default(),
            target_gas_limit: Some(header.gas_limit),
            max_gas: None,
        };
        let bounded = BlockTemplate {
            max_gas: Some(1),
            ..template.clone()
        };
        // Every transaction twice: the second of a pair does not fit any more.
        let pairs = block.body.transactions.iter().flat_map(|tx| [tx, tx]);
        let mut offered = pairs.map(|tx| Candidate {
            tx: tx.clone(),
            sender: recover_sender(tx).unwrap(),
        });
        let mut left_out = 0;
        let mut next = |refused: Option<&niwaki_rules::InvalidTransaction>| {
            left_out += usize::from(refused.is_some());
            offered.next()
        };
        let built = chain.build_best(template, &mut next).unwrap();
        assert_eq!(left_out, block.body.transactions.len());
        assert_eq!(built.block.body.transactions, block.body.transactions);
        if block.body.ommers.is_empty() {
            // Seals and, where there is one, the miner's choice of nonce are not ours to make.
            let mut header = built.block.header.clone();
            (header.mix_hash, header.nonce) = (block.header.mix_hash, block.header.nonce);
            assert_eq!(header, block.header);
        }
        // The one that reaches the bound is the last.
        let mut all = block.body.transactions.iter();
        let mut next = |_: Option<&niwaki_rules::InvalidTransaction>| {
            all.next().map(|tx| Candidate {
                tx: tx.clone(),
                sender: recover_sender(tx).unwrap(),
            })
        };
        let built = chain.build_best(bounded, &mut next).unwrap();
        let first = block.body.transactions.iter().take(1);
        assert!(built.block.body.transactions.iter().eq(first));
        import(&chain, block);
    }
}
