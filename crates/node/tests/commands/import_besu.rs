//! A stopped Besu's data folder taken over from the command line, and what the node answers then.

use crate::running::Node;
use crate::support::TestDir;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What Besu answered of states of its blocks, the last ones at block 264.
const CALLS: &str = include_str!("../../../../testdata/besu-folder/state-calls.jsonl");

fn folders() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/besu-folder")
}

fn dir_of_besus_chain() -> TestDir {
    let mut dir = TestDir::new();
    dir.genesis = folders().join("genesis.json");
    dir
}

/// The keys of a proof as quantities: Besu writes whole bytes.
fn with_short_keys(mut result: Value) -> Value {
    let proofs = result.get_mut("storageProof").and_then(Value::as_array_mut);
    for proof in proofs.into_iter().flatten() {
        let key = proof["key"].as_str().unwrap();
        let short = key[2..].trim_start_matches('0');
        proof["key"] = format!("0x{}", if short.is_empty() { "0" } else { short }).into();
    }
    result
}

#[test]
fn what_besu_answered_of_its_states_is_answered_after_its_folder_is_taken_over() {
    for (name, executed, compared) in [("forest", 512, 848), ("bonsai", 6, 771)] {
        let dir = dir_of_besus_chain();
        let words = format!("storage import-besu --execute-last {executed} --from");
        let taken = dir.run(&words, &[&folders().join(name)]).succeeded();
        assert_eq!(taken.head().0, 270);
        let again = dir.run(&words, &[&folders().join(name)]).succeeded();
        assert!(again.out.contains("0 blocks executed"), "{again:?}");
        assert_eq!(dir.checked_head(), taken.head());
        let node = Node::start(dir, "");
        let mut equal = 0;
        for line in CALLS.lines() {
            let call: Value = serde_json::from_str(line).unwrap();
            let mut response = node.call(call["method"].as_str().unwrap(), call["params"].clone());
            // Of an account that is not there Besu proves no slots.
            if call["result"]["storageProof"] == json!([]) {
                response["result"]["storageProof"] = json!([]);
            }
            let is_gone = response["error"]["message"].to_string();
            match executed {
                // States of blocks that were not executed can't be read.
                6 if is_gone.contains("state") => {}
                _ => {
                    let same = with_short_keys(call["result"].clone()) == response["result"];
                    assert!(same, "{} {}", call["method"], call["params"]);
                    equal += 1;
                }
            }
        }
        assert_eq!(equal, compared, "{name}");
    }
}

#[test]
fn folders_that_are_not_besus_or_in_use_and_a_stranger_to_the_genesis_are_refused() {
    let dir = dir_of_besus_chain();
    let refused = dir.run("storage import-besu --from", &[&folders()]);
    refused.failed(&["DATABASE_METADATA.json", "Besu's --data-path"]);
    let other = TestDir::new();
    let refused = other.run("storage import-besu --from", &[&folders().join("forest")]);
    refused.failed(&["is of the chain with genesis", "--genesis-file"]);

    // The database of a node that runs, as if it were Besu's.
    let node = Node::dev("");
    let besu = dir.path("besu");
    std::fs::create_dir(&besu).unwrap();
    let metadata = "DATABASE_METADATA.json";
    std::fs::copy(folders().join("forest").join(metadata), besu.join(metadata)).unwrap();
    std::os::unix::fs::symlink(node.dir.data_path().join("database"), besu.join("database"))
        .unwrap();
    let refused = dir.run("storage import-besu --from", &[&besu]);
    refused.failed(&["open; stop it first"]);
}
