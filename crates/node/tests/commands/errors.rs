//! Bad input and a bad machine: what the operator is told, and that nothing is lost.

use crate::support::{HEAD, Place, blocks, chain_file, genesis_file};
use niwaki_chain::{Chain, ChainConfig, GenesisBlock, StateOptions, StorageOptions};
use niwaki_primitives::{B256, Block};
use niwaki_rules::Genesis;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Imports the whole chain and finds it right.
fn assert_goes_on(place: &Place) {
    assert_eq!(place.import(&chain_file()).succeeded().head().1, HEAD);
    assert_eq!(place.checked_head().1, HEAD);
}

#[test]
fn a_truncated_file_imports_the_blocks_before_the_end() {
    let blocks = blocks(&chain_file());
    let whole = blocks[..20].concat().len();
    // In the list's header, in the block's header, before the last byte.
    for cut in [1, 2, 100, blocks[20].len() - 1] {
        let place = Place::new();
        let bytes = &std::fs::read(chain_file()).unwrap()[..whole + cut];
        let file = place.file("cut.rlp", bytes);
        let offset = format!("byte {whole}");
        let ended = place.import(&file);
        let ended = ended.failed(&["cut off", "cut.rlp", &offset, "the head is block 20"]);
        assert_eq!(ended.head().0, 20);
        assert_goes_on(&place);
    }
}

#[test]
fn an_invalid_block_is_named_with_its_rule_and_both_values() {
    let place = Place::new();
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
    let file = place.file("bad.rlp", &chain.concat());
    let words = [
        "block 20",
        &hash,
        "INVALID_STATE_ROOT",
        &expected.to_string(),
        &B256::repeat_byte(7).to_string(),
        "the head is block 19",
    ];
    assert_eq!(place.import(&file).failed(&words).head().0, 19);
    assert_goes_on(&place);
}

#[test]
fn files_of_other_formats_are_recognised() {
    let place = Place::new();
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
        let file = place.file("odd", bytes);
        place.import(&file).failed(&["odd", words]);
    }
    let file = place.file("odd", b"\xc0");
    place
        .run("blocks import --format ERA1 --from", &[&file])
        .failed(&["odd", "cut off"]);
    let file = place.file("odd", &std::fs::read(chain_file()).unwrap());
    place
        .run("blocks import --format ERA1 --from", &[&file])
        .failed(&["odd"]);
    place
        .run("blocks import --format JSON --from", &[&file])
        .failed(&["odd", "is not JSON"]);
}

#[test]
fn unreadable_files_are_named_before_the_import() {
    let place = Place::new();
    let absent = place.path("absent.rlp");
    let both = [chain_file(), absent];
    let both: Vec<&Path> = both.iter().map(|path| path.as_path()).collect();
    place
        .run("blocks import --from", &both)
        .failed(&["absent.rlp", "No such file"]);
    assert!(!place.data_path().exists());

    let folder = genesis_file();
    let folder = folder.parent().unwrap();
    place.import(folder).failed(&["is a folder"]);
    place
        .run("blocks import", &[])
        .failed(&["nothing to import", "--from"]);
    place
        .run(
            "blocks import --start-block 9 --end-block 3 --from",
            &[&chain_file()],
        )
        .failed(&["--start-block 9", "--end-block 3"]);
}

#[test]
fn a_gap_and_another_chain_are_explained() {
    let blocks = blocks(&chain_file());
    let place = Place::new();
    let late = place.file("late.rlp", &blocks[10..].concat());
    place
        .import(&late)
        .failed(&["gap", "block 11", "from 1 on", "the head is block 0"]);

    let mut other = Place::new();
    let genesis = std::fs::read_to_string(genesis_file()).unwrap();
    let changed = genesis.replacen("0x5f5e100", "0x5f5e101", 1);
    assert_ne!(genesis, changed);
    other.genesis = other.file("genesis.json", changed.as_bytes());
    other
        .import(&chain_file())
        .failed(&["of another chain", "--genesis-file"]);

    // A data path with a chain is not opened as another one's.
    assert_goes_on(&place);
    let mut same_path = place;
    same_path.genesis = other.genesis.clone();
    same_path
        .import(&chain_file())
        .failed(&["holds the chain with genesis", "--data-path"]);
    same_path.genesis = genesis_file();
    assert_eq!(same_path.checked_head().1, HEAD);
}

