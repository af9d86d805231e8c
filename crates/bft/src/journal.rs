//! What this validator has signed, on disk: appended and synced before it is sent.
//!
//! ```text
//! votes-7            the heights from 7 x 1,024 on; the two last files are kept
//! "niwaki votes 1\n\0"
//! record             length (4 bytes, little-endian) | first 4 bytes of the keccak | RLP
//!   0, height, round                                              a round was entered
//!   1, height, round, kind, digest                                a vote
//!   2, height, protocol, round, block, access list or "", proposal or "", [prepares]     a certificate
//! ```
//!
//! The end of a file that is torn is cut off at the next start: what it held did not leave the node.

use crate::machine::{Ballots, Candidate, Certificate, Record};
use crate::wire::{Fields, Kind, ReadError, View, item, list, read_prepare, read_proposal_payload};
use alloy_rlp::EMPTY_STRING_CODE;
use niwaki_crypto::keccak256;
use niwaki_primitives::{Block, Bytes, Fault};
use niwaki_rules::BftProtocol;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 16] = b"niwaki votes 1\n\0";
const PREFIX: &str = "votes-";
/// Heights of a file.
const HEIGHTS: u64 = 1_024;
/// Files that are kept.
const FILES: usize = 2;
/// Bytes before a record: its length and its checksum.
const HEAD_BYTES: usize = 8;
/// What is said of a file that this program did not write.
const NO_VOTES: &str = "it has no votes of a validator; move it away: then this one signs nothing until the chain has passed the next four blocks";
/// No record is longer.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// What a record that was appended survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalSync {
    /// A power cut: it is synced first.
    #[default]
    Sync,
    /// The end of the process alone.
    Async,
}

/// The records of a validator. The first one makes the first file: so a node whose records are lost does not know what it has signed, however
/// often it starts, until it signs again. One that has never signed records the round in which it begins.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    sync: JournalSync,
    /// That of the current heights.
    file: Option<VoteFile>,
}

#[derive(Debug)]
struct VoteFile {
    number: u64,
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal in a folder, which is made if it is missing. Gives what was signed; `None` if there was no journal.
    ///
    /// # Errors
    /// A [`Fault`] of the disk, or of a file that has other content.
    pub fn open(folder: &Path, sync: JournalSync) -> Result<(Self, Option<Ballots>), Fault> {
        fs::create_dir_all(folder).map_err(|error| Fault::io("make", folder, error))?;
        let numbers = numbers(folder)?;
        let mut ballots = (!numbers.is_empty()).then(Ballots::default);
        let mut end = None;
        for number in &numbers {
            let path = path(folder, *number);
            let bytes = fs::read(&path).map_err(|error| Fault::io("read", &path, error))?;
            if bytes.len() >= MAGIC.len() && !bytes.starts_with(MAGIC) {
                let error = std::io::Error::new(ErrorKind::InvalidData, NO_VOTES);
                return Err(Fault::io("read", &path, error));
            }
            let (records, length) = read_all(&bytes);
            let known = ballots.get_or_insert_default();
            records.iter().for_each(|record| known.add(record));
            end = Some((*number, length));
        }
        let file = end.map(|(number, length)| VoteFile::open(folder, number, length));
        let journal = Self {
            folder: folder.to_owned(),
            sync,
            file: file.transpose()?,
        };
        Ok((journal, ballots))
    }

    /// Appends records; they are durable when this returns, as far as [`JournalSync`] says.
    ///
    /// # Errors
    /// A [`Fault`] of the disk: then nothing that depends on them may be sent.
    pub fn append(&mut self, records: &[Record]) -> Result<(), Fault> {
        let Some(last) = records.last() else {
            return Ok(());
        };
        let number = last.height() / HEIGHTS;
        let file = match &mut self.file {
            Some(file) if number <= file.number => file,
            file => {
                let new = VoteFile::open(&self.folder, number, 0)?;
                remove_old(&self.folder)?;
                file.insert(new)
            }
        };
        let mut bytes = Vec::new();
        for record in records {
            let content = encode(record);
            let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&keccak256(&content)[..4]);
            bytes.extend_from_slice(&content);
        }
        let written = file.file.write_all(&bytes);
        written.map_err(|error| Fault::io("write", &file.path, error))?;
        let synced = match self.sync {
            JournalSync::Sync => file.file.sync_data(),
            JournalSync::Async => Ok(()),
        };
        synced.map_err(|error| Fault::io("sync", &file.path, error))
    }
}

/// Removes the files of old heights.
fn remove_old(folder: &Path) -> Result<(), Fault> {
    for old in numbers(folder)?.iter().rev().skip(FILES) {
        let path = path(folder, *old);
        fs::remove_file(&path).map_err(|error| Fault::io("remove", &path, error))?;
    }
    Ok(())
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{number}"))
}

