//! The command line: traces, and errors of unusable input.

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_niwaki-evm"))
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata"))
        .output()
        .expect("the program starts")
}

/// PUSH1 1; PUSH0; SSTORE; four words, 4 and 0xffff for a STATICCALL of the identity with a word
/// of memory; POP; CREATE of nothing; a jump to where no JUMPDEST is.
const PROGRAM: &str = "60015f555f5f60205f600461fffffa505f5f5ff050600160fd57fe";

/// Program counter, gas before, cost, opcode, height of the stack, bytes of memory and of returned
/// data: by the schedule of Osaka for 100,000 gas. SSTORE is 20,000 for the new slot and 2,100
/// for a cold one. STATICCALL is 100 (warm), 3 for the memory and 0xffff for the callee, which
/// uses 15 + 3 of it. CREATE is 32,000 without the callee's share, all of which comes back.
const TRACE: [(u64, u64, u64, &str, usize, u64, usize); 19] = [
    (0, 100_000, 3, "PUSH1", 0, 0, 0),
    (2, 99_997, 2, "PUSH0", 1, 0, 0),
    (3, 99_995, 22_100, "SSTORE", 2, 0, 0),
    (4, 77_895, 2, "PUSH0", 0, 0, 0),
    (5, 77_893, 2, "PUSH0", 1, 0, 0),
    (6, 77_891, 3, "PUSH1", 2, 0, 0),
    (8, 77_888, 2, "PUSH0", 3, 0, 0),
    (9, 77_886, 3, "PUSH1", 4, 0, 0),
    (11, 77_883, 3, "PUSH2", 5, 0, 0),
    (14, 77_880, 100 + 3 + 0xffff, "STATICCALL", 6, 0, 0),
    (15, 77_880 - 100 - 3 - 18, 2, "POP", 1, 32, 32),
    (16, 77_757, 2, "PUSH0", 0, 32, 32),
    (17, 77_755, 2, "PUSH0", 1, 32, 32),
    (18, 77_753, 2, "PUSH0", 2, 32, 32),
    (19, 77_751, 32_000, "CREATE", 3, 32, 32),
    (20, 45_751, 2, "POP", 1, 32, 0),
    (21, 45_749, 3, "PUSH1", 0, 32, 0),
    (23, 45_746, 3, "PUSH1", 1, 32, 0),
    (25, 45_743, 10, "JUMPI", 2, 32, 0),
];

