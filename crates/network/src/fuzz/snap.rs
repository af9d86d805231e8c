//! Random messages of `snap`.

use super::values::{bytes, hash, number, some};
use crate::wire::fields::list;
use crate::wire::{Entries, SnapAnswer, SnapItems, SnapKind, SnapRequest, TriePaths};
use niwaki_primitives::Bytes;
use niwaki_primitives::rlp::encode;
use rand::Rng;
use rand::rngs::SmallRng;

pub(super) fn random_request(kind: SnapKind, rng: &mut SmallRng) -> SnapRequest {
    let (root, hashes, most) = (hash(rng), some(rng, 20, hash), number(rng));
    let (origin, limit) = (hash(rng), hash(rng));
    match kind {
        SnapKind::AccountRange => SnapRequest::AccountRange {
            root,
            origin,
            limit,
            bytes: most,
        },
        SnapKind::StorageRanges => SnapRequest::StorageRanges {
            root,
            accounts: hashes,
            origin,
            limit,
            bytes: most,
        },
        SnapKind::ByteCodes => SnapRequest::ByteCodes {
            hashes,
            bytes: most,
        },
        SnapKind::TrieNodes => {
            let paths = |rng: &mut SmallRng| TriePaths {
                account: bytes(rng, 33),
                slots: some(rng, 4, |rng| bytes(rng, 33)),
            };
            let paths = some(rng, 6, paths);
            SnapRequest::TrieNodes {
                root,
                paths,
                bytes: most,
            }
        }
        SnapKind::AccessLists => SnapRequest::AccessLists {
            blocks: hashes,
            bytes: most,
        },
    }
}

pub(super) fn random_answer(kind: SnapKind, rng: &mut SmallRng) -> SnapAnswer {
    let proof = |rng: &mut SmallRng| some(rng, 4, |rng| bytes(rng, 60));
    match kind {
        SnapKind::AccountRange => {
            let account =
                |rng: &mut SmallRng| list(&[&encode(number(rng)), &encode(bytes(rng, 60))]);
            let pairs = some(rng, 6, |rng| (hash(rng), account(rng)));
            let pairs = pairs.iter().map(|(key, slim)| (*key, &slim[..]));
            SnapAnswer::AccountRange {
                accounts: Entries::of(pairs),
                proof: proof(rng),
            }
        }
        SnapKind::StorageRanges => {
            let slots = |rng: &mut SmallRng| {
                let pairs = some(rng, 6, |rng| (hash(rng), encode(bytes(rng, 33))));
                Entries::of(pairs.iter().map(|(key, value)| (*key, &value[..])))
            };
            SnapAnswer::StorageRanges {
                slots: some(rng, 4, slots),
                proof: proof(rng),
            }
        }
        SnapKind::ByteCodes => SnapAnswer::ByteCodes(some(rng, 6, |rng| bytes(rng, 100))),
        SnapKind::TrieNodes => SnapAnswer::TrieNodes(some(rng, 6, |rng| bytes(rng, 100))),
        SnapKind::AccessLists => {
            let access_list = |rng: &mut SmallRng| {
                let list = Bytes::from(list(&[&encode(bytes(rng, 60))]));
                rng.random::<bool>().then_some(list)
            };
            SnapAnswer::AccessLists(some(rng, 6, access_list))
        }
    }
}

/// The message of an answer, with the writers that serving uses.
pub(super) fn written(id: u64, answer: &SnapAnswer) -> Vec<u8> {
    let mut items = SnapItems::new(usize::MAX);
    match answer {
        SnapAnswer::AccountRange { accounts, proof } => {
            for (key, slim) in accounts.iter() {
                items.push_account(&key, slim);
            }
            return items.range_answer(id, proof);
        }
        SnapAnswer::StorageRanges { slots, proof } => {
            for slots in slots {
                match slots.is_empty() {
                    // Serving leaves it out.
                    true => items.push_raw(&[0xc0]),
                    false => {
                        let mut list = items.slots(usize::MAX);
                        slots.iter().for_each(|(key, value)| list.push(&key, value));
                        list.finish();
                    }
                }
            }
            return items.range_answer(id, proof);
        }
        SnapAnswer::ByteCodes(all) | SnapAnswer::TrieNodes(all) => {
            all.iter().for_each(|bytes| items.push_string(bytes));
        }
        SnapAnswer::AccessLists(all) => {
            for list in all {
                match list {
                    Some(list) => items.push_raw(list),
                    None => items.push_string(&[]),
                }
            }
        }
    }
    items.answer(id)
}
