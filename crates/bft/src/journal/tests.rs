//! The journal: read again as it was written, torn anywhere, rotated.

use super::*;
use crate::wire::{Form, PreparePayload, Signer};
use niwaki_primitives::{Address, B256, Header, U256};
use niwaki_rules::BftExtra;

fn certificate(protocol: BftProtocol, height: u64) -> Record {
    let form = Form {
        protocol,
        has_access_list: true,
    };
    let signer = Signer::new(form, B256::from(U256::from(7))).unwrap();
    let extra = BftExtra {
        validators: vec![Address::repeat_byte(1)],
        round: 3,
        ..BftExtra::default()
    };
    let header = Header {
        number: height,
        extra_data: extra.encode(protocol),
        ..Header::default()
    };
    let block = Block {
        header,
        body: Default::default(),
    };
    let list = Some(Bytes::from_static(&[0xc1, 0x80]));
    let candidate = Candidate::new(protocol, Arc::new(block), list).unwrap();
    let (view, digest) = (View { height, round: 3 }, candidate.seal_hash(3));
    let prepare = signer.prepare(PreparePayload { view, digest }).unwrap();
    let proposal = signer
        .proposal(view, &candidate.block, None, digest)
        .unwrap();
    Record::Certificate {
        height,
        certificate: Certificate {
            round: 3,
            candidate: Arc::new(candidate),
            proposal: (protocol == BftProtocol::Ibft2).then_some(proposal),
            prepares: vec![prepare.clone(), prepare],
        },
    }
}

fn records(height: u64) -> Vec<Record> {
    let view = View { height, round: 2 };
    vec![
        Record::Round(view),
        Record::Vote {
            view,
            kind: Kind::Commit,
            digest: B256::repeat_byte(9),
        },
        certificate(BftProtocol::Qbft, height),
        certificate(BftProtocol::Ibft2, height),
    ]
}

/// All that a record says.
fn text(records: &[Record]) -> String {
    format!("{records:?}")
}

fn open(folder: &Path) -> Result<(Journal, Option<Ballots>), Fault> {
    Journal::open(folder, JournalSync::Sync)
}

#[test]
fn without_syncs_the_next_process_reads_what_was_written_too() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(folder.path(), JournalSync::Async).unwrap();
    for height in [5, 1_030] {
        journal.append(&records(height)).unwrap();
    }
    // Nothing is kept in the process: it may end at any moment.
    let (_, ballots) = open(folder.path()).unwrap();
    let mut expected = Ballots::default();
    let records = [records(5), records(1_030)].concat();
    records.iter().for_each(|record| expected.add(record));
    assert_eq!(format!("{ballots:?}"), format!("{:?}", Some(expected)));
    drop(journal);
}

#[test]
fn what_was_written_is_read_again() {
    for record in records(5) {
        let read = decode(&encode(&record)).unwrap();
        assert_eq!(text(&[read]), text(&[record]));
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, before) = open(folder.path()).unwrap();
    assert!(before.is_none());
    journal.append(&records(5)).unwrap();
    drop(journal);
    let (mut journal, ballots) = open(folder.path()).unwrap();
    let mut expected = Ballots::default();
    records(5).iter().for_each(|record| expected.add(record));
    assert_eq!(format!("{ballots:?}"), format!("{:?}", Some(expected)));
    journal.append(&[]).unwrap();
}

#[test]
fn a_torn_end_is_cut_off_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(folder.path()).unwrap();
    let file = path(folder.path(), 0);
    let mut ends = vec![MAGIC.len()];
    for record in records(5) {
        journal.append(&[record]).unwrap();
        ends.push(fs::read(&file).unwrap().len());
    }
    let whole = fs::read(&file).unwrap();
    for length in 0..whole.len() {
        let (read, end) = read_all(&whole[..length]);
        let expected = ends.iter().filter(|end| **end <= length).count();
        assert_eq!(read.len(), expected.saturating_sub(1), "{length}");
        assert!(
            end <= length && (end == 0 || ends.contains(&end)),
            "{length}: {end}"
        );
    }
    let mut spoilt = whole.clone();
    spoilt[ends[1] + HEAD_BYTES + 4] ^= 1;
    assert_eq!(read_all(&spoilt).0.len(), 1);
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let (mut journal, _) = open(folder.path()).unwrap();
    journal.append(&records(6)[..1]).unwrap();
    let (read, _) = read_all(&fs::read(&file).unwrap());
    assert_eq!(read.len(), 4);
}

#[test]
fn two_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(folder.path()).unwrap();
    for height in [1, 1_024, 2_050, 2_051, 9_000] {
        journal.append(&records(height)).unwrap();
    }
    assert_eq!(numbers(folder.path()).unwrap(), [2, 8]);
    let (_, ballots) = open(folder.path()).unwrap();
    assert_eq!(ballots.unwrap().round_at(9_000), Some(2));
}

#[test]
fn lost_records_stay_lost_until_the_first_new_one() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let (mut journal, ballots) = open(folder.path()).unwrap();
        assert!(ballots.is_none());
        journal.append(&[]).unwrap();
    }
    let (mut journal, _) = open(folder.path()).unwrap();
    journal.append(&records(9)[..1]).unwrap();
    assert!(open(folder.path()).unwrap().1.is_some());
}

#[test]
fn a_file_of_something_else_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), 3);
    fs::write(&file, "these are no votes of a validator").unwrap();
    let error = open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("move it away"), "{error}");
    assert!(fs::read_to_string(&file).unwrap().contains("no votes"));
}
