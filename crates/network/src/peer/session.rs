//! The two tasks of a connected peer: one reads, one writes.
//!
//! ```text
//! run: Status both ways -> Up -> [ reader | writer | pings ] until one of them ends -> Down
//! ```
//!
//! The reader takes one message at a time. A request takes one of a few places before it is handed out, and waits for a free one: a peer
//! that asks faster than it is answered is read no further, and TCP carries that back to it.

use super::budget::{PeerBudget, Room};
use super::meter::{Metered, Meters};
use super::numbers::Numbers;
use super::outbox::{Next, Outbox};
use super::pending::{PeerAnswer, Pending};
use super::subprotocol::Link;
use super::{
    GossipContent, GossipEvent, InboundRequest, Origin, Peer, PeerChannels, PeerEvent, PeerInfo,
};
use crate::rlpx::hello as base;
use crate::rlpx::{
    DisconnectReason, MAX_EARLY_BYTES, MAX_MESSAGE_BYTES, Message, MessageReader, MessageWriter,
    Session, SessionError,
};
use crate::stats::GossipMessage;
use crate::wire::limits::{MAX_SMALL_BYTES, MAX_TRANSACTIONS_BYTES};
use crate::wire::{
    Announcement, Answer, BlockRange, EthVersion, Request, RequestKind, Status, StatusError,
    decode_transactions, footprint, highest_of_hashes, new_block_header, no_node_data, number,
};
use niwaki_primitives::rlp;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// How long the peer may take for its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// After so long without a message the peer is pinged.
const PING_AFTER: Duration = Duration::from_secs(15);
/// After so long without a message the peer is cut.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long writing one message may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the last message may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Requests of one peer that are not answered yet.
const OPEN_REQUESTS: usize = 4;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The connection itself.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The status does not fit.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// A message breaks the protocol.
    #[error("message {number:#04x} breaks the protocol: {reason}")]
    Breach {
        /// The message's number: of eth from the protocol's first, of another protocol from the connection's.
        number: u8,
        /// What is wrong.
        reason: String,
    },
    /// Nothing came for too long.
    #[error("nothing came for {} s", READ_TIMEOUT.as_secs())]
    Silent,
    /// A message could not be written in time.
    #[error("the peer does not read")]
    DoesNotRead,
    /// This node ended it.
    #[error("ended by this node: {0}")]
    Closed(DisconnectReason),
}

impl PeerError {
    /// The reason that is sent or counted.
    pub fn reason(&self) -> DisconnectReason {
        match self {
            Self::Session(SessionError::Disconnected(reason)) | Self::Closed(reason) => *reason,
            Self::Session(error) => error.reason(),
            Self::Status(StatusError::Rlp(_) | StatusError::Range(_)) | Self::Breach { .. } => {
                DisconnectReason::ProtocolBreach
            }
            Self::Status(_) => DisconnectReason::UselessPeer,
            Self::Silent => DisconnectReason::PingTimeout,
            Self::DoesNotRead => DisconnectReason::TcpError,
        }
    }

    /// Whether the peer ended the connection.
    pub(crate) fn is_by_peer(&self) -> bool {
        let session = matches!(self, Self::Session(SessionError::Disconnected(_)));
        session || matches!(self, Self::Session(SessionError::Io(_)))
    }
}

