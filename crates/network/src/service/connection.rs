//! One connection, from TCP to its end.

use super::Shared;
use super::actor::Input;
use super::transport::{Socket, Transport};
use crate::address::is_public;
use crate::key::NodeId;
use crate::peer::{self, PeerChannels, PeerError};
use crate::peers::{Candidate, ConnId, End, Event, Offers, Refusal};
use crate::rlpx::{self, Capability, Connection, DisconnectReason, Hello, Session, SessionError};
use crate::stats::{Initiator, Stats};
use crate::wire::StatusError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::debug;

/// How long a TCP connection may take, with the resolution of a name.
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the handshake and the Hellos may take together.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a connection needs.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) conn: ConnId,
    pub(super) shared: Arc<Shared>,
    pub(super) actor: mpsc::Sender<Input>,
    pub(super) channels: PeerChannels,
}

/// Dials a node, and runs the connection to its end. A node with a name is at the addresses that its name has now.
pub(super) async fn dial(
    context: Context,
    transport: Arc<impl Transport>,
    candidate: Candidate,
    name: Option<String>,
) {
    let socket = timeout(DIAL_TIMEOUT, async {
        let Some(name) = &name else {
            return transport.connect(&[candidate.address]).await;
        };
        let net_restrict = &context.shared.net_restrict;
        let is_allowed = |address: &SocketAddr| net_restrict.allows(address.ip());
        let host = (name.as_str(), candidate.address.port());
        let addresses: Vec<_> = match tokio::net::lookup_host(host).await {
            Ok(addresses) => addresses.filter(is_allowed).collect(),
            Err(error) => {
                debug!(name, node = ?candidate.id, %error, "Can't resolve the name of a node");
                return Err(error);
            }
        };
        transport.connect(&addresses).await
    });
    let socket = match socket.await {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => {
            debug!(node = ?candidate.id, address = %candidate.address, %error, "Can't connect");
            return context.close(End::Unreached).await;
        }
        Err(_) => return context.close(End::Unreached).await,
    };
    if name.is_some() {
        let (conn, address) = (context.conn, socket.remote);
        let resolved = Event::Resolved { conn, address };
        let _ = context.actor.send(Input::Roster(resolved)).await;
    }
    let end = run(&context, socket, Some(candidate.id)).await;
    context.close(end).await;
}

/// Runs a connection that came in to its end.
pub(super) async fn answer<R, W>(context: Context, socket: Socket<R, W>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let end = run(&context, socket, None).await;
    context.close(end).await;
}

impl Context {
    async fn close(&self, end: End) {
        let _ = self.actor.send(Input::Closed(self.conn, end)).await;
    }
}

/// Runs a connection to its end. `dialled` is the node that was dialled; `None` if the other side connected.
async fn run<R, W>(context: &Context, socket: Socket<R, W>, dialled: Option<NodeId>) -> End
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (remote, local) = (socket.remote, socket.local);
    let greeted = timeout(HANDSHAKE_TIMEOUT, greet(&context.shared, socket, dialled)).await;
    let (node, mut session) = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(error)) => {
            debug!(address = %remote, %error, "Handshake failed");
            let error = error.into();
            if !is_broken(&error) {
                count(&context.shared.stats, &error);
            }
            return end_of(&error);
        }
        Err(_) => return End::Failed,
    };
    if let Err(refusal) = verdict(context, node, &session.hello).await {
        let goodbye = session.writer.disconnect(refusal.reason());
        let _ = timeout(HANDSHAKE_TIMEOUT, goodbye).await;
        let stats = &context.shared.stats;
        stats.count_end(Initiator::Local, refusal.reason());
        return End::Ours(refusal.reason());
    }
    let origin = peer::Origin {
        conn: context.conn,
        node,
        remote,
        local,
        is_inbound: dialled.is_none(),
    };
    let on_event = |event| {
        let input = match event {
            peer::PeerEvent::Up(peer) => Input::Up(context.conn, peer),
            peer::PeerEvent::Range => Input::Range,
        };
        context.actor.send(input)
    };
    let error = peer::run(session, origin, &context.channels, on_event).await;
    debug!(?node, %error, "Peer gone");
    count(&context.shared.stats, &error);
    end_of(&error)
}

