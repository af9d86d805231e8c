//! Published vectors of precompiled contracts, run with the table of their fork: those in `testdata`, and all in
//! `$NIWAKI_CORPUS/basic-tests` if that is set.
#![expect(clippy::unwrap_used, reason = "a test that can't read its cases fails")]

use niwaki_crypto::{PrecompileHalt, Precompiled};
use niwaki_evm::Table;
use niwaki_primitives::{Address, B256, Bytes, Fork, hex};
use niwaki_testkit::corpus;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// File name, address of the contract, and the fork whose price it has.
#[rustfmt::skip]
const FILES: [(&str, u16, Fork); 32] = [
    // go-ethereum
    ("blake2F", 0x09, Fork::Istanbul),
    ("blsG1Add", 0x0b, Fork::Prague),
    ("blsG1Mul", 0x0c, Fork::Prague),
    ("blsG1MultiExp", 0x0c, Fork::Prague),
    ("blsG2Mul", 0x0e, Fork::Prague),
    ("blsG2MultiExp", 0x0e, Fork::Prague),
    ("blsMapG1", 0x10, Fork::Prague),
    ("blsMapG2", 0x11, Fork::Prague),
    ("blsPairing", 0x0f, Fork::Prague),
    ("blake2f", 0x09, Fork::Istanbul),
    ("bn256Add", 0x06, Fork::Istanbul),
    ("bn256Pairing", 0x08, Fork::Istanbul),
    ("ecRecover", 0x01, Fork::Frontier),
    ("modexp", 0x05, Fork::Byzantium),
    ("modexp_eip2565", 0x05, Fork::Berlin),
    ("p256Verify", 0x100, Fork::Osaka),
    ("pointEvaluation", 0x0a, Fork::Cancun),
    // nimbus-eth1
    ("add_G1_bls", 0x0b, Fork::Prague),
    ("add_G2_bls", 0x0d, Fork::Prague),
    ("map_fp_to_G1_bls", 0x10, Fork::Prague),
    ("map_fp2_to_G2_bls", 0x11, Fork::Prague),
    ("msm_G1_bls", 0x0c, Fork::Prague),
    ("msm_G2_bls", 0x0e, Fork::Prague),
    ("mul_G1_bls", 0x0c, Fork::Prague),
    ("mul_G2_bls", 0x0e, Fork::Prague),
    // besu
    ("fp2_to_g2", 0x11, Fork::Prague),
    ("fp_to_g1", 0x10, Fork::Prague),
    ("g1_add", 0x0b, Fork::Prague),
    ("g1_mul", 0x0c, Fork::Prague),
    ("g2_add", 0x0d, Fork::Prague),
    ("g2_mul", 0x0e, Fork::Prague),
    ("invalid_subgroup_for_pairing", 0x0f, Fork::Prague),
];

/// The expected output, and the gas where the vector has it.
type Want = Option<(Bytes, Option<u64>)>;

fn contract(address: u16, fork: Fork) -> Precompiled {
    let address = Address::left_padding_from(&address.to_be_bytes());
    let set = Table::of(fork).precompiles();
    set.get(&address)
        .unwrap_or_else(|| panic!("{fork} has no contract at {address}"))
}

/// Runs one vector: its gas suffices, and one less does not.
fn check(name: &str, contract: Precompiled, input: &[u8], want: Want) {
    const PLENTY: u64 = 1 << 40;
    match (contract.run(input, PLENTY), want) {
        (Ok((used, output)), Some((expected, gas))) => {
            assert_eq!(output, expected, "{name}");
            assert_eq!(used, gas.unwrap_or(used), "{name}: gas");
            niwaki_crypto::forget_precompile_results();
            assert_eq!(
                contract.run(input, used),
                Ok((used, output)),
                "{name}: its gas suffices"
            );
            if let Some(less) = used.checked_sub(1) {
                let short = contract.run(input, less);
                assert_eq!(short, Err(PrecompileHalt::OutOfGas), "{name}: one gas less");
            }
        }
        (Err(PrecompileHalt::Input(_)), None) => {}
        (got, want) => panic!("{name}: {got:?}, must be {want:?}"),
    }
}

fn row(path: &Path) -> (u16, Fork) {
    let stem = path.file_stem().unwrap().to_string_lossy();
    let stem = stem.strip_prefix("fail-").unwrap_or(&stem);
    let row = FILES.iter().find(|(name, ..)| *name == stem);
    let (_, address, fork) = row.unwrap_or_else(|| panic!("{} has no row", path.display()));
    (*address, *fork)
}

