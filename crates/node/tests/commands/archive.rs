//! Past states of a chain, from the command line.

use crate::support::{TestDir, chain_file};
use serde_json::Value;

fn shown(dir: &TestDir, line: &str) -> Value {
    let result = dir.run(line, &[]).succeeded();
    serde_json::from_str(&result.out).unwrap()
}

/// The beacon roots contract, written in every block from Cancun on.
const ACCOUNT: &str = "0x000f3df6d732807ef1319fb7b8bb8522d0beac02";

#[test]
fn an_archive_and_bonsai_prove_the_same_past_states() {
    let archive = TestDir::new();
    archive
        .run(
            "--data-storage-format=X_BONSAI_ARCHIVE blocks import --from",
            &[&chain_file()],
        )
        .succeeded();
    let recent = TestDir::new();
    recent.import(&chain_file()).succeeded();
    let mut roots = std::collections::BTreeSet::new();
    for number in 0..=54 {
        let line = format!("storage account {ACCOUNT} --block {number} --slot 7 --proof");
        let past = shown(&archive, &line);
        assert_eq!(past, shown(&recent, &line), "block {number}");
        assert!(!past["accountProof"].as_array().unwrap().is_empty());
        roots.insert(past["storageHash"].to_string());
    }
    assert!(
        roots.len() > 5,
        "the contract writes from Cancun on: {roots:?}"
    );

    let refused = recent.run(&format!("storage account {ACCOUNT} --block 55"), &[]);
    refused.failed(&["there is no block 55, the head is block 54"]);
    let other = archive.run("--data-storage-format=BONSAI storage check", &[]);
    other.failed(&["created with --data-storage-format=X_BONSAI_ARCHIVE"]);
    archive.run("storage check", &[]).succeeded();
}
