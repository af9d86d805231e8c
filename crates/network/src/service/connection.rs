//! One connection, from TCP to its end.

use super::Shared;
use super::actor::Input;
use crate::address::is_public;
use crate::key::NodeId;
use crate::peer::{self, PeerChannels, PeerError};
use crate::peers::{Candidate, ConnId, End, Event, Offers, Refusal};
use crate::rlpx::{self, Capability, Connection, DisconnectReason, Session, SessionError};
use crate::stats::{Initiator, Stats};
use crate::wire::StatusError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::debug;

/// How long a TCP connection may take, with the resolution of a name.
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the handshake and the Hellos may take together.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

type Halves = Session<OwnedReadHalf, OwnedWriteHalf>;

/// What a connection needs.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) conn: ConnId,
    pub(super) shared: Arc<Shared>,
    pub(super) actor: mpsc::Sender<Input>,
    pub(super) channels: PeerChannels,
}

/// Where a connection goes.
#[derive(Clone, Copy)]
struct Route {
    address: SocketAddr,
    /// This side of it.
    local: Option<SocketAddr>,
    /// The node that was dialled; `None` if the other side connected.
    dialled: Option<NodeId>,
}

/// Dials a node, and runs the connection to its end. A node with a name is at the addresses that its name has now.
pub(super) async fn dial(context: Context, candidate: Candidate, name: Option<String>) {
    let stream = timeout(DIAL_TIMEOUT, async {
        let Some(name) = &name else {
            return TcpStream::connect(candidate.address).await;
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
        TcpStream::connect(&addresses[..]).await
    });
    let stream = match stream.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            debug!(node = ?candidate.id, address = %candidate.address, %error, "Can't connect");
            return context.close(End::Unreached).await;
        }
        Err(_) => return context.close(End::Unreached).await,
    };
    let mut route = Route {
        address: candidate.address,
        local: stream.local_addr().ok(),
        dialled: Some(candidate.id),
    };
    if name.is_some()
        && let Ok(address) = stream.peer_addr()
    {
        let conn = context.conn;
        let resolved = Event::Resolved { conn, address };
        let _ = context.actor.send(Input::Roster(resolved)).await;
        route.address = address;
    }
    let end = run(&context, stream, route).await;
    context.close(end).await;
}

/// Runs a connection that came in to its end.
pub(super) async fn answer(context: Context, stream: TcpStream, address: SocketAddr) {
    let route = Route {
        address,
        local: stream.local_addr().ok(),
        dialled: None,
    };
    let end = run(&context, stream, route).await;
    context.close(end).await;
}

impl Context {
    async fn close(&self, end: End) {
        let _ = self.actor.send(Input::Closed(self.conn, end)).await;
    }
}

async fn run(context: &Context, stream: TcpStream, route: Route) -> End {
    let greeted = timeout(HANDSHAKE_TIMEOUT, greet(&context.shared, stream, route)).await;
    let (node, mut session) = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(error)) => {
            debug!(address = %route.address, %error, "Handshake failed");
            let error = error.into();
            if !is_broken(&error) {
                count(&context.shared.stats, &error);
            }
            return end_of(&error);
        }
        Err(_) => return End::Failed,
    };
    if let Err(refusal) = verdict(context, node, &session).await {
        let goodbye = session.writer.disconnect(refusal.reason());
        let _ = timeout(HANDSHAKE_TIMEOUT, goodbye).await;
        let stats = &context.shared.stats;
        stats.count_end(Initiator::Local, refusal.reason());
        return End::Ours(refusal.reason());
    }
    let origin = peer::Origin {
        conn: context.conn,
        node,
        remote: route.address,
        local: route.local,
        is_inbound: route.dialled.is_none(),
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

async fn greet(
    shared: &Shared,
    stream: TcpStream,
    route: Route,
) -> Result<(NodeId, Halves), SessionError> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let mut connection: Connection<_, _> = match route.dialled {
        Some(node) => rlpx::initiate(reader, writer, &shared.key, node).await?,
        None => rlpx::respond(reader, writer, &shared.key).await?,
    };
    connection.count(&shared.stats);
    let node = connection.peer;
    let session = connection.greet(&shared.hello, &shared.protocols).await?;
    if route.dialled.is_none() && is_public(route.address.ip()) {
        // It stands alone: no order with anything else is needed.
        shared.is_reached.store(true, Ordering::Relaxed);
    }
    Ok((node, session))
}

/// Asks the roster whether the session may become a peer.
async fn verdict(context: &Context, id: NodeId, session: &Halves) -> Result<(), Refusal> {
    let (sender, verdict) = oneshot::channel();
    let greeted = Input::Greeted {
        conn: context.conn,
        id,
        offers: offers(&session.hello.capabilities),
        port: session.hello.port,
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
    use crate::rlpx::{Hello, Protocol};
    use crate::subnet::NetRestrict;
    use niwaki_primitives::B256;
    use std::sync::atomic::AtomicBool;
    use tokio::net::TcpListener;

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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let route = |address: &str, dialled| Route {
            address: address.parse().unwrap(),
            local: None,
            dialled,
        };
        let dial = async {
            match says_hello {
                true => greet(&two, stream, route("203.0.113.7:1", Some(one.key.id())))
                    .await
                    .is_ok(),
                false => {
                    drop(stream);
                    false
                }
            }
        };
        let (greeted, dialled) = tokio::join!(greet(&one, accepted, route(from, None)), dial);
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
