//! A connection: the handshake over a stream, then messages in both directions.
//!
//! ```text
//! initiate | respond  ->  Connection (the other side's key is proved)  ->  greet  ->  Session (reader, writer, protocols)
//! ```
//!
//! Nothing here has a deadline or a budget: the caller sets them. Until the other side's Hello has come, a failure closes the connection
//! without a word, so that nothing can be learnt of the key.

use super::frame::{FrameDecoder, FrameEncoder, FrameError, FrameKeys, HEADER_BYTES};
use super::handshake::{self, HandshakeError, Secrets};
use super::hello::{self, DisconnectReason, Hello, Protocol, SharedProtocol};
use crate::key::{NodeId, NodeKey};
use crate::stats::{Direction, Stats, Traffic};
use niwaki_primitives::rlp;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Most bytes of a message, compressed or not.
pub const MAX_MESSAGE_BYTES: usize = 10 << 20;

/// Most bytes of a message before the other side is a peer, compressed or not: such ones are read without room being taken for them.
pub const MAX_EARLY_BYTES: usize = 16 << 10;

/// A frame may be so much larger than a message: what cannot be compressed grows.
const MAX_FRAME_BYTES: usize = MAX_MESSAGE_BYTES + 1024;

/// No byte of Snappy stands for more bytes: a copy of three makes 64 at most. What claims more is refused before it gets memory.
const MAX_SNAPPY_RATIO: usize = 22;

/// Most bytes of a handshake message.
const MAX_HANDSHAKE_BYTES: usize = 2048;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The stream broke or ended.
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// A frame was changed on its way.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A message is larger than allowed.
    #[error("a message of {bytes} bytes, more than one of its kind may have here")]
    TooLarge {
        /// Its size as it says.
        bytes: usize,
    },
    /// A message can't be read.
    #[error("a message breaks the protocol: {0}")]
    Malformed(&'static str),
    /// A message is not RLP as it must be.
    #[error("a message breaks the protocol: {0}")]
    Rlp(#[from] rlp::Error),
    /// The other side said why it ends the connection.
    #[error("the peer disconnected: {0}")]
    Disconnected(DisconnectReason),
    /// The other side's Hello names another key than the handshake proved.
    #[error("the peer's Hello is of {0:?}")]
    UnexpectedIdentity(NodeId),
    /// The other side's base protocol is older than 5.
    #[error("the peer speaks version {0} of the base protocol, at least 5 is needed")]
    OldVersion(u64),
    /// No protocol is spoken by both.
    #[error("the peer {client} speaks {theirs}, no protocol of ours")]
    NothingShared {
        /// Its name.
        client: String,
        /// Its protocols.
        theirs: String,
    },
}

impl SessionError {
    /// The reason that is sent to the other side, if one is sent.
    pub fn reason(&self) -> DisconnectReason {
        match self {
            Self::Io(_) => DisconnectReason::TcpError,
            Self::Handshake(_) | Self::Frame(_) | Self::Disconnected(_) => {
                DisconnectReason::Requested
            }
            Self::TooLarge { .. } | Self::Malformed(_) | Self::Rlp(_) => {
                DisconnectReason::ProtocolBreach
            }
            Self::UnexpectedIdentity(_) => DisconnectReason::UnexpectedIdentity,
            Self::OldVersion(_) => DisconnectReason::IncompatibleVersion,
            Self::NothingShared { .. } => DisconnectReason::UselessPeer,
        }
    }
}

/// A message of any protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number on this connection.
    pub id: u8,
    /// Its RLP, not compressed.
    pub data: Vec<u8>,
}

/// A connection whose other side has proved its key.
#[derive(Debug)]
pub struct Connection<R, W> {
    /// The other side.
    pub peer: NodeId,
    /// What comes from it.
    pub reader: MessageReader<R>,
    /// What goes to it.
    pub writer: MessageWriter<W>,
}

/// A connection after both Hellos.
#[derive(Debug)]
pub struct Session<R, W> {
    /// The other side's Hello.
    pub hello: Hello,
    /// What both speak; never empty.
    pub protocols: Vec<SharedProtocol>,
    /// What comes from it.
    pub reader: MessageReader<R>,
    /// What goes to it.
    pub writer: MessageWriter<W>,
}

