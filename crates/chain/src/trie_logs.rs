//! Maintenance of the trie logs: they are counted, pruned, exported to a file and imported from it.
//!
//! A log is canonical if its block is, of a fork if its block is stored but not canonical, and
//! orphaned if its block is not stored at all.

use crate::chunks::{About, ChunkReader, ChunkWriter, FileKind};
use crate::{BlockId, Chain, TransferError};
use niwaki_primitives::{B256, Fault};
use niwaki_state::{TRIE_LOGS_KEPT, TrieLog};
use niwaki_storage::{Batch, Segment, corrupt};
use std::ops::Range;
use std::path::Path;

/// How many trie logs there are of which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrieLogCount {
    /// All.
    pub total: u64,
    /// Of canonical blocks.
    pub canonical: u64,
    /// Of stored blocks that are not canonical.
    pub fork: u64,
    /// Of blocks that are not stored.
    pub orphaned: u64,
}

/// What a pruning removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrunedTrieLogs {
    /// Logs of blocks further below the head than logs are kept.
    pub old: u64,
    /// Logs of blocks that are not canonical.
    pub non_canonical: u64,
}

/// Which trie logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrieLogChoice {
    /// Those of these blocks, canonical or not; each must be there.
    Blocks(Vec<B256>),
    /// Those of canonical blocks with these numbers that are there.
    Numbers(Range<u64>),
}

/// Called with the number of trie logs done; `false` stops.
pub type TrieLogReport<'a> = dyn FnMut(u64) -> bool + 'a;

/// Called with a log of a file: key, bytes, whether the database does not have it yet.
type LogVisitor<'a> = dyn FnMut(&[u8], &[u8], bool) -> Result<(), Fault> + 'a;

enum TrieLogKind {
    Canonical,
    Fork,
    Orphaned,
}

impl Chain {
    /// Counts the trie logs by kind. Reads all of them.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; [`TransferError::Stopped`].
    pub fn count_trie_logs(
        &self,
        report: &mut TrieLogReport<'_>,
    ) -> Result<TrieLogCount, TransferError> {
        let mut count = TrieLogCount::default();
        for row in self.database().prefix(Segment::TrieLogs, &[]) {
            let block = block_of(&row?.0)?;
            match self.kind(&block)? {
                TrieLogKind::Canonical => count.canonical += 1,
                TrieLogKind::Fork => count.fork += 1,
                TrieLogKind::Orphaned => count.orphaned += 1,
            }
            count.total += 1;
            if !report(count.total) {
                return Err(TransferError::Stopped);
            }
        }
        Ok(count)
    }

    /// Removes the trie logs that are further below the head than logs are kept, and those of blocks that are not
    /// canonical. If it is stopped, some of them are removed.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; [`TransferError::Stopped`].
    pub fn prune_trie_logs(
        &self,
        report: &mut TrieLogReport<'_>,
    ) -> Result<PrunedTrieLogs, TransferError> {
        let _writer = self.writer();
        let lowest = self.head().id.number.saturating_sub(TRIE_LOGS_KEPT);
        let mut pruned = PrunedTrieLogs::default();
        let mut batch = Batch::new();
        let mut seen = 0;
        for row in self.database().prefix(Segment::TrieLogs, &[]) {
            let (key, _) = row?;
            let block = block_of(&key)?;
            if block.number < lowest {
                pruned.old += 1;
                batch.delete(Segment::TrieLogs, &key);
            } else if !matches!(self.kind(&block)?, TrieLogKind::Canonical) {
                pruned.non_canonical += 1;
                batch.delete(Segment::TrieLogs, &key);
            }
            self.database().write_if_large(&mut batch)?;
            seen += 1;
            if !report(seen) {
                return Err(TransferError::Stopped);
            }
        }
        self.database().write(batch, true)?;
        Ok(pruned)
    }

    /// Writes trie logs to the file `to`, which must not exist; returns how many.
    ///
    /// # Errors
    /// [`TransferError`]; then there is no file.
    pub fn export_trie_logs(
        &self,
        choice: &TrieLogChoice,
        to: &Path,
        report: &mut TrieLogReport<'_>,
    ) -> Result<u64, TransferError> {
        let mut out = ChunkWriter::create(to, FileKind::TrieLogs, &self.about())?;
        match self.write_logs(choice, &mut out, report) {
            Ok(count) => {
                out.finish()?;
                Ok(count)
            }
            Err(error) => {
                out.discard()?;
                Err(error)
            }
        }
    }

