//! A write-ahead log of what a consensus client was answered, for a process that dies.
//!
//! Blocks reach the database after the answer. A consensus client does not send again what was answered VALID, so a
//! node that forgets its last block can't continue without peers. Each valid block and each fork choice is therefore
//! appended to a file before it is answered; a block may be there before it is known to be valid. When the process dies
//! the operating system still writes the file; when the machine dies, its end may be lost.
//!
//! Format: [`MAGIC`], then records: kind (1 byte), length (4 bytes, little-endian), body. A block is its
//! RLP; a fork choice is the hashes of head, safe and finalized block. There are no checksums: a
//! block is validated again like any other, and a fork choice counts only if its blocks are stored. Reading
//! ends at the first record that can't be decoded.

use crate::ForkChoice;
use alloy_rlp::{Decodable, Encodable};
use niwaki_primitives::{B256, Block, Fault};
use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How a file begins.
const MAGIC: &[u8; 16] = b"niwaki journal 1";

/// Valid blocks of a file; two files are kept. More than the batches that may wait for the disk, so that
/// what a removed file holds is there.
const BLOCKS: usize = 2 * niwaki_storage::MAX_PENDING_BATCHES;

/// No block is longer.
const RECORD_BYTES: usize = 64 << 20;

const BLOCK: u8 = b'B';
const CHOICE: u8 = b'F';

/// One answer.
pub(crate) enum Record {
    Block(Box<Block>),
    Choice(ForkChoice),
}

/// The files, and the one that is written to.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: PathBuf,
    file: File,
    number: u64,
    /// Valid ones in the file.
    blocks: usize,
    /// Of whole records and what comes before them.
    bytes: u64,
    chosen: Option<ForkChoice>,
}

impl Journal {
    /// Calls `each` with the records of the files in `folder`, oldest first.
    pub(crate) fn read(
        folder: &Path,
        each: &mut dyn FnMut(Record) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for number in numbers(folder)? {
            let path = path(folder, number);
            let file = File::open(&path).map_err(|error| Fault::io("open", &path, error))?;
            let mut file = BufReader::new(file);
            let mut magic = [0; MAGIC.len()];
            if file.read_exact(&mut magic).is_err() || magic != *MAGIC {
                continue;
            }
            while let Some(record) = next(&mut file) {
                each(record)?;
            }
        }
        Ok(())
    }

    /// Removes the files of `folder` and begins an empty one.
    pub(crate) fn begin(folder: &Path) -> Result<Self, Fault> {
        fs::create_dir_all(folder).map_err(|error| Fault::io("create", folder, error))?;
        let old = numbers(folder)?;
        let number = old.last().map_or(1, |last| last.saturating_add(1));
        for number in old {
            remove(folder, number)?;
        }
        Ok(Self {
            file: create(folder, number)?,
            folder: folder.to_owned(),
            number,
            blocks: 0,
            bytes: MAGIC.len() as u64,
            chosen: None,
        })
    }

    /// Appends a block, as [`encode`] gives it.
    pub(crate) fn block(&mut self, record: &[u8]) -> Result<(), Fault> {
        if self.blocks >= BLOCKS {
            let (old, next) = (self.number.checked_sub(1), self.number.saturating_add(1));
            self.file = create(&self.folder, next)?;
            (self.number, self.blocks, self.bytes) = (next, 0, MAGIC.len() as u64);
            // A file that can't be removed is removed at the next start.
            let _ = old.map(|old| remove(&self.folder, old));
        }
        self.append(record)
    }

    /// Counts a block that was appended and is valid.
    pub(crate) fn count_block(&mut self) {
        self.blocks += 1;
    }

    /// Appends a fork choice that was followed.
    pub(crate) fn choice(&mut self, choice: ForkChoice) -> Result<(), Fault> {
        if self.chosen == Some(choice) {
            return Ok(());
        }
        let hashes = [choice.head, choice.safe, choice.finalized];
        let mut record = head(CHOICE, 96);
        record.extend_from_slice(hashes.map(|hash| hash.0).as_flattened());
        self.append(&record)?;
        self.chosen = Some(choice);
        Ok(())
    }