/// Opens a connection to `peer`.
///
/// # Errors
/// [`SessionError::Io`] and [`SessionError::Handshake`].
pub async fn initiate<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut reader: R,
    mut writer: W,
    key: &NodeKey,
    peer: NodeId,
) -> Result<Connection<R, W>, SessionError> {
    let secrets = Secrets::random();
    let auth = handshake::write_auth(key, &secrets, &peer)?;
    writer.write_all(&auth).await?;
    writer.flush().await?;
    let mut message = vec![0; 2];
    reader.read_exact(&mut message).await?;
    read_rest(&mut reader, &mut message).await?;
    let ack = handshake::read_ack(key, &message)?;
    let keys = handshake::initiator_keys(&secrets, &auth, &ack, &message)?;
    Ok(Connection::new(peer, keys, reader, writer))
}

/// Answers a connection that the other side opened.
///
/// # Errors
/// [`SessionError::Io`] and [`SessionError::Handshake`].
pub async fn respond<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut reader: R,
    mut writer: W,
    key: &NodeKey,
) -> Result<Connection<R, W>, SessionError> {
    let mut message = vec![0; handshake::OLD_AUTH_BYTES];
    reader.read_exact(&mut message).await?;
    let mut auth = handshake::read_auth(key, &message);
    if auth.is_err() {
        read_rest(&mut reader, &mut message).await?;
        auth = handshake::read_auth(key, &message);
    }
    let (auth, secrets) = (auth?, Secrets::random());
    let ack = handshake::write_ack(&secrets, &auth)?;
    writer.write_all(&ack).await?;
    writer.flush().await?;
    let keys = handshake::recipient_keys(&secrets, &auth, &message, &ack)?;
    Ok(Connection::new(auth.initiator, keys, reader, writer))
}

/// Reads a handshake message, of which the beginning has been read, to the end that its first two bytes give.
async fn read_rest<R: AsyncRead + Unpin>(
    reader: &mut R,
    message: &mut Vec<u8>,
) -> Result<(), SessionError> {
    let size = message.first_chunk::<2>().ok_or(HandshakeError)?;
    let (start, bytes) = (message.len(), handshake::message_bytes(*size));
    if bytes <= start || bytes > MAX_HANDSHAKE_BYTES {
        return Err(HandshakeError.into());
    }
    message.resize(bytes, 0);
    reader.read_exact(&mut message[start..]).await?;
    Ok(())
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Connection<R, W> {
    /// A connection with these keys, before the Hellos.
    pub(crate) fn new(peer: NodeId, keys: FrameKeys, reader: R, writer: W) -> Self {
        let (encoder, decoder) = keys.split();
        Self {
            peer,
            reader: MessageReader {
                stream: reader,
                frames: decoder,
                is_compressed: false,
                traffic: None,
            },
            writer: MessageWriter {
                stream: writer,
                frames: encoder,
                compressor: None,
                compressed: Vec::new(),
                out: Vec::new(),
                traffic: None,
            },
        }
    }

    /// Counts the messages of this connection from now on.
    pub(crate) fn count(&mut self, stats: &Arc<Stats>) {
        self.reader.traffic = Some(Traffic::new(Arc::clone(stats)));
        self.writer.traffic = Some(Traffic::new(Arc::clone(stats)));
    }

    /// Sends our Hello and reads the other one. An error after the other's Hello is sent to it as the reason of a disconnect.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn greet(
        mut self,
        ours: &Hello,
        protocols: &[Protocol],
    ) -> Result<Session<R, W>, SessionError> {
        self.writer.send(hello::HELLO, &ours.encode()).await?;
        let first = self.reader.next_early().await?;
        let hello = match first.id {
            hello::HELLO => Hello::decode(&first.data)?,
            hello::DISCONNECT => {
                let reason = DisconnectReason::decode(&first.data);
                return Err(SessionError::Disconnected(reason));
            }
            _ => return Err(SessionError::Malformed("the first one is no Hello")),
        };
        let shared = match shared_with(&hello, self.peer, protocols) {
            Ok(shared) => shared,
            Err(error) => {
                let _ = self.writer.disconnect(error.reason()).await;
                return Err(error);
            }
        };
        self.reader.is_compressed = true;
        self.writer.compress();
        for traffic in [&mut self.reader.traffic, &mut self.writer.traffic] {
            traffic.iter_mut().for_each(|one| one.share(&shared));
        }
        Ok(Session {
            hello,
            protocols: shared,
            reader: self.reader,
            writer: self.writer,
        })
    }
}

