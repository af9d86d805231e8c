//! Imports and exports, whole and interrupted.

use crate::support::{CommandResult, HEAD, TestDir, blocks, chain_file, genesis_file};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_chain_through_all_forks_is_imported_and_passes_the_check() {
    let dir = TestDir::new();
    let result = dir.import(&chain_file()).succeeded();
    assert_eq!(result.head(), (54, HEAD.to_owned()));
    assert_eq!(result.count("imported"), 54);
    for line in ["speed", "per block", "phases", "peak memory"] {
        assert!(result.out.contains(line), "{}", result.out);
    }
    assert_eq!(dir.checked_head(), (54, HEAD.to_owned()));
}

/// Chains of other projects, each with its genesis file: the expected head, and a check without problems.
#[test]
fn the_chains_of_the_corpus_are_imported_to_their_heads() {
    let Some(corpus) = niwaki_testkit::corpus("rpc-engine-p2p") else {
        return;
    };
    for (folder, number, head) in [
        ("execution-apis/tests", 54, "d226371d"),
        ("hive/sync", 3000, "d4a8090b"),
        ("go-ethereum/devp2p-ethtest", 600, "44e3809c"),
        ("reth/rpc-compat-osaka", 45, "af518117"),
    ] {
        let folder = corpus.join(folder);
        let mut dir = TestDir::new();
        dir.genesis = folder.join("genesis.json");
        let result = dir.import(&folder.join("chain.rlp")).succeeded();
        let (got, hash) = result.head();
        assert_eq!((got, &hash[2..10]), (number, head), "{}", folder.display());
        assert_eq!(dir.checked_head(), (got, hash));
    }
}

/// Networks of Besu: QBFT, IBFT 2.0, validators by contract, and from one protocol to the other.
#[test]
fn the_chains_of_validators_are_imported_checked_and_exported_as_they_were() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bft");
    for network in ["qbft", "ibft", "qbft-contract", "ibft-to-qbft"] {
        let folder = folders.join(network);
        let mut dir = TestDir::new();
        dir.genesis = folder.join("genesis.json");
        let file = folder.join("chain.rlp");
        let result = dir.import(&file).succeeded();
        let all = blocks(&file);
        assert_eq!(result.head().0, all.len() as u64 - 1, "{network}");
        assert_eq!(dir.checked_head(), result.head());
        let exported = dir.path("exported.rlp");
        dir.run("blocks export --to", &[&exported]).succeeded();
        let exported = blocks(&exported);
        assert_eq!(exported, all[all.len() - exported.len()..], "{network}");
    }
}

#[test]
fn flags_may_precede_or_follow_the_command() {
    let dir = TestDir::new();
    let output = Command::new(env!("CARGO_BIN_EXE_niwaki"))
        .args(["blocks", "import", "--format", "rlp"])
        .arg(chain_file())
        .arg("--genesis-file")
        .arg(genesis_file())
        .arg("--data-path")
        .arg(dir.data_path())
        .output()
        .unwrap();
    assert_eq!(CommandResult::of(&output).succeeded().head().1, HEAD);
}

#[test]
fn an_interrupted_import_continues() {
    let dir = TestDir::new();
    let halfway = dir.run("blocks import --end-block 31 --from", &[&chain_file()]);
    let halfway = halfway.succeeded();
    assert_eq!(halfway.head().0, 30);
    assert_eq!(halfway.count("left out"), 24);

    let rest = dir.import(&chain_file()).succeeded();
    assert_eq!(rest.head().1, HEAD);
    assert_eq!(
        (rest.count("there before"), rest.count("imported")),
        (30, 24)
    );

    let again = dir.import(&chain_file()).succeeded();
    assert_eq!(again.head().1, HEAD);
    assert_eq!(
        (again.count("there before"), again.count("imported")),
        (54, 0)
    );
}

#[test]
fn a_chain_in_several_files_is_imported_in_their_order() {
    let dir = TestDir::new();
    let blocks = blocks(&chain_file());
    let first = dir.file("first.rlp", &blocks[..20].concat());
    let second = dir.file("second.rlp", &blocks[20..].concat());
    let result = dir.run("blocks import --from", &[&first, &second]);
    assert_eq!(result.succeeded().head().1, HEAD);
}

#[test]
fn a_full_export_equals_the_imported_file() {
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let to = dir.path("export.rlp");
    let export = "blocks export --start-block 1 --to";
    dir.run(export, &[&to]).succeeded();
    assert_eq!(
        std::fs::read(&to).unwrap(),
        std::fs::read(chain_file()).unwrap()
    );
    assert!(!dir.path("export.rlp.part").exists());
    dir.run(export, &[&to]).failed(&["exists already", "--to"]);

    // The range excludes its end, and the import skips the genesis block.
    let some = dir.path("some.rlp");
    dir.run("blocks export --end-block 8 --to", &[&some])
        .succeeded();
    let other = TestDir::new();
    let result = other.import(&some).succeeded();
    assert_eq!(result.head().0, 7);
    dir.run("blocks export --end-block 99 --to", &[&dir.path("x")])
        .failed(&["99", "beyond the head", "54"]);
    dir.run(
        "blocks export --start-block 9 --end-block 9 --to",
        &[&dir.path("x")],
    )
    .failed(&["--start-block 9", "there is no block between"]);
}

#[test]
fn an_interrupted_import_stops_after_a_whole_block() {
    // Many copies of the chain, so that the process is still reading when it gets the signal.
    let dir = TestDir::new();
    let many = vec![std::fs::read(chain_file()).unwrap(); 4000].concat();
    let file = dir.file("many.rlp", &many);
    let mut command = dir.command("blocks import --from", &[&file]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The process creates the data path after it has installed its signal handler.
    while !dir.data_path().exists() {
        std::thread::yield_now();
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let result = CommandResult::of(&child.wait_with_output().unwrap());
    assert_eq!(result.code, Some(130), "{result:?}");
    assert!(
        result.errors.contains("the same command continues"),
        "{result:?}"
    );
    assert_eq!(dir.checked_head(), result.head());
    assert_eq!(dir.import(&chain_file()).succeeded().head().1, HEAD);
}

#[test]
fn transaction_threads_are_as_requested_and_at_least_1() {
    let head = |threads: &str| {
        let flags = format!(
            "--bonsai-parallel-tx-processing-enabled --transaction-threads={threads} \
             blocks import --from"
        );
        TestDir::new().run(&flags, &[&chain_file()])
    };
    for threads in ["1", "3"] {
        assert_eq!(head(threads).succeeded().head().1, HEAD, "{threads}");
    }
    let none = head("0");
    assert_eq!(none.code, Some(2));
    assert!(none.errors.contains("1..=1024"), "{}", none.errors);
}

#[test]
fn blocks_before_the_merge_are_removed_only_from_a_merged_chain_and_not_near_the_head() {
    let dir = TestDir::new();
    dir.run("blocks import --end-block 31 --from", &[&chain_file()])
        .succeeded();
    let prune = || dir.run("storage prune-pre-merge-blocks", &[]);
    prune().failed(&["block 30", "not after the Merge", "nothing was removed"]);
    dir.run("blocks import --from", &[&chain_file()])
        .succeeded();
    let pruned = prune().succeeded();
    assert!(pruned.out.contains("removed 0 blocks"), "{pruned:?}");
    dir.run("storage check", &[]).succeeded();
}
