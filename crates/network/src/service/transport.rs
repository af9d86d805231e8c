//! How connections are opened and taken: over TCP. A test has a transport of its own, over memory.

use std::io::Result;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A connected byte stream.
#[derive(Debug)]
pub(super) struct Socket<R, W> {
    pub(super) reader: R,
    pub(super) writer: W,
    /// This side of it, if the system tells.
    pub(super) local: Option<SocketAddr>,
    /// The other side.
    pub(super) remote: SocketAddr,
}

/// The socket of a transport.
pub(super) type SocketOf<T> = Socket<<T as Transport>::Reader, <T as Transport>::Writer>;

/// Opens and takes connections.
pub(super) trait Transport: Send + Sync + 'static {
    type Reader: AsyncRead + Unpin + Send + 'static;
    type Writer: AsyncWrite + Unpin + Send + 'static;

    /// Where it takes connections.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Opens a connection to the first of these addresses that answers. It may wait for ever.
    fn connect(
        &self,
        addresses: &[SocketAddr],
    ) -> impl Future<Output = Result<SocketOf<Self>>> + Send;

    /// The next connection that another side opened. Loses none if it is dropped while it waits.
    fn accept(&self) -> impl Future<Output = Result<SocketOf<Self>>> + Send;
}

/// TCP. There are two listeners at most: one of each family of addresses.
#[derive(Debug)]
pub(super) struct Tcp {
    pub(super) listeners: Vec<TcpListener>,
}

impl Transport for Tcp {
    type Reader = OwnedReadHalf;
    type Writer = OwnedWriteHalf;

    fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.listeners.iter().map(TcpListener::local_addr);
        addresses.filter_map(Result::ok).collect()
    }

    async fn connect(&self, addresses: &[SocketAddr]) -> Result<SocketOf<Self>> {
        let stream = TcpStream::connect(addresses).await?;
        let remote = stream.peer_addr()?;
        socket(stream, remote)
    }

    async fn accept(&self) -> Result<SocketOf<Self>> {
        let accept = async |index: usize| match self.listeners.get(index) {
            Some(listener) => listener.accept().await,
            None => std::future::pending().await,
        };
        let (stream, remote) = tokio::select! {
            accepted = accept(0) => accepted,
            accepted = accept(1) => accepted,
        }?;
        socket(stream, remote)
    }
}

fn socket(stream: TcpStream, remote: SocketAddr) -> Result<SocketOf<Tcp>> {
    stream.set_nodelay(true)?;
    let local = stream.local_addr().ok();
    let (reader, writer) = stream.into_split();
    Ok(Socket {
        reader,
        writer,
        local,
        remote,
    })
}
