//! Cuts damaged logs before the engine reads them.
//!
//! RocksDB 11.8 loops for ever on a log in which a record has the type of a recycled log while the first record has not
//! (`log_reader.cc`: the record is called bad, and read again and again). Our logs are never recycled, so such a type
//! is a flipped bit or garbage that a power cut has left, and the log ends there: the engine itself reads no further
//! than the first bad record. Checksums are left to the engine.

use crate::fault::entries;
use niwaki_primitives::Fault;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// Bytes of a block; records do not cross its end.
const BLOCK_BYTES: u64 = 32 << 10;

/// Checksum 4 B, length 2 B, type 1 B.
const HEADER: usize = 7;
const HEADER_BYTES: u64 = HEADER as u64;

/// The record types of recycled logs.
const RECYCLED: [u8; 6] = [5, 6, 7, 8, 11, 131];

/// Cuts every log in `engine` at the first record that the engine would loop on.
pub(crate) fn cut_logs(engine: &Path) -> Result<(), Fault> {
    for entry in entries(engine)? {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let end = end_of(&path).map_err(|error| Fault::io("read", &path, error))?;
        if let Some(end) = end {
            let cut = OpenOptions::new().write(true).open(&path);
            cut.and_then(|file| file.set_len(end))
                .map_err(|error| Fault::io("cut off", &path, error))?;
        }
    }
    Ok(())
}

/// The offset of the first record of a recycled type, if there is one.
fn end_of(path: &Path) -> std::io::Result<Option<u64>> {
    let mut log = BufReader::with_capacity(64 << 10, File::open(path)?);
    let mut at = 0_u64;
    loop {
        let left = BLOCK_BYTES - at % BLOCK_BYTES;
        let mut skip = left;
        if left >= HEADER_BYTES {
            let mut header = [0; HEADER];
            match log.read_exact(&mut header) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            }
            let [_, _, _, _, low, high, kind] = header;
            if RECYCLED.contains(&kind) {
                return Ok(Some(at));
            }
            let length = HEADER_BYTES + u64::from(u16::from_le_bytes([low, high]));
            // What does not fit, and zeros, end the block.
            let is_record = length <= left && (kind, length) != (0, HEADER_BYTES);
            skip = if is_record { length } else { left };
            log.seek_relative((skip - HEADER_BYTES).cast_signed())?;
        } else {
            log.seek_relative(left.cast_signed())?;
        }
        at += skip;
    }
}
