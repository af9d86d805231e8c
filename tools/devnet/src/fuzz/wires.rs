//! Sends cases over HTTP, WebSocket and IPC on raw sockets: an HTTP library would refuse to send malformed input.

use super::cases::{Case, Kind, Transport};
use eyre::{Result, WrapErr, bail, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Limit of one response. The node aborts calls that run code or read many blocks after 30 seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Larger than any valid response.
const MAX_RESPONSE_BYTES: u64 = 300 << 20;

/// Addresses of the node's servers.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    pub(super) http: SocketAddr,
    pub(super) websocket: SocketAddr,
    pub(super) ipc: PathBuf,
}

/// A TCP or Unix socket.
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

/// Sends a case, reads until the node closes the connection, and checks the response.
///
/// # Errors
/// If the node does not close the connection in time, or the response reports a panic or is malformed.
pub(super) fn send(endpoints: &Endpoints, case: &Case) -> Result<()> {
    let mut rng = SmallRng::seed_from_u64(case.seed);
    let mut wire = connect(endpoints, case.transport)?;
    let parts = match case.transport {
        Transport::Http => http(case, &mut rng),
        Transport::WebSocket => websocket(case, &mut rng),
        Transport::Ipc => vec![case.body.clone()],
    };
    let sent = match case.kind {
        Kind::Slow => send_slowly(&mut *wire, &parts.concat(), &mut rng),
        Kind::Half => {
            let all = parts.concat();
            let end = rng.random_range(0..all.len().max(1));
            wire.write_all(all.get(..end).unwrap_or_default())
        }
        _ => parts.iter().try_for_each(|part| wire.write_all(part)),
    };
    // The node may close the connection before it has read everything.
    let _ = sent.and_then(|()| wire.flush());
    // A whole HTTP request carries its length. A client that shuts down its writing half counts as gone and may get
    // only part of the response, so only truncated and malformed requests do that.
    if case.transport != Transport::Http || matches!(case.kind, Kind::Half | Kind::Wire) {
        wire.end_writing();
    }
    let mut response = Vec::new();
    match (&mut *wire)
        .take(MAX_RESPONSE_BYTES)
        .read_to_end(&mut response)
    {
        Err(error) if is_timeout(&error) => bail!("the response did not end within {TIMEOUT:?}"),
        _ => check_response(case, &response),
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut)
}

fn check_response(case: &Case, response: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(response);
    ensure!(
        !text.contains("method handler crashed"),
        "a method panicked: {}",
        text.chars().take(400).collect::<String>()
    );
    let is_cut = matches!(case.kind, Kind::Half | Kind::Wire);
    if case.transport == Transport::Http && !is_cut && !response.is_empty() {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        ensure!(head.starts_with("HTTP/1.1 "), "no HTTP: {head}");
        let is_whole = head.starts_with("HTTP/1.1 200") && !head.contains("chunked");
        if is_whole && !body.is_empty() {
            // `IgnoredAny`: an id comes back as it was sent, with numbers of any size.
            let read = serde_json::from_str::<serde::de::IgnoredAny>(body);
            read.wrap_err("the response is not JSON")?;
        }
    }
    Ok(())
}

fn connect(endpoints: &Endpoints, transport: Transport) -> Result<Box<dyn Wire>> {
    let tcp = |address| -> Result<TcpStream> {
        let stream = TcpStream::connect(address).wrap_err("can't connect")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    Ok(match transport {
        Transport::Http => Box::new(tcp(endpoints.http)?),
        Transport::WebSocket => {
            let mut stream = tcp(endpoints.websocket)?;
            handshake(&mut stream)?;
            Box::new(stream)
        }
        Transport::Ipc => {
            let stream = UnixStream::connect(&endpoints.ipc).wrap_err("can't connect")?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Box::new(stream)
        }
    })
}

fn handshake(stream: &mut TcpStream) -> Result<()> {
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

/// Sends `all` in ten pieces over about a quarter of a second.
fn send_slowly(wire: &mut dyn Wire, all: &[u8], rng: &mut SmallRng) -> std::io::Result<()> {
    let step = all.len().div_ceil(10).max(1);
    for part in all.chunks(step) {
        wire.write_all(part)?;
        wire.flush()?;
        std::thread::sleep(Duration::from_millis(rng.random_range(10..40)));
    }
    Ok(())
}

/// An HTTP request; its head is malformed for [`Kind::Wire`].
fn http(case: &Case, rng: &mut SmallRng) -> Vec<Vec<u8>> {
    let length = case.body.len();
    let valid = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    if case.kind != Kind::Wire {
        return vec![valid.into_bytes(), case.body.clone()];
    }
    let replaced = |from: &str, to: String| valid.replace(from, &to).into_bytes();
    let content_length = format!("content-length: {length}");
    let head = match rng.random_range(0..9) {
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
            let mut head = valid.into_bytes();
            let at = rng.random_range(0..head.len());
            if let Some(byte) = head.get_mut(at) {
                *byte = rng.random();
            }
            head
        }
        _ => (0..rng.random_range(1..4_000))
            .map(|_| rng.random())
            .collect(),
    };
    vec![head, case.body.clone()]
}

/// A WebSocket message and the close frame; the frames are malformed for [`Kind::Wire`].
fn websocket(case: &Case, rng: &mut SmallRng) -> Vec<Vec<u8>> {
    let (text, close) = (0x81, frame(0x88, &[]));
    let body = &case.body;
    if case.kind != Kind::Wire {
        return vec![frame(text, body), close];
    }
    let half = body.len() / 2;
    let (first, rest) = body.split_at(half);
    match rng.random_range(0..7) {
        // In two frames, with a ping in between.
        0 => vec![
            frame(0x01, first),
            frame(0x89, b"x"),
            frame(0x80, rest),
            close,
        ],
        // A continuation without a first frame; a first frame inside of another message.
        1 => vec![frame(0x80, body), close],
        2 => vec![frame(0x01, first), frame(text, rest), close],
        // Unknown opcodes and reserved bits; a ping that is too long; 20,000 empty frames.
        3 => vec![frame(rng.random(), body), close],
        4 => vec![frame(0x89, &vec![b'x'; 1_000]), close],
        5 => [
            vec![frame(0x01, b"")],
            vec![frame(0x00, b""); 20_000],
            vec![close],
        ]
        .concat(),
        // A length that is never sent, above the node's limit.
        _ => {
            let length: u64 = *[1 << 21, 1 << 40, u64::MAX]
                .get(rng.random_range(0..3))
                .unwrap_or(&0);
            let mut head = vec![text, 0xff];
            head.extend(length.to_be_bytes());
            head.extend([0; 4]);
            vec![head, body.clone()]
        }
    }
}

/// A client's frame; its mask is zero, so the payload stays as it is.
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
