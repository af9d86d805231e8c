//! Compression of responses with gzip (RFC 1952), for clients that accept it.
//!
//! Short responses stay uncompressed: compressing them would take longer than sending them. Long ones are compressed on
//! blocking threads, not on I/O threads, and streams chunk by chunk.

use crate::response_stream::Chunk;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{ACCEPT_ENCODING, HeaderMap};
use std::io::{self, Write};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;

/// Bytes from which on a response is compressed.
pub(super) const MIN_BYTES: usize = 8 << 10;

/// Bytes from which on another thread compresses it.
const OFFLOAD_BYTES: usize = 64 << 10;

/// Chunks that may wait to be sent.
const MAX_QUEUED_CHUNKS: usize = 4;

/// Hexadecimal digits shrink to less than half at the fastest level, and hardly more at others.
const LEVEL: Compression = Compression::fast();

/// Whether the client accepts gzip (RFC 9110, 12.5.3).
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

/// Compresses a whole response.
///
/// # Errors
/// If the server is stopping.
pub(super) async fn whole(response: Vec<u8>) -> io::Result<Vec<u8>> {
    if response.len() < OFFLOAD_BYTES {
        return compress(&response);
    }
    let compressed = spawn_blocking(move || compress(&response)).await;
    compressed.map_err(io::Error::other)?
}

fn compress(response: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(response.len() / 3), LEVEL);
    encoder.write_all(response)?;
    encoder.finish()
}

/// Compresses a stream, chunk by chunk.
pub(super) fn stream(first: Vec<u8>, rest: Receiver<Chunk>) -> Receiver<Chunk> {
    let (sender, compressed) = channel(MAX_QUEUED_CHUNKS);
    spawn_blocking(move || {
        // A failure ends the stream without a last chunk, as a failure of the method does.
        let _ = compress_stream(&first, rest, &sender);
    });
    compressed
}

fn compress_stream(
    first: &[u8],
    mut rest: Receiver<Chunk>,
    sender: &Sender<Chunk>,
) -> io::Result<()> {
    let mut encoder = GzEncoder::new(Vec::new(), LEVEL);
    encoder.write_all(first)?;
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    loop {
        let made = std::mem::take(encoder.get_mut());
        if !made.is_empty() {
            sender.blocking_send(Chunk::More(made)).map_err(gone)?;
        }
        match rest.blocking_recv() {
            Some(Chunk::More(chunk)) => encoder.write_all(&chunk)?,
            Some(Chunk::Last(chunk)) => {
                encoder.write_all(&chunk)?;
                let end = encoder.finish()?;
                return sender.blocking_send(Chunk::Last(end)).map_err(gone);
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
    fn gzip_is_used_if_accept_encoding_allows_it() {
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
    async fn a_response_decompresses_to_itself() {
        for length in [0, 1, OFFLOAD_BYTES - 1, OFFLOAD_BYTES, 3 << 20] {
            let response: Vec<u8> = (0..length).map(|at| b"0123456789abcdef"[at % 16]).collect();
            let compressed = whole(response.clone()).await.unwrap();
            assert_eq!(plain(&compressed).unwrap(), response, "{length}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn streams_decompress_to_themselves_and_broken_ones_stay_broken() {
        for is_whole in [true, false] {
            let (sender, rest) = channel(4);
            let mut compressed = stream(b"first".to_vec(), rest);
            let many = vec![b'x'; 300_000];
            sender.send(Chunk::More(many.clone())).await.unwrap();
            sender.send(Chunk::More(many.clone())).await.unwrap();
            if is_whole {
                sender.send(Chunk::Last(b"last".to_vec())).await.unwrap();
            }
            drop(sender);
            let (mut bytes, mut has_ended) = (Vec::new(), false);
            while let Some(chunk) = compressed.recv().await {
                match chunk {
                    Chunk::More(chunk) => bytes.extend(chunk),
                    Chunk::Last(chunk) => {
                        bytes.extend(chunk);
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
