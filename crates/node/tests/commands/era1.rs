//! ERA1 and Ere archives, written and read back.

use crate::support::{HEAD, TestDir, chain_file};
use std::path::{Path, PathBuf};

#[test]
fn era1_export_and_import_round_trip() {
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let to = dir.path("blocks.era1");
    let export = "blocks export --format ERA1 --to";
    let all = dir.run(export, &[&to]);
    all.failed(&["proof of stake", "--format RLP"]);
    assert!(!dir.path("blocks.era1.part").exists());

    let part = "blocks export --format era1 --end-block 36 --to";
    dir.run(part, &[&to]).succeeded();
    let other = TestDir::new();
    let import = "blocks import --format ERA1 --from";
    let result = other.run(import, &[&to]).succeeded();
    assert_eq!(result.head().0, 35);
    assert_eq!(other.checked_head(), result.head());
    other.import(&chain_file()).succeeded();

    // A truncated file imports the blocks before the end.
    let bytes = std::fs::read(&to).unwrap();
    for part in [1, 3, 5, 7] {
        let torn = TestDir::new();
        let file = torn.file("torn.era1", &bytes[..bytes.len() * part / 8]);
        torn.run(import, &[&file]).failed(&["torn.era1", "cut off"]);
        torn.checked_head();
    }
    // The frame's checksum reveals a damaged header.
    let damaged = TestDir::new();
    let mut bytes = bytes;
    bytes[100] ^= 0x40;
    let file = damaged.file("damaged.era1", &bytes);
    damaged.run(import, &[&file]).failed(&["damaged.era1"]);
    damaged.checked_head();
}

/// The archives of real chains: 8192 blocks each, named by their accumulator.
#[test]
fn era1_files_of_real_chains_round_trip_with_their_accumulator() {
    let Some(folder) = niwaki_testkit::corpus("mainnet-blocks/chains") else {
        return;
    };
    for (network, name) in [
        ("mainnet", "mainnet-00000-5ec1ffb8.era1"),
        ("sepolia", "sepolia-00000-643a00f7.era1"),
    ] {
        let archive: PathBuf = folder.join(name);
        let dir = TestDir::new();
        let run = |words: &str, files: &[&Path]| {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_niwaki"))
                .args(["--network", network, "--data-path"])
                .arg(dir.data_path())
                .args(words.split_whitespace())
                .args(files)
                .output();
            crate::support::CommandResult::of(&output.unwrap()).succeeded()
        };
        let result = run("blocks import --format ERA1 --from", &[&archive]);
        assert_eq!(result.head().0, 8191);
        let out = dir.path("out.era1");
        run("blocks export --format ERA1 --to", &[&out]);
        assert_eq!(run("storage check", &[]).head(), result.head());
        let accumulator = |path: &Path| {
            let bytes = std::fs::read(path).unwrap();
            // The index entry is last: head, first number, an offset per block, their count.
            let index = 8 + 8 * (8192 + 2);
            bytes[bytes.len() - index - 32..bytes.len() - index].to_vec()
        };
        assert_eq!(accumulator(&out), accumulator(&archive));
    }
}

#[test]
fn ere_files_hold_blocks_of_all_forks_and_are_imported_in_turn() {
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let [first, second] = ["first.ere", "second.ere"].map(|name| dir.path(name));
    let export = "blocks export --format ERE --end-block 37 --to";
    dir.run(export, &[&first]).succeeded();
    let export = "blocks export --format ERE --start-block 37 --to";
    dir.run(export, &[&second]).succeeded();
    let other = TestDir::new();
    let import = "blocks import --format ERE --from";
    let result = other.run(import, &[&first, &second]).succeeded();
    assert_eq!(result.head(), (54, HEAD.to_owned()));
    assert_eq!(other.checked_head(), result.head());

    let bytes = std::fs::read(&first).unwrap();
    let cut = TestDir::new();
    let file = cut.file("cut.ere", &bytes[..bytes.len() / 2]);
    cut.run(import, &[&file]).failed(&["cut.ere", "damaged"]);
    let mut damaged = bytes;
    damaged[100] ^= 0x40;
    let file = cut.file("changed.ere", &damaged);
    cut.run(import, &[&file]).failed(&["changed.ere"]);
    cut.checked_head();
}
