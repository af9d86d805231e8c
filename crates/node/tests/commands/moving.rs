//! States and trie logs exported from one data path and imported into another.

use crate::support::{HEAD, TestDir, chain_file, genesis_file, growth, kill_at};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write;

#[test]
fn an_exported_state_is_imported_and_the_chain_continues() {
    let from = TestDir::new();
    from.run("blocks import --end-block 42 --from", &[&chain_file()])
        .succeeded();
    let file = from.path("state");
    let exported = from.run("storage export --to", &[&file]).succeeded();
    assert_eq!(exported.head().0, 41);
    from.run("storage export --to", &[&file])
        .failed(&["exists already", "--to"]);

    let to = TestDir::new();
    let imported = to.run("storage import --from", &[&file]).succeeded();
    assert_eq!(imported.head(), exported.head());
    assert!(imported.out.contains("peak memory"), "{imported:?}");
    assert_eq!(to.checked_head(), exported.head());
    to.run("storage import --from", &[&file])
        .failed(&["holds a chain already"]);
    assert_eq!(to.import(&chain_file()).succeeded().head().1, HEAD);
    assert_eq!(to.checked_head().1, HEAD);

    // An archive that starts from an imported state has no older history.
    let archive = TestDir::new();
    let words = "--data-storage-format=X_BONSAI_ARCHIVE storage import --from";
    archive.run(words, &[&file]).succeeded();
    archive.import(&chain_file()).succeeded();
    let account = |number: u64| {
        let words = format!("storage account 0x{:040x} --block {number}", 1);
        archive.run(&words, &[])
    };
    account(41).succeeded();
    account(50).succeeded();
    account(40).failed(&["block 40"]);

    let odd = to.file("odd", b"something else");
    let fresh = TestDir::new();
    fresh
        .run("storage import --from", &[&odd])
        .failed(&["odd", "not an exported state"]);
    let missing = fresh
        .run("storage import --from", &[&fresh.path("none")])
        .failed(&["none", "No such file"]);
    assert_eq!(missing.errors.matches("No such file").count(), 1);
    assert!(!fresh.data_path().exists());
    let mut other = TestDir::new();
    let genesis = std::fs::read_to_string(genesis_file()).unwrap();
    let changed = genesis.replacen("0x5f5e100", "0x5f5e101", 1);
    other.genesis = other.file("genesis.json", changed.as_bytes());
    other
        .run("storage import --from", &[&file])
        .failed(&["chain with genesis", "--genesis-file"]);
}

#[test]
fn an_interrupted_export_is_resumed() {
    let from = TestDir::new();
    from.run("blocks import --end-block 42 --from", &[&chain_file()])
        .succeeded();
    let file = from.path("state");
    let export = || from.run("storage export --to", &[&file]).succeeded();
    let whole = export();
    assert!(!whole.errors.contains("state.part"), "{whole:?}");
    assert!(!whole.out.contains("there already"), "{whole:?}");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();

    let half = &bytes[..bytes.len() / 2];
    from.file("state.part", half);
    let resumed = export();
    let words = format!("state.part has {} bytes of the same state", half.len());
    assert!(resumed.errors.contains(&words), "{resumed:?}");
    assert!(resumed.out.contains("were there already"), "{resumed:?}");
    assert!(std::fs::read(&file).unwrap() == bytes);
    assert!(!from.path("state.part").exists());
    std::fs::remove_file(&file).unwrap();

    from.import(&chain_file()).succeeded();
    from.file("state.part", half);
    let again = export();
    let words = "state.part is written from the start: it is of block 41 0x";
    assert!(again.errors.contains(words), "{again:?}");
    assert_eq!(again.head().1, HEAD);
    let to = TestDir::new();
    let imported = to.run("storage import --from", &[&file]).succeeded();
    assert_eq!(imported.head().1, HEAD);
}