    fn write_logs(
        &self,
        choice: &TrieLogChoice,
        out: &mut ChunkWriter,
        report: &mut TrieLogReport<'_>,
    ) -> Result<u64, TransferError> {
        let database = self.database();
        let mut count = 0;
        let mut add = |key: &[u8], log: &[u8]| -> Result<(), TransferError> {
            out.row(Segment::TrieLogs, key, log)?;
            count += 1;
            report(count).then_some(()).ok_or(TransferError::Stopped)
        };
        match choice {
            TrieLogChoice::Blocks(hashes) => {
                for hash in hashes {
                    let id = self.stored_id(hash)?.ok_or(TransferError::NoLog(*hash))?;
                    let key = id.to_key();
                    let log = database.get(Segment::TrieLogs, &key)?;
                    add(&key, &log.ok_or(TransferError::NoLog(*hash))?)?;
                }
            }
            TrieLogChoice::Numbers(numbers) => {
                let (from, to) = (numbers.start.to_be_bytes(), numbers.end.to_be_bytes());
                for row in database.range(Segment::TrieLogs, &from, Some(&to)) {
                    let (key, log) = row?;
                    if matches!(self.kind(&block_of(&key)?)?, TrieLogKind::Canonical) {
                        add(&key, &log)?;
                    }
                }
            }
        }
        if count == 0 {
            return Err(TransferError::Nothing);
        }
        Ok(count)
    }

    /// Imports the trie logs of the file `from`, all of them or none; returns how many were new. One that is there
    /// already must be the same.
    ///
    /// # Errors
    /// [`TransferError`]; then nothing was written, except if the disk failed.
    pub fn import_trie_logs(
        &self,
        from: &Path,
        report: &mut TrieLogReport<'_>,
    ) -> Result<u64, TransferError> {
        let _writer = self.writer();
        // The first pass validates, the second one writes.
        self.each_log(from, report, &mut |_, _, _| Ok(()))?;
        let (mut batch, mut added) = (Batch::new(), 0);
        self.each_log(from, &mut |_| true, &mut |key, log, is_new| {
            if is_new {
                batch.put(Segment::TrieLogs, key, log);
                added += 1;
            }
            self.database().write_if_large(&mut batch)
        })?;
        self.database().write(batch, true)?;
        Ok(added)
    }

    /// Calls `visit` with each log of a file.
    fn each_log(
        &self,
        from: &Path,
        report: &mut TrieLogReport<'_>,
        visit: &mut LogVisitor<'_>,
    ) -> Result<(), TransferError> {
        let (mut file, about) = ChunkReader::open(from, FileKind::TrieLogs)?;
        self.check_chain(&about)?;
        let mut seen = 0;
        while let Some(chunk) = file.next()? {
            file.each_row(&chunk, |key, log| {
                if chunk.segment != Segment::TrieLogs {
                    return Err(file.damaged("it has rows that are no trie logs"));
                }
                let block = block_of(key).map_err(|_| file.damaged("a key is not 40 bytes"))?;
                visit(key, log, self.is_new_log(block, key, log)?)?;
                seen += 1;
                report(seen).then_some(()).ok_or(TransferError::Stopped)
            })?;
        }
        Ok(())
    }

    /// Whether a log of a file is to be written; an error if it can't be that of its block.
    fn is_new_log(&self, block: BlockId, key: &[u8], log: &[u8]) -> Result<bool, TransferError> {
        let refuse = |reason: String| TransferError::Log {
            number: block.number,
            hash: block.hash,
            reason,
        };
        let row = TrieLog::decode(log).map_err(|error| refuse(error.to_string()))?;
        let header = match self.number_of(&block.hash)? {
            Some(number) if number == block.number => self.header(&block.hash)?,
            _ => None,
        };
        let Some(header) = header else {
            return Err(refuse(
                "the block is not stored; import it first".to_owned(),
            ));
        };
        if header.header.parent_hash != row.parent {
            let reason = format!("block {} is not its parent", row.parent);
            return Err(refuse(reason));
        }
        match self.database().get(Segment::TrieLogs, key)? {
            None => Ok(true),
            Some(stored) if stored == log => Ok(false),
            Some(_) => Err(refuse("another one is there already".to_owned())),
        }
    }

    /// The first chunk of a file of this chain.
    pub(crate) fn about(&self) -> About {
        let BlockId { number, hash } = self.head().id;
        About {
            genesis: self.genesis_hash(),
            chain_id: self.spec().chain_id,
            number,
            hash,
        }
    }

    fn check_chain(&self, about: &About) -> Result<(), TransferError> {
        let own = self.about();
        if own.genesis != about.genesis {
            let (found, given) = (about.genesis, own.genesis);
            return Err(TransferError::other_chain("genesis", found, given));
        }
        if own.chain_id != about.chain_id {
            let (found, given) = (about.chain_id, own.chain_id);
            return Err(TransferError::other_chain("chain id", found, given));
        }
        Ok(())
    }

    fn kind(&self, block: &BlockId) -> Result<TrieLogKind, Fault> {
        if self.canonical_hash(block.number)? == Some(block.hash) {
            return Ok(TrieLogKind::Canonical);
        }
        let is_stored = self.number_of(&block.hash)? == Some(block.number);
        Ok(if is_stored {
            TrieLogKind::Fork
        } else {
            TrieLogKind::Orphaned
        })
    }
}

fn block_of(key: &[u8]) -> Result<BlockId, Fault> {
    BlockId::from_key(key).ok_or_else(|| corrupt(Segment::TrieLogs, key, "a key has 40 bytes"))
}