/// The numbers of the files in a folder, ascending.
fn numbers(folder: &Path) -> Result<Vec<u64>, Fault> {
    let entries = fs::read_dir(folder).map_err(|error| Fault::io("read", folder, error))?;
    let mut numbers = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Fault::io("read", folder, error))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

impl VoteFile {
    /// Opens a file behind the `length` bytes of it that can be read.
    fn open(folder: &Path, number: u64, length: usize) -> Result<Self, Fault> {
        let path = path(folder, number);
        let fault = |error| Fault::io("open", &path, error);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let mut file = options.open(&path).map_err(fault)?;
        file.set_len(length as u64).map_err(fault)?;
        file.seek(SeekFrom::End(0)).map_err(fault)?;
        if length == 0 {
            file.write_all(MAGIC).map_err(fault)?;
        }
        file.sync_all().map_err(fault)?;
        // The name of a new file is durable too.
        let opened = File::open(folder).and_then(|folder| folder.sync_all());
        opened.map_err(fault)?;
        Ok(Self { number, path, file })
    }
}

/// The records of a file, and how many of its bytes they are.
fn read_all(bytes: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut at) = (Vec::new(), 0);
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        return (records, at);
    };
    at += MAGIC.len();
    while let Some((record, length)) = read_one(rest) {
        records.push(record);
        at += length;
        rest = &rest[length..];
    }
    (records, at)
}

fn read_one(bytes: &[u8]) -> Option<(Record, usize)> {
    let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let (length, checksum) = head.split_at(4);
    let length = u32::from_le_bytes(length.try_into().ok()?);
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= MAX_RECORD_BYTES)?;
    let mut content = vec![0; length.min(rest.len())];
    rest.read_exact(&mut content)
        .ok()
        .filter(|()| content.len() == length)?;
    let record = decode(&content).ok()?;
    (keccak256(&content)[..4] == *checksum).then_some((record, HEAD_BYTES + length))
}

fn encode(record: &Record) -> Vec<u8> {
    match record {
        Record::Round(View { height, round }) => {
            list([&item(&0_u8)[..], &item(height), &item(round)])
        }
        Record::Vote { view, kind, digest } => {
            let (height, round) = (item(&view.height), item(&view.round));
            let kind = item(&(*kind as u8));
            list([&item(&1_u8)[..], &height, &round, &kind, &item(digest)])
        }
        Record::Certificate {
            height,
            certificate,
        } => {
            let Certificate {
                round,
                candidate,
                proposal,
                prepares,
            } = certificate;
            let empty = vec![EMPTY_STRING_CODE];
            let access_list = candidate.access_list.as_ref();
            let access_list = access_list.map_or_else(|| empty.clone(), |list| list.to_vec());
            let proposal = proposal.as_ref();
            let proposal = proposal.map_or(empty, |proposal| proposal.bytes().to_vec());
            let prepares = list(prepares.iter().map(|prepare| &prepare.bytes()[..]));
            list([
                &item(&2_u8)[..],
                &item(height),
                &item(&u8::from(candidate.protocol() == BftProtocol::Qbft)),
                &item(round),
                &item(&candidate.block),
                &access_list,
                &proposal,
                &prepares,
            ])
        }
    }
}

fn decode(content: &[u8]) -> Result<Record, ReadError> {
    let mut fields = Fields::of(content)?;
    let kind: u8 = fields.item()?;
    let height = fields.item()?;
    let record = match kind {
        0 => Record::Round(View {
            height,
            round: fields.item()?,
        }),
        1 => {
            let round = fields.item()?;
            Record::Vote {
                view: View { height, round },
                kind: kind_of(fields.item()?)?,
                digest: fields.item()?,
            }
        }
        _ => Record::Certificate {
            height,
            certificate: decode_certificate(&mut fields)?,
        },
    };
    fields.end()?;
    Ok(record)
}

fn kind_of(number: u8) -> Result<Kind, ReadError> {
    let unknown = alloy_rlp::Error::Custom("no kind of a message");
    Kind::of_code(BftProtocol::Ibft2, number).ok_or_else(|| unknown.into())
}

fn decode_certificate(fields: &mut Fields<'_>) -> Result<Certificate, ReadError> {
    let protocol = match fields.item::<bool>()? {
        true => BftProtocol::Qbft,
        false => BftProtocol::Ibft2,
    };
    let round = fields.item()?;
    let block: Arc<Block> = fields.item()?;
    let access_list = fields.optional()?.map(Bytes::copy_from_slice);
    let proposal = fields.optional()?.map(read_proposal_payload).transpose()?;
    let prepares = fields.all(|bytes| read_prepare(protocol, bytes))?;
    let candidate = Candidate::new(protocol, block, access_list);
    let malformed = alloy_rlp::Error::Custom("a block without the extra data of BFT");
    Ok(Certificate {
        round,
        candidate: Arc::new(candidate.map_err(|_| malformed)?),
        proposal,
        prepares,
    })
}

#[cfg(test)]
mod tests;