/// The 3,000 blocks of the corpus: more than a state carries.
#[test]
fn an_imported_state_brings_257_blocks_and_not_the_older_ones() {
    let Some(folder) = niwaki_testkit::corpus("rpc-engine-p2p/hive/sync") else {
        return;
    };
    let new_place = || {
        let mut dir = TestDir::new();
        dir.genesis = folder.join("genesis.json");
        dir
    };
    let (from, to) = (new_place(), new_place());
    let file = folder.join("chain.rlp");
    from.run("blocks import --end-block 2901 --from", &[&file])
        .succeeded();
    let state = from.path("state");
    from.run("storage export --to", &[&state]).succeeded();
    let imported = to.run("storage import --from", &[&state]).succeeded();
    assert_eq!(imported.head().0, 2900);
    let check = to.run("storage check", &[]).succeeded();
    assert!(check.out.contains("checked 257 blocks"), "{check:?}");
    to.run("blocks import --start-block 2901 --from", &[&file])
        .succeeded();
    assert_eq!(to.checked_head().0, 3000);
}

#[test]
fn kills_during_the_import_of_a_state_lose_nothing() {
    // More than is held in memory at once.
    let mut text =
        r#"{"config": {"chainId": 7, "londonBlock": 0}, "gasLimit": 1, "alloc": {"#.to_owned();
    for at in 0..60_000_u32 {
        let comma = if at == 0 { "" } else { "," };
        let address = at.wrapping_mul(0x9e37_79b1);
        write!(text, "{comma}\n\"0x{address:040x}\": {{\"balance\": {at}}}").unwrap();
    }
    text.push_str("}}");
    let mut from = TestDir::new();
    from.genesis = from.file("genesis.json", text.as_bytes());
    let head = from
        .run("storage check --head-only", &[])
        .succeeded()
        .head();
    let file = from.path("state");
    from.run("storage export --to", &[&file]).succeeded();

    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut to = TestDir::new();
    to.genesis = from.genesis.clone();
    let import = || to.command("storage import --from", &[&file]);
    let whole = growth(&mut import(), &to.data_path());
    let (mut cut_short, mut rounds) = (0, 0);
    while cut_short < 10 {
        rounds += 1;
        assert!(rounds < 500, "imports end before they can be killed");
        std::fs::remove_dir_all(to.data_path()).unwrap();
        for _ in 0..2 {
            let bytes = random.random_range(1..=whole);
            kill_at(&mut import(), &to.data_path(), bytes);
            cut_short += u32::from(to.data_path().join("loading").exists());
        }
        let result = to.run("storage import --from", &[&file]);
        if result.code != Some(0) {
            // The process exited before the kill.
            result.failed(&["holds a chain already"]);
        }
        assert_eq!(to.checked_head(), head);
        assert!(!to.data_path().join("loading").exists());
    }
}

#[test]
fn trie_logs_are_counted_exported_pruned_and_imported() {
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let count = |title: &str| {
        let result = dir.run("storage trie-log count", &[]).succeeded();
        result.count(title)
    };
    let titles = ["trie logs", "canonical", "of forks", "orphaned"];
    assert_eq!(titles.map(count), [54, 54, 0, 0]);
    let (range, one) = (dir.path("range"), dir.path("one"));
    let export = "storage trie-log export --start-block 5 --end-block 20 --to";
    let result = dir.run(export, &[&range]).succeeded();
    assert!(result.out.contains("exported 15 trie logs"), "{result:?}");
    // As Besu spells it.
    let export =
        format!("storage trie-log export --trie-log-block-hash={HEAD} --trie-log-file-path");
    let result = dir.run(&export, &[&one]).succeeded();
    assert!(result.out.contains("exported 1 trie logs"), "{result:?}");
    dir.run(
        "storage trie-log export --start-block 99 --end-block 100 --to",
        &[&dir.path("x")],
    )
    .failed(&["no trie logs"]);
    let pruned = dir.run("storage trie-log prune", &[]).succeeded();
    assert!(pruned.out.contains("removed 0 trie logs"), "{pruned:?}");
    let imported = dir
        .run("storage trie-log import --from", &[&range])
        .succeeded();
    assert!(
        imported.out.contains("imported 0 trie logs"),
        "{imported:?}"
    );

    let young = TestDir::new();
    young
        .run("blocks import --end-block 9 --from", &[&chain_file()])
        .succeeded();
    young
        .run("storage trie-log import --from", &[&range])
        .failed(&["block 9", "not stored", "nothing was imported"]);
    let odd = young.file("odd", &std::fs::read(&range).unwrap()[..500]);
    young
        .run("storage trie-log import --from", &[&odd])
        .failed(&["odd", "damaged"]);
    assert_eq!(dir.checked_head().1, HEAD);
}
