//! Killed without warning, at random moments, the database opens again at a whole block.

use crate::support::{Place, blocks, chain_file, genesis_file};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

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

/// Imports, kills the process after a random part of the time that a whole import takes, and looks
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

    let whole = Instant::now();
    new_place().import(file).succeeded();
    // Only how the moments spread hangs on this time, not what is asserted.
    let whole = whole.elapsed();

    let (mut kills, mut partial, mut runs) = (0, 0, 0);
    while kills < wanted {
        let place = new_place();
        let mut head = 0;
        loop {
            runs += 1;
            assert!(runs < 100 * wanted, "imports end before they can be killed");
            let time = whole.mul_f64(random.random_range(0.0..1.0));
            let was_killed = kill_after(&place, file, time);
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
    assert!(
        partial > 0,
        "no kill fell between the first block and the last"
    );
}

/// Whether the import was killed before its end.
fn kill_after(place: &Place, file: &Path, time: Duration) -> bool {
    let mut command = place.command("blocks import --from", &[file]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The moment of death is the test's input: only time can spread it over the whole import.
    std::thread::sleep(time);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() || status.code().is_none(), "{status}");
    !status.success()
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