#[test]
fn trace_has_the_fields_of_eip_3155() {
    let output = run(&["run", "--code", PROGRAM, "--gas", "100000", "--trace"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // Fields in the order of the EIP.
    let first = r#"{"pc":0,"op":96,"gas":"0x186a0","gasCost":"0x3","stack":[],"depth":1,"#;
    let rest = r#""returnData":"0x","refund":0,"memSize":0,"opName":"PUSH1"}"#;
    assert_eq!(lines[0], format!("{first}{rest}"));
    assert_eq!(lines.len(), TRACE.len() + 1);
    for (line, want) in lines.iter().zip(TRACE) {
        let got: Value = serde_json::from_str(line).unwrap();
        let (pc, gas, cost, name, height, memory, returned) = want;
        assert_eq!(got["pc"], pc, "{line}");
        assert_eq!(got["gas"], format!("{gas:#x}"), "{line}");
        assert_eq!(got["gasCost"], format!("{cost:#x}"), "{line}");
        assert_eq!(got["opName"], name, "{line}");
        assert_eq!(got["stack"].as_array().unwrap().len(), height, "{line}");
        assert_eq!(got["memSize"], memory, "{line}");
        let digits = got["returnData"].as_str().unwrap().len() - 2;
        assert_eq!(digits, 2 * returned, "{line}");
        let fails = pc == 25;
        let error = fails.then_some("invalid jump destination");
        assert_eq!(got.get("error").and_then(Value::as_str), error, "{line}");
    }
    let call: Value = serde_json::from_str(lines[9]).unwrap();
    assert_eq!(
        call["stack"],
        json!(["0x0", "0x0", "0x20", "0x0", "0x4", "0xffff"])
    );
    let end = r#"{"output":"0x","gasUsed":"0x186a0","pass":false,"fork":"Osaka"}"#;
    assert_eq!(lines[TRACE.len()], end);
}

#[test]
fn traced_state_test_ends_with_its_state_root() {
    let name = "ripeMdAccountShouldNotBeDeletedWhenEmptyAndTouchedTransactionFails";
    let case = ["--test-name", name, "--fork", "EIP158", "--trace"];
    let output = run(&[&["state-test", "state-tests.json"][..], &case].concat());
    assert_eq!(output.stdout, b"1 passed, 0 failed, 0 skipped\n");
    let text = String::from_utf8(output.stderr).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let root = "0x44531d0f86ec82aaa9cdc1165dc24815bbea1d02349c59ef35ad1b0a244dafa9";
    assert_eq!(last["stateRoot"], root);
    assert_eq!(last["pass"], false);
}

#[test]
fn unusable_input_is_named_with_the_next_step_and_exits_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(path("empty")).unwrap();
    std::fs::write(path("broken.json"), "{\"a\":").unwrap();
    std::fs::write(path("kindless.json"), "{\"x\": {}}").unwrap();
    let (empty, broken, kindless) = (path("empty"), path("broken.json"), path("kindless.json"));
    let own = env!("CARGO_BIN_EXE_niwaki-evm");
    let cases: [(&[&str], &[&str]); 17] = [
        (
            &["state-test", "nowhere"],
            &["can't list nowhere", "check the path"],
        ),
        (
            &["state-test", &empty],
            &["no .json file in", "give fixture files"],
        ),
        (
            &["state-test", &broken],
            &["broken.json is not a fixture file", "repair them"],
        ),
        (
            &["state-test", &kindless],
            &["case x: has none of", "repair them"],
        ),
        (
            &["state-test", "state-tests.json", "--fork", "Atlantis"],
            &["--fork Atlantis", "use a name of the fixtures"],
        ),
        (
            &["block-test", "blockchain-tests.json", "--fork", "BPO4"],
            &["no blockchain or engine test of fork BPO4", "loosen --fork"],
        ),
        (
            &["state-test", "state-tests.json", "--test-name", "zzz*"],
            &["name matches zzz*", "loosen --fork or --test-name"],
        ),
        (
            &["state-test", "engine-tests.json"],
            &["all 43 cases were skipped", "try block-test"],
        ),
        (
            &["run", "--code", "6"],
            &["--code is not hex", "even number", "odd number"],
        ),
        (
            &["run", "--code", "0xzz"],
            &["--code is not hex", "give", "invalid character 'z'"],
        ),
        (
            &["run", "--code", "@nowhere"],
            &["can't read nowhere", "--code", "check the path"],
        ),
        (
            &["run", "--code", "00", "--fork", "Atlantis"],
            &["--fork Atlantis", "use one of"],
        ),
        (&["fuzz"], &["say how long", "--seconds"]),
        (
            &["fuzz", "--cases", "1", "--t8n", "nowhere"],
            &["--t8n nowhere is no file", "give go-ethereum's"],
        ),
        (
            &["fuzz", "--cases", "1", "--statetest", "nowhere"],
            &["--statetest nowhere is no file", "give go-ethereum's"],
        ),
        (
            &["fuzz", "--cases", "1", "--fork", "Atlantis"],
            &["--fork Atlantis", "use one of Frontier, Homestead"],
        ),
        (
            &["fuzz", "--cases", "1", "--t8n", own, "--fork", "Berlin"],
            &["--fork Berlin", "use one of Prague, Osaka, Amsterdam"],
        ),
    ];
    for (arguments, wanted) in cases {
        let output = run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        for piece in wanted {
            assert!(
                said.contains(piece),
                "{arguments:?}: {said:?} has no {piece:?}"
            );
        }
    }
}

#[test]
fn failing_case_is_named_and_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.json");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/state-tests.json");
    let text = std::fs::read_to_string(kept).unwrap();
    let right = "0x44531d0f86ec82aaa9cdc1165dc24815bbea1d02349c59ef35ad1b0a244dafa9";
    let wrong = right.replace("0x4453", "0x5344");
    std::fs::write(&file, text.replace(right, &wrong)).unwrap();
    let file = file.display().to_string();
    let output = run(&[
        "state-test",
        &file,
        "--fork",
        "EIP158",
        "--test-name",
        "ripeMd*Empty*",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    let name = "ripeMdAccountShouldNotBeDeletedWhenEmptyAndTouchedTransactionFails/d0g0v0";
    assert!(
        said.contains(&format!("FAILED {file} {name} [EIP158]")),
        "{said}"
    );
    assert!(
        said.contains(&format!("state root is {right}, must be {wrong}")),
        "{said}"
    );
    assert!(said.ends_with("1 failed, 0 skipped\n"), "{said}");
}

#[test]
fn code_without_gas_is_out_of_gas() {
    let output = run(&["run", "--code", "6001", "--gas", "0", "--json"]);
    assert!(output.status.success());
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["exit"], "Halt(OutOfGas)");
    assert_eq!(said["gasUsed"], 0);
}
