//! Importing, stopping, going on, exporting.

use crate::support::{Ended, HEAD, Place, blocks, chain_file, genesis_file};
use std::process::{Command, Stdio};

#[test]
fn a_chain_through_all_forks_is_imported_and_passes_the_check() {
    let place = Place::new();
    let ended = place.import(&chain_file()).succeeded();
    assert_eq!(ended.head(), (54, HEAD.to_owned()));
    assert_eq!(ended.count("imported"), 54);
    for line in ["speed", "per block", "phases", "peak memory"] {
        assert!(ended.out.contains(line), "{}", ended.out);
    }
    assert_eq!(place.checked_head(), (54, HEAD.to_owned()));
}

/// Chains of other projects, each with its genesis file: head, and a check that finds nothing.
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
        let mut place = Place::new();
        place.genesis = folder.join("genesis.json");
        let ended = place.import(&folder.join("chain.rlp")).succeeded();
        let (got, hash) = ended.head();
        assert_eq!((got, &hash[2..10]), (number, head), "{}", folder.display());
        assert_eq!(place.checked_head(), (got, hash));
    }
}

#[test]
fn flags_may_precede_or_follow_the_command() {
    let place = Place::new();
    let output = Command::new(env!("CARGO_BIN_EXE_niwaki"))
        .args(["blocks", "import", "--format", "rlp"])
        .arg(chain_file())
        .arg("--genesis-file")
        .arg(genesis_file())
        .arg("--data-path")
        .arg(place.data_path())
        .output()
        .unwrap();
    assert_eq!(Ended::of(&output).succeeded().head().1, HEAD);
}

#[test]
fn an_interrupted_import_continues() {
    let place = Place::new();
    let halfway = place.run("blocks import --end-block 31 --from", &[&chain_file()]);
    let halfway = halfway.succeeded();
    assert_eq!(halfway.head().0, 30);
    assert_eq!(halfway.count("left out"), 24);

    let rest = place.import(&chain_file()).succeeded();
    assert_eq!(rest.head().1, HEAD);
    assert_eq!(
        (rest.count("there before"), rest.count("imported")),
        (30, 24)
    );

    let again = place.import(&chain_file()).succeeded();
    assert_eq!(again.head().1, HEAD);
    assert_eq!(
        (again.count("there before"), again.count("imported")),
        (54, 0)
    );
}

#[test]
fn a_chain_in_several_files_is_imported_in_their_order() {
    let place = Place::new();
    let blocks = blocks(&chain_file());
    let first = place.file("first.rlp", &blocks[..20].concat());
    let second = place.file("second.rlp", &blocks[20..].concat());
    let ended = place.run("blocks import --from", &[&first, &second]);
    assert_eq!(ended.succeeded().head().1, HEAD);
}

#[test]
fn a_full_export_equals_the_imported_file() {
    let place = Place::new();
    place.import(&chain_file()).succeeded();
    let to = place.path("export.rlp");
    let export = "blocks export --start-block 1 --to";
    place.run(export, &[&to]).succeeded();
    assert_eq!(
        std::fs::read(&to).unwrap(),
        std::fs::read(chain_file()).unwrap()
    );
    assert!(!place.path("export.rlp.part").exists());
    place
        .run(export, &[&to])
        .failed(&["exists already", "--to"]);

    // The end is not part of the range, and the genesis block is passed over at import.
    let some = place.path("some.rlp");
    place
        .run("blocks export --end-block 8 --to", &[&some])
        .succeeded();
    let other = Place::new();
    let ended = other.import(&some).succeeded();
    assert_eq!(ended.head().0, 7);
    place
        .run("blocks export --end-block 99 --to", &[&place.path("x")])
        .failed(&["99", "beyond the head", "54"]);
    place
        .run(
            "blocks export --start-block 9 --end-block 9 --to",
            &[&place.path("x")],
        )
        .failed(&["--start-block 9", "no block lies between"]);
}

#[test]
fn an_interrupted_import_stops_after_a_whole_block() {
    // Many copies of the chain: the process is still reading when it is told to stop.
    let place = Place::new();
    let many = vec![std::fs::read(chain_file()).unwrap(); 4000].concat();
    let file = place.file("many.rlp", &many);
    let mut command = place.command("blocks import --from", &[&file]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The data path is made after the process has begun to listen.
    while !place.data_path().exists() {
        std::thread::yield_now();
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(
        ended.errors.contains("the same command goes on"),
        "{ended:?}"
    );
    assert_eq!(place.checked_head(), ended.head());
    assert_eq!(place.import(&chain_file()).succeeded().head().1, HEAD);
}

#[test]
fn transaction_threads_are_as_requested_and_at_least_1() {
    let head = |threads: &str| {
        let flags = format!(
            "--bonsai-parallel-tx-processing-enabled --transaction-threads={threads} \
             blocks import --from"
        );
        Place::new().run(&flags, &[&chain_file()])
    };
    for threads in ["1", "3"] {
        assert_eq!(head(threads).succeeded().head().1, HEAD, "{threads}");
    }
    let none = head("0");
    assert_eq!(none.code, Some(2));
    assert!(none.errors.contains("1..=1024"), "{}", none.errors);
}
