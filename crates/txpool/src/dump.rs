//! The pool as a text file, `txpool.dump`, so that it survives a restart.
//!
//! The first line is `# niwaki txpool 1`. Each further line is one transaction: `l` if it is local or `r` if it is
//! remote, a space, and its network encoding (with blobs) in hex. Empty lines and lines that begin with `#` are
//! ignored. Older transactions come first. Those whose blobs are sampled are not saved: peers have them.

use crate::error::PoolError;
use crate::pool::Pool;
use crate::sidecar::Sidecar;
use crate::transaction::{Incoming, Origin, PooledTransaction, encode_network};
use std::io::{self, BufRead, Write};
use std::sync::Arc;

const HEADER: &str = "# niwaki txpool 1";
/// Most bytes of a line: twice what a transaction with 60 blobs and all cell proofs takes.
const MAX_LINE_BYTES: usize = 32 << 20;

/// The result of restoring a dump.
#[derive(Debug, Default)]
pub struct Restored {
    /// Transactions that were added to the pool.
    pub restored: usize,
    /// Lines that were skipped, counted from 1, and why.
    pub skipped: Vec<(usize, SkippedLine)>,
}

/// Why a line of a dump was skipped.
#[derive(Debug, thiserror::Error)]
pub enum SkippedLine {
    /// It has no `l` or `r`, a space, and hex.
    #[error("expected `l` or `r`, a space and a transaction in hex")]
    Format,
    /// It is longer than any transaction.
    #[error("longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// The pool refuses the transaction.
    #[error(transparent)]
    Refused(#[from] PoolError),
}

pub(crate) fn write_dump(
    out: &mut dyn Write,
    txs: &[(Arc<PooledTransaction>, Option<Arc<Sidecar>>)],
) -> io::Result<usize> {
    writeln!(out, "{HEADER}")?;
    for (tx, sidecar) in txs {
        let mark = match tx.origin {
            Origin::Local => 'l',
            Origin::Remote => 'r',
        };
        let bytes = encode_network(&tx.tx, sidecar.as_deref());
        writeln!(out, "{mark} {}", hex::encode(bytes))?;
    }
    out.flush()?;
    Ok(txs.len())
}

pub(crate) fn read_dump(
    pool: &Pool,
    input: &mut dyn BufRead,
    now: u64,
    should_continue: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Restored> {
    let mut outcome = Restored::default();
    let (mut line, mut offset) = (Vec::new(), 0);
    for number in 1.. {
        if !should_continue(offset) {
            break;
        }
        let Some(is_complete) = read_line(input, &mut line, &mut offset)? else {
            break;
        };
        let line = line.trim_ascii();
        if is_complete && (line.is_empty() || line.starts_with(b"#")) {
            continue;
        }
        let restored = if is_complete {
            restore_line(pool, line, now)
        } else {
            Err(SkippedLine::TooLong)
        };
        match restored {
            Ok(()) => outcome.restored += 1,
            Err(reason) => outcome.skipped.push((number, reason)),
        }
    }
    Ok(outcome)
}

fn restore_line(pool: &Pool, line: &[u8], now: u64) -> Result<(), SkippedLine> {
    let (origin, digits) = match line {
        [b'l', b' ', digits @ ..] => (Origin::Local, digits),
        [b'r', b' ', digits @ ..] => (Origin::Remote, digits),
        _ => return Err(SkippedLine::Format),
    };
    let bytes = hex::decode(digits).map_err(|_| SkippedLine::Format)?;
    let incoming = Incoming::decode(&bytes)?;
    pool.add(incoming, origin, now)?;
    Ok(())
}

/// Reads a line into `line` and adds its bytes to `offset`. `None` at the end; false if the line was too long and is
/// truncated.
fn read_line(
    input: &mut dyn BufRead,
    line: &mut Vec<u8>,
    offset: &mut u64,
) -> io::Result<Option<bool>> {
    line.clear();
    let mut any = false;
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(any.then_some(line.len() <= MAX_LINE_BYTES));
        }
        any = true;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
        if line.len() <= MAX_LINE_BYTES {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        *offset = offset.saturating_add(used as u64);
        if end.is_some() {
            return Ok(Some(line.len() <= MAX_LINE_BYTES));
        }
    }
}
