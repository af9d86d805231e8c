//! Files of blocks in RLP, one after the other: what geth and Besu export.

use super::source::{Input, MAX_BLOCK_BYTES, Place, RawBlock, RawBytes};
use eyre::{Result, eyre};

pub(crate) struct Reader {
    input: Input,
}

impl Reader {
    pub(crate) fn new(input: Input) -> Self {
        Self { input }
    }

    pub(crate) fn next_block(&mut self) -> Result<Option<RawBlock>> {
        let place = self.input.place();
        let mut rlp = Vec::new();
        if !self.input.append(1, &mut rlp)? {
            return Ok(None);
        }
        let length = match rlp[0] {
            short @ 0xc0..=0xf7 => u64::from(short - 0xc0),
            long @ 0xf8.. => {
                let bytes = u64::from(long - 0xf7);
                if !self.input.append(bytes, &mut rlp)? {
                    return Err(self.input.cut_off(&place));
                }
                big_endian(&rlp[1..])
            }
            first => return Err(not_a_list(first, &place)),
        };
        if length > MAX_BLOCK_BYTES {
            return Err(eyre!(
                "{} claims {length} bytes, more than any block has; the file is damaged or not \
                 RLP",
                place.block()
            ));
        }
        if !self.input.append(length, &mut rlp)? {
            return Err(self.input.cut_off(&place));
        }
        Ok(Some(RawBlock {
            place,
            bytes: RawBytes::Whole(rlp),
        }))
    }
}

/// A number of at most 8 bytes.
fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// What the file may be instead.
fn not_a_list(first: u8, place: &Place) -> eyre::Report {
    let hint = match first {
        0x1f => "this looks like a gzip file: unpack it first (gunzip)",
        b'{' | b'[' => "this looks like JSON: use --format JSON",
        0x65 => "this looks like an ERA1 file: use --format ERA1",
        _ => "the file is damaged or of another format (--format)",
    };
    eyre!(
        "{} does not begin with an RLP list but with byte 0x{first:02x}; {hint}",
        place.block()
    )
}
