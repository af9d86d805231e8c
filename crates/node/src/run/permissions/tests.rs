//! The lists, their files, and Besu's words.

use super::*;
use niwaki_network::{NodeId, NodeKey};
use niwaki_primitives::B256;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

const ONE: &str = "0xfe3b557e8fb62b89f4916b721be55ceb828dbd73";
const TWO: &str = "0x627306090abab3a6e1400e9345bc60c78a8bef57";

fn id(number: u8) -> NodeId {
    NodeKey::new(B256::repeat_byte(number)).unwrap().id()
}

/// One that is dialled at this port, or that connected.
fn remote(number: u8, ip: [u8; 4], dialled: Option<u16>) -> Remote {
    Remote {
        id: id(number),
        ip: ip.into(),
        port: dialled.unwrap_or(0),
        is_dialled: dialled.is_some(),
    }
}

fn node(number: u8) -> String {
    Node::at(id(number), [127, 0, 0, 1].into(), 30_303, 30_303).to_string()
}

struct Rig {
    _folder: TempDir,
    path: PathBuf,
    permissions: Arc<Permissions>,
}

fn open(text: &str, fixed: Vec<Node>) -> Result<(TempDir, PathBuf, Arc<Permissions>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("permissions_config.toml");
    std::fs::write(&path, text).unwrap();
    let config = PermissionsConfig {
        accounts: Some(path.clone()),
        nodes: Some(path.clone()),
        ..PermissionsConfig::default()
    };
    let own = End {
        id: id(9),
        ip: [127, 0, 0, 1].into(),
        port: 30_303,
    };
    let permissions = Permissions::read(&config, Some(own), fixed, Contracts::default())?;
    Ok((folder, path, permissions.unwrap()))
}

