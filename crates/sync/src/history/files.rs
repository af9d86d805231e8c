//! Archives of blocks (Ere and ERA1 files) as a source of history: asked before peers, and checked as they are.

use crate::body_queue::CheckedBody;
use crate::header_window::SealedHeader;
use niwaki_chain::{BlockId, DownloadedBlock, EreError, EreFile, StoredHeader, receipts_root};
use niwaki_rules::ChainSpec;
use std::fs::read_dir;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tracing::{info, warn};

/// Why a file gives no block.
#[derive(Debug, thiserror::Error)]
enum WrongBlock {
    #[error(transparent)]
    File(#[from] EreError),
    #[error("its block {0} is not the one of this chain")]
    OtherChain(u64),
    #[error("{what} of its block {number} are not those of the header")]
    OtherParts { number: u64, what: &'static str },
}

/// The files of a folder.
#[derive(Debug, Default)]
pub(crate) struct HistoryFiles {
    /// With the numbers of their blocks.
    files: Vec<(Range<u64>, PathBuf)>,
}

impl HistoryFiles {
    /// The files `*.ere` and `*.era1` of a folder. Those that can't be read are left out, and the log says so.
    pub(crate) fn of_folder(folder: &Path) -> Self {
        let entries = match read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                let folder = folder.display();
                warn!(%error, "Can't read the folder of old blocks {folder}: peers are asked for them");
                return Self::default();
            }
        };
        let mut files = Vec::new();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !matches!(extension, Some("ere" | "era1")) {
                continue;
            }
            match EreFile::open(&path) {
                Ok(file) => files.push((file.numbers(), path)),
                Err(error) => warn!("A file of old blocks is not used: {error}"),
            }
        }
        let (count, folder) = (files.len(), folder.display());
        info!("{count} files of old blocks are in {folder}");
        Self { files }
    }

    /// At most `most` blocks below `end`, the lowest first, all above the block `above`; empty if no file has its parent. A file with a
    /// wrong block is not used again.
    pub(super) fn blocks_below(
        &mut self,
        spec: &ChainSpec,
        end: &StoredHeader,
        most: usize,
        above: u64,
    ) -> Vec<DownloadedBlock> {
        let Some(top) = end.id.number.checked_sub(1) else {
            return Vec::new();
        };
        while let Some(index) = self.files.iter().position(|(has, _)| has.contains(&top)) {
            let (numbers, path) = &self.files[index];
            let lowest = top.saturating_sub(most as u64 - 1);
            let lowest = lowest.max(numbers.start).max(above.saturating_add(1));
            match read_down(spec, path, end, lowest) {
                Ok(blocks) => return blocks,
                Err(error) => {
                    let path = path.display();
                    warn!("The file of old blocks {path} is not used any more: {error}");
                    self.files.remove(index);
                }
            }
        }
        Vec::new()
    }
}

/// The blocks of a file below `end` down to `lowest`, the lowest first.
fn read_down(
    spec: &ChainSpec,
    path: &Path,
    end: &StoredHeader,
    lowest: u64,
) -> Result<Vec<DownloadedBlock>, WrongBlock> {
    let file = EreFile::open(path)?;
    let mut blocks = Vec::new();
    let (mut expected, mut total) = (
        end.header.parent_hash,
        end.total_difficulty.saturating_sub(end.header.difficulty),
    );
    for number in (lowest..end.id.number).rev() {
        let SealedHeader { hash, header } = SealedHeader::new(file.header(number)?, spec);
        if hash != expected {
            return Err(WrongBlock::OtherChain(number));
        }
        let body = CheckedBody::new(file.body(number)?);
        let wrong = |what| WrongBlock::OtherParts { number, what };
        if !body.fits(&header) {
            return Err(wrong("the transactions, ommers or withdrawals"));
        }
        let receipts = file.receipts(number)?;
        if receipts_root(&receipts) != header.receipts_root {
            return Err(wrong("the receipts"));
        }
        expected = header.parent_hash;
        let total_difficulty = total;
        total = total.saturating_sub(header.difficulty);
        blocks.push(DownloadedBlock {
            header: StoredHeader {
                id: BlockId { number, hash },
                header,
                total_difficulty,
            },
            body: body.body,
            receipts,
            access_list: None,
        });
    }
    blocks.reverse();
    Ok(blocks)
}
