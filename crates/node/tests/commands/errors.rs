//! Bad input and failing disks: the error message, and that no block is lost.

use crate::support::{HEAD, TestDir, blocks, chain_file, genesis_file};
use niwaki_chain::{Chain, ChainConfig, GenesisBlock, StateOptions, StorageOptions};
use niwaki_primitives::{B256, Block};
use niwaki_rules::Genesis;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Imports the whole chain and checks it.
fn assert_goes_on(dir: &TestDir) {
    assert_eq!(dir.import(&chain_file()).succeeded().head().1, HEAD);
    assert_eq!(dir.checked_head().1, HEAD);
}

#[test]
fn a_truncated_file_imports_the_blocks_before_the_end() {
    let blocks = blocks(&chain_file());
    let whole = blocks[..20].concat().len();
    // In the RLP list header, in the block header, before the last byte.
    for cut in [1, 2, 100, blocks[20].len() - 1] {
        let dir = TestDir::new();
        let bytes = &std::fs::read(chain_file()).unwrap()[..whole + cut];
        let file = dir.file("cut.rlp", bytes);
        let offset = format!("byte {whole}");
        let result = dir.import(&file);
        let result = result.failed(&["cut off", "cut.rlp", &offset, "the head is block 20"]);
        assert_eq!(result.head().0, 20);
        assert_goes_on(&dir);
    }
}

#[test]
fn an_invalid_block_is_named_with_its_rule_and_both_values() {
    let dir = TestDir::new();
    let blocks = blocks(&chain_file());
    let mut bad: Block = alloy_rlp::decode_exact(&blocks[19]).unwrap();
    let expected = bad.header.state_root;
    bad.header.state_root = B256::repeat_byte(7);
    let hash = bad.header.hash_slow().to_string();
    let chain = [
        blocks[..19].concat(),
        alloy_rlp::encode(&bad),
        blocks[20..].concat(),
    ];
    let file = dir.file("bad.rlp", &chain.concat());
    let words = [
        "block 20",
        &hash,
        "INVALID_STATE_ROOT",
        &expected.to_string(),
        &B256::repeat_byte(7).to_string(),
        "the head is block 19",
    ];
    assert_eq!(dir.import(&file).failed(&words).head().0, 19);
    assert_goes_on(&dir);
}

#[test]
fn files_of_other_formats_are_recognised() {
    let dir = TestDir::new();
    for (bytes, words) in [
        (&b"\x1f\x8b\x08\x00"[..], "gunzip"),
        (b"{\"blocks\":[]}", "--format JSON"),
        (b"\x65\x32\0\0\0\0\0\0", "--format ERA1"),
        (b"\x00garbage", "0x00"),
        (
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            "more than any block",
        ),
        (b"\xc0", "RLP_STRUCTURES_ENCODING"),
    ] {
        let file = dir.file("odd", bytes);
        dir.import(&file).failed(&["odd", words]);
    }
    let file = dir.file("odd", b"\xc0");
    dir.run("blocks import --format ERA1 --from", &[&file])
        .failed(&["odd", "cut off"]);
    let file = dir.file("odd", &std::fs::read(chain_file()).unwrap());
    dir.run("blocks import --format ERA1 --from", &[&file])
        .failed(&["odd"]);
    dir.run("blocks import --format JSON --from", &[&file])
        .failed(&["odd", "is not JSON"]);
}

#[test]
fn unreadable_files_are_named_before_the_import() {
    let dir = TestDir::new();
    let absent = dir.path("absent.rlp");
    let both = [chain_file(), absent];
    let both: Vec<&Path> = both.iter().map(|path| path.as_path()).collect();
    dir.run("blocks import --from", &both)
        .failed(&["absent.rlp", "No such file"]);
    assert!(!dir.data_path().exists());

    let folder = genesis_file();
    let folder = folder.parent().unwrap();
    dir.import(folder).failed(&["is a folder"]);
    dir.run("blocks import", &[])
        .failed(&["nothing to import", "--from"]);
    dir.run(
        "blocks import --start-block 9 --end-block 3 --from",
        &[&chain_file()],
    )
    .failed(&["--start-block 9", "--end-block 3"]);
}

#[test]
fn a_gap_and_another_chain_are_explained() {
    let blocks = blocks(&chain_file());
    let dir = TestDir::new();
    let late = dir.file("late.rlp", &blocks[10..].concat());
    dir.import(&late)
        .failed(&["gap", "block 11", "from 1 on", "the head is block 0"]);

    let mut other = TestDir::new();
    let genesis = std::fs::read_to_string(genesis_file()).unwrap();
    let changed = genesis.replacen("0x5f5e100", "0x5f5e101", 1);
    assert_ne!(genesis, changed);
    other.genesis = other.file("genesis.json", changed.as_bytes());
    other
        .import(&chain_file())
        .failed(&["of another chain", "--genesis-file"]);

    // A data path with a chain is not opened with another genesis.
    assert_goes_on(&dir);
    let mut same_path = dir;
    same_path.genesis = other.genesis.clone();
    same_path
        .import(&chain_file())
        .failed(&["holds the chain with genesis", "--data-path"]);
    same_path.genesis = genesis_file();
    assert_eq!(same_path.checked_head().1, HEAD);
}

