//! A peer that is no node: a session of the library that says what a scenario wants.

use eyre::{Result, ensure, eyre};
use niwaki_network::rlpx::{Hello, Message, MessageReader, MessageWriter, Protocol, initiate};
use niwaki_network::wire::{EthVersion, SnapVersion};
use niwaki_network::{Node, NodeId, NodeKey};
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

/// Messages of the base protocol.
pub(super) const PING: u8 = 2;
pub(super) const PONG: u8 = 3;
/// Numbers in `eth`.
pub(super) const TRANSACTIONS: u8 = 0x02;
pub(super) const ANNOUNCEMENT: u8 = 0x08;
pub(super) const BLOCK_RANGE: u8 = 0x11;
/// The version that it speaks.
pub(super) const VERSION: EthVersion = EthVersion::Eth69;

/// The node that it is a peer of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    id: NodeId,
    pub(super) address: SocketAddr,
}

impl Target {
    pub(super) fn of(enode: &str) -> Result<Self> {
        let node: Node = enode.parse()?;
        let address = node.tcp_address();
        let address = address.ok_or_else(|| eyre!("{enode} takes no connections"))?;
        let id = node.id;
        Ok(Self { id, address })
    }
}

/// A session on which both Status have passed.
pub(super) struct RawPeer {
    pub(super) reader: MessageReader<OwnedReadHalf>,
    pub(super) writer: MessageWriter<OwnedWriteHalf>,
    /// Where `eth` begins among the message numbers.
    pub(super) offset: u8,
    /// Where `snap` begins, if the node gives its state.
    pub(super) snap_offset: Option<u8>,
}

impl RawPeer {
    /// Becomes a peer with a new key. The node's own Status is right for it, whatever its chain.
    pub(super) async fn join(target: Target) -> Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        let (reader, writer) = stream.into_split();
        let key = NodeKey::random();
        let connection = initiate(reader, writer, &key, target.id).await?;
        let snap = SnapVersion::Snap1;
        let protocols = [
            Protocol::new("eth", VERSION.number(), VERSION.length()),
            Protocol::new("snap", snap.number(), snap.length()),
        ];
        let hello = Hello {
            version: 5,
            client: "devnet".into(),
            capabilities: protocols.iter().map(|p| p.capability.clone()).collect(),
            port: 0,
            id: key.id(),
        };
        let session = connection.greet(&hello, &protocols).await?;
        let (mut reader, mut writer) = (session.reader, session.writer);
        let offset_of = |name: &str| {
            let mut shared = session.protocols.iter();
            let protocol = shared.find(|protocol| protocol.capability.name == name);
            protocol.map(|protocol| protocol.offset)
        };
        let (offset, snap_offset) = (offset_of("eth").unwrap_or(16), offset_of("snap"));
        let status = reader.next().await?;
        ensure!(
            status.id == offset,
            "message {} comes before the status",
            status.id
        );
        writer.send(offset, &status.data).await?;
        Ok(Self {
            reader,
            writer,
            offset,
            snap_offset,
        })
    }
}

/// Reads and forgets, and reports pings until the session ends.
pub(super) async fn read(mut reader: MessageReader<OwnedReadHalf>, pings: mpsc::Sender<()>) {
    while let Ok(Message { id, .. }) = reader.next().await {
        if id == PING && pings.send(()).await.is_err() {
            break;
        }
    }
}
