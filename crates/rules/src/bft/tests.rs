//! Headers of Besu's networks, and of one of GoQuorum: hashes, seals, proposers and votes.

use super::*;
use alloy_rlp::Decodable;
use niwaki_primitives::Block;
use std::path::Path;

fn chain(network: &str) -> Vec<Block> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bft");
    let file = std::fs::read(folder.join(network).join("chain.rlp")).unwrap();
    let mut rest = &file[..];
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        blocks.push(Block::decode(&mut rest).unwrap());
    }
    blocks
}

/// The protocol of each block of the networks in `testdata/bft`.
fn protocol(network: &str, number: u64) -> BftProtocol {
    match network {
        "ibft" => BftProtocol::Ibft2,
        "ibft-to-qbft" if number < 15 => BftProtocol::Ibft2,
        _ => BftProtocol::Qbft,
    }
}

#[test]
fn the_hash_of_a_block_is_what_its_child_says_and_its_extra_data_is_written_as_it_was() {
    for network in ["qbft", "ibft", "qbft-contract", "ibft-to-qbft", "goquorum"] {
        let blocks = chain(network);
        for pair in blocks.windows(2) {
            let [parent, child] = pair else { continue };
            let (header, number) = (&parent.header, parent.header.number);
            let protocol = protocol(network, number);
            let hash = bft_block_hash(protocol, header).unwrap();
            assert_eq!(hash, child.header.parent_hash, "{network} {number}");
            let extra = BftExtra::decode(protocol, &header.extra_data).unwrap();
            assert_eq!(extra.encode(protocol), header.extra_data);
        }
    }
}

#[test]
fn a_quorum_of_the_validators_has_sealed_each_block_and_votes_make_them() {
    for network in ["qbft", "ibft"] {
        let blocks = chain(network);
        let protocol = protocol(network, 0);
        let extra = |block: &Block| BftExtra::decode(protocol, &block.header.extra_data).unwrap();
        let mut tally = VoteTally::new(ValidatorSet::new(extra(&blocks[0]).validators));
        let (mut rounds, mut sizes) = (0, Vec::new());
        for pair in blocks.windows(2) {
            let [parent, block] = pair else { continue };
            let (header, extra) = (&block.header, extra(block));
            let set = tally.validators();
            assert_eq!(set.as_slice(), &extra.validators[..], "{}", header.number);
            let hash = bft_seal_hash(protocol, header, &extra);
            let seals = extra
                .seals
                .iter()
                .map(|seal| recover_seal(&hash, seal).unwrap());
            let sealers = ValidatorSet::new(seals);
            assert!(sealers.as_slice().len() >= set.quorum());
            assert!(sealers.as_slice().iter().all(|one| set.contains(one)));
            if extra.round == 0 {
                let next = set.proposer(&parent.header.beneficiary, 0);
                assert_eq!(next, Some(header.beneficiary), "{}", header.number);
            }
            rounds = rounds.max(extra.round);
            sizes.push(set.as_slice().len());
            if let Some(vote) = extra.vote {
                tally.vote(header.beneficiary, vote);
            }
        }
        sizes.dedup();
        assert!(rounds > 0);
        assert_eq!(sizes, [4, 5, 4], "{network}");
    }
}

#[test]
fn malformed_extra_data_is_refused() {
    for (network, protocol) in [("qbft", BftProtocol::Qbft), ("ibft", BftProtocol::Ibft2)] {
        let blocks = chain(network);
        let bytes = &blocks[3].header.extra_data;
        for end in 0..bytes.len() {
            assert!(BftExtra::decode(protocol, &bytes[..end]).is_err());
        }
        let more = [&bytes[..], &[0]].concat();
        assert!(BftExtra::decode(protocol, &more).is_err());
    }
    // One item more.
    for (network, protocol) in [("qbft", BftProtocol::Qbft), ("ibft", BftProtocol::Ibft2)] {
        let mut bytes = chain(network)[3].header.extra_data.to_vec();
        let header = alloy_rlp::Header::decode(&mut &bytes[..]).unwrap();
        let payload = bytes.split_off(header.length());
        let longer = alloy_rlp::Header {
            payload_length: payload.len() + 1,
            ..header
        };
        let mut longer_bytes = Vec::new();
        longer.encode(&mut longer_bytes);
        longer_bytes.extend([&payload[..], &[7]].concat());
        let is_read = BftExtra::decode(protocol, &longer_bytes).is_ok();
        assert_eq!(is_read, protocol == BftProtocol::Qbft);
    }
    let other = BftExtra::decode(BftProtocol::Ibft2, &chain("qbft")[1].header.extra_data);
    let error = other.unwrap_err().to_string();
    assert!(error.contains("IBFT 2.0"), "{error}");
}
