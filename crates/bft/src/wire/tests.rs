//! Messages of Besu's validators, as they went over the wire: read, and written again byte by byte.

use super::*;
use niwaki_primitives::Address;
use niwaki_rules::{BftExtra, bft_block_hash, bft_seal_hash, recover_seal};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// A message that was recorded.
#[derive(Clone)]
struct Recorded {
    protocol: BftProtocol,
    code: u8,
    view: View,
    author: Address,
    bytes: Vec<u8>,
}

fn recorded(network: &str) -> Vec<Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bft");
    let packed = std::fs::read(folder.join(network).join("messages.jsonl.zst")).unwrap();
    let mut text = vec![0; 16 << 20];
    let length = zstd_safe::decompress(&mut text[..], &packed).unwrap();
    text.truncate(length);
    let text = String::from_utf8(text).unwrap();
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| line[key].as_u64().unwrap();
        Recorded {
            protocol: match line["cap"].as_str().unwrap() {
                "istanbul/100" => BftProtocol::Qbft,
                _ => BftProtocol::Ibft2,
            },
            code: u8::try_from(number("code")).unwrap(),
            view: View {
                height: number("height"),
                round: u32::try_from(number("round")).unwrap(),
            },
            author: line["sender"].as_str().unwrap().parse().unwrap(),
            bytes: hex::decode(line["rlp"].as_str().unwrap()).unwrap(),
        }
    };
    text.lines().map(read).collect()
}

const NETWORKS: [(&str, usize); 4] = [
    ("qbft", 941),
    ("ibft", 591),
    ("qbft-contract", 0),
    ("ibft-to-qbft", 0),
];

#[test]
fn every_message_of_besu_is_read_and_written_again() {
    for (network, count) in NETWORKS {
        let all = recorded(network);
        assert!(all.len() >= count.max(1), "{network}: {}", all.len());
        for Recorded {
            protocol,
            code,
            view,
            author,
            bytes,
        } in all
        {
            let message = Message::decode(protocol, code, &bytes).unwrap();
            assert_eq!((message.view(), message.author()), (view, author));
            assert_eq!(message.kind().code(protocol), code);
            let form = Form {
                protocol,
                has_access_list: true,
            };
            assert_eq!(hex::encode(message.encode(form)), hex::encode(&bytes));
        }
    }
}

#[test]
fn a_message_cut_anywhere_or_with_a_byte_more_is_refused() {
    for network in ["qbft", "ibft"] {
        // The longest of each kind has all there is.
        let mut longest = BTreeMap::new();
        for own in recorded(network) {
            let known: &mut Recorded = longest.entry(own.code).or_insert(own.clone());
            if own.bytes.len() > known.bytes.len() {
                *known = own;
            }
        }
        assert_eq!(longest.len(), 4, "{network}");
        for (code, own) in longest {
            let (protocol, bytes) = (own.protocol, own.bytes);
            for end in 0..bytes.len() {
                assert!(Message::decode(protocol, code, &bytes[..end]).is_err());
            }
            let more = [&bytes[..], &[0]].concat();
            assert!(Message::decode(protocol, code, &more).is_err());
        }
    }
}

/// The digest of a block in a round as validators sign it: with the round in the header, without seals.
fn digest(protocol: BftProtocol, block: &Block) -> B256 {
    let extra = BftExtra::decode(protocol, &block.header.extra_data).unwrap();
    bft_seal_hash(protocol, &block.header, &extra)
}

#[test]
fn digests_and_seals_are_those_of_the_proposed_blocks() {
    for network in ["qbft", "ibft"] {
        let mut blocks = HashMap::new();
        let mut checked = 0;
        for recorded in recorded(network) {
            let protocol = recorded.protocol;
            let message = Message::decode(protocol, recorded.code, &recorded.bytes).unwrap();
            match message {
                Message::Proposal(proposal) => {
                    assert!(bft_block_hash(protocol, &proposal.block.header).is_ok());
                    let digest = digest(protocol, &proposal.block);
                    let signed = proposal.signed.payload.digest;
                    assert!(signed.is_none_or(|signed| signed == digest));
                    blocks.insert((recorded.view, digest), proposal.block);
                }
                Message::Prepare(prepare) => {
                    let key = (prepare.payload.view, prepare.payload.digest);
                    checked += usize::from(blocks.contains_key(&key));
                }
                Message::Commit(commit) => {
                    let CommitPayload { view, digest, seal } = commit.payload;
                    let Some(block) = blocks.get(&(view, digest)) else {
                        continue;
                    };
                    let mut extra = BftExtra::decode(protocol, &block.header.extra_data).unwrap();
                    extra.round = view.round;
                    let hash = bft_seal_hash(protocol, &block.header, &extra);
                    assert_eq!(recover_seal(&hash, &seal), Ok(commit.author()));
                    checked += 1;
                }
                Message::RoundChange(_) => {}
            }
        }
        assert!(checked > 300, "{network}: {checked}");
    }
}

/// What is signed here is what Besu would have signed: the same bytes but for the signature, which is not of the same key.
#[test]
fn what_is_signed_here_has_the_form_of_what_besu_signs() {
    let key = B256::repeat_byte(7);
    let author = niwaki_crypto::address_of_secret_key(&key).unwrap();
    for network in ["qbft", "ibft"] {
        for recorded in recorded(network) {
            let (protocol, code) = (recorded.protocol, recorded.code);
            let message = Message::decode(protocol, code, &recorded.bytes).unwrap();
            let form = Form {
                protocol,
                has_access_list: true,
            };
            let own = resigned(form, &message, &key);
            assert_eq!(own.author(), author);
            let bytes = own.encode(form);
            let read = Message::decode(protocol, code, &bytes).unwrap();
            assert_eq!(read, own);
            assert_eq!(bytes.len(), recorded.bytes.len());
        }
    }
}

/// The same message, signed with another key.
fn resigned(form: Form, message: &Message, key: &B256) -> Message {
    let signer = Signer::new(form, *key).unwrap();
    match message.clone() {
        Message::Proposal(mut proposal) => {
            let ProposalPayload { view, digest } = proposal.signed.payload;
            let (block, list) = (&proposal.block, proposal.access_list.as_ref());
            let signed = signer.proposal(view, block, list, digest.unwrap_or_default());
            proposal.signed = signed.unwrap();
            Message::Proposal(proposal)
        }
        Message::Prepare(prepare) => Message::Prepare(signer.prepare(prepare.payload).unwrap()),
        Message::Commit(commit) => Message::Commit(signer.commit(commit.payload).unwrap()),
        Message::RoundChange(mut change) => {
            let payload = change.signed.payload.clone();
            change.signed = signer.round_change(payload).unwrap();
            Message::RoundChange(change)
        }
    }
}