fn shared_with(
    theirs: &Hello,
    peer: NodeId,
    ours: &[Protocol],
) -> Result<Vec<SharedProtocol>, SessionError> {
    if theirs.id != peer {
        return Err(SessionError::UnexpectedIdentity(theirs.id));
    }
    if theirs.version < hello::VERSION {
        return Err(SessionError::OldVersion(theirs.version));
    }
    let shared = hello::shared_protocols(ours, &theirs.capabilities);
    if shared.is_empty() {
        let theirs_text = theirs.capabilities.iter().map(ToString::to_string);
        return Err(SessionError::NothingShared {
            client: theirs.client.clone(),
            theirs: theirs_text.collect::<Vec<_>>().join(", "),
        });
    }
    Ok(shared)
}

/// Reads the messages of a connection.
pub struct MessageReader<R> {
    stream: R,
    frames: FrameDecoder,
    is_compressed: bool,
    traffic: Option<Traffic>,
}

impl<R> std::fmt::Debug for MessageReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageReader").finish_non_exhaustive()
    }
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    /// A reader of a stream on which both Hellos have passed.
    pub(crate) fn compressed(stream: R, frames: FrameDecoder) -> Self {
        Self {
            stream,
            frames,
            is_compressed: true,
            traffic: None,
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`SessionError`]; after one nothing more can be read.
    pub async fn next(&mut self) -> Result<Message, SessionError> {
        let size = self.next_size().await?;
        self.frame(size).await?.message()
    }

    /// Waits for the next message before the other side is a peer.
    ///
    /// # Errors
    /// [`SessionError`]: [`SessionError::TooLarge`] above [`MAX_EARLY_BYTES`], before its frame is read or decompressed.
    pub async fn next_early(&mut self) -> Result<Message, SessionError> {
        let bytes = self.next_size().await?;
        if bytes > MAX_EARLY_BYTES {
            return Err(SessionError::TooLarge { bytes });
        }
        let frame = self.frame(bytes).await?;
        match frame.message_bytes() {
            0..=MAX_EARLY_BYTES => frame.message(),
            bytes => Err(SessionError::TooLarge { bytes }),
        }
    }

    /// Waits for the head of the next message: the bytes of its frame, for which the caller may want room before it calls [`frame`](Self::frame).
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn next_size(&mut self) -> Result<usize, SessionError> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).await?;
        let bytes = self.frames.header(&header)?;
        match bytes {
            0 => Err(SessionError::Malformed("an empty frame")),
            1..=MAX_FRAME_BYTES => Ok(bytes),
            _ => Err(SessionError::TooLarge { bytes }),
        }
    }

    /// Reads the frame of which [`next_size`](Self::next_size) gave the size.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn frame(&mut self, size: usize) -> Result<Frame, SessionError> {
        let mut body = vec![0; FrameDecoder::body_bytes(size)];
        self.stream.read_exact(&mut body).await?;
        self.frames.body(size, &mut body)?;
        let &first = body
            .first()
            .ok_or(SessionError::Malformed("an empty frame"))?;
        let id = match first {
            0x80 => 0,
            1..=0x7f => first,
            _ => return Err(SessionError::Malformed("a message number above 127")),
        };
        let data = body.get(1..).unwrap_or_default();
        let bytes = match self.is_compressed {
            true => match decompressed_bytes(data) {
                Some(bytes) => bytes,
                None if id == hello::DISCONNECT => data.len(),
                None => return Err(NOT_SNAPPY),
            },
            false => data.len(),
        };
        if bytes > MAX_MESSAGE_BYTES {
            return Err(SessionError::TooLarge { bytes });
        }
        if let Some(traffic) = &self.traffic {
            traffic.count(Direction::Inbound, id, bytes);
        }
        Ok(Frame {
            id,
            body,
            is_compressed: self.is_compressed,
            bytes,
        })
    }
}