/// Go-ethereum's format: a list of objects, which nimbus-eth1 calls `data`; without `Expected` the contract must fail.
fn run_json(path: &Path) -> usize {
    let (address, fork) = row(path);
    let text = std::fs::read_to_string(path).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let cases = file.get("data").unwrap_or(&file).as_array().unwrap();
    for case in cases {
        let field = |key: &str| {
            case[key]
                .as_str()
                .map(|text| Bytes::from(hex::decode(text).unwrap()))
        };
        let name = format!("{}: {}", path.display(), case["Name"]);
        let want = match (field("Expected"), case["ExpectedError"].as_str()) {
            (Some(output), None) => Some((output, case["Gas"].as_u64())),
            (None, Some(_)) => None,
            _ => panic!("{name}: neither or both of Expected and ExpectedError"),
        };
        check(
            &name,
            contract(address, fork),
            &field("Input").unwrap(),
            want,
        );
    }
    cases.len()
}

/// Besu's format: rows of input, result, gas, notes; with a note the contract must fail.
fn run_csv(path: &Path) -> usize {
    let (address, fork) = row(path);
    let text = std::fs::read_to_string(path).unwrap();
    let mut count = 0;
    for (index, line) in text.lines().enumerate().skip(1) {
        let cells: Vec<&str> = line.splitn(4, ',').collect();
        let [input, result, gas, note] = cells[..] else {
            panic!("{}:{}: not four cells", path.display(), index + 1);
        };
        let want = note.is_empty().then(|| {
            (
                Bytes::from(hex::decode(result).unwrap()),
                Some(gas.parse().unwrap()),
            )
        });
        let name = format!("{}:{}", path.display(), index + 1);
        check(
            &name,
            contract(address, fork),
            &hex::decode(input).unwrap(),
            want,
        );
        count += 1;
    }
    count
}

/// C-kzg's format: commitment, z, y and proof; the output true, false, or null where they are
/// malformed. The contract's input is the versioned hash of the commitment, then these.
fn run_kzg(path: &Path) -> usize {
    /// Blob size and modulus, as EIP-4844 gives them.
    const SUCCESS: &str = "0000000000000000000000000000000000000000000000000000000000001000\
        73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001";
    let text = std::fs::read_to_string(path).unwrap();
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
        line.unwrap_or_else(|| panic!("{}: no {key}", path.display()))
            .trim()
    };
    let bytes = |key: &str| hex::decode(value(key).trim_matches('\'')).unwrap();
    let commitment = bytes("commitment:");
    let mut hash = sha256(&commitment);
    hash[0] = 1;
    let input = [
        &hash[..],
        &bytes("z:"),
        &bytes("y:"),
        &commitment,
        &bytes("proof:"),
    ]
    .concat();
    let want = match value("output:") {
        "true" => Some((hex::decode(SUCCESS).unwrap().into(), Some(50_000))),
        "false" | "null" => None,
        other => panic!("{}: output {other}", path.display()),
    };
    check(
        &path.display().to_string(),
        contract(0x0a, Fork::Cancun),
        &input,
        want,
    );
    1
}

fn sha256(data: &[u8]) -> B256 {
    niwaki_crypto::sha256(data)
}

/// Runs every file under `folder` by its extension.
fn run_folder(folder: &Path) -> usize {
    let mut count = 0;
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        count += match path.extension().and_then(|ending| ending.to_str()) {
            _ if path.is_dir() => run_folder(&path),
            Some("json") => run_json(&path),
            Some("csv") => run_csv(&path),
            Some("yaml") => run_kzg(&path),
            _ => 0,
        };
    }
    count
}

#[test]
fn vectors_of_testdata_give_their_output_and_gas() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let counts =
        ["besu", "c-kzg-4844", "nimbus-eth1"].map(|folder| run_folder(&testdata.join(folder)));
    assert_eq!(counts, [77, 13, 50]);
}

#[test]
fn vectors_of_the_corpus_give_their_output_and_gas() {
    for (part, at_least) in [
        ("go-ethereum/core/vm/testdata/precompiles", 1_000),
        ("nimbus-eth1/tests/fixtures/PrecompileTests", 20),
        ("besu/precompile", 700),
        ("c-kzg-4844/verify_kzg_proof", 80),
    ] {
        let Some(folder) = corpus(&format!("basic-tests/{part}")) else {
            continue;
        };
        let count = run_folder(&folder);
        println!("{part}: {count} vectors");
        assert!(count >= at_least, "{part}: only {count}");
    }
}
