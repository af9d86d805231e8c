//! Flags, the order of slots, and a whole run over a small state.

use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn parse(words: &[&str]) -> Result<Options, clap::Error> {
    Line::try_parse_from([&["sload"][..], words].concat()).map(|line| line.options)
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    for flag in ["--reads", "--cold-reads", "--rounds"] {
        assert!(parse(&["--data-path", "x", flag, "0"]).is_err(), "{flag}");
    }
    let few = parse(&["--data-path", "/nonexistent/x", "--slots", "1000"]).unwrap();
    assert!(run(&few).unwrap_err().to_string().contains("too few"));
}

#[test]
fn every_slot_is_asked_for_once() {
    let mut options = parse(&["--data-path", "x"]).unwrap();
    (options.state.accounts, options.state.slots) = (7, 7 * 11);
    let slots = Slots::new(&options);
    let all: std::collections::BTreeSet<_> = (0..77).map(|at| slots.at(at)).collect();
    assert_eq!(all.len(), 77);
    assert!(all.iter().all(|(_, slot)| *slot < U256::from(11)));
}

#[test]
fn all_contenders_read_the_same_values() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let mut options = parse(&["--data-path", "x", "--rounds", "1"]).unwrap();
    options.state.data_path = folder.path().join("state");
    (options.state.accounts, options.state.slots) = (5, 50_000);
    (options.reads, options.cold_reads) = (500, 20);
    options.budget = Budget::of(32 << 20);
    options.json = Some(folder.path().join("report.json"));
    run(&options).unwrap();
    let report = std::fs::read(options.json.unwrap()).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 2 * 3 * 3);
}