/// Runs a connection until it ends, and returns why. Reader and writer run in the calling task, which waits for what `on_event` returns.
pub(crate) async fn run<R, W, F>(
    session: Session<R, W>,
    origin: Origin,
    channels: &PeerChannels,
    on_event: impl Fn(PeerEvent) -> F,
) -> PeerError
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    F: Future,
{
    let numbers = Numbers::of(&session.protocols);
    let mut link = Link::new(origin.conn, &session.protocols, channels);
    let Session {
        hello,
        mut reader,
        mut writer,
        ..
    } = session;
    let Some(numbers) = numbers else {
        let error = PeerError::Closed(DisconnectReason::UselessPeer);
        close(&mut writer, &error).await;
        return error;
    };
    let budget = channels.budget.of_peer();
    let greeted = channels.stats.count_greeted();
    let early = Early {
        link: &mut link,
        budget: &budget,
    };
    let exchanged = exchange_status(&mut reader, &mut writer, numbers, channels, early).await;
    drop(greeted);
    let status = match exchanged {
        Ok(status) => status,
        Err(error) => {
            close(&mut writer, &error).await;
            return error;
        }
    };
    let info = PeerInfo {
        origin,
        client: hello.client,
        capabilities: hello.capabilities,
        version: numbers.eth,
        snap: numbers.snap(),
        subprotocols: link.protocols().to_vec(),
        status,
        since: Instant::now().into_std(),
    };
    let peer = Arc::new(Peer {
        range: Mutex::new(info.status.range),
        info,
        numbers,
        outbox: Arc::new(Outbox::default()),
        pending: Mutex::new(Pending::default()),
    });
    channels.stats.count_connected();
    on_event(PeerEvent::Up(Arc::clone(&peer))).await;
    let reading = async {
        link.up(&peer).await;
        let inbound = Inbound {
            peer: &peer,
            channels,
            link: &link,
            budget: &budget,
        };
        read(&mut reader, &inbound, &on_event).await
    };
    let error = tokio::select! {
        error = reading => error,
        error = write(&mut writer, &peer.outbox) => error,
    };
    peer.pending().fail_all();
    close(&mut writer, &error).await;
    error
}

/// Where messages of registered protocols wait for the peer's status.
struct Early<'s> {
    link: &'s mut Link,
    budget: &'s PeerBudget,
}

impl Early<'_> {
    /// The next message, and room for it. If none but small ones can come, they need no room.
    async fn next<R: AsyncRead + Unpin>(
        &self,
        reader: &mut MessageReader<R>,
    ) -> Result<(Message, Room), PeerError> {
        if self.link.is_empty() {
            return Ok((reader.next_early().await?, Room::default()));
        }
        let size = reader.next_size().await?;
        let most = |id| match self.link.has(id) {
            true => MAX_MESSAGE_BYTES,
            false => MAX_EARLY_BYTES,
        };
        read_message(reader, size, self.budget, most).await
    }
}

/// Sends the peer the reason, unless it ended the connection itself.
async fn close<W: AsyncWrite + Unpin>(writer: &mut MessageWriter<W>, error: &PeerError) {
    if !error.is_by_peer() {
        let _ = timeout(CLOSE_TIMEOUT, writer.disconnect(error.reason())).await;
    }
}

async fn exchange_status<R, W>(
    reader: &mut MessageReader<R>,
    writer: &mut MessageWriter<W>,
    numbers: Numbers,
    channels: &PeerChannels,
    early: Early<'_>,
) -> Result<Status, PeerError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let chain = channels.chain.borrow().clone();
    let ours = chain.status(numbers.eth);
    let exchange = async {
        writer
            .send(numbers.of_eth(number::STATUS), &ours.encode())
            .await?;
        loop {
            let (message, room) = early.next(reader).await?;
            match message.id {
                base::DISCONNECT => return Err(disconnected(&message)),
                base::PING => {
                    writer.send(base::PONG, &[0xc0]).await?;
                }
                base::PONG => (),
                id if numbers.in_eth(id) == Some(number::STATUS) => {
                    let accepts = |fork_id| chain.forks.validate(fork_id).is_ok();
                    return Ok(ours.check(&message.data, accepts)?);
                }
                id if early.link.has(id) => early.link.keep(id, message.data, room),
                id => {
                    return Err(breach(
                        numbers.in_eth(id).unwrap_or(id),
                        "comes before the status",
                    ));
                }
            }
        }
    };
    let exchanged = timeout(STATUS_TIMEOUT, exchange).await;
    exchanged.unwrap_or(Err(PeerError::Silent))
}

