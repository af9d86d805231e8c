//! Flags, keys, and a whole run over a small state.

use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn parse(words: &[&str]) -> Result<Options, clap::Error> {
    Line::try_parse_from([&["engine"][..], words].concat()).map(|line| line.options)
}

fn small(folder: &std::path::Path, rows: &str) -> Options {
    let mut options = parse(&["--data-path", "x", "--rows", rows, "--rounds", "2"]).unwrap();
    options.state.data_path = folder.join("state");
    (options.state.accounts, options.state.slots) = (5, 20_000);
    (options.reads, options.cold_reads) = (500, 50);
    options.budget = Budget::of(32 << 20);
    options
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    assert!(parse(&[]).is_err());
    for flag in [
        "--reads",
        "--cold-reads",
        "--rounds",
        "--loads",
        "--at-once",
    ] {
        assert!(parse(&["--data-path", "x", flag, "0"]).is_err(), "{flag}");
    }
    assert!(parse(&["--data-path", "x", "--rows", "code"]).is_err());
}

#[test]
fn absent_keys_have_the_shape_of_those_that_are_there() {
    let slot: Box<[u8]> = [7; 64].into();
    let node: Box<[u8]> = [7; 40].into();
    let gone = absent(&[slot.clone(), node.clone()]);
    assert_eq!((gone[0].len(), gone[1].len()), (64, 40));
    assert_eq!(gone[0][..32], slot[..32]);
    assert!(gone[0] != slot && gone[1] != node);
}

#[test]
fn more_rows_than_there_are_are_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let options = Options {
        reads: 20_000,
        loads: 1,
        ..small(folder.path(), "slots")
    };
    let error = run(&options).unwrap_err().to_string();
    assert!(error.contains("too few"), "{error}");
}

#[test]
fn every_contender_reads_the_rows_of_either_segment() {
    for rows in ["slots", "storage-trie"] {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let json = folder.path().join("report.json");
        let options = Options {
            json: Some(json.clone()),
            rounds: 1,
            ..small(folder.path(), rows)
        };
        run(&options).unwrap();
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        let reads = report["reads_ns"].as_array().unwrap();
        assert_eq!(reads.len(), Case::ALL.len() * Contender::ALL.len());
        let waiting = report["waiting"].as_array().unwrap();
        let is_timed = |row: &serde_json::Value| row["oldest_ns"]["median"].is_number();
        assert!(is_timed(waiting.last().unwrap()), "{report}");
        let bytes = |at: usize| report["copies"][at]["filter_bytes"].as_u64().unwrap();
        // Ribbon filters are smaller, or the engine was not told of them.
        assert!(0 < bytes(1) && bytes(1) < bytes(0), "{report}");
    }
}
