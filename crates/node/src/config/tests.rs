//! Merging command lines, environment variables and files into arguments for clap, and the notices about them.

mod documented;

use super::*;
use crate::options::Options;
use clap::{CommandFactory, FromArgMatches};

fn merged_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Merged> {
    let arguments = ["niwaki"].iter().chain(arguments);
    let arguments = arguments.map(OsString::from).collect();
    merge(&Options::command(), arguments, &|name| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| value.into())
    })
}

fn words(arguments: &[&str]) -> Result<Vec<String>> {
    let merged = merged_with(arguments, &[])?;
    let words = merged.arguments.into_iter();
    Ok(words.map(|word| word.into_string().unwrap()).collect())
}

/// What clap makes of the merged words.
fn options(merged: &Merged) -> Options {
    let matches = Options::command().try_get_matches_from(&merged.arguments);
    let matches = matches.unwrap_or_else(|error| panic!("{error}"));
    Options::from_arg_matches(&matches).unwrap()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn with_file(text: &str, arguments: &[&str]) -> Result<Merged> {
    let file = file(text);
    let path = format!("--config-file={}", file.path().display());
    merged_with(&[arguments, &[path.as_str()]].concat(), &[])
}

fn has(merged: &Merged, word: &str) -> bool {
    merged.arguments.iter().any(|argument| argument == word)
}

#[track_caller]
fn assert_noted(merged: &Merged, is_warning: bool, words: &[&str]) {
    let found = merged.notes.iter().any(|note| {
        note.is_warning == is_warning && words.iter().all(|word| note.text.contains(word))
    });
    assert!(found, "no note with {words:?} in {:?}", merged.notes);
}

#[test]
fn command_line_overrides_file_and_file_overrides_profile() {
    let text = "rpc-http-port = 1234\nrpc-http-api = ['ETH', 'DEBUG']\ntx-pool-max-size = 7";
    let found = with_file(text, &["--rpc-http-port=99", "--profile=enterprise"]).unwrap();
    assert!(has(&found, "--rpc-http-port=99") && !has(&found, "--rpc-http-port=1234"));
    assert!(has(&found, "--rpc-http-api=ETH,DEBUG"));
    assert!(has(&found, "--tx-pool=SEQUENCED"));
    assert!(has(&found, "--tx-pool-max-size=7"));
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_name_and_its_line() {
    let error = with_file("\nrpc-http-prot = 1", &[])
        .unwrap_err()
        .to_string();
    for word in ["rpc-http-prot in line 2", "did you mean rpc-http-port?"] {
        assert!(error.contains(word), "{error}");
    }
    let error = with_file("[rpc-http-port]\na = 1", &[]).unwrap_err();
    assert!(error.to_string().contains("the key a in line 2"), "{error}");
    let error = merged_with(&["--profile", "fast"], &[]).unwrap_err();
    assert!(error.to_string().contains("MINIMALIST_STAKER"), "{error}");
}

#[test]
fn options_without_effect_are_removed_with_their_values_and_noted_once() {
    let arguments = [
        "--sync-min-peers",
        "7",
        "--Xp2p-peer-task-timeout=7",
        "--metrics-categories",
        "a,b",
        "c",
        "--rpc-http-enabled",
    ];
    assert_eq!(words(&arguments).unwrap(), ["niwaki", "--rpc-http-enabled"]);
    let found = merged_with(&arguments, &[("BESU_SYNC_MIN_PEERS", "8")]).unwrap();
    assert_eq!(found.notes.len(), 3, "{:?}", found.notes);
    assert_noted(&found, false, &["--sync-min-peers has no effect: a sync"]);
}

#[test]
fn every_profile_names_existing_flags() {
    let names = "NONE dev staker minimalist_staker enterprise private performance performance_rpc";
    for name in names.split(' ') {
        let found = merged_with(&["--profile", name], &[]).unwrap();
        options(&found);
    }
    // Besu's profile for little space leaves the choice of the network to the operator.
    let found = merged_with(&["--profile=MINIMALIST_STAKER"], &[]).unwrap();
    assert!(options(&found).network.is_none());
}

#[test]
fn a_switch_does_not_swallow_the_command_after_it() {
    for flag in [
        "--revert-reason-enabled",
        "--receipt-compaction-enabled",
        "--version-compatibility-protection",
        "--rpc-http-enabled",
        "--metrics-enabled",
        "--p2p-enabled",
        "--auto-log-bloom-caching-enabled",
        "--Xplugin-rocksdb-high-spec-enabled",
    ] {
        let found = merged_with(&[flag, "storage", "check", "--head-only"], &[]).unwrap();
        assert!(options(&found).command.is_some(), "{flag}");
    }
}

#[test]
fn every_besu_option_is_accepted_before_a_command() {
    for row in besu::ROWS {
        let value: &[&str] = match row.arity {
            besu::Arity::Flag => &[],
            besu::Arity::Spaced => &["FALSE"],
            besu::Arity::Value => &["1"],
            besu::Arity::List => &["a,b", "c"],
        };
        let flag = format!("--{}", row.name);
        let command: &[&str] = &["storage", "check"];
        let words = words(&[&[flag.as_str()], value, command].concat());
        assert_eq!(words.unwrap(), ["niwaki", "storage", "check"], "{flag}");
    }
}

#[test]
fn a_value_after_a_space_is_accepted_where_besu_does() {
    for (flag, value) in [
        ("--auto-log-bloom-caching-enabled", "TRUE"),
        ("--tx-pool-no-local-priority", "true"),
        ("--bonsai-parallel-tx-processing-enabled", "False"),
    ] {
        let attached = format!("{flag}={}", value.to_ascii_lowercase());
        let found = words(&[flag, value, "storage", "check"]).unwrap();
        assert_eq!(found, ["niwaki", attached.as_str(), "storage", "check"]);
    }
    for flag in ["--rpc-http-enabled", "--revert-reason-enabled"] {
        let error = words(&[flag, "true"]).unwrap_err().to_string();
        assert!(error.contains(&format!("write {flag}=true")), "{error}");
    }
}

#[test]
fn a_list_ends_at_the_next_flag_or_command() {
    let found = words(&["--rpc-http-api", "ETH", "NET, WEB3", "--logging", "debug"]).unwrap();
    let right = ["niwaki", "--rpc-http-api=ETH,NET,WEB3", "--logging=debug"];
    assert_eq!(found, right);
    let found = words(&["--rpc-ws-apis", "ETH", "storage", "check"]).unwrap();
    assert_eq!(found, ["niwaki", "--rpc-ws-api=ETH", "storage", "check"]);
}

#[test]
fn flags_of_commands_and_other_words_stay_unchanged() {
    let found = words(&[
        "-l",
        "DEBUG",
        "blocks",
        "import",
        "--from",
        "a",
        "--",
        "--p2p-port",
    ]);
    let right = [
        "niwaki",
        "--logging=DEBUG",
        "blocks",
        "import",
        "--from",
        "a",
        "--",
        "--p2p-port",
    ];
    assert_eq!(found.unwrap(), right);
    let found = words(&["validate-config", "--config-file", "/absent"]);
    assert_eq!(found.unwrap().last().unwrap(), "/absent");
}

#[test]
fn booleans_are_case_insensitive_in_every_source() {
    let is_on = |merged: &Merged| options(merged).node.http.rpc_http_enabled;
    for text in ["true", "TRUE", "True", "tRuE", " true "] {
        let variable = ("BESU_RPC_HTTP_ENABLED", text);
        assert_eq!(is_on(&merged_with(&[], &[variable]).unwrap()), Some(true));
        let argument = format!("--rpc-http-enabled={text}");
        let found = merged_with(&[&argument], &[]).unwrap();
        assert_eq!(is_on(&found), Some(true));
        let line = format!("rpc-http-enabled = '{text}'");
        assert_eq!(is_on(&with_file(&line, &[]).unwrap()), Some(true));
    }
    let found = merged_with(&[], &[("NIWAKI_RPC_HTTP_ENABLED", "FALSE")]).unwrap();
    assert_eq!(is_on(&found), Some(false));
    let error = merged_with(&[], &[("BESU_RPC_HTTP_ENABLED", "yes")]).unwrap_err();
    for word in ["BESU_RPC_HTTP_ENABLED is yes", "true or false"] {
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn values_of_every_kind_are_read_in_besus_forms() {
    let text = "tx-pool = 'layered'\nlogging = 'debug'\nnetwork = 'SEPOLIA'\n\
                data-storage-format = 'bonsai'\nrpc-http-api = ['eth', ' Net ']\n\
                rpc-http-max-request-content-length = 5_242_880\n\
                rpc-tx-feecap = 20000000000000000000\ntx-pool-priority-senders = []\n\
                rpc-ws-ssl-keystore-type = 'none'\napi-gas-price-percentile = 50";
    let options = options(&with_file(text, &[]).unwrap());
    assert_eq!(options.node.http.rpc_http_api, ["eth", "Net"]);
    let length = options.node.http.rpc_http_max_request_content_length;
    assert_eq!(length, 5_242_880);
    let cap = options.node.pool.rpc_tx_feecap;
    assert_eq!(cap.to_string(), "20000000000000000000");
}

#[test]
fn empty_variables_are_ignored_and_aliases_count() {
    let variables = [
        ("NIWAKI_NETWORK", ""),
        ("BESU_NETWORK", "hoodi"),
        ("BESU_RPC_HTTP_APIS", "ETH"),
        ("BESU_DATA_PATH", ""),
    ];
    let found = merged_with(&[], &variables).unwrap();
    assert!(has(&found, "--network=hoodi") && has(&found, "--rpc-http-api=ETH"));
    assert!(options(&found).data_path.is_none());
}

#[test]
fn headings_are_ignored_and_a_key_under_two_is_refused() {
    let text = "[Node]\nmin-gas-price = 0\n[RPC]\nrpc-http-enabled = true\n\
                rpc-http-api = ['ETH']\n[rpc.ws]\nrpc-ws-enabled = false\n";
    let found = with_file(text, &[]).unwrap();
    for word in [
        "--tx-pool-min-gas-price=0",
        "--rpc-http-enabled=true",
        "--rpc-http-api=ETH",
        "--rpc-ws-enabled=false",
    ] {
        assert!(has(&found, word), "no {word} in {:?}", found.arguments);
    }
    let text = "rpc-http-port = 1\n[RPC]\n\nrpc-http-port = 2\n";
    let error = with_file(text, &[]).unwrap_err().to_string();
    let right = "gives rpc-http-port twice, in line 1 and in line 4 under [RPC]";
    assert!(error.contains(right), "{error}");
    // Two names of one flag are no contradiction: the flag's own counts.
    let found = with_file("rpc-http-apis = ['NET']\nrpc-http-api = ['ETH']", &[]).unwrap();
    assert!(has(&found, "--rpc-http-api=ETH"), "{:?}", found.arguments);
    assert_noted(
        &found,
        false,
        &["rpc-http-apis", "gives way to rpc-http-api"],
    );
}

#[test]
fn the_network_of_the_command_line_wins_and_two_are_refused() {
    for profile in ["STAKER", "MINIMALIST_STAKER", "DEV"] {
        let profile = format!("--profile={profile}");
        let found = merged_with(&[&profile, "--genesis-file=g.json"], &[]).unwrap();
        let options = options(&found);
        assert!(options.network.is_none() && options.genesis_file.is_some());
    }
    let found = with_file("network = 'sepolia'", &["--genesis-file", "g.json"]).unwrap();
    assert!(options(&found).network.is_none());
    assert_noted(
        &found,
        false,
        &["network in", "gives way to --genesis-file"],
    );
    let found = with_file("genesis-file = 'g.json'", &["--network", "sepolia"]).unwrap();
    assert!(options(&found).genesis_file.is_none());
    let variable = [("BESU_NETWORK", "hoodi")];
    let found = merged_with(&["--genesis-file=g.json"], &variable).unwrap();
    assert!(options(&found).network.is_none());

    // Besu's genesis file counts where one file has both.
    let found = with_file("network = 'mainnet'\ngenesis-file = 'g.json'", &[]).unwrap();
    assert!(options(&found).network.is_none());
    assert_noted(&found, true, &["network in", "gives way to genesis-file"]);

    let both = ["--network=sepolia", "--genesis-file=g.json"];
    let error = merged_with(&both, &[]).unwrap_err().to_string();
    assert_eq!(
        error,
        "--network and --genesis-file exclude each other; leave one of them out"
    );
}

#[test]
fn a_password_of_the_command_line_wins_over_a_password_file() {
    let text = "rpc-ws-ssl-keystore-password-file = 'p.txt'\nrpc-ws-ssl-key-file = 'k.pem'\n\
                rpc-ws-ssl-cert-file = 'c.pem'";
    let typed = [
        "--rpc-ws-ssl-keystore-password=x",
        "--rpc-ws-ssl-keystore-file=k.p12",
    ];
    let flags = options(&with_file(text, &typed).unwrap()).node.socket_tls;
    assert!(flags.rpc_ws_ssl_keystore_password_file.is_none());
    assert!(flags.rpc_ws_ssl_key_file.is_none() && flags.rpc_ws_ssl_cert_file.is_none());
}

#[test]
fn a_clap_error_is_one_sentence_with_the_source_of_the_value() {
    let refused = |merged: Merged| {
        let error = Options::command().try_get_matches_from(&merged.arguments);
        merged.explain(&error.unwrap_err())
    };
    let text = refused(with_file("\nrpc-http-port = 70000", &[]).unwrap());
    for word in ["70000", "--rpc-http-port", "rpc-http-port in", "line 2"] {
        assert!(text.contains(word), "{text}");
    }
    let text = refused(merged_with(&["--rpc-http-prot=1"], &[]).unwrap());
    assert!(text.contains("--rpc-http-prot") && text.contains("--rpc-http-port"));
    for text in [
        text,
        refused(merged_with(&["--rpc-ws-ssl-key-file=k.pem"], &[]).unwrap()),
        refused(merged_with(&["storage", "backup"], &[]).unwrap()),
        refused(merged_with(&["storage"], &[]).unwrap()),
        refused(merged_with(&["strage"], &[]).unwrap()),
        refused(merged_with(&["--network", "venus"], &[]).unwrap()),
        refused(merged_with(&["--rpc-http-port"], &[]).unwrap()),
    ] {
        assert!(!text.contains("Usage") && !text.contains('\n'), "{text}");
        assert!(!text.starts_with("error") && !text.is_empty(), "{text}");
    }
}

#[test]
fn networks_are_read_as_besu_does_and_a_wrong_one_is_refused_by_name() {
    let arguments = ["--net-restrict", "10.0.0.0/8", "fd00::/8, ::1/128"];
    let found = options(&merged_with(&arguments, &[]).unwrap());
    assert_eq!(found.node.peers.net_restrict.len(), 3);
    let found = options(&with_file("net-restrict = ['']", &[]).unwrap());
    assert_eq!(found.node.peers.net_restrict.len(), 1);
    assert!(found.node.peers.net_restrict[0].0.is_none());
    let merged = merged_with(&["--net-restrict=10.0.0.0/33"], &[]).unwrap();
    let error = Options::command().try_get_matches_from(&merged.arguments);
    let text = merged.explain(&error.unwrap_err());
    for word in [
        "10.0.0.0/33",
        "--net-restrict",
        "from 0 to 32",
        "write 10.0.0.0/8",
    ] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn every_key_of_besu_is_accepted_with_at_most_one_note() {
    let text = include_str!("../../../../testdata/besu/options.toml");
    let entries = file::entries(text, "the file").unwrap();
    assert_eq!(entries.len(), 205);
    let found = with_file(text, &[]).unwrap();
    let options = options(&found);
    assert!(options.network.is_none() && options.genesis_file.is_some());
    assert_eq!(options.node.http.rpc_http_max_batch_size, usize::MAX);
    assert_eq!(options.node.operation.required_blocks.len(), 1);
    let mut texts: Vec<_> = found.notes.iter().map(|note| &note.text).collect();
    let told = texts.len();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), told);
    // Each by itself, as a variable.
    for entry in entries {
        let name = entry.key.replace('-', "_").to_ascii_uppercase();
        let value = entry.values.join(",");
        let variable = format!("BESU_{name}");
        let alone = merged_with(&[], &[(&variable, &value)]).unwrap();
        let is_taken = alone.arguments.len() == 2 || alone.notes.len() == 1;
        assert!(
            is_taken || value.is_empty() || name == "PROFILE",
            "{variable}: {alone:?}"
        );
    }
}
