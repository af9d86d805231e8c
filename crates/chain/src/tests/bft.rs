//! Chains of Besu's and GoQuorum's validators: imported block by block and in batches, and refused where a rule of theirs is broken.

use super::*;
use niwaki_primitives::{Address, Bytes, Header};
use niwaki_rules::{BftExtra, BftProtocol, InvalidHeader, ValidatorSource};

const NETWORKS: [&str; 5] = ["qbft", "ibft", "qbft-contract", "ibft-to-qbft", "goquorum"];

fn folder(network: &str) -> std::path::PathBuf {
    let folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bft");
    folders.join(network)
}

fn genesis(network: &str) -> Genesis {
    let text = std::fs::read_to_string(folder(network).join("genesis.json")).unwrap();
    Genesis::from_json(&text).unwrap()
}

fn open(network: &str) -> Chain {
    open_eager(config(None, &genesis(network)))
}

/// The blocks of a network after its genesis block.
fn blocks(network: &str) -> Vec<Block> {
    let file = std::fs::read(folder(network).join("chain.rlp")).unwrap();
    let mut rest = &file[..];
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        blocks.push(Block::decode(&mut rest).unwrap());
    }
    blocks.remove(0);
    blocks
}

#[test]
fn the_chains_of_besu_and_goquorum_are_imported_one_by_one_and_in_batches() {
    for network in NETWORKS {
        let blocks = blocks(network);
        let (single, batched) = (open(network), open(network));
        for block in &blocks {
            single
                .import(block.clone())
                .unwrap_or_else(|error| panic!("{network}: {error}"));
        }
        for part in blocks.chunks(7) {
            let requests = part.iter().map(|block| block.clone().into()).collect();
            for result in batched.import_batch(requests) {
                result.unwrap_or_else(|error| panic!("{network}: {error}"));
            }
            // A batch leaves no states below its last block; the contract is read in each of them.
            let spec = batched.spec();
            let by_headers = part.iter().all(|block| {
                let rules = spec.bft_rules_of(&block.header).unwrap();
                rules.source == ValidatorSource::Headers
            });
            if let [.., below, _] = part {
                let below = batched.view_at(&batched.spec().header_hash(&below.header));
                assert_eq!(below.unwrap().is_none(), by_headers, "{network}");
            }
        }
        assert_eq!(single.head(), batched.head());
        for pair in blocks.windows(2) {
            let stored = single.header_at(pair[0].header.number).unwrap().unwrap();
            assert_eq!(stored.id.hash, pair[1].header.parent_hash);
        }
        for chain in [single, batched] {
            assert_eq!(chain.head().id.number, blocks.len() as u64, "{network}");
            assert_clean(&chain);
        }
    }
}

/// In GoQuorum the vote of an epoch block counts, and votes stay where a transition lists the validators: block 14 has one whose list
/// counts after block 15 too, although that block's vote was the third of three.
#[test]
fn votes_of_goquorum_count_in_epoch_blocks_and_stay_through_a_transition() {
    let (chain, blocks) = (open("goquorum"), blocks("goquorum"));
    import_all(&chain, &blocks);
    let validators = |number| {
        let stored = chain.header_at(number).unwrap().unwrap();
        let next = chain.next_validators(&stored).unwrap().unwrap();
        let numbers = next.as_slice().iter().map(|validator| validator.0[0]);
        numbers.collect::<Vec<_>>()
    };
    let (first, added) = ([0x05, 0x4a, 0x4d, 0xd8], [0x05, 0x4a, 0x4d, 0x99, 0xd8]);
    assert_eq!(validators(7), first);
    // Votes of blocks 6, an epoch's, 7 and 8.
    assert_eq!(validators(8), added);
    assert_eq!(validators(13), added);
    for number in 14..20 {
        assert_eq!(validators(number), first, "{number}");
    }
    // Votes of blocks 18, an epoch's, 19 and 20.
    assert_eq!(validators(20), [0x05, 0x11, 0x4a, 0x4d, 0xd8]);
}

