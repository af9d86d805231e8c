//! A slow link to a node: a proxy on loopback that delivers what comes later, and not faster than at a rate, each way.

use eyre::{Result, eyre};
use niwaki_network::{Host, Node};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Bytes that are delivered together.
const CHUNK_BYTES: usize = 8 << 10;
/// Chunks that may be on the way in each direction: 1 MiB, which fills 100 Mbit/s for 84 ms.
const CHUNKS: usize = 128;

/// How the link is.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkOptions {
    /// Time of a byte to the other side.
    pub(super) delay: Duration,
    /// Bits a second, each way.
    pub(super) bits_per_s: u64,
}

impl LinkOptions {
    /// A link that only counts.
    pub(super) const FAST: Self = Self {
        delay: Duration::ZERO,
        bits_per_s: 1_000_000_000_000,
    };
}

/// One direction, shared by all connections.
#[derive(Debug)]
struct Way {
    options: LinkOptions,
    /// When all that was sent has left.
    free: Mutex<Instant>,
    bytes: AtomicU64,
}

impl Way {
    fn new(options: LinkOptions) -> Arc<Self> {
        Arc::new(Self {
            options,
            free: Mutex::new(Instant::now()),
            bytes: AtomicU64::new(0),
        })
    }

    /// When these bytes are at the other side, if they are sent now.
    fn arrival(&self, bytes: usize) -> Instant {
        let nanoseconds = bytes as u64 * 8 * 1_000_000_000 / self.options.bits_per_s.max(1);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = Instant::now().max(*free) + Duration::from_nanos(nanoseconds);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        *free + self.options.delay
    }

    async fn carry(self: Arc<Self>, mut from: OwnedReadHalf, to: OwnedWriteHalf) {
        let (sender, chunks) = mpsc::channel(CHUNKS);
        tokio::spawn(deliver(chunks, to));
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let chunk = (self.arrival(count), buffer[..count].to_vec());
            if sender.send(chunk).await.is_err() {
                break;
            }
        }
    }
}

async fn deliver(mut chunks: mpsc::Receiver<(Instant, Vec<u8>)>, mut to: OwnedWriteHalf) {
    while let Some((arrival, chunk)) = chunks.recv().await {
        sleep_until(arrival).await;
        if to.write_all(&chunk).await.is_err() {
            break;
        }
    }
}

/// When, and how many bytes the node had sent.
type Sample = (Instant, u64);

/// A link to one node.
#[derive(Debug)]
pub(super) struct Link {
    /// The node as it is reached by the link.
    enode: String,
    from_node: Arc<Way>,
    samples: Arc<Mutex<Vec<Sample>>>,
    /// Carries until it is dropped.
    _runtime: Runtime,
}

impl Link {
    /// A link to the node with this URL.
    pub(super) fn start(enode: &str, options: LinkOptions) -> Result<Self> {
        let mut node: Node = enode.parse()?;
        let address = node.tcp_address();
        let address = address.ok_or_else(|| eyre!("{enode} takes no connections"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let bound = listener.local_addr()?;
        (node.host, node.tcp) = (Host::Ip(bound.ip()), bound.port());
        let (to_node, from_node) = (Way::new(options), Way::new(options));
        let samples = Arc::new(Mutex::new(Vec::new()));
        runtime.spawn(accept(listener, address, to_node, Arc::clone(&from_node)));
        runtime.spawn(sample(Arc::clone(&from_node), Arc::clone(&samples)));
        Ok(Self {
            enode: node.to_string(),
            from_node,
            samples,
            _runtime: runtime,
        })
    }

    /// The node's URL at this end.
    pub(super) fn enode(&self) -> &str {
        &self.enode
    }

    /// Bytes that the node has sent.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.from_node.bytes.load(Ordering::Relaxed)
    }

    /// The part of the link that the node has used in this time, percent.
    pub(super) fn usage(&self, time: Range<std::time::Instant>) -> f64 {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let time = time.start.into()..time.end.into();
        usage(&samples, time, self.from_node.options.bits_per_s)
    }
}

fn usage(samples: &[Sample], time: Range<Instant>, bits_per_s: u64) -> f64 {
    let [from, until] =
        [time.start, time.end].map(|moment| samples.partition_point(|(at, _)| *at <= moment));
    let within = samples
        .get(from.saturating_sub(1)..until)
        .unwrap_or_default();
    let (Some((began, first)), Some((at, bytes))) = (within.first(), within.last()) else {
        return 0.0;
    };
    let could = (*at - *began).as_secs_f64() * bits_per_s as f64 / 8.0;
    match could > 0.0 {
        true => (bytes - first) as f64 * 100.0 / could,
        false => 0.0,
    }
}

/// Notes how much the node has sent, from its first byte on.
async fn sample(way: Arc<Way>, samples: Arc<Mutex<Vec<Sample>>>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    loop {
        ticks.tick().await;
        let bytes = way.bytes.load(Ordering::Relaxed);
        if bytes > 0 {
            let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.push((Instant::now(), bytes));
        }
    }
}

async fn accept(
    listener: TcpListener,
    address: SocketAddr,
    to_node: Arc<Way>,
    from_node: Arc<Way>,
) {
    while let Ok((near, _)) = listener.accept().await {
        let Ok(far) = TcpStream::connect(address).await else {
            continue;
        };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let ((near_read, near_write), (far_read, far_write)) =
            (near.into_split(), far.into_split());
        tokio::spawn(Arc::clone(&to_node).carry(near_read, far_write));
        tokio::spawn(Arc::clone(&from_node).carry(far_read, near_write));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_at_the_rate_and_arrive_after_the_delay() {
        let way = Way::new(LinkOptions {
            delay: Duration::from_millis(25),
            bits_per_s: 8_000_000,
        });
        let began = Instant::now();
        // A megabyte a second.
        let first = way.arrival(1_000) - began;
        let second = way.arrival(9_000) - began;
        assert!(first >= Duration::from_millis(26), "{first:?}");
        assert!(second >= first + Duration::from_millis(9), "{second:?}");
        assert_eq!(way.bytes.load(Ordering::Relaxed), 10_000);
    }

    #[test]
    fn usage_is_that_of_the_time() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        // A megabyte a second, of which 800 kB are used; then nothing comes for long.
        let samples = [
            (at(0), 1),
            (at(1), 800_001),
            (at(2), 1_600_001),
            (at(60), 1_600_002),
        ];
        let percent = usage(&samples, at(0)..at(3), 8_000_000);
        assert!((79.0..=81.0).contains(&percent), "{percent}");
        assert!(usage(&samples, at(2)..at(60), 8_000_000) < 5.0);
        assert!(usage(&[], at(0)..at(3), 8_000_000).abs() < f64::EPSILON);
    }
}