    fn append(&mut self, record: &[u8]) -> Result<(), Fault> {
        if let Err(error) = self.file.write_all(record) {
            // Reading ends at half a record, so the next record must overwrite it.
            let _ = self.cut();
            return Err(Fault::io("write", &path(&self.folder, self.number), error));
        }
        self.bytes += record.len() as u64;
        Ok(())
    }

    fn cut(&mut self) -> std::io::Result<()> {
        self.file.set_len(self.bytes)?;
        self.file.seek(SeekFrom::Start(self.bytes)).map(drop)
    }
}

/// The record of a block.
pub(crate) fn encode(block: &Block) -> Vec<u8> {
    let mut record = head(BLOCK, block.length());
    block.encode(&mut record);
    record
}

/// How a record begins, with room for the rest.
fn head(kind: u8, length: usize) -> Vec<u8> {
    let mut record = Vec::with_capacity(5 + length);
    record.push(kind);
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    record.extend_from_slice(&length.to_le_bytes());
    record
}

fn next(file: &mut impl Read) -> Option<Record> {
    let mut head = [0; 5];
    file.read_exact(&mut head).ok()?;
    let [kind, length @ ..] = head;
    let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
    if length > RECORD_BYTES {
        return None;
    }
    let mut body = Vec::new();
    let read = file.take(length as u64).read_to_end(&mut body).ok()?;
    if read < length {
        return None;
    }
    match kind {
        BLOCK => {
            let mut rest = &body[..];
            let block = Block::decode(&mut rest).ok()?;
            rest.is_empty().then(|| Record::Block(Box::new(block)))
        }
        CHOICE => {
            let (hashes, []) = body.as_chunks::<32>() else {
                return None;
            };
            let [head, safe, finalized] = hashes else {
                return None;
            };
            Some(Record::Choice(ForkChoice {
                head: B256::from(head),
                safe: B256::from(safe),
                finalized: B256::from(finalized),
            }))
        }
        _ => None,
    }
}

/// Of the files, ascending; none where there is no folder.
fn numbers(folder: &Path) -> Result<Vec<u64>, Fault> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Fault::io("list", folder, error)),
    };
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_suffix(".journal")?.parse().ok()?;
        (path(folder, number) == entry.path()).then_some(number)
    };
    let mut numbers: Vec<u64> = entries.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.journal"))
}

fn create(folder: &Path, number: u64) -> Result<File, Fault> {
    let path = path(folder, number);
    let made = File::create(&path).and_then(|mut file| file.write_all(MAGIC).map(|()| file));
    made.map_err(|error| Fault::io("create", &path, error))
}

fn remove(folder: &Path, number: u64) -> Result<(), Fault> {
    let path = path(folder, number);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Fault::io("remove", &path, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_after_a_torn_one_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(folder.path()).unwrap();
        let choice = |byte| ForkChoice {
            head: B256::repeat_byte(byte),
            safe: B256::ZERO,
            finalized: B256::ZERO,
        };
        journal.choice(choice(1)).unwrap();
        journal.file.write_all(&[CHOICE, 96, 0, 0]).unwrap();
        journal.cut().unwrap();
        journal.choice(choice(2)).unwrap();
        let mut heads = Vec::new();
        Journal::read(folder.path(), &mut |record| {
            if let Record::Choice(choice) = record {
                heads.push(choice.head);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(heads, [B256::repeat_byte(1), B256::repeat_byte(2)]);
    }

    #[test]
    fn files_of_other_names_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["07.journal", "+7.journal", "x.journal", "7.log"] {
            fs::write(folder.path().join(name), b"?").unwrap();
        }
        assert!(numbers(folder.path()).unwrap().is_empty());
        Journal::begin(folder.path()).unwrap();
        assert_eq!(numbers(folder.path()).unwrap(), [1]);
    }
}