fn disconnected(message: &Message) -> PeerError {
    SessionError::Disconnected(DisconnectReason::decode(&message.data)).into()
}

fn breach(number: u8, reason: impl ToString) -> PeerError {
    PeerError::Breach {
        number,
        reason: reason.to_string(),
    }
}

async fn write<W: AsyncWrite + Unpin>(writer: &mut MessageWriter<W>, outbox: &Outbox) -> PeerError {
    loop {
        let next = outbox.next().await;
        let sent = match &next {
            Next::Send(message) => {
                timeout(WRITE_TIMEOUT, writer.send(message.number, &message.data)).await
            }
            Next::SendSubprotocol(id, data) => timeout(WRITE_TIMEOUT, writer.send(*id, data)).await,
            Next::Ping => timeout(WRITE_TIMEOUT, writer.send(base::PING, &[0xc0])).await,
            Next::Pong => timeout(WRITE_TIMEOUT, writer.send(base::PONG, &[0xc0])).await,
            Next::Close(reason) => return PeerError::Closed(*reason),
        };
        match sent {
            Ok(Ok(_)) => (),
            Ok(Err(error)) => return error.into(),
            Err(_) => return PeerError::DoesNotRead,
        }
    }
}

/// What messages of a peer are read with.
#[derive(Clone, Copy)]
struct Inbound<'s> {
    peer: &'s Arc<Peer>,
    channels: &'s PeerChannels,
    link: &'s Link,
    budget: &'s PeerBudget,
}

impl Inbound<'_> {
    /// Most bytes of the message with this number on the connection. Only what was asked for is large, and blocks before the Merge.
    fn most_bytes(&self, id: u8) -> usize {
        if self.link.has(id) {
            return MAX_MESSAGE_BYTES;
        }
        let asked = self.peer.numbers.answer(id);
        match self.peer.numbers.in_eth(id) {
            _ if asked.is_some_and(|kind| self.peer.pending().has_asked(kind)) => MAX_MESSAGE_BYTES,
            Some(number::NEW_BLOCK) if !self.channels.chain.borrow().is_merged => MAX_MESSAGE_BYTES,
            Some(number::TRANSACTIONS) => MAX_TRANSACTIONS_BYTES,
            _ => MAX_SMALL_BYTES,
        }
    }
}

async fn read<R: AsyncRead + Unpin, F: Future>(
    reader: &mut MessageReader<R>,
    inbound: &Inbound<'_>,
    on_event: &impl Fn(PeerEvent) -> F,
) -> PeerError {
    let places = Arc::new(Semaphore::new(OPEN_REQUESTS));
    let has_validators = inbound.channels.chain.borrow().validators.is_some();
    let (mut meters, start) = (Meters::new(has_validators), Instant::now());
    loop {
        let (message, room) = match next_message(reader, inbound).await {
            Ok(message) => message,
            Err(error) => return error,
        };
        let read = Read {
            message,
            room,
            places: Arc::clone(&places),
            budget: inbound.budget,
        };
        let metered = match handle(read, inbound).await {
            Ok(Handled::Event(event)) => {
                on_event(event).await;
                Metered::Request
            }
            Ok(Handled::Metered(metered)) => metered,
            Ok(Handled::Unmetered) => continue,
            Err(error) => return error,
        };
        let now_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        let pause_ms = meters.count(metered, now_ms);
        if pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }
}

/// What follows from a message.
enum Handled {
    Event(PeerEvent),
    Metered(Metered),
    Unmetered,
}

/// A message that was read.
struct Read<'r> {
    message: Message,
    room: Room,
    budget: &'r PeerBudget,
    /// Of requests that are not answered yet.
    places: Arc<Semaphore>,
}

