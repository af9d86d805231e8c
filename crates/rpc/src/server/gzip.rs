//! Answers in fewer bytes (RFC 1952), for whoever asks for that.
//!
//! Short answers are left as they are: to compress them would take longer than to send them. Long
//! ones are compressed beside the threads that read requests, and in parts while they are made.

use crate::outlet::Part;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{ACCEPT_ENCODING, HeaderMap};
use std::io::{self, Write};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;

/// Bytes from which on an answer is compressed.
pub(super) const LEAST_BYTES: usize = 8 << 10;

/// Bytes from which on that is done by another thread.
const LONG_BYTES: usize = 64 << 10;

/// Parts that may wait to be sent.
const UNSENT: usize = 4;

/// Hexadecimal digits shrink to less than half at the quickest level, and hardly more at others.
const LEVEL: Compression = Compression::fast();

/// Whether the client takes gzip (RFC 9110, 12.5.3).
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let items = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let mut by_star = false;
    for item in items {
        let (coding, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        let is_wanted = weight
            .trim()
            .parse::<f32>()
            .is_ok_and(|weight| weight > 0.0);
        match coding.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => return is_wanted,
            "*" => by_star = is_wanted,
            _ => {}
        }
    }
    by_star
}

/// A whole answer, compressed.
///
/// # Errors
/// If the server is stopping.
pub(super) async fn whole(answer: Vec<u8>) -> io::Result<Vec<u8>> {
    if answer.len() < LONG_BYTES {
        return compress(&answer);
    }
    let compressed = spawn_blocking(move || compress(&answer)).await;
    compressed.map_err(io::Error::other)?
}

fn compress(answer: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(answer.len() / 3), LEVEL);
    encoder.write_all(answer)?;
    encoder.finish()
}

/// An answer in parts, compressed as they come.
pub(super) fn parts(first: Vec<u8>, rest: Receiver<Part>) -> Receiver<Part> {
    let (sender, compressed) = channel(UNSENT);
    spawn_blocking(move || {
        // What fails ends without a last part, as an answer does that fails while it is made.
        let _ = compress_parts(&first, rest, &sender);
    });
    compressed
}

fn compress_parts(first: &[u8], mut rest: Receiver<Part>, sender: &Sender<Part>) -> io::Result<()> {
    let mut encoder = GzEncoder::new(Vec::new(), LEVEL);
    encoder.write_all(first)?;
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    loop {
        let made = std::mem::take(encoder.get_mut());
        if !made.is_empty() {
            sender.blocking_send(Part::More(made)).map_err(gone)?;
        }
        match rest.blocking_recv() {
            Some(Part::More(part)) => encoder.write_all(&part)?,
            Some(Part::Last(part)) => {
                encoder.write_all(&part)?;
                let end = encoder.finish()?;
                return sender.blocking_send(Part::Last(end)).map_err(gone);
            }
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;

    fn plain(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut out).map(|_| out)
    }

    #[test]
    fn gzip_is_taken_where_it_is_named_and_not_refused() {
        let accepted = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ACCEPT_ENCODING, value.parse().unwrap());
            }
            is_accepted(&headers)
        };
        for values in [
            &["gzip"][..],
            &["deflate, GZIP;q=0.5"],
            &["br", "gzip"],
            &["*"],
            &["x-gzip"],
            &["identity;q=0, gzip; q=1.0"],
        ] {
            assert!(accepted(values), "{values:?}");
        }
        for values in [
            &[][..],
            &["identity"],
            &["gzip;q=0"],
            &["*, gzip;q=0"],
            &["*;q=0"],
            &["gzippy"],
            &["gzip;q=many"],
        ] {
            assert!(!accepted(values), "{values:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_comes_back_as_it_was() {
        for length in [0, 1, LONG_BYTES - 1, LONG_BYTES, 3 << 20] {
            let answer: Vec<u8> = (0..length).map(|at| b"0123456789abcdef"[at % 16]).collect();
            let compressed = whole(answer.clone()).await.unwrap();
            assert_eq!(plain(&compressed).unwrap(), answer, "{length}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn parts_come_back_whole_and_an_end_that_is_missing_stays_missing() {
        for is_whole in [true, false] {
            let (sender, rest) = channel(4);
            let mut compressed = parts(b"first".to_vec(), rest);
            let many = vec![b'x'; 300_000];
            sender.send(Part::More(many.clone())).await.unwrap();
            sender.send(Part::More(many.clone())).await.unwrap();
            if is_whole {
                sender.send(Part::Last(b"last".to_vec())).await.unwrap();
            }
            drop(sender);
            let (mut bytes, mut has_ended) = (Vec::new(), false);
            while let Some(part) = compressed.recv().await {
                match part {
                    Part::More(part) => bytes.extend(part),
                    Part::Last(part) => {
                        bytes.extend(part);
                        has_ended = true;
                    }
                }
            }
            assert_eq!(has_ended, is_whole);
            let want = [b"first", &*many, &*many, b"last"].concat();
            match is_whole {
                true => assert_eq!(plain(&bytes).unwrap(), want),
                false => assert!(plain(&bytes).is_err()),
            }
        }
    }
}
