//! How cases are sent: by HTTP, WebSocket or a socket in the file system, without a library that
//! would keep what is wrong from going out.

use super::cases::{Case, Kind, Way};
use eyre::{Result, WrapErr, bail, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long an answer may take. What runs code or reads many blocks ends after 30 seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// More than any answer has.
const MOST_BYTES: u64 = 300 << 20;

/// Where the node is reached.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) http: SocketAddr,
    pub(super) websocket: SocketAddr,
    pub(super) ipc: PathBuf,
}

/// A connection of either sort.
trait Wire: Read + Write {
    fn end_writing(&self);
}

impl Wire for TcpStream {
    fn end_writing(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Wire for UnixStream {
    fn end_writing(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

/// Sends a case, and reads until the node ends the connection.
///
/// # Errors
/// If it does not, or says that something of its own broke.
pub(super) fn send(places: &Places, case: &Case) -> Result<()> {
    let mut chance = SmallRng::seed_from_u64(case.seed);
    let mut wire = connect(places, case.way)?;
    let parts = match case.way {
        Way::Http => http(case, &mut chance),
        Way::WebSocket => websocket(case, &mut chance),
        Way::Ipc => vec![case.body.clone()],
    };
    let sent = match case.kind {
        Kind::Slow => send_slowly(&mut *wire, &parts.concat(), &mut chance),
        Kind::Half => {
            let all = parts.concat();
            let end = chance.random_range(0..all.len().max(1));
            wire.write_all(all.get(..end).unwrap_or_default())
        }
        _ => parts.iter().try_for_each(|part| wire.write_all(part)),
    };
    // The node may have ended the connection before it had read all; that is its right.
    let _ = sent.and_then(|()| wire.flush());
    // A whole request over HTTP says itself where it ends; whoever ends the writing is taken to have
    // gone, and may get no more than a part of the answer.
    if case.way != Way::Http || matches!(case.kind, Kind::Half | Kind::Wire) {
        wire.end_writing();
    }
    let mut answer = Vec::new();
    match (&mut *wire).take(MOST_BYTES).read_to_end(&mut answer) {
        Err(error) if is_timeout(&error) => bail!("no end of the answer in {PATIENCE:?}"),
        _ => judge(case, &answer),
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut)
}

fn judge(case: &Case, answer: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(answer);
    ensure!(
        !text.contains("method handler crashed"),
        "a method panicked: {}",
        text.chars().take(400).collect::<String>()
    );
    let is_cut = matches!(case.kind, Kind::Half | Kind::Wire);
    if case.way == Way::Http && !is_cut && !answer.is_empty() {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        ensure!(head.starts_with("HTTP/1.1 "), "no HTTP: {head}");
        let is_whole = head.starts_with("HTTP/1.1 200") && !head.contains("chunked");
        if is_whole && !body.is_empty() {
            // Whatever the size of a number: an identity comes back as it was sent.
            let read = serde_json::from_str::<serde::de::IgnoredAny>(body);
            read.wrap_err("an answer is not JSON")?;
        }
    }
    Ok(())
}

fn connect(places: &Places, way: Way) -> Result<Box<dyn Wire>> {
    let tcp = |address| -> Result<TcpStream> {
        let stream = TcpStream::connect(address).wrap_err("can't connect")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    Ok(match way {
        Way::Http => Box::new(tcp(places.http)?),
        Way::WebSocket => {
            let mut stream = tcp(places.websocket)?;
            shake_hands(&mut stream)?;
            Box::new(stream)
        }
        Way::Ipc => {
            let stream = UnixStream::connect(&places.ipc).wrap_err("can't connect")?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Box::new(stream)
        }
    })
}

fn shake_hands(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    )?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).wrap_err("no WebSocket")?;
        head.extend(byte);
    }
    ensure!(head.starts_with(b"HTTP/1.1 101"), "no WebSocket");
    Ok(())
}

/// A few bytes at a time, for a quarter of a second.
fn send_slowly(wire: &mut dyn Wire, all: &[u8], chance: &mut SmallRng) -> std::io::Result<()> {
    let step = all.len().div_ceil(10).max(1);
    for part in all.chunks(step) {
        wire.write_all(part)?;
        wire.flush()?;
        std::thread::sleep(Duration::from_millis(chance.random_range(10..40)));
    }
    Ok(())
}

/// A request, of which the head may be wrong.
fn http(case: &Case, chance: &mut SmallRng) -> Vec<Vec<u8>> {
    let length = case.body.len();
    let good = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    if case.kind != Kind::Wire {
        return vec![good.into_bytes(), case.body.clone()];
    }
    let replaced = |from: &str, to: String| good.replace(from, &to).into_bytes();
    let content_length = format!("content-length: {length}");
    let head = match chance.random_range(0..9) {
        0 => replaced(&content_length, format!("content-length: {}", length / 2)),
        1 => replaced(&content_length, format!("content-length: {}", u64::MAX)),
        2 => replaced(
            &content_length,
            format!("{content_length}\r\ncontent-length: 1"),
        ),
        3 => replaced(&content_length, "transfer-encoding: chunked".to_owned()),
        4 => replaced("host: localhost", format!("host: {}", "x".repeat(100_000))),
        5 => replaced("POST / ", format!("{} / ", "P".repeat(1_000))),
        6 => replaced("POST / ", format!("POST /{} ", "%2e".repeat(20_000))),
        7 => {
            let mut head = good.into_bytes();
            let at = chance.random_range(0..head.len());
            if let Some(byte) = head.get_mut(at) {
                *byte = chance.random();
            }
            head
        }
        _ => (0..chance.random_range(1..4_000))
            .map(|_| chance.random())
            .collect(),
    };
    vec![head, case.body.clone()]
}

/// Messages in frames, which may be wrong, and the frame that ends them.
fn websocket(case: &Case, chance: &mut SmallRng) -> Vec<Vec<u8>> {
    let (text, close) = (0x81, frame(0x88, &[]));
    let body = &case.body;
    if case.kind != Kind::Wire {
        return vec![frame(text, body), close];
    }
    let half = body.len() / 2;
    let (first, rest) = body.split_at(half);
    match chance.random_range(0..7) {
        // In two frames, with a ping in between.
        0 => vec![
            frame(0x01, first),
            frame(0x89, b"x"),
            frame(0x80, rest),
            close,
        ],
        // One that goes on with what has not begun, and a beginning within another one.
        1 => vec![frame(0x80, body), close],
        2 => vec![frame(0x01, first), frame(text, rest), close],
        // Kinds and bits that mean nothing; a long ping; many empty frames.
        3 => vec![frame(chance.random(), body), close],
        4 => vec![frame(0x89, &vec![b'x'; 1_000]), close],
        5 => [
            vec![frame(0x01, b"")],
            vec![frame(0x00, b""); 20_000],
            vec![close],
        ]
        .concat(),
        // More than will come, and more than is taken.
        _ => {
            let length: u64 = *[1 << 21, 1 << 40, u64::MAX]
                .get(chance.random_range(0..3))
                .unwrap_or(&0);
            let mut head = vec![text, 0xff];
            head.extend(length.to_be_bytes());
            head.extend([0; 4]);
            vec![head, body.clone()]
        }
    }
}

/// A frame of a client, whose mask changes nothing.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | u8::try_from(length).unwrap_or(0)),
        length => {
            frame.push(0xff);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(payload);
    frame
}
