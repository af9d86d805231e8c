//! Blocks that a peer makes known unasked. Chains of validators have no consensus client that would.
//!
//! Spec: devp2p `caps/eth.md`, NewBlock and NewBlockHashes.

use super::fields::{Fields, list};
use super::limits::MAX_NEW_BLOCK_HASHES;
use niwaki_primitives::rlp::{Result, encode};
use niwaki_primitives::{B256, Block, Header, U256};

/// The message NewBlock; the total difficulty is that of the block.
pub(crate) fn new_block(block: &Block, total_difficulty: U256) -> Vec<u8> {
    list(&[&encode(block), &encode(total_difficulty)])
}

/// The header in a message NewBlock. The rest of the block is asked for when it is needed.
pub(crate) fn new_block_header(data: &[u8]) -> Result<Header> {
    Fields::of(data)?.list()?.next()
}

/// The highest block of a message NewBlockHashes; `None` if it has none.
pub(crate) fn highest_of_hashes(data: &[u8]) -> Result<Option<(u64, B256)>> {
    let mut fields = Fields::of(data)?;
    let mut highest = None;
    for _ in 0..MAX_NEW_BLOCK_HASHES {
        if fields.is_empty() {
            break;
        }
        let mut block = fields.list()?;
        let (hash, number): (B256, u64) = (block.next()?, block.next()?);
        highest = highest.max(Some((number, hash)));
    }
    fields.end()?;
    Ok(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_new_block_is_read() {
        let mut block = Block::default();
        block.header.number = 7;
        let message = new_block(&block, U256::from(8));
        assert_eq!(new_block_header(&message).unwrap(), block.header);
        assert!(new_block_header(&message[..message.len() - 1]).is_err());
        let (first, second) = (&encode(&block), &encode(U256::from(8)));
        assert_eq!(message, list(&[first, second]));
    }

    #[test]
    fn the_highest_of_announced_hashes_counts() {
        let item = |number: u64| {
            let hash = B256::left_padding_from(&number.to_be_bytes());
            list(&[&encode(hash), &encode(number)])
        };
        let message = |numbers: &[u64]| {
            let items: Vec<Vec<u8>> = numbers.iter().map(|number| item(*number)).collect();
            let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            highest_of_hashes(&list(&items))
        };
        assert_eq!(message(&[]), Ok(None));
        let nine = B256::left_padding_from(&9_u64.to_be_bytes());
        assert_eq!(message(&[3, 9, 4]), Ok(Some((9, nine))));
        let many: Vec<u64> = (0..=MAX_NEW_BLOCK_HASHES as u64).collect();
        assert!(message(&many).is_err());
        assert!(highest_of_hashes(&list(&[&encode(7_u64)])).is_err());
    }
}
