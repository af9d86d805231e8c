//! The resolver: TXT records of a name, from the system's name servers or from a given one.
//!
//! It remembers nothing: an entry is asked for once, and a root must be new. After a failure the system's settings are read anew,
//! because they may have changed.

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A name server has so long for an answer, and is asked once more.
const SERVER_TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPTS: usize = 1;

/// A resolver of TXT records.
#[derive(Debug)]
pub(crate) struct TxtResolver {
    server: Option<SocketAddr>,
    current: Mutex<Option<TokioResolver>>,
}

impl TxtResolver {
    /// A resolver that asks `server`; `None` for the system's name servers.
    pub(crate) fn new(server: Option<SocketAddr>) -> Self {
        Self {
            server,
            current: Mutex::new(None),
        }
    }

    /// The TXT records of a name, each joined of its strings; none if there is no such name.
    ///
    /// # Errors
    /// Why there is no answer, for the log.
    pub(crate) async fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let texts = self.look_up(name).await;
        texts.map_err(|error| error.to_string())
    }

    async fn look_up(&self, name: &str) -> Result<Vec<String>, NetError> {
        let taken = self.current().take();
        let resolver = match taken {
            Some(resolver) => resolver,
            None => build(self.server)?,
        };
        let texts = look_up(&resolver, name).await?;
        // Only after an answer: otherwise the next one is built anew.
        *self.current() = Some(resolver);
        Ok(texts)
    }

    fn current(&self) -> MutexGuard<'_, Option<TokioResolver>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn build(server: Option<SocketAddr>) -> Result<TokioResolver, NetError> {
    let mut builder = match server {
        None => TokioResolver::builder_tokio()?,
        Some(server) => {
            let mut name_server = NameServerConfig::udp_and_tcp(server.ip());
            for connection in &mut name_server.connections {
                connection.port = server.port();
            }
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![name_server]);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        }
    };
    let options = builder.options_mut();
    options.timeout = SERVER_TIMEOUT;
    options.attempts = ATTEMPTS;
    options.cache_size = 0;
    // Without it an entry of 512 bytes does not fit into a packet.
    options.edns0 = true;
    builder.build()
}

async fn look_up(resolver: &TokioResolver, name: &str) -> Result<Vec<String>, NetError> {
    let mut name = Name::from_ascii(name)?;
    // So that the domains in which the system searches are left alone.
    name.set_fqdn(true);
    let answer = match resolver.txt_lookup(name).await {
        Err(error) if error.is_no_records_found() => return Ok(Vec::new()),
        answer => answer?,
    };
    let texts = answer.answers().iter().filter_map(|record| {
        let RData::TXT(text) = &record.data else {
            return None;
        };
        let joined = text.txt_data.concat();
        Some(String::from_utf8_lossy(&joined).into_owned())
    });
    Ok(texts.collect())
}
