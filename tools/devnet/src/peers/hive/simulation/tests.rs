//! Requests that can be answered without a client, and those that are refused.

use super::*;

const FORM: &str = "multipart/form-data; boundary=b";

fn simulation() -> Simulation {
    let niwaki = ClientType {
        kind: ClientKind::Niwaki,
        name: "niwaki",
        version: "niwaki 1".into(),
        binary: "/nowhere/niwaki".into(),
    };
    let folder = std::env::temp_dir().join("no simulation has this folder");
    Simulation::new(vec![niwaki], folder, Duration::from_secs(1))
}

/// A simulation in which test 1 of suite 1 runs.
fn with_test() -> Simulation {
    let simulation = simulation();
    assert_eq!(
        post(&simulation, "/testsuite", r#"{"name":"sync"}"#),
        Ok(json!(1))
    );
    let name = r#"{"name":"one","description":"more","category":""}"#;
    assert_eq!(post(&simulation, "/testsuite/1/test", name), Ok(json!(1)));
    simulation
}

fn post(simulation: &Simulation, path: &str, body: &str) -> Answer {
    simulation.handle("POST", path, "application/json", body.as_bytes())
}

fn status(answer: Answer) -> (u16, String) {
    let refusal = answer.expect_err("is refused");
    (refusal.status.as_u16(), refusal.why)
}

fn form(config: &str, file: &str) -> String {
    let file = format!("--b\r\nContent-Disposition: form-data; name=\"{file}\"; filename=\"f\"");
    let config = format!("--b\r\nContent-Disposition: form-data; name=\"config\"\r\n\r\n{config}");
    format!("{config}\r\n{file}\r\n\r\n{{}}\r\n--b--\r\n")
}

#[test]
fn clients_are_listed_with_version_and_role() {
    let answer = simulation().handle("GET", "/clients", "", b"").unwrap();
    let meta = json!({ "roles": ["eth1"] });
    let expected = json!([{ "name": "niwaki", "version": "niwaki 1", "meta": meta }]);
    assert_eq!(answer, expected);
    let about = simulation().handle("GET", "/hive", "", b"").unwrap();
    assert!(about.is_object());
}

#[test]
fn results_are_kept_with_suite_test_and_details() {
    let simulation = with_test();
    let second = post(&simulation, "/testsuite/1/test", r#"{"name":"two"}"#);
    assert_eq!(second, Ok(json!(2)));
    let result = r#"{"pass":true,"details":"head 3000"}"#;
    assert_eq!(
        post(&simulation, "/testsuite/1/test/1", result),
        Ok(Value::Null)
    );
    let (code, why) = status(simulation.handle("DELETE", "/testsuite/1", "", b""));
    assert_eq!(
        (code, why.as_str()),
        (400, "test 2 of suite 1 has not ended")
    );
    let outcomes = simulation.suites().outcomes();
    assert_eq!(outcomes.len(), 2);
    let first = outcomes[0].to_json();
    assert_eq!(first["suite"], "sync");
    assert_eq!(first["test"], "one");
    assert_eq!(first["pass"], true);
    assert_eq!(first["details"], "head 3000");
    assert!(first["seconds"].is_f64());
    // The simulator left the second one.
    assert!(!outcomes[1].pass);
    assert_eq!(outcomes[1].details, "the test did not end");
}

#[test]
fn nothing_can_be_done_in_what_has_ended() {
    let simulation = with_test();
    let result = r#"{"pass":false}"#;
    post(&simulation, "/testsuite/1/test/1", result).unwrap();
    let (code, why) = status(post(&simulation, "/testsuite/1/test/1", result));
    assert_eq!((code, why.as_str()), (400, "no test 1 of suite 1 runs"));
    simulation
        .handle("DELETE", "/testsuite/1", "", b"")
        .unwrap();
    for path in ["/testsuite/1/test", "/testsuite/1/network/net"] {
        let (code, why) = status(post(&simulation, path, r#"{"name":"two"}"#));
        assert_eq!((code, why.as_str()), (400, "no suite 1 runs"));
    }
}

#[test]
fn a_request_that_cannot_be_read_gets_400_and_a_reason() {
    let simulation = with_test();
    let cases = [
        ("/testsuite", "", "the request can't be read"),
        ("/testsuite", "{}", "missing field `name`"),
        ("/testsuite", r#"{"name":""}"#, "the suite has no name"),
        (
            "/testsuite/1/test",
            r#"{"name":""}"#,
            "the test has no name",
        ),
        ("/testsuite/9/test", r#"{"name":"x"}"#, "no suite 9 runs"),
        (
            "/testsuite/1/test/1",
            r#"{"details":""}"#,
            "missing field `pass`",
        ),
        (
            "/testsuite/1/test/1/node",
            "{}",
            "must be multipart/form-data",
        ),
        (
            "/testsuite/1/test/9/node",
            "{}",
            "no test 9 of suite 1 runs",
        ),
        (
            "/testsuite/x/test",
            "{}",
            "\"x\" in /testsuite/x/test is no number",
        ),
    ];
    for (path, body, reason) in cases {
        let (code, why) = status(post(&simulation, path, body));
        assert_eq!(code, 400, "{path}: {why}");
        assert!(why.contains(reason), "{path}: {why}");
    }
    assert_eq!(status(post(&simulation, "/nothing", "")).0, 404);
    assert_eq!(status(post(&simulation, "/clients", "")).0, 405);
}

#[test]
fn a_client_that_cannot_be_started_is_refused_before_it_is() {
    let simulation = with_test();
    let start = |config: &str, file: &str| {
        let body = form(config, file);
        let path = "/testsuite/1/test/1/node";
        status(simulation.handle("POST", path, FORM, body.as_bytes()))
    };
    let file = "/genesis.json";
    let cases = [
        (
            r#"{"client":"besu"}"#,
            file,
            400,
            "there is no client \"besu\", but niwaki",
        ),
        (r"{}", file, 400, "missing field `client`"),
        (
            r#"{"client":"niwaki","networks":["x"]}"#,
            file,
            404,
            "no network \"x\"",
        ),
        (
            r#"{"client":"niwaki"}"#,
            "/../x",
            400,
            "no path inside a client",
        ),
        (
            r#"{"client":"niwaki"}"#,
            "/",
            400,
            "no path inside a client",
        ),
        (
            r#"{"client":"niwaki","environment":{"HIVE_MINER":"0x1"}}"#,
            file,
            400,
            "HIVE_MINER is not supported",
        ),
    ];
    for (config, file, code, reason) in cases {
        let (got, why) = start(config, file);
        assert_eq!(got, code, "{config}: {why}");
        assert!(why.contains(reason), "{config}: {why}");
    }
    let without = "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n--b--";
    let path = "/testsuite/1/test/1/node";
    let (code, why) = status(simulation.handle("POST", path, FORM, without.as_bytes()));
    assert_eq!((code, why.as_str()), (400, "the form has no part config"));
}

#[test]
fn a_client_that_does_not_run_is_not_found() {
    let simulation = with_test();
    let node = "/testsuite/1/test/1/node/niwaki-1";
    let requests = [
        ("GET", String::new()),
        ("DELETE", String::new()),
        ("POST", "/exec".into()),
        ("POST", "/pause".into()),
        ("DELETE", "/pause".into()),
        ("POST", "/register/1".into()),
    ];
    for (method, rest) in requests {
        let path = format!("{node}{rest}");
        let (code, why) = status(simulation.handle(method, &path, "", b"{}"));
        assert_eq!(code, 404, "{method} {path}: {why}");
        assert!(why.contains("test 1 has no client"), "{why}");
    }
    let address = "/testsuite/1/network/bridge/niwaki-1";
    assert_eq!(status(simulation.handle("GET", address, "", b"")).0, 404);
    let own = "/testsuite/1/network/bridge/simulation";
    let own = simulation.handle("GET", own, "", b"").unwrap();
    assert!(own.as_str().unwrap().starts_with("127."));
}