fn rig() -> Rig {
    let text = format!(
        "accounts-allowlist=[\"{ONE}\",\"0x627306090abaB3A6e1400e9345bC60c78a8BEf57\"]\nnodes-allowlist=[\"{}\"]",
        node(1)
    );
    let (folder, path, permissions) = open(&text, Vec::new()).unwrap();
    Rig {
        _folder: folder,
        path,
        permissions,
    }
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn accounts_are_added_and_removed_in_the_file_too_with_besus_words() {
    let rig = rig();
    let change = |change, all: &[&str]| rig.permissions.change_accounts(change, &texts(all));
    let new = "0xabababababababababababababababababababab";
    let (add, remove) = (ListChange::Add, ListChange::Remove);
    assert!(!rig.permissions.lists_account(&new.parse().unwrap()));
    assert_eq!(change(add, &[new]), Ok(()));
    assert!(rig.permissions.lists_account(&new.parse().unwrap()));
    let list = (rig.permissions.hooks().accounts.unwrap().entries)();
    assert_eq!(list, texts(&[ONE, TWO, new]));
    for (kind, all, words) in [
        (
            add,
            &[new][..],
            "Cannot add an existing account to allowlist",
        ),
        (add, &[], "Request contains an empty list of accounts"),
        (add, &["0x12"], "Request contains an invalid account"),
        (add, &[ONE, ONE], "Request contains duplicate accounts"),
        (remove, &[], "Request contains an empty list of accounts"),
    ] {
        assert_eq!(change(kind, all), Err(words.to_owned()));
    }
    assert_eq!(change(remove, &[new]), Ok(()));
    let words = "Cannot remove an absent account from allowlist";
    assert_eq!(change(remove, &[new]), Err(words.to_owned()));
    let text = format!(
        "accounts-allowlist=[\"{ONE}\",\"{TWO}\"]\nnodes-allowlist=[\"{}\"]",
        node(1)
    );
    assert_eq!(std::fs::read_to_string(&rig.path).unwrap(), text);
}

#[test]
fn nodes_are_known_by_key_address_and_port_and_a_change_is_told() {
    let rig = rig();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    rig.permissions.on_nodes(Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let allows = |number, ip: [u8; 4], port| {
        let permissions = &rig.permissions;
        permissions.allows_node(&remote(number, ip, port))
    };
    assert!(allows(1, [127, 0, 0, 1], Some(30_303)) && allows(1, [127, 0, 0, 1], None));
    assert!(!allows(1, [127, 0, 0, 1], Some(30_304)) && !allows(1, [10, 0, 0, 1], None));
    assert!(!allows(2, [127, 0, 0, 1], None));
    // This node itself.
    assert!(allows(9, [10, 0, 0, 1], Some(1)));
    let change = |change, all: &[&str]| rig.permissions.change_nodes(change, &texts(all));
    assert_eq!(change(ListChange::Add, &[&node(2)]), Ok(()));
    assert!(allows(2, [127, 0, 0, 1], None));
    let words = "Cannot add an existing node to allowlist";
    let other_discovery = format!("{}?discport=7", node(2));
    assert_eq!(
        change(ListChange::Add, &[&other_discovery]),
        Err(words.to_owned())
    );
    let words = "Request contains an invalid node";
    assert_eq!(
        change(ListChange::Add, &["enode://bad"]),
        Err(words.to_owned())
    );
    assert_eq!(change(ListChange::Remove, &[&node(2)]), Ok(()));
    assert_eq!(told.load(Ordering::Relaxed), 2);
}

#[test]
fn a_fixed_node_must_be_listed_and_stays() {
    let fixed: Node = node(1).parse().unwrap();
    let text = format!("accounts-allowlist=[]\nnodes-allowlist=[\"{}\"]", node(1));
    let (_folder, path, permissions) = open(&text, vec![fixed.clone()]).unwrap();
    let refused = permissions.change_nodes(ListChange::Remove, &[node(1)]);
    assert!(refused.unwrap_err().contains("fixed node"));
    std::fs::write(&path, "accounts-allowlist=[]\nnodes-allowlist=[]").unwrap();
    assert!(permissions.reload().is_err());
    assert!(permissions.allows_node(&remote(1, [127, 0, 0, 1], None)));
    let text = "accounts-allowlist=[]\nnodes-allowlist=[]";
    let refused = open(text, vec![fixed]).err().unwrap().to_string();
    assert!(refused.contains("nodes-allowlist"), "{refused}");
}

#[test]
fn a_file_without_a_list_or_with_a_bad_entry_is_refused_by_name() {
    let list = format!("nodes-allowlist=[\"{}\"]", node(1));
    for (text, words) in [
        (list.clone(), "accounts-allowlist"),
        (format!("{list}\naccounts-allowlist=[\"0x12\"]"), "0x12"),
        (
            format!("{list}\naccounts-allowlist=[7]"),
            "no text in quotes",
        ),
        (
            "accounts-allowlist=[]\nnodes-allowlist=[\"enode://x\"]".to_owned(),
            "enode://x",
        ),
        ("what".to_owned(), "not TOML"),
    ] {
        let refused = format!("{:#}", open(&text, Vec::new()).err().unwrap());
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn a_file_that_changed_is_not_overwritten_and_a_reload_takes_all_or_nothing() {
    let rig = rig();
    let third = "0xf17f52151ebef6c7334fad080c5704d77216b732";
    let text = std::fs::read_to_string(&rig.path).unwrap();
    let changed = text.replace(
        "accounts-allowlist=[",
        &format!("accounts-allowlist=[\"{third}\","),
    );
    std::fs::write(&rig.path, &changed).unwrap();
    let refused = rig
        .permissions
        .change_accounts(ListChange::Remove, &texts(&[ONE]));
    assert!(refused.unwrap_err().contains("another program"));
    assert_eq!(std::fs::read_to_string(&rig.path).unwrap(), changed);
    assert!(!rig.permissions.lists_account(&third.parse().unwrap()));
    rig.permissions.reload().unwrap();
    assert!(rig.permissions.lists_account(&third.parse().unwrap()));
    std::fs::write(&rig.path, "accounts-allowlist=[]\nnodes-allowlist=[7]").unwrap();
    assert!(rig.permissions.reload().is_err());
    assert!(rig.permissions.lists_account(&third.parse().unwrap()));
}

#[test]
fn both_lists_of_one_file_change_at_once_and_none_is_lost() {
    let rig = rig();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in 1..40_u8 {
                let account = AllowedAccount(Address::repeat_byte(byte)).to_string();
                rig.permissions
                    .change_accounts(ListChange::Add, &[account])
                    .unwrap();
            }
        });
        scope.spawn(|| {
            for number in 2..40 {
                rig.permissions
                    .change_nodes(ListChange::Add, &[node(number)])
                    .unwrap();
            }
        });
    });
    rig.permissions.reload().unwrap();
    let hooks = rig.permissions.hooks();
    assert_eq!((hooks.accounts.unwrap().entries)().len(), 2 + 39);
    assert_eq!((hooks.nodes.unwrap().entries)().len(), 1 + 38);
}