/// Waits for a message, and for room for it. A silent peer is pinged, then cut.
async fn next_message<R: AsyncRead + Unpin>(
    reader: &mut MessageReader<R>,
    inbound: &Inbound<'_>,
) -> Result<(Message, Room), PeerError> {
    let size = next_size(reader, &inbound.peer.outbox).await?;
    read_message(reader, size, inbound.budget, |id| inbound.most_bytes(id)).await
}

/// Reads a message whose head has come, when there is room for it. One of more bytes than `most` says is not decompressed.
async fn read_message<R: AsyncRead + Unpin>(
    reader: &mut MessageReader<R>,
    size: usize,
    budget: &PeerBudget,
    most: impl Fn(u8) -> usize,
) -> Result<(Message, Room), PeerError> {
    let frame_room = budget.frame(size).await;
    let frame = timeout(READ_TIMEOUT, reader.frame(size)).await;
    let frame = frame.map_err(|_| PeerError::Silent)??;
    let bytes = frame.message_bytes();
    if bytes > most(frame.id()) {
        return Err(SessionError::TooLarge { bytes }.into());
    }
    let room = budget.message(bytes).await;
    let message = frame.message()?;
    drop(frame_room);
    Ok((message, room))
}

/// Waits for the head of a message.
async fn next_size<R: AsyncRead + Unpin>(
    reader: &mut MessageReader<R>,
    outbox: &Outbox,
) -> Result<usize, PeerError> {
    let next = reader.next_size();
    tokio::pin!(next);
    if let Ok(size) = timeout(PING_AFTER, &mut next).await {
        return Ok(size?);
    }
    outbox.ping();
    match timeout(READ_TIMEOUT - PING_AFTER, next).await {
        Ok(size) => Ok(size?),
        Err(_) => Err(PeerError::Silent),
    }
}

async fn handle(read: Read<'_>, inbound: &Inbound<'_>) -> Result<Handled, PeerError> {
    let Inbound {
        peer,
        channels,
        link,
        ..
    } = *inbound;
    match read.message.id {
        base::PING => {
            peer.outbox.pong();
            return Ok(Handled::Metered(Metered::Ping));
        }
        base::PONG => (),
        base::DISCONNECT => return Err(disconnected(&read.message)),
        id if link.has(id) => link.hand_out(id, read.message.data, read.room).await,
        id => {
            let handled = handle_own(read, peer, channels).await;
            let number = peer.numbers.in_eth(id).unwrap_or(id);
            return handled.map_err(|reason| breach(number, reason));
        }
    }
    Ok(Handled::Unmetered)
}

/// A message of `eth` or `snap`.
async fn handle_own(
    read: Read<'_>,
    peer: &Arc<Peer>,
    channels: &PeerChannels,
) -> Result<Handled, rlp::Error> {
    let (id, numbers, version) = (read.message.id, &peer.numbers, peer.info.version);
    let data = read.message.data.as_slice();
    if let Some(kind) = numbers.request(id) {
        let (request_id, request) = Request::decode(kind, data, version)?;
        let permit = read.places.acquire_owned().await;
        let is_snap = matches!(request, Request::Snap(_));
        let inbound = InboundRequest {
            peer: peer.info.origin.conn,
            version,
            request,
            id: request_id,
            answer_number: id + 1,
            outbox: Arc::clone(&peer.outbox),
            permit: permit.expect("the places are never closed"),
            _room: read.room,
            _serving: is_snap.then(|| channels.stats.begin_serving_snap()),
        };
        let _ = channels.requests.send(inbound).await;
        return Ok(Handled::Metered(Metered::Request));
    }
    if let Some(kind) = numbers.answer(id) {
        let (request_id, answer) = read_answer(kind, data, version, read.budget).await?;
        let completed = peer.pending().complete(kind, request_id, answer);
        completed.map_err(|_| rlp::Error::Custom("not what was asked for"))?;
        return Ok(Handled::Unmetered);
    }
    match numbers.in_eth(id) {
        Some(number) => handle_eth(number, read, peer, channels).await,
        None => Err(NO_SUCH_MESSAGE),
    }
}

