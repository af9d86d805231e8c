//! Files of concatenated RLP blocks, as geth and Besu export them.

use super::source::{FilePosition, Input, MAX_BLOCK_BYTES, RawBlock, RawBytes};
use eyre::{Result, eyre};

pub(crate) struct Reader {
    input: Input,
}

impl Reader {
    pub(crate) fn new(input: Input) -> Self {
        Self { input }
    }

    pub(crate) fn next_block(&mut self) -> Result<Option<RawBlock>> {
        let position = self.input.position();
        let mut rlp = Vec::new();
        if !self.input.append(1, &mut rlp)? {
            return Ok(None);
        }
        let length = match rlp[0] {
            short @ 0xc0..=0xf7 => u64::from(short - 0xc0),
            long @ 0xf8.. => {
                let bytes = u64::from(long - 0xf7);
                if !self.input.append(bytes, &mut rlp)? {
                    return Err(self.input.truncated(&position));
                }
                big_endian(&rlp[1..])
            }
            first => return Err(not_a_list(first, &position)),
        };
        if length > MAX_BLOCK_BYTES {
            return Err(eyre!(
                "{} claims {length} bytes, more than any block has; the file is damaged or not \
                 RLP",
                position.block()
            ));
        }
        if !self.input.append(length, &mut rlp)? {
            return Err(self.input.truncated(&position));
        }
        Ok(Some(RawBlock {
            position,
            bytes: RawBytes::Whole(rlp),
        }))
    }
}

/// A big-endian number of at most 8 bytes.
fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The error for a file of another format, with a hint which one it may be.
fn not_a_list(first: u8, position: &FilePosition) -> eyre::Report {
    let hint = match first {
        0x1f => "this looks like a gzip file: unpack it first (gunzip)",
        b'{' | b'[' => "this looks like JSON: use --format JSON",
        0x65 => "this looks like an ERA1 file: use --format ERA1",
        _ => "the file is damaged or of another format (--format)",
    };
    eyre!(
        "{} does not begin with an RLP list but with byte 0x{first:02x}; {hint}",
        position.block()
    )
}
