//! A file of RLP blocks, read once before anything is timed: how much work it is, and its head.

use eyre::{Context, Result, bail, ensure};
use niwaki_primitives::{B256, Block, rlp::Decodable};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{BufReader, ErrorKind, Read},
    path::{Path, PathBuf},
};

/// The last block of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Head {
    /// Its number.
    pub(crate) number: u64,
    /// Its hash.
    pub(crate) hash: B256,
}

/// The content of a file of blocks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Work {
    pub(crate) blocks: u64,
    pub(crate) transactions: usize,
    pub(crate) gas: u64,
    /// The last block.
    pub(crate) head: Head,
}

/// The file of blocks at `path`, which may be the folder that holds it.
pub(crate) fn in_folder(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.join("chain.rlp"),
        false => path.to_owned(),
    }
}

/// Far above the size of any block; a longer list is not a block.
const MAX_BLOCK_BYTES: u64 = 64 << 20;

/// Reads the RLP blocks of `path`; holds one at a time.
pub(crate) fn read(path: &Path) -> Result<Work> {
    let name = path.display();
    let file = File::open(path)
        .wrap_err_with(|| format!("can't read the chain {name}; give a file of RLP blocks"))?;
    let mut file = BufReader::new(file);
    let (mut blocks, mut transactions, mut gas, mut head) = (0, 0, 0_u64, None);
    loop {
        let item = next_item(&mut file)
            .wrap_err_with(|| format!("{name}, after block {blocks}: give a file of RLP blocks"))?;
        let Some(item) = item else { break };
        let block = Block::decode(&mut item.as_slice()).map_err(|error| {
            eyre::eyre!("{name}, after block {blocks}: {error}; give a file of RLP blocks")
        })?;
        blocks += 1;
        transactions += block.body.transactions.len();
        gas = gas.saturating_add(block.header.gas_used);
        head = Some(Head {
            number: block.header.number,
            hash: block.header.hash_slow(),
        });
    }
    let Some(head) = head else {
        bail!("the chain {name} is empty; give a file of RLP blocks");
    };
    Ok(Work {
        blocks,
        transactions,
        gas,
        head,
    })
}

/// The next RLP list; `None` at the end.
pub(crate) fn next_item(file: &mut impl Read) -> Result<Option<Vec<u8>>> {
    let mut item = vec![0];
    match file.read_exact(&mut item) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let first = item[0];
    ensure!(first >= 0xc0, "byte {first:#04x} does not begin a list");
    let mut length = u64::from(first.saturating_sub(0xc0));
    if first > 0xf7 {
        let mut bytes = [0; 8];
        let count = usize::from(first - 0xf7);
        file.read_exact(&mut bytes[8 - count..])?;
        item.extend_from_slice(&bytes[8 - count..]);
        length = u64::from_be_bytes(bytes);
    }
    ensure!(length <= MAX_BLOCK_BYTES, "a list of {length} bytes");
    let read = file.take(length).read_to_end(&mut item)?;
    ensure!(
        read as u64 == length,
        "a list of {length} bytes ends after {read}"
    );
    Ok(Some(item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{Header, rlp::Encodable};

    fn chain(count: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 1..=count {
            let header = Header {
                number,
                gas_used: 10,
                ..Header::default()
            };
            let body = Default::default();
            Block { header, body }.encode(&mut bytes);
        }
        bytes
    }

    fn read_bytes(bytes: &[u8]) -> Result<Work> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        read(file.path())
    }

    #[test]
    fn blocks_are_counted_and_the_last_is_the_head() {
        let work = read_bytes(&chain(3)).unwrap();
        assert_eq!((work.blocks, work.transactions, work.gas), (3, 0, 30));
        assert_eq!(work.head.number, 3);
    }

    #[test]
    fn other_files_are_refused_by_name() {
        let mut cut = chain(2);
        cut.pop();
        let huge = [0xff; 9];
        for bytes in [&b"not a chain"[..], &cut, &[], &huge, &[0xc1, 0x01]] {
            let text = format!("{:#}", read_bytes(bytes).unwrap_err());
            assert!(text.contains("give a file of RLP blocks"), "{text}");
        }
        let text = format!(
            "{:#}",
            read(Path::new("/nonexistent/chain.rlp")).unwrap_err()
        );
        assert!(text.contains("/nonexistent/chain.rlp"), "{text}");
    }
}