const NO_SUCH_MESSAGE: rlp::Error = rlp::Error::Custom("no such message here");

/// A message of `eth` that is neither a request nor an answer that this version has.
async fn handle_eth(
    number: u8,
    read: Read<'_>,
    peer: &Arc<Peer>,
    channels: &PeerChannels,
) -> Result<Handled, rlp::Error> {
    let data = read.message.data.as_slice();
    let version = peer.info.version;
    match number {
        number::BLOCK_RANGE_UPDATE => {
            let range = BlockRange::decode(data)?;
            *peer.range.lock().expect("no panic while it is held") = range;
            return Ok(Handled::Event(PeerEvent::Range));
        }
        number::TRANSACTIONS => {
            let content = GossipContent::Transactions(decode_transactions(data)?);
            return Ok(hand_out(channels, peer, content, read.room));
        }
        number::NEW_POOLED_TRANSACTION_HASHES => {
            let content = GossipContent::Announced(Announcement::decode(data, version)?);
            return Ok(hand_out(channels, peer, content, read.room));
        }
        number::GET_NODE_DATA if version == EthVersion::Eth66 => {
            let answer = no_node_data(data)?;
            let permit = read.places.acquire_owned().await;
            let permit = permit.expect("the places are never closed");
            let number = peer.numbers.of_eth(number::NODE_DATA);
            peer.outbox.answer(number, answer, permit);
            return Ok(Handled::Metered(Metered::Request));
        }
        number::NEW_BLOCK | number::NEW_BLOCK_HASHES => {
            let (is_merged, validators) = {
                let chain = channels.chain.borrow();
                (chain.is_merged, chain.validators.clone())
            };
            if is_merged {
                return Err(rlp::Error::Custom("blocks come from the consensus client"));
            }
            let Some(validators) = validators.filter(|_| !version.has_ranges()) else {
                return Ok(Handled::Unmetered);
            };
            let block = match number {
                number::NEW_BLOCK => {
                    let header = new_block_header(data)?;
                    Some((header.number, validators.spec.header_hash(&header)))
                }
                _ => highest_of_hashes(data)?,
            };
            if block.is_some_and(|(number, hash)| peer.note_block(number, hash)) {
                return Ok(Handled::Event(PeerEvent::Range));
            }
        }
        _ => return Err(NO_SUCH_MESSAGE),
    }
    Ok(Handled::Unmetered)
}

/// Reads an answer once there is room for what it takes as a value.
async fn read_answer(
    kind: RequestKind,
    data: &[u8],
    version: EthVersion,
    budget: &PeerBudget,
) -> Result<(u64, PeerAnswer), rlp::Error> {
    let room = budget.answer(footprint(kind, data, version)?).await;
    let room = room.ok_or(rlp::Error::Custom("more items than memory for them"))?;
    let (id, answer) = Answer::decode(kind, data, version)?;
    let bytes = data.len();
    let answer = PeerAnswer {
        answer,
        bytes,
        room,
    };
    Ok((id, answer))
}

/// Hands gossip out; it is dropped while the pool is behind, so that answers are read all the same.
fn hand_out(
    channels: &PeerChannels,
    peer: &Arc<Peer>,
    content: GossipContent,
    room: Room,
) -> Handled {
    let (message, hashes) = match &content {
        GossipContent::Transactions(all) => (GossipMessage::Transactions, all.len()),
        GossipContent::Announced(all) => (GossipMessage::Announcement, all.transactions.len()),
    };
    let event = GossipEvent {
        peer: Arc::clone(peer),
        content,
        room,
    };
    if channels.gossip.try_send(event).is_err() {
        channels.stats.count_dropped_gossip(message);
    }
    Handled::Metered(Metered::Hashes(hashes))
}

#[cfg(test)]
mod tests;
