//! Damage to each segment: made good from what is right, or refused and left as it is.

use super::*;
use crate::ChainRepair;
use niwaki_state::Problem;
use niwaki_storage::{Batch, Row};

/// What is done to a row.
const DAMAGES: [&str; 4] = ["delete", "flip", "cut", "empty"];

fn damage(row: &Row, segment: Segment, how: &str) -> Batch {
    let mut batch = Batch::new();
    let mut value = row.1.to_vec();
    match how {
        "delete" => batch.delete(segment, &row.0),
        "flip" => {
            *value.last_mut().unwrap() ^= 1;
            batch.put(segment, &row.0, &value);
        }
        "cut" => batch.put(segment, &row.0, &value[..value.len() - 1]),
        _ => batch.put(segment, &row.0, &[]),
    }
    batch
}

fn problems(chain: &Chain) -> Vec<Problem> {
    let mut found = Vec::new();
    chain.check(&mut |problem| found.push(problem)).unwrap();
    found
}

/// Repairs the chain in `path`; gives what was done and what was refused.
fn repair(path: &Path) -> (ChainRepair, Vec<Problem>) {
    let mut refused = Vec::new();
    let repair = open(Some(path))
        .repair(&mut |_| true, &mut |problem| refused.push(problem))
        .unwrap();
    (repair.unwrap(), refused)
}

/// Damages some rows of `segment`, one after the other, and hands what a repair makes of it to
/// `judge`. The database is as before afterwards.
fn each_damage(segment: Segment, judge: impl Fn(&str, &[Problem], bool)) {
    let dir = tempfile::tempdir().unwrap();
    let chain = open(Some(dir.path()));
    import_all(&chain, &blocks());
    let whole = dump(&chain);
    drop(chain);
    let own: Vec<&Row> = whole
        .iter()
        .filter_map(|(s, row)| (*s == segment).then_some(row))
        .collect();
    assert!(own.len() > 8, "{segment:?}");
    // Not the last one: it may be the head's, which is needed to open the chain.
    for row in own[..own.len() - 1].iter().step_by(own.len() / 3) {
        for how in DAMAGES {
            if how == "cut" && row.1.is_empty() {
                continue;
            }
            let chain = open(Some(dir.path()));
            let database = chain.database();
            let batch = damage(row, segment, how);
            database.write(batch, false).unwrap();
            let before = dump(&chain);
            assert_ne!(problems(&chain), [], "{segment:?} {how}");
            drop(chain);

            let (_, refused) = repair(dir.path());
            let chain = open(Some(dir.path()));
            let after = dump(&chain);
            let is_mended = after == whole;
            assert!(is_mended || after == before, "{segment:?} {how}: half done");
            assert_eq!(problems(&chain).is_empty(), is_mended, "{segment:?} {how}");
            judge(how, &refused, is_mended);
            let mut undo = Batch::new();
            undo.put(segment, &row.0, &row.1);
            chain.database().write(undo, false).unwrap();
        }
    }
}

#[test]
fn repair_rebuilds_tries_and_indices_after_any_damage_to_a_row() {
    for segment in [
        Segment::AccountTrie,
        Segment::StorageTrie,
        Segment::Canonical,
        Segment::Transactions,
    ] {
        each_damage(segment, |how, refused, is_mended| {
            assert!(is_mended, "{segment:?} {how}: {refused:?}");
            assert_eq!(refused, []);
        });
    }
}

#[test]
fn repair_rebuilds_the_index_from_hash_to_number() {
    let dir = tempfile::tempdir().unwrap();
    let chain = open(Some(dir.path()));
    import_all(&chain, &blocks());
    let whole = dump(&chain);
    let mut batch = Batch::new();
    let rows: Vec<_> = whole
        .iter()
        .filter(|(s, _)| *s == Segment::Numbers)
        .collect();
    for (at, (segment, row)) in rows.iter().enumerate() {
        batch.append(damage(row, *segment, DAMAGES[at % 4]));
    }
    chain.database().write(batch, false).unwrap();
    drop(chain);
    let (done, refused) = repair(dir.path());
    assert_eq!((done.numbers, refused), (55, vec![]));
    let chain = open(Some(dir.path()));
    assert!(dump(&chain) == whole);
    assert_clean(&chain);
}

