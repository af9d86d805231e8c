//! Folders that Besu 26.8 wrote, taken over: whatever part of the chain is copied rather than executed, the rows are the same.

use super::*;
use crate::besu::{
    ACCOUNT_INFO_STATE, ACCOUNT_STORAGE, BLOCKCHAIN, CODE_STORAGE, TRIE_BRANCH, TRIE_LOG, VARIABLES,
};
use crate::{BesuError, BesuFolder, BesuImport, BesuLayout, GenesisSource};
use niwaki_storage::{ForeignDatabase, ForeignFamily, Row};
use niwaki_trie::TrieAccount;
use std::fs;
use std::path::PathBuf;

/// Of both folders: QBFT, one validator, London to Osaka.
const BESU_HEAD: u64 = 270;

fn folders() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/besu-folder")
}

fn besu_import(data_path: &Path, executed: u64) -> BesuImport {
    let options = config(None, &genesis());
    BesuImport {
        data_path: data_path.to_owned(),
        genesis: GenesisSource::File(folders().join("genesis.json")),
        storage: options.storage,
        state: options.state,
        executed,
    }
}

/// Takes a folder over. Returns the chain and how many blocks were copied after the state.
fn take_over(folder: &Path, data_path: &Path, executed: u64) -> Result<(Chain, u64), BesuError> {
    let folder = Arc::new(BesuFolder::open(folder)?);
    let import = besu_import(data_path, executed);
    let chain = Chain::import_besu_state(&folder, &import, &mut |_| true)?;
    let copied = folder.copy_history(&chain, &mut |_, _| true)?;
    assert!(copied.is_whole);
    for block in folder.blocks_above(chain.head().id.number, chain.spec()) {
        import_block(&chain, block?);
    }
    assert_eq!(chain.head().id, folder.head());
    Ok((chain, copied.blocks))
}

fn import_block(chain: &Chain, block: Block) {
    assert_eq!(chain.import(block).unwrap().status, ImportStatus::Canonical);
}

/// The rows that must be the same whatever was executed: codes of accounts that are gone may be left out.
fn comparable(chain: &Chain) -> Vec<(Segment, Row)> {
    let others = [Segment::Code, Segment::Meta, Segment::LogIndex];
    let rows = dump(chain).into_iter();
    rows.filter(|(segment, _)| !others.contains(segment))
        .collect()
}

/// All files of a folder and what is in them.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn both_layouts_give_the_same_rows_however_much_is_executed() {
    let dir = tempfile::tempdir().unwrap();
    let before = files(&folders());
    let mut first: Option<Vec<(Segment, Row)>> = None;
    for (layout, name) in [
        (BesuLayout::Forest, "forest"),
        (BesuLayout::Bonsai, "bonsai"),
    ] {
        let from = folders().join(name);
        let folder = BesuFolder::open(&from).unwrap();
        assert_eq!((folder.layout(), folder.head().number), (layout, BESU_HEAD));
        drop(folder);
        // All blocks, some with transactions (the last ones have none), and none.
        for executed in [u64::MAX, 150, 90, 6, 0] {
            let data_path = dir.path().join(format!("{name}-{executed}"));
            let (chain, copied) = take_over(&from, &data_path, executed).unwrap();
            // The state came with 256 blocks.
            assert_eq!(copied, 14_u64.saturating_sub(executed));
            assert_clean(&chain);
            let rows = comparable(&chain);
            match &first {
                None => first = Some(rows),
                Some(first) => assert!(*first == rows, "{name}, {executed} executed"),
            }
        }
    }
    assert!(files(&folders()) == before, "the folders are not changed");
}

#[test]
fn a_load_that_stops_anywhere_goes_on_to_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["forest", "bonsai"] {
        let from = folders().join(name);
        let folder = BesuFolder::open(&from).unwrap();
        let load = |data_path: &Path, stop_at: u32| {
            let mut reports = 0;
            // Runs of a few rows, so that there are checkpoints.
            let import = besu_import(data_path, 90);
            let loaded = Chain::import_besu_state_with(&folder, &import, Some(4_000), &mut |_| {
                reports += 1;
                reports < stop_at
            });
            (loaded, reports)
        };
        let (whole, reports) = load(&dir.path().join(name), u32::MAX);
        let expected = dump(&whole.unwrap());
        for stop_at in 1..=reports {
            let data_path = dir.path().join(format!("{name}-{stop_at}"));
            assert!(matches!(
                load(&data_path, stop_at).0,
                Err(BesuError::Stopped)
            ));
            let (again, _) = load(&data_path, u32::MAX);
            assert!(dump(&again.unwrap()) == expected, "stopped at {stop_at}");
        }
    }
}

