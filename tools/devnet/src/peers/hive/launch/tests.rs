//! What a client is started with.

use super::*;

fn launch(kind: ClientKind, variables: &[(&str, &str)]) -> Launch<'static> {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Launch {
        kind,
        binary: Path::new("client"),
        folder: PathBuf::from("folder"),
        address: Ipv4Addr::new(127, 9, 8, 7),
        variables: variables.iter().map(own).collect(),
        files: Files::new(),
        timeout: Duration::from_secs(1),
    }
}

#[test]
fn every_address_of_a_client_is_its_own_and_none_is_the_wildcard() {
    for kind in [ClientKind::Niwaki, ClientKind::Geth] {
        let flags = launch(kind, &[]).flags();
        let addresses = |flag: &&String| {
            let (name, value) = flag.split_once('=')?;
            let listens = [".addr", "-host", "-interface"];
            let listens = listens.iter().any(|end| name.ends_with(end));
            listens.then(|| value.to_owned())
        };
        let addresses: Vec<String> = flags.iter().filter_map(|flag| addresses(&flag)).collect();
        assert!(addresses.len() >= 3, "{kind:?}: {flags:?}");
        assert!(
            addresses.iter().all(|address| address == "127.9.8.7"),
            "{kind:?}: {addresses:?}"
        );
    }
}

#[test]
fn variables_become_flags() {
    let variables = [
        ("HIVE_NODETYPE", "archive"),
        ("HIVE_BOOTNODE", "enode://ab@127.0.0.1:30303"),
        ("HIVE_NETWORK_ID", "77"),
    ];
    let cases = [
        (
            ClientKind::Niwaki,
            [
                "--data-storage-format=X_BONSAI_ARCHIVE",
                "--bootnodes=enode://ab@127.0.0.1:30303",
                "--network-id=77",
            ],
        ),
        (
            ClientKind::Geth,
            [
                "--gcmode=archive",
                "--bootnodes=enode://ab@127.0.0.1:30303",
                "--networkid=77",
            ],
        ),
    ];
    for (kind, expected) in cases {
        let flags = launch(kind, &variables).flags();
        for flag in expected {
            assert!(flags.iter().any(|have| have == flag), "{kind:?}: {flag}");
        }
        let default = launch(kind, &[]).flags();
        assert!(default.iter().any(|flag| flag == "--bootnodes="));
        assert!(default.iter().any(|flag| flag.ends_with("id=1337")));
    }
}

#[test]
fn what_a_client_cannot_do_is_refused_by_name() {
    let cases = [
        ("HIVE_MINER", "0x12", "HIVE_MINER is not supported"),
        ("HIVE_CLIQUE_PERIOD", "1", "no client here has Clique"),
        ("HIVE_GRAPHQL_ENABLED", "1", "GraphQL"),
        ("HIVE_NODETYPE", "light", "HIVE_NODETYPE=light"),
        ("HIVE_NODETYPE", "snap", "HIVE_NODETYPE=snap"),
        ("HIVE_CHECK_LIVE_PORT", "65536", "must be a port"),
    ];
    for (name, value, reason) in cases {
        let refusal = launch(ClientKind::Niwaki, &[(name, value)]).refusal();
        let refusal = refusal.unwrap_or_default();
        assert!(refusal.contains(reason), "{name}={value}: {refusal:?}");
    }
    for (kind, node_type) in [(ClientKind::Geth, "snap"), (ClientKind::Niwaki, "full")] {
        let launch = launch(kind, &[("HIVE_NODETYPE", node_type), ("HIVE_MINER", "")]);
        assert_eq!(launch.refusal(), None);
    }
}

#[test]
fn blocks_are_imported_in_the_order_of_their_numbers() {
    let mut files = ["blocks/10.rlp", "blocks/x", "blocks/9.rlp", "blocks/0001"].map(Path::new);
    files.sort_by_key(|path| leading_number(path));
    let expected = ["blocks/0001", "blocks/9.rlp", "blocks/10.rlp", "blocks/x"];
    assert_eq!(files, expected.map(Path::new));
}

#[test]
fn an_address_on_which_another_process_listens_is_not_free() {
    let address = Ipv4Addr::new(127, 251, 31, 17);
    assert!(is_free(address));
    let _listener = TcpListener::bind((address, ENGINE_PORT)).unwrap();
    assert!(!is_free(address));
    assert!(is_free(Ipv4Addr::new(127, 251, 31, 18)));
}