#[test]
fn repair_rebuilds_all_derived_rows_in_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let chain = open(Some(dir.path()));
    import_all(&chain, &blocks());
    let whole = dump(&chain);
    let database = chain.database();
    for segment in [
        Segment::AccountTrie,
        Segment::StorageTrie,
        Segment::Canonical,
        Segment::Numbers,
        Segment::Transactions,
    ] {
        database.clear(segment).unwrap();
    }
    let mut batch = Batch::new();
    // Rows that nothing leads to.
    batch.put(Segment::AccountTrie, &[1, 2, 3, 4], b"stray");
    batch.put(Segment::StorageTrie, &[9; 40], b"stray");
    batch.put(Segment::Slots, &[0; 64], &[1]);
    batch.put(Segment::Slots, &[0xff; 64], &[1]);
    batch.put(Segment::Canonical, &60_u64.to_be_bytes(), &[1; 32]);
    // A storage root and a total difficulty that are not right.
    let account = whole
        .iter()
        .find(|(segment, (_, slim))| *segment == Segment::Accounts && slim.len() > 40);
    let (_, (key, slim)) = account.unwrap();
    let mut account = niwaki_state::decode_account(slim).unwrap();
    account.storage_root = B256::repeat_byte(7);
    batch.put(
        Segment::Accounts,
        key,
        &niwaki_state::encode_account(&account),
    );
    let header =
        |(segment, (key, _)): &&(Segment, Row)| *segment == Segment::Headers && key[7] == 3;
    let (_, (key, row)) = whole.iter().find(header).unwrap();
    let mut changed = row.to_vec();
    changed[1] ^= 1;
    batch.put(Segment::Headers, key, &changed);
    database.write(batch, false).unwrap();
    drop(chain);

    let (done, refused) = repair(dir.path());
    assert_eq!(refused, []);
    let state = done.state.unwrap();
    assert_eq!((state.accounts, state.slots), (1, 2));
    assert_eq!((done.difficulties, done.numbers), (1, 55));
    let chain = open(Some(dir.path()));
    assert!(dump(&chain) == whole);
    assert_clean(&chain);
    drop(chain);
    // And there is nothing left to do.
    let (done, _) = repair(dir.path());
    let nothing = ChainRepair {
        state: Some(Default::default()),
        ..ChainRepair::default()
    };
    assert_eq!(done, nothing);
}

#[test]
fn repair_names_what_only_one_row_holds_and_leaves_it() {
    for segment in [
        Segment::Accounts,
        Segment::Slots,
        Segment::Headers,
        Segment::Bodies,
    ] {
        each_damage(segment, |how, refused, is_mended| {
            let names = refused.iter().map(|problem| problem.segment);
            let names: Vec<_> = names.collect();
            // Flat values are always refused as accounts; the slots are named where they can be.
            let is_named = names.contains(&segment.name()) || names.contains(&"accounts");
            assert!(is_mended || is_named, "{segment:?} {how}: {names:?}");
        });
    }
    for segment in [Segment::Code, Segment::Receipts] {
        each_damage(segment, |how, _, is_mended| {
            assert!(!is_mended, "{segment:?} {how}");
        });
    }
}

#[test]
fn a_lost_head_never_starts_a_new_chain() {
    let dir = tempfile::tempdir().unwrap();
    let chain = open(Some(dir.path()));
    import_all(&chain, &blocks()[..9]);
    let before = dump(&chain);
    let mut batch = Batch::new();
    batch.delete(Segment::Meta, b"head");
    chain.database().write(batch, false).unwrap();
    drop(chain);
    let error = Chain::open(config(Some(dir.path()), &genesis())).unwrap_err();
    assert!(error.to_string().contains("head"), "{error}");
    let database = Database::open(dir.path(), &StorageOptions::default()).unwrap();
    let rows = Segment::ALL.map(|segment| database.prefix(segment, &[]).count());
    let logs = database.prefix(Segment::TrieLogs, &[]).count();
    assert_eq!(rows.iter().sum::<usize>() - logs, before.len() - 1);
}

#[test]
fn a_stopped_repair_damages_nothing_and_the_next_one_completes() {
    let dir = tempfile::tempdir().unwrap();
    let chain = open(Some(dir.path()));
    import_all(&chain, &blocks());
    let whole = dump(&chain);
    for segment in [Segment::StorageTrie, Segment::Transactions] {
        chain.database().clear(segment).unwrap();
    }
    let mut left = problems(&chain).len();
    drop(chain);
    let mut stops = 0;
    loop {
        let mut told = 0;
        let mut report = |_| {
            told += 1;
            told <= stops
        };
        let repaired = open(Some(dir.path())).repair(&mut report, &mut |_| {});
        if repaired.unwrap().is_some() {
            break;
        }
        stops += 1;
        let now = problems(&open(Some(dir.path()))).len();
        assert!(0 < now && now <= left, "{left}, then {now}");
        left = now;
    }
    assert!(stops >= 2, "in the state and in the blocks: {stops}");
    assert!(dump(&open(Some(dir.path()))) == whole);
}
