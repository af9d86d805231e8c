//! Killed without warning, at random points of its work, the database opens again at a whole block.

use crate::support::{Place, blocks, chain_file, genesis_file, growth, kill_at};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// How many kills: 100, or as many as `NIWAKI_KILLS` says.
fn wanted() -> u32 {
    let text = std::env::var("NIWAKI_KILLS");
    text.map_or(100, |text| text.parse().expect("NIWAKI_KILLS is a number"))
}

#[test]
fn a_hundred_kills_during_import_lose_nothing() {
    kill_again_and_again(&genesis_file(), &chain_file(), wanted());
}

/// 3,000 blocks: the longest of the corpus.
#[test]
fn kills_during_the_import_of_a_longer_chain_lose_nothing() {
    if let Some(folder) = niwaki_testkit::corpus("rpc-engine-p2p/hive/sync") {
        kill_again_and_again(
            &folder.join("genesis.json"),
            &folder.join("chain.rlp"),
            wanted(),
        );
    }
}

/// Imports, kills the process when it has written a random part of what a whole import writes, and looks
/// at what is there; goes on with the same data path until the chain is whole, then with a new one.
fn kill_again_and_again(genesis: &Path, file: &Path, wanted: u32) {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let new_place = || {
        let mut place = Place::new();
        place.genesis = genesis.to_owned();
        place
    };
    let hashes = hashes(&new_place(), file);
    let last = hashes.len() as u64 - 1;

    let place = new_place();
    let whole = growth(&mut import(&place, file), &place.data_path());

    let (mut kills, mut partial, mut runs) = (0, 0, 0);
    while kills < wanted || partial == 0 {
        let place = new_place();
        let mut head = 0;
        loop {
            runs += 1;
            assert!(runs < 100 * wanted, "imports end before they can be killed");
            let bytes = random.random_range(1..=whole);
            let status = kill_at(&mut import(&place, file), &place.data_path(), bytes);
            assert!(status.success() || status.code().is_none(), "{status}");
            let was_killed = !status.success();
            // A kill before there is anything leaves an empty or no data path.
            if was_killed && !place.data_path().join("database/CURRENT").exists() {
                kills += 1;
                continue;
            }
            let (number, hash) = place.checked_head();
            assert!(
                number >= head,
                "block {head} was lost, the head is {number}"
            );
            assert_eq!(hash, hashes[&number], "block {number}");
            head = number;
            if was_killed {
                kills += 1;
                partial += u32::from((1..last).contains(&number));
            } else {
                break;
            }
        }
        assert_eq!(head, last);
    }
    println!("{kills} kills in {runs} imports, {partial} with a part of the chain on disk");
}

fn import(place: &Place, file: &Path) -> Command {
    place.command("blocks import --from", &[file])
}

/// Of each block, by number.
fn hashes(place: &Place, file: &Path) -> HashMap<u64, String> {
    let none = place.run("blocks import --end-block 1 --from", &[file]);
    let mut hashes = HashMap::from([none.succeeded().head()]);
    for rlp in blocks(file) {
        let block: niwaki_primitives::Block = alloy_rlp::decode_exact(rlp).unwrap();
        hashes.insert(block.header.number, block.header.hash_slow().to_string());
    }
    hashes
}
