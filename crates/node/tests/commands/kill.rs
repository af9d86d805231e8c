//! SIGKILL at random points: the database opens again at a whole block.

use crate::support::{TestDir, blocks, chain_file, genesis_file, growth, kill_at};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// Number of kills: 100, or `NIWAKI_KILLS`.
fn kill_count() -> u32 {
    let text = std::env::var("NIWAKI_KILLS");
    text.map_or(100, |text| text.parse().expect("NIWAKI_KILLS is a number"))
}

#[test]
fn a_hundred_kills_during_import_lose_nothing() {
    kill_again_and_again(&genesis_file(), &chain_file(), kill_count());
}

/// 3,000 blocks: the longest of the corpus.
#[test]
fn kills_during_the_import_of_a_longer_chain_lose_nothing() {
    if let Some(folder) = niwaki_testkit::corpus("rpc-engine-p2p/hive/sync") {
        kill_again_and_again(
            &folder.join("genesis.json"),
            &folder.join("chain.rlp"),
            kill_count(),
        );
    }
}

/// Imports, kills the process when it has written a random part of what a whole import writes, and checks
/// the database; continues on the same data path until the chain is complete, then on a new one.
fn kill_again_and_again(genesis: &Path, file: &Path, wanted: u32) {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let new_place = || {
        let mut dir = TestDir::new();
        dir.genesis = genesis.to_owned();
        dir
    };
    let hashes = hashes(&new_place(), file);
    let last = hashes.len() as u64 - 1;

    let dir = new_place();
    let whole = growth(&mut import(&dir, file), &dir.data_path());

    let (mut kills, mut partial, mut runs) = (0, 0, 0);
    while kills < wanted || partial == 0 {
        let dir = new_place();
        let mut head = 0;
        loop {
            runs += 1;
            assert!(runs < 100 * wanted, "imports end before they can be killed");
            let bytes = random.random_range(1..=whole);
            let status = kill_at(&mut import(&dir, file), &dir.data_path(), bytes);
            assert!(status.success() || status.code().is_none(), "{status}");
            let was_killed = !status.success();
            // An early kill leaves an empty data path or none.
            if was_killed && !dir.data_path().join("database/CURRENT").exists() {
                kills += 1;
                continue;
            }
            let (number, hash) = dir.checked_head();
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

fn import(dir: &TestDir, file: &Path) -> Command {
    dir.command("blocks import --from", &[file])
}

/// The block hashes, by number.
fn hashes(dir: &TestDir, file: &Path) -> HashMap<u64, String> {
    let none = dir.run("blocks import --end-block 1 --from", &[file]);
    let mut hashes = HashMap::from([none.succeeded().head()]);
    for rlp in blocks(file) {
        let block: niwaki_primitives::Block = alloy_rlp::decode_exact(rlp).unwrap();
        hashes.insert(block.header.number, block.header.hash_slow().to_string());
    }
    hashes
}