async fn greet<R, W>(
    shared: &Shared,
    socket: Socket<R, W>,
    dialled: Option<NodeId>,
) -> Result<(NodeId, Session<R, W>), SessionError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (reader, writer) = (socket.reader, socket.writer);
    let mut connection: Connection<_, _> = match dialled {
        Some(node) => rlpx::initiate(reader, writer, &shared.key, node).await?,
        None => rlpx::respond(reader, writer, &shared.key).await?,
    };
    connection.count(&shared.stats);
    let node = connection.peer;
    let session = connection.greet(&shared.hello, &shared.protocols).await?;
    if dialled.is_none() && is_public(socket.remote.ip()) {
        // It stands alone: no order with anything else is needed.
        shared.is_reached.store(true, Ordering::Relaxed);
    }
    Ok((node, session))
}

/// Asks the roster whether the session may become a peer.
async fn verdict(context: &Context, id: NodeId, hello: &Hello) -> Result<(), Refusal> {
    let (sender, verdict) = oneshot::channel();
    let greeted = Input::Greeted {
        conn: context.conn,
        id,
        offers: offers(&hello.capabilities),
        port: hello.port,
        verdict: sender,
    };
    let _ = context.actor.send(greeted).await;
    verdict.await.unwrap_or(Err(Refusal::Unknown))
}

fn offers(capabilities: &[Capability]) -> Offers {
    let has = |name: &str, version| {
        let mut all = capabilities.iter();
        all.any(|c| c.name == name && c.version >= version)
    };
    Offers {
        snap: has("snap", 1),
        cells: has("eth", 72),
        history: false,
    }
}

/// Counts the end of a connection that had a reason.
fn count(stats: &Stats, error: &PeerError) {
    let initiator = match error.is_by_peer() {
        true => Initiator::Remote,
        false => Initiator::Local,
    };
    stats.count_end(initiator, error.reason());
}

/// Whether a connection broke before it could be said why.
fn is_broken(error: &PeerError) -> bool {
    matches!(
        error,
        PeerError::Session(
            SessionError::Io(_) | SessionError::Handshake(_) | SessionError::Frame(_)
        )
    )
}

fn end_of(error: &PeerError) -> End {
    match error {
        PeerError::Session(SessionError::Disconnected(reason)) => End::Theirs(*reason),
        PeerError::Session(SessionError::NothingShared { .. }) => {
            End::Ours(DisconnectReason::UselessPeer)
        }
        error if is_broken(error) => End::Failed,
        PeerError::Status(
            StatusError::Network { .. } | StatusError::Genesis { .. } | StatusError::ForkId(_),
        ) => End::OtherChain,
        error => End::Ours(error.reason()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::NodeKey;
    use crate::rlpx::Protocol;
    use crate::subnet::NetRestrict;
    use niwaki_primitives::B256;
    use std::sync::atomic::AtomicBool;

    fn shared(number: u8) -> Shared {
        let key = NodeKey::new(B256::repeat_byte(number)).unwrap();
        let protocols = vec![Protocol::new("eth", 69, 18)];
        Shared {
            hello: Hello {
                version: crate::rlpx::hello::VERSION,
                client: "test".into(),
                capabilities: vec![protocols[0].capability.clone()],
                port: 0,
                id: key.id(),
            },
            stats: Arc::new(Stats::new(&protocols)),
            protocols,
            key,
            net_restrict: NetRestrict::default(),
            is_reached: AtomicBool::new(false),
        }
    }

    /// Whether a node counts as reached after another one has connected from this address, and said Hello or left at once.
    async fn is_reached(from: &str, says_hello: bool) -> bool {
        let (one, two) = (shared(1), shared(2));
        let (there, here) = tokio::io::duplex(1 << 10);
        let socket = |stream, remote: &str| {
            let (reader, writer) = tokio::io::split(stream);
            Socket {
                reader,
                writer,
                local: None,
                remote: remote.parse().unwrap(),
            }
        };
        let dial = async {
            match says_hello {
                true => {
                    let socket = socket(there, "203.0.113.7:1");
                    greet(&two, socket, Some(one.key.id())).await.is_ok()
                }
                false => {
                    drop(there);
                    false
                }
            }
        };
        let (greeted, dialled) = tokio::join!(greet(&one, socket(here, from), None), dial);
        assert_eq!((greeted.is_ok(), dialled), (says_hello, says_hello));
        assert!(!two.is_reached.load(Ordering::Relaxed), "it dialled");
        one.is_reached.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_node_is_reached_once_another_one_from_outside_has_said_hello() {
        assert!(is_reached("203.0.113.8:1", true).await);
        assert!(!is_reached("203.0.113.8:1", false).await);
        assert!(!is_reached("192.168.1.1:1", true).await);
    }
}