/// A frame that was read: a message, in most cases compressed.
#[derive(Debug)]
pub struct Frame {
    id: u8,
    /// From its second byte on the message.
    body: Vec<u8>,
    is_compressed: bool,
    bytes: usize,
}

impl Frame {
    /// The message's number on the connection.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Bytes of the message, as the frame says.
    pub fn message_bytes(&self) -> usize {
        self.bytes
    }

    /// The message.
    ///
    /// # Errors
    /// [`SessionError::Malformed`].
    pub fn message(self) -> Result<Message, SessionError> {
        let data = self.body.get(1..).unwrap_or_default();
        let data = match self.is_compressed {
            true => decompress(self.id, data)?,
            false => data.to_vec(),
        };
        Ok(Message { id: self.id, data })
    }
}

const NOT_SNAPPY: SessionError = SessionError::Malformed("not compressed by Snappy");

/// The length that compressed data claims; `None` if it is no Snappy, or no such data can make so much.
fn decompressed_bytes(data: &[u8]) -> Option<usize> {
    let bytes = snap::raw::decompress_len(data).ok()?;
    (bytes / MAX_SNAPPY_RATIO <= data.len()).then_some(bytes)
}

/// The content of a message.
pub(crate) fn decompress(id: u8, data: &[u8]) -> Result<Vec<u8>, SessionError> {
    let is_possible = decompressed_bytes(data).is_some();
    let content = is_possible.then(|| snap::raw::Decoder::new().decompress_vec(data));
    match content {
        Some(Ok(content)) => Ok(content),
        // Some clients compress everything but this.
        _ if id == hello::DISCONNECT => Ok(data.to_vec()),
        _ => Err(NOT_SNAPPY),
    }
}

/// Writes the messages of a connection.
pub struct MessageWriter<W> {
    stream: W,
    frames: FrameEncoder,
    compressor: Option<snap::raw::Encoder>,
    compressed: Vec<u8>,
    out: Vec<u8>,
    traffic: Option<Traffic>,
}

impl<W> std::fmt::Debug for MessageWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageWriter").finish_non_exhaustive()
    }
}

/// What a writer keeps of its buffers between two messages.
const KEPT_BYTES: usize = 64 << 10;

impl<W: AsyncWrite + Unpin> MessageWriter<W> {
    /// From now on messages are compressed: both Hellos have passed.
    pub(crate) fn compress(&mut self) {
        self.compressor = Some(snap::raw::Encoder::new());
    }

    /// Sends a message of at most [`MAX_MESSAGE_BYTES`]. Returns the bytes that went out.
    ///
    /// # Errors
    /// [`SessionError::TooLarge`] before anything is sent, [`SessionError::Io`].
    pub async fn send(&mut self, id: u8, data: &[u8]) -> Result<usize, SessionError> {
        if data.len() > MAX_MESSAGE_BYTES {
            return Err(SessionError::TooLarge { bytes: data.len() });
        }
        if let Some(traffic) = &self.traffic {
            traffic.count(Direction::Outbound, id, data.len());
        }
        let id = [if id == 0 { 0x80 } else { id }];
        let data = match &mut self.compressor {
            Some(compressor) => {
                let max = snap::raw::max_compress_len(data.len());
                self.compressed.resize(max, 0);
                let bytes = compressor.compress(data, &mut self.compressed);
                let bytes = bytes.map_err(|_| SessionError::TooLarge { bytes: data.len() })?;
                &self.compressed[..bytes]
            }
            None => data,
        };
        self.out.clear();
        self.frames.encode(&[&id, data], &mut self.out);
        self.stream.write_all(&self.out).await?;
        self.stream.flush().await?;
        let sent = self.out.len();
        self.out.shrink_to(KEPT_BYTES);
        self.compressed.truncate(KEPT_BYTES);
        self.compressed.shrink_to(KEPT_BYTES);
        Ok(sent)
    }

    /// Says why the connection ends, and closes this direction.
    ///
    /// # Errors
    /// [`SessionError::Io`].
    pub async fn disconnect(&mut self, reason: DisconnectReason) -> Result<(), SessionError> {
        self.send(hello::DISCONNECT, &reason.encode()).await?;
        Ok(self.stream.shutdown().await?)
    }
}

#[cfg(test)]
mod tests;
