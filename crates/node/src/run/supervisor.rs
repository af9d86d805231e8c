//! Tells the supervisor that started the node how it is, as systemd asks for (sd_notify(3)): ready, alive, stopping.

use std::env::var_os;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};
use tracing::warn;

/// How often the status is told where no sign of life is asked for.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The supervisor, if there is one that wants to know.
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// Signs of life are wanted.
    has_watchdog: bool,
    every: Duration,
    last: Instant,
}

impl Supervisor {
    /// That of `NOTIFY_SOCKET` and `WATCHDOG_USEC`.
    pub(super) fn find() -> Self {
        let watchdog = var_os("WATCHDOG_USEC").and_then(|text| text.to_str()?.parse().ok());
        let watchdog = watchdog.filter(|micros| *micros > 0);
        // Twice within the time, as systemd advises.
        let every = watchdog.map_or(STATUS_EVERY, |micros: u64| {
            Duration::from_micros(micros / 2)
        });
        let socket = var_os("NOTIFY_SOCKET")
            .map(|name| connect(&name))
            .transpose();
        if let Err(error) = &socket {
            warn!(%error, "Can't tell the supervisor that the node runs: NOTIFY_SOCKET is wrong");
        }
        Self {
            socket: socket.unwrap_or_default(),
            has_watchdog: watchdog.is_some(),
            every: every.min(STATUS_EVERY),
            last: Instant::now(),
        }
    }

    /// The node is ready for calls.
    pub(super) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The main thread runs; `status` is asked for if it is time to say so.
    pub(super) fn alive(&mut self, status: impl FnOnce() -> String) {
        if self.socket.is_none() || self.last.elapsed() < self.every {
            return;
        }
        self.last = Instant::now();
        let sign = if self.has_watchdog {
            "WATCHDOG=1\n"
        } else {
            ""
        };
        self.tell(&format!("{sign}STATUS={}", status()));
    }

    /// The node was asked to stop.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, text: &str) {
        let sent = self
            .socket
            .as_ref()
            .map(|socket| socket.send(text.as_bytes()));
        if let Some(Err(error)) = sent {
            warn!(%error, "Can't tell the supervisor how the node is");
        }
    }
}

/// Connects to a path, or to an abstract name that begins with `@`.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A supervisor that does not read must not stop the node.
    socket.set_nonblocking(true)?;
    Ok(socket)
}
