//! IPC over a Unix socket: a sequence of JSON values. Access is controlled by the permissions of the file.

use crate::RpcError;
use crate::dispatch::{Dispatcher, error_response};
use crate::session::Session;
use bytes::{Bytes, BytesMut};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};

/// Most connections at a time.
const MAX_CONNECTIONS: usize = 256;

/// Responses that a client may leave unread; beyond that its connection waits, or ends at a notification.
const MAX_UNREAD_RESPONSES: usize = 1024;

/// A server on a socket in the file system.
#[derive(Debug)]
pub struct IpcServer {
    listener: UnixListener,
    path: PathBuf,
    dispatcher: Arc<Dispatcher>,
    max_request_bytes: usize,
}

impl IpcServer {
    /// Creates the socket `path`, accessible to its owner only. A socket left behind by another process is replaced,
    /// one that is being served is not.
    ///
    /// # Errors
    /// Errors of the system; `AddrInUse` if another process serves it.
    pub fn bind(
        path: &Path,
        dispatcher: Arc<Dispatcher>,
        max_request_bytes: usize,
    ) -> io::Result<Self> {
        if path.exists() {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::Error::from(io::ErrorKind::AddrInUse));
            }
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, owner_only)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            dispatcher,
            max_request_bytes,
        })
    }

    /// Serves until `stop` is true, and removes the socket.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let permit = Arc::clone(&connections).try_acquire_owned();
            let (Ok((stream, _)), Ok(permit)) = (accepted, permit) else {
                continue;
            };
            let dispatcher = Arc::clone(&self.dispatcher);
            let (limit, stop) = (self.max_request_bytes, stop.clone());
            tokio::spawn(async move {
                let _permit = permit;
                serve(stream, dispatcher, limit, stop).await;
            });
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve(
    stream: UnixStream,
    dispatcher: Arc<Dispatcher>,
    limit: usize,
    mut stop: watch::Receiver<bool>,
) {
    let (mut from_client, mut to_client) = stream.into_split();
    let (sender, mut responses) = mpsc::channel::<Vec<u8>>(MAX_UNREAD_RESPONSES);
    let writer = tokio::spawn(async move {
        while let Some(mut response) = responses.recv().await {
            response.push(b'\n');
            if to_client.write_all(&response).await.is_err() {
                return;
            }
        }
    });
    let session = Session::with_events(sender.clone());
    let mut buffer = BytesMut::with_capacity(16 << 10);
    let mut scanner = Scanner::default();
    loop {
        while let Some(end) = scanner.end_of_value(&buffer) {
            let body = buffer.split_to(end).freeze();
            scanner = Scanner::default();
            if let Some(response) = handle(&dispatcher, body, &session).await
                && sender.send(response).await.is_err()
            {
                return;
            }
        }
        if buffer.len() > limit || scanner.is_broken {
            let error = RpcError::parse("not JSON, or longer than this node takes");
            let _ = sender.send(error_response(None, &error)).await;
            break;
        }
        let read = tokio::select! {
            read = from_client.read_buf(&mut buffer) => read,
            _ = stop.wait_for(|stop| *stop) => break,
            () = sender.closed() => break,
        };
        if !matches!(read, Ok(1..)) {
            break;
        }
    }
    drop((session, sender));
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), writer).await;
}

async fn handle(dispatcher: &Arc<Dispatcher>, body: Bytes, session: &Session) -> Option<Vec<u8>> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    dispatcher.handle(body, session).await
}

/// Finds the end of a JSON value in bytes that arrive in pieces; each byte is scanned once.
#[derive(Debug, Default)]
struct Scanner {
    seen: usize,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    is_broken: bool,
}

impl Scanner {
    /// The end of the first object or array of `bytes`, if it is complete.
    fn end_of_value(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(byte) = bytes.get(self.seen).filter(|_| !self.is_broken) {
            self.seen += 1;
            match (self.in_string, byte) {
                (true, _) if self.is_escaped => self.is_escaped = false,
                (true, b'\\') => self.is_escaped = true,
                (true, b'"') => self.in_string = false,
                (true, _) => {}
                (false, b'"') => self.in_string = true,
                (false, b'{' | b'[') => self.depth += 1,
                (false, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(self.seen);
                    }
                }
                (false, byte) => {
                    self.is_broken = self.depth == 0 && !byte.is_ascii_whitespace();
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of `text`, given to the scanner `step` bytes at a time.
    fn values(text: &str, step: usize) -> Vec<String> {
        let mut found = Vec::new();
        let (mut scanner, mut buffer) = (Scanner::default(), Vec::new());
        for part in text.as_bytes().chunks(step) {
            buffer.extend_from_slice(part);
            while let Some(end) = scanner.end_of_value(&buffer) {
                let value: Vec<u8> = buffer.drain(..end).collect();
                found.push(String::from_utf8(value).unwrap().trim().to_owned());
                scanner = Scanner::default();
            }
        }
        found
    }

    #[test]
    fn values_are_found_for_any_split_of_the_bytes() {
        let text = "{\"a\":\"}\\\"{\"}\n [1,[2],{\"b\":[]}]{} ";
        for step in 1..=text.len() {
            assert_eq!(
                values(text, step),
                ["{\"a\":\"}\\\"{\"}", "[1,[2],{\"b\":[]}]", "{}"],
                "{step} at a time"
            );
        }
    }

    #[test]
    fn bytes_that_begin_no_value_are_broken_and_half_a_value_is_incomplete() {
        let mut scanner = Scanner::default();
        assert_eq!(scanner.end_of_value(b"  nonsense"), None);
        assert!(scanner.is_broken);
        let mut scanner = Scanner::default();
        assert_eq!(scanner.end_of_value(b"{\"a\":["), None);
        assert!(!scanner.is_broken);
    }
}