/// The row that a copy has in the place of one; `None` leaves it out.
type Change<'a> = dyn Fn(ForeignFamily, &[u8], Vec<u8>) -> Option<(Vec<u8>, Vec<u8>)> + 'a;

/// A copy of the Bonsai folder, each row changed or left out as `change` says, with `more` rows.
fn altered(to: &Path, change: &Change<'_>, more: &[(ForeignFamily, Vec<u8>, Vec<u8>)]) -> PathBuf {
    let families = [
        BLOCKCHAIN,
        ACCOUNT_INFO_STATE,
        CODE_STORAGE,
        ACCOUNT_STORAGE,
        TRIE_BRANCH,
        TRIE_LOG,
        VARIABLES,
    ];
    let from = ForeignDatabase::open(&folders().join("bonsai/database")).unwrap();
    fs::create_dir_all(to).unwrap();
    let metadata = "DATABASE_METADATA.json";
    fs::copy(folders().join("bonsai").join(metadata), to.join(metadata)).unwrap();
    let database = ForeignDatabase::create(&to.join("database"), &families).unwrap();
    for family in families {
        let rows = from.range(family, &[]).unwrap().map(Result::unwrap);
        let rows: Vec<_> = rows
            .filter_map(|(key, value)| change(family, &key, value.into()))
            .collect();
        let rows = rows.iter().map(|(key, value)| (&key[..], &value[..]));
        database.put(family, rows).unwrap();
    }
    for (family, key, value) in more {
        database.put(*family, [(&key[..], &value[..])]).unwrap();
    }
    to.to_owned()
}

fn same(key: &[u8], value: Vec<u8>) -> Option<(Vec<u8>, Vec<u8>)> {
    Some((key.to_vec(), value))
}

#[test]
fn older_and_partial_forms_of_bonsai_give_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (chain, _) = take_over(&folders().join("bonsai"), &dir.path().join("as-is"), 6).unwrap();
    let expected = comparable(&chain);
    let database = ForeignDatabase::open(&folders().join("bonsai/database")).unwrap();
    // Flat rows are partial after a sync of old versions: the trie has all.
    let partial = altered(
        &dir.path().join("partial"),
        &|family, key, value| match family {
            ACCOUNT_INFO_STATE | ACCOUNT_STORAGE => None,
            TRIE_BRANCH if key == b"flatDbStatus" => same(key, vec![0]),
            _ => same(key, value),
        },
        &[],
    );
    // Codes by the hash of an address, and the head among the blocks.
    let accounts = database.range(ACCOUNT_INFO_STATE, &[]).unwrap();
    let mut more: Vec<_> = accounts
        .filter_map(|row| {
            let (key, value) = row.unwrap();
            let account = TrieAccount::from_leaf(&value).unwrap();
            let code = database.get(CODE_STORAGE, account.code_hash.as_slice());
            Some((CODE_STORAGE, key.to_vec(), code.unwrap()?))
        })
        .collect();
    let head = database.get(VARIABLES, b"chainHeadHash").unwrap().unwrap();
    more.push((BLOCKCHAIN, [&[1][..], b"chainHeadHash"].concat(), head));
    let older = altered(
        &dir.path().join("older"),
        &|family, key, value| match family {
            CODE_STORAGE | VARIABLES => None,
            _ => same(key, value),
        },
        &more,
    );
    // Slots that an account has left behind.
    let stray = [[0x11; 32], [0x22; 32]].concat();
    let strayed = altered(
        &dir.path().join("strayed"),
        &|_, key, value| same(key, value),
        &[(ACCOUNT_STORAGE, stray, vec![1])],
    );
    for folder in [partial, older, strayed] {
        let data_path = folder.join("niwaki");
        let (chain, _) = take_over(&folder, &data_path, 6).unwrap();
        assert!(comparable(&chain) == expected, "{}", folder.display());
        assert_clean(&chain);
    }
}

#[test]
fn damaged_folders_are_refused_by_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let open = |folder: &Path| take_over(folder, &folder.join("niwaki"), 6).map(|_| ());
    let refused = |name: &str, change: &Change<'_>| {
        let folder = altered(&dir.path().join(name), change, &[]);
        open(&folder).unwrap_err().to_string()
    };
    let error = refused("slot", &|family, key, value| {
        let is_slot = family == ACCOUNT_STORAGE;
        same(key, if is_slot { vec![7] } else { value })
    });
    assert!(error.contains("have state root 0x"), "{error}");
    let error = refused("code", &|family, key, value| {
        let is_code = family == CODE_STORAGE && value.len() > 50;
        (!is_code).then(|| (key.to_vec(), value))
    });
    assert!(error.contains("an account has code 0x"), "{error}");
    let error = refused("body", &|family, key, value| {
        let is_body = family == BLOCKCHAIN && key[0] == 3;
        same(
            key,
            if is_body {
                b"\xc2\xc0\xc0".to_vec()
            } else {
                value
            },
        )
    });
    assert!(error.contains("its body is"), "{error}");
    let error = refused("state", &|family, key, value| {
        let is_state = family == TRIE_BRANCH && key == b"worldBlockHash";
        (!is_state).then(|| (key.to_vec(), value))
    });
    assert!(error.contains("its sync has not ended"), "{error}");
    let error = refused("log", &|family, key, value| {
        same(
            key,
            if family == TRIE_LOG {
                vec![0xc0]
            } else {
                value
            },
        )
    });
    assert!(error.contains("the trie log of block 270"), "{error}");
    let error = open(&dir.path().join("absent")).unwrap_err().to_string();
    assert!(error.contains("DATABASE_METADATA.json"), "{error}");
}

