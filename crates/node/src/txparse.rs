//! `niwaki txparse`: decodes transactions, one per line, and prints the sender of each, or what is wrong with it.
//!
//! The lines are those of the differential fuzzers of transactions that other clients have the same command for.

use crate::Outcome;
use crate::options::TxParseOptions;
use eyre::{Result, WrapErr};
use niwaki_primitives::{Decodable2718, Transaction, TxEnvelope, hex};
use niwaki_rules::recover_sender;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};

/// Mainnet's: a transaction may be of no other chain.
const CHAIN_ID: u64 = 1;

pub(crate) fn run(options: &TxParseOptions) -> Result<Outcome> {
    let lines: Box<dyn BufRead> = match &options.corpus_file {
        Some(path) => {
            let file =
                File::open(path).wrap_err_with(|| format!("can't read {}", path.display()))?;
            Box::new(BufReader::new(file))
        }
        None => Box::new(std::io::stdin().lock()),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in lines.lines() {
        let line = line.wrap_err("can't read the next line")?;
        if !line.starts_with('#') && !line.trim().is_empty() {
            writeln!(out, "{}", answer(&line))?;
        }
    }
    out.flush()?;
    Ok(Outcome::Done)
}

fn answer(line: &str) -> String {
    match sender(line.trim()) {
        Ok(sender) => sender,
        Err(reason) => format!("err: {reason}"),
    }
}

fn sender(line: &str) -> Result<String, String> {
    let bytes = hex::decode(line).map_err(|error| error.to_string())?;
    let mut rest = &bytes[..];
    let tx = TxEnvelope::decode_2718(&mut rest).map_err(|error| error.to_string())?;
    if !rest.is_empty() {
        return Err(format!("{} bytes follow the transaction", rest.len()));
    }
    if let Some(chain) = tx.chain_id().filter(|chain| *chain != CHAIN_ID) {
        return Err(format!("it is of chain {chain}, not of {CHAIN_ID}"));
    }
    let sender = recover_sender(&tx).map_err(|reason| reason.to_string())?;
    Ok(format!("{sender:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{Encodable2718, TxEip1559};
    use niwaki_testkit::Key;

    #[test]
    fn a_line_is_a_sender_or_a_reason() {
        let key = Key::new(niwaki_primitives::B256::repeat_byte(7));
        let line = |chain_id| {
            let tx = TxEip1559 {
                chain_id,
                ..TxEip1559::default()
            };
            hex::encode(key.sign(tx).encoded_2718())
        };
        assert_eq!(answer(&line(1)), format!("{:#x}", key.address));
        assert_eq!(
            answer(&format!("0x{} ", line(1))),
            format!("{:#x}", key.address)
        );
        for (line, reason) in [
            (line(5), "chain 5"),
            (format!("{}00", line(1)), "1 bytes follow"),
            ("0x".to_owned(), "err: "),
            ("xyz".to_owned(), "err: "),
            ("0x02c0".to_owned(), "err: "),
        ] {
            let answer = answer(&line);
            assert!(
                answer.starts_with("err: ") && answer.contains(reason),
                "{answer}"
            );
        }
    }
}