#[test]
fn a_genesis_file_that_can_not_be_used_is_named_with_the_key() {
    let mut dir = TestDir::new();
    dir.genesis = dir.path("none.json");
    dir.import(&chain_file())
        .failed(&["none.json", "No such file"]);
    for (text, words) in [
        ("{", "JSON"),
        ("{}", "config"),
        (r#"{"config":{"chainId":1},"gasLimit":"many"}"#, "gasLimit"),
    ] {
        dir.genesis = dir.file("genesis.json", text.as_bytes());
        dir.import(&chain_file()).failed(&["genesis.json", words]);
    }
}

#[test]
fn a_second_process_is_refused() {
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let genesis = std::fs::read_to_string(genesis_file()).unwrap();
    let genesis = Genesis::from_json(&genesis).unwrap();
    let chain = Chain::open(ChainConfig {
        data_path: Some(dir.data_path()),
        genesis: GenesisBlock::from(&genesis),
        spec: Arc::new(genesis.spec),
        storage: StorageOptions::default(),
        state: StateOptions::default(),
    });
    let chain = chain.unwrap();
    for command in ["blocks import --from", "blocks export --to"] {
        let file = if command.ends_with("--to") {
            dir.path("out.rlp")
        } else {
            chain_file()
        };
        dir.run(command, &[&file])
            .failed(&["in use", "--data-path"]);
    }
    drop(chain);
    assert_goes_on(&dir);
}

#[test]
fn check_and_export_without_a_database_are_refused() {
    let dir = TestDir::new();
    dir.run("storage check", &[])
        .failed(&["no database", "--data-path"]);
    dir.run("blocks export --to", &[&dir.path("x")])
        .failed(&["no database"]);
    assert!(!dir.data_path().exists());

    // A database of another client is never overwritten; other files are ignored.
    std::fs::create_dir_all(dir.data_path().join("database")).unwrap();
    std::fs::write(dir.data_path().join("key"), "0x1234").unwrap();
    dir.run("storage check", &[]).failed(&["no database"]);
    dir.import(&chain_file())
        .failed(&["not a niwaki data path", "empty"]);
    let left = std::fs::read_dir(dir.data_path()).unwrap().count();
    assert_eq!(left, 2);
    std::fs::remove_dir(dir.data_path().join("database")).unwrap();
    assert_goes_on(&dir);
    assert!(dir.data_path().join("key").exists());
}

/// Imports under a limit that `limit` sets in a shell; no block may be lost.
fn assert_survives(dir: &TestDir, limit: &str, words: &[&str]) {
    let command = dir.command("blocks import --from", &[&chain_file()]);
    let quoted: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let output = Command::new("bash")
        .args(["-c", &format!("{limit} && exec {}", quoted.join(" "))])
        .output()
        .unwrap();
    crate::support::CommandResult::of(&output).failed(words);
}

#[test]
fn a_file_size_limit_loses_no_blocks() {
    let dir = TestDir::new();
    dir.run("blocks import --end-block 11 --from", &[&chain_file()])
        .succeeded();
    // Files of at most 64 KiB; SIGXFSZ is ignored, so writing more is an error.
    assert_survives(&dir, "trap '' XFSZ && ulimit -f 64", &["File too large"]);
    assert_goes_on(&dir);
}

#[test]
fn a_full_disk_is_named_and_loses_no_blocks() {
    // A disk for the test needs a mount, which any user may do in a user namespace if the system allows them.
    let mount = "mount -t tmpfs -o size=600k tmpfs";
    let dir = TestDir::new();
    std::fs::create_dir(dir.data_path()).unwrap();
    let data = dir.data_path();
    let inner = dir.command("blocks import --from", &[&chain_file()]);
    let quote = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().unwrap());
    let import: Vec<_> = std::iter::once(inner.get_program())
        .chain(inner.get_args())
        .map(quote)
        .collect();
    let script = format!(
        "{mount} '{0}' || exit 77; {1}; code=$?; mount -o remount,size=64m '{0}' || exit 78; \
         {1} >&2 && echo code=$code",
        data.display(),
        import.join(" ")
    );
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "bash",
            "-c",
            &script,
        ])
        .output()
        .unwrap();
    let result = crate::support::CommandResult::of(&output);
    if output.status.code() == Some(77) || result.errors.contains("unshare failed") {
        eprintln!("this system gives no mount namespace: {}", result.errors);
        return;
    }
    let result = result.succeeded();
    // The first import failed with the expected message, the second one completed.
    assert!(result.out.contains("code=1"), "{result:?}");
    assert!(result.errors.contains("the disk is full"), "{result:?}");
}