#[test]
fn what_was_loaded_of_a_damaged_folder_is_not_used_for_a_sound_one() {
    let dir = tempfile::tempdir().unwrap();
    let load = |folder: &Path, data_path: &Path| {
        let folder = BesuFolder::open(folder).unwrap();
        let import = besu_import(data_path, 90);
        Chain::import_besu_state_with(&folder, &import, Some(4_000), &mut |_| true)
    };
    let sound = folders().join("bonsai");
    let expected = dump(&load(&sound, &dir.path().join("expected")).unwrap());
    let damages: [(&str, &Change<'_>); 2] = [
        ("slot", &|family, key, value| {
            let is_slot = family == ACCOUNT_STORAGE;
            same(key, if is_slot { vec![7] } else { value })
        }),
        ("code", &|family, key, value| {
            let is_code = family == CODE_STORAGE && value.len() > 50;
            (!is_code).then(|| (key.to_vec(), value))
        }),
    ];
    for (name, damage) in damages {
        let damaged = altered(&dir.path().join(name), damage, &[]);
        let data_path = dir.path().join(format!("{name}-taken"));
        load(&damaged, &data_path).unwrap_err();
        assert!(
            dump(&load(&sound, &data_path).unwrap()) == expected,
            "{name}"
        );
    }
}

#[test]
fn a_folder_of_another_chain_and_a_chain_that_is_not_the_folders_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = BesuFolder::open(&folders().join("forest")).unwrap();
    let mut import = besu_import(&dir.path().join("other"), 6);
    import.genesis = state_file::source(&genesis());
    let refused = Chain::import_besu_state(&folder, &import, &mut |_| true);
    let error = refused.unwrap_err();
    assert!(matches!(error, BesuError::OtherChain { .. }), "{error}");

    // A chain of the same genesis that has gone another way, and one that is behind.
    let folder = Arc::new(folder);
    let (chain, _) = take_over(&folders().join("forest"), &dir.path().join("own"), 6).unwrap();
    let parent = chain.header_at(268).unwrap().unwrap();
    chain.set_head(&parent.id.hash).unwrap();
    drop(chain);
    let import = besu_import(&dir.path().join("own"), 6);
    let opened = Chain::import_besu_state(&folder, &import, &mut |_| true).unwrap();
    assert_eq!(opened.head().id.number, 268);
    assert_eq!(folder.blocks_above(268, opened.spec()).count(), 2);
    drop(opened);
    let shorter = altered(
        &dir.path().join("shorter"),
        &|family, key, value| {
            // Besu has another block 268.
            let is_hash = family == BLOCKCHAIN && key[0] == 5 && key[31..] == [1, 12];
            same(key, if is_hash { vec![9; 32] } else { value })
        },
        &[],
    );
    let shorter = BesuFolder::open(&shorter).unwrap();
    let refused = Chain::import_besu_state(&shorter, &import, &mut |_| true);
    let error = refused.unwrap_err();
    assert!(matches!(error, BesuError::OtherHead { .. }), "{error}");
}

#[test]
fn history_that_besu_has_pruned_ends_where_its_own_does() {
    let dir = tempfile::tempdir().unwrap();
    let hash = BesuFolder::open(&folders().join("bonsai")).unwrap();
    let hash = hash.hash_at(5).unwrap().unwrap();
    let folder = altered(
        &dir.path().join("pruned"),
        &|family, key, value| {
            let is_body = family == BLOCKCHAIN && *key == [&[3], hash.as_slice()].concat()[..];
            (!is_body).then(|| (key.to_vec(), value))
        },
        &[],
    );
    let folder = BesuFolder::open(&folder).unwrap();
    let import = besu_import(&dir.path().join("own"), 0);
    let chain = Chain::import_besu_state(&folder, &import, &mut |_| true).unwrap();
    let copied = folder.copy_history(&chain, &mut |_, _| true).unwrap();
    assert_eq!((copied.first, copied.is_whole), (6, false));
    assert_clean(&chain);
}