#[test]
fn a_list_in_the_rules_of_goquorum_names_the_validators_of_the_first_block() {
    let text = std::fs::read_to_string(folder("goquorum").join("genesis.json")).unwrap();
    let one = Address::repeat_byte(7);
    let listed = format!(r#""qbft": {{"validators": ["{one}"],"#);
    let changed = text.replace(r#""qbft": {"#, &listed);
    for (text, expected) in [(text, 4), (changed, 1)] {
        let genesis = Genesis::from_json(&text).unwrap();
        let chain = open_eager(config(None, &genesis));
        let next = chain.next_validators(&chain.head()).unwrap().unwrap();
        assert_eq!(next.as_slice().len(), expected);
        assert_eq!(next.contains(&one), expected == 1);
    }
}

/// Why block 5 is refused if its extra data is changed.
fn refused(network: &str, change: impl FnOnce(&mut BftExtra)) -> InvalidHeader {
    let protocol = match network {
        "ibft" => BftProtocol::Ibft2,
        _ => BftProtocol::Qbft,
    };
    let (chain, mut blocks) = (open(network), blocks(network));
    for block in &blocks[..4] {
        chain.import(block.clone()).unwrap();
    }
    let header = &mut blocks[4].header;
    let mut extra = BftExtra::decode(protocol, &header.extra_data).unwrap();
    change(&mut extra);
    header.extra_data = extra.encode(protocol);
    match chain.import(blocks[4].clone()) {
        Err(ImportError::Invalid { reason, .. }) => match *reason {
            InvalidBlock::Header(reason) => reason,
            other => panic!("{other}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_block_that_no_quorum_has_sealed_is_refused() {
    for network in ["qbft", "ibft"] {
        let few = refused(network, |extra| extra.seals.truncate(2));
        let (got, expected) = (2, 3);
        assert_eq!(few, InvalidHeader::BftSeals { got, expected });
        let twice = refused(network, |extra| extra.seals[1] = extra.seals[0]);
        assert!(
            matches!(twice, InvalidHeader::BftSealer { got: Some(_) }),
            "{twice}"
        );
        // A seal of another round is of another key.
        let round = refused(network, |extra| extra.round += 1);
        assert!(matches!(round, InvalidHeader::BftSealer { .. }), "{round}");
        let none = refused(network, |extra| extra.seals[0] = [0; 65]);
        assert_eq!(none, InvalidHeader::BftSealer { got: None });
        let list = refused(network, |extra| extra.validators.truncate(3));
        let (got, expected) = (3, 4);
        assert_eq!(list, InvalidHeader::BftValidators { got, expected });
    }
    let list = refused("qbft-contract", |extra| {
        extra.validators = vec![Address::ZERO]
    });
    assert!(
        matches!(list, InvalidHeader::BftValidators { got: 1, .. }),
        "{list}"
    );
}

#[test]
fn a_block_that_breaks_a_rule_of_bft_headers_is_refused() {
    type Change = fn(&mut Header);
    let changes: [(Change, &str); 6] = [
        (|header| header.mix_hash = B256::ZERO, "mix hash"),
        (|header| header.difficulty = U256::from(2), "difficulty"),
        (|header| header.extra_data = Bytes::new(), "extra data"),
        (|header| header.timestamp = 1, "period"),
        (|header| header.beneficiary = Address::ZERO, "no validator"),
        (
            |header| header.base_fee_per_gas = Some(7),
            "does not know it",
        ),
    ];
    for network in ["qbft", "ibft"] {
        let (chain, blocks) = (open(network), blocks(network));
        import_all(&chain, &blocks[..1]);
        for (change, words) in changes {
            let mut block = blocks[1].clone();
            change(&mut block.header);
            let error = chain.import(block).unwrap_err().to_string();
            assert!(error.contains(words), "{network}: {error}");
        }
        assert_eq!(chain.head().id.number, 1);
        import(&chain, &blocks[1]);
    }
}

/// A block as validators are to agree on it: without seals.
fn without_seals(network: &str, block: &Block) -> Block {
    let protocol = match network {
        "ibft" => BftProtocol::Ibft2,
        _ => BftProtocol::Qbft,
    };
    let mut block = block.clone();
    let mut extra = BftExtra::decode(protocol, &block.header.extra_data).unwrap();
    extra.seals.clear();
    block.header.extra_data = extra.encode(protocol);
    block
}

#[test]
fn a_block_is_judged_without_its_seals_and_committed_with_them() {
    for network in ["qbft", "ibft", "qbft-contract"] {
        let (chain, blocks) = (open(network), blocks(network));
        for block in &blocks {
            let judged = chain
                .judge(without_seals(network, block), Vec::new())
                .unwrap();
            assert_eq!(judged.id().hash, chain.spec().header_hash(&block.header));
            assert_eq!(chain.header(&judged.id().hash).unwrap(), None);
            let imported = chain.commit_judged(judged, block.header.clone()).unwrap();
            assert_eq!(imported.status, ImportStatus::Canonical);
            assert_eq!(chain.head().header, block.header);
            assert_eq!(
                chain.block(&imported.id.hash).unwrap().as_ref(),
                Some(block)
            );
        }
        assert_clean(&chain);
    }
}

#[test]
fn the_head_is_safe_and_final() {
    let (chain, blocks) = (open("qbft"), blocks("qbft"));
    import_all(&chain, &blocks[..3]);
    let head = chain.head();
    for block in [chain.safe(), chain.finalized()] {
        assert_eq!(block.unwrap().unwrap().id, head.id);
    }
}

#[test]
fn two_blocks_of_one_height_are_judged_and_either_is_committed() {
    let (chain, blocks) = (open("qbft"), blocks("qbft"));
    let mut other = without_seals("qbft", &blocks[0]);
    other.header.timestamp += 1;
    let first = chain
        .judge(without_seals("qbft", &blocks[0]), Vec::new())
        .unwrap();
    let second = chain.judge(other.clone(), Vec::new()).unwrap();
    assert_ne!(first.id(), second.id());
    chain
        .commit_judged(first, blocks[0].header.clone())
        .unwrap();
    assert_eq!(chain.head().header, blocks[0].header);
    // It has no quorum's seals.
    let error = chain.commit_judged(second, other.header).unwrap_err();
    assert!(error.to_string().contains("sealed"), "{error}");
    import_all(&chain, &blocks[1..5]);
    assert_clean(&chain);
}

#[test]
fn a_judged_block_whose_height_was_decided_meanwhile_changes_nothing() {
    let (chain, blocks) = (open("qbft"), blocks("qbft"));
    let judged = chain
        .judge(without_seals("qbft", &blocks[0]), Vec::new())
        .unwrap();
    import_all(&chain, &blocks[..2]);
    let imported = chain
        .commit_judged(judged, blocks[0].header.clone())
        .unwrap();
    assert_eq!(imported.status, ImportStatus::AlreadyStored);
    assert_eq!(chain.head().header, blocks[1].header);
    let judged = chain
        .judge(without_seals("qbft", &blocks[2]), Vec::new())
        .unwrap();
    let error = chain.commit_judged(judged, blocks[3].header.clone());
    assert!(matches!(error, Err(ImportError::UnknownParent { .. })));
    assert_eq!(chain.head().header, blocks[1].header);
}

#[test]
fn a_proposal_that_no_chain_would_refuse_may_be_refused_by_a_validator() {
    let (chain, blocks) = (open("qbft"), blocks("qbft"));
    let block = without_seals("qbft", &blocks[0]);
    let refused = |change: &dyn Fn(&mut BftExtra, &mut Header)| {
        let mut block = block.clone();
        let mut extra = BftExtra::decode(BftProtocol::Qbft, &block.header.extra_data).unwrap();
        change(&mut extra, &mut block.header);
        block.header.extra_data = extra.encode(BftProtocol::Qbft);
        chain.judge(block, Vec::new()).unwrap_err().to_string()
    };
    let vanity = refused(&|extra, _| extra.vanity = Bytes::from_static(&[1; 33]));
    assert!(vanity.contains("33 bytes of vanity"), "{vanity}");
    let nonce = refused(&|_, header| header.nonce = 7_u64.to_be_bytes().into());
    assert!(nonce.contains("nonce"), "{nonce}");
    let coinbase = refused(&|_, header| header.beneficiary = Address::ZERO);
    assert!(coinbase.contains("no validator"), "{coinbase}");
}

#[test]
fn a_state_is_exported_with_all_votes_that_count_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state");
    let (chain, blocks) = (open("qbft"), blocks("qbft"));
    let (before, after) = blocks.split_at(blocks.len() / 2);
    import_all(&chain, before);
    let few = chain.export_state_with(5, 1 << 20, &file, &mut |_| true);
    let refusal = few.unwrap_err().to_string();
    assert!(refusal.contains("votes since block 0"), "{refusal}");
    assert!(!file.exists());

    chain.export_state(&file, &mut |_| true).unwrap();
    let data_path = dir.path().join("data");
    let genesis = genesis("qbft");
    let other = config(Some(&data_path), &genesis);
    let import = crate::StateImport {
        data_path,
        from: file,
        genesis: super::state_file::source(&genesis),
        storage: other.storage,
        state: other.state,
    };
    let imported = Chain::import_state(&import, &mut |_| true).unwrap();
    import_all(&imported, after);
    assert_clean(&imported);
    // Where a contract names the validators, no header is needed.
    let chain = open("qbft-contract");
    import_all(&chain, &self::blocks("qbft-contract")[..10]);
    let file = dir.path().join("by contract");
    chain
        .export_state_with(5, 1 << 20, &file, &mut |_| true)
        .unwrap();
}