#[test]
fn a_genesis_file_that_can_not_be_used_is_named_with_the_key() {
    let mut place = Place::new();
    place.genesis = place.path("none.json");
    place
        .import(&chain_file())
        .failed(&["none.json", "No such file"]);
    for (text, words) in [
        ("{", "JSON"),
        ("{}", "config"),
        (r#"{"config":{"chainId":1},"gasLimit":"lots"}"#, "gasLimit"),
    ] {
        place.genesis = place.file("genesis.json", text.as_bytes());
        place.import(&chain_file()).failed(&["genesis.json", words]);
    }
}

#[test]
fn a_second_process_is_refused() {
    let place = Place::new();
    place.import(&chain_file()).succeeded();
    let genesis = std::fs::read_to_string(genesis_file()).unwrap();
    let genesis = Genesis::from_json(&genesis).unwrap();
    let chain = Chain::open(ChainConfig {
        data_path: Some(place.data_path()),
        genesis: GenesisBlock::from(&genesis),
        spec: Arc::new(genesis.spec),
        storage: StorageOptions::default(),
        state: StateOptions::default(),
    });
    let chain = chain.unwrap();
    for command in ["blocks import --from", "blocks export --to"] {
        let file = if command.ends_with("--to") {
            place.path("out.rlp")
        } else {
            chain_file()
        };
        place
            .run(command, &[&file])
            .failed(&["in use", "--data-path"]);
    }
    drop(chain);
    assert_goes_on(&place);
}

#[test]
fn check_and_export_without_a_database_are_refused() {
    let place = Place::new();
    place
        .run("storage check", &[])
        .failed(&["no database", "--data-path"]);
    place
        .run("blocks export --to", &[&place.path("x")])
        .failed(&["no database"]);
    assert!(!place.data_path().exists());

    // The database of another client is left alone, whatever else is there does not matter.
    std::fs::create_dir_all(place.data_path().join("database")).unwrap();
    std::fs::write(place.data_path().join("key"), "0x1234").unwrap();
    place.run("storage check", &[]).failed(&["no database"]);
    place
        .import(&chain_file())
        .failed(&["not a niwaki data path", "empty"]);
    let left = std::fs::read_dir(place.data_path()).unwrap().count();
    assert_eq!(left, 2);
    std::fs::remove_dir(place.data_path().join("database")).unwrap();
    assert_goes_on(&place);
    assert!(place.data_path().join("key").exists());
}

/// Imports under a limit that `limit` sets in a shell; nothing may be lost by it.
fn assert_survives(place: &Place, limit: &str, words: &[&str]) {
    let command = place.command("blocks import --from", &[&chain_file()]);
    let quoted: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let output = Command::new("bash")
        .args(["-c", &format!("{limit} && exec {}", quoted.join(" "))])
        .output()
        .unwrap();
    crate::support::Ended::of(&output).failed(words);
}

#[test]
fn a_file_size_limit_loses_no_blocks() {
    let place = Place::new();
    place
        .run("blocks import --end-block 11 --from", &[&chain_file()])
        .succeeded();
    // Files of at most 64 KiB, and the signal for more turned into an error.
    assert_survives(&place, "trap '' XFSZ && ulimit -f 64", &["File too large"]);
    assert_goes_on(&place);
}

#[test]
fn a_full_disk_is_named_and_loses_no_blocks() {
    // A disk of the test's own needs a mount; a namespace gives that to any user where the system
    // allows namespaces, and root has it anyway.
    let mount = "mount -t tmpfs -o size=600k tmpfs";
    let place = Place::new();
    std::fs::create_dir(place.data_path()).unwrap();
    let data = place.data_path();
    let inner = place.command("blocks import --from", &[&chain_file()]);
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
    let ended = crate::support::Ended::of(&output);
    if output.status.code() == Some(77) || ended.errors.contains("unshare failed") {
        eprintln!("this system gives no mount namespace: {}", ended.errors);
        return;
    }
    let ended = ended.succeeded();
    // The first import failed with the right words, the second one went on to the end.
    assert!(ended.out.contains("code=1"), "{ended:?}");
    assert!(ended.errors.contains("the disk is full"), "{ended:?}");
}
