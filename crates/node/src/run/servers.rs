//! The ways in, opened and closed together.
//!
//! The Engine API has a runtime of its own: whatever others ask, the consensus client's requests
//! are read at once.

use super::metrics::Metrics;
use super::secret;
use super::tls;
use super::tokens::TokenFlags;
use crate::options::Options;
use eyre::{Result, WrapErr, eyre};
use niwaki_rpc::{
    Access, Authentication, Backend, Dispatcher, ENGINE_EXTRA_METHODS, HostList, HttpOptions,
    HttpServer, IpcServer, Limits, NAMESPACES, Origins, WorkerPools, yield_to_blocks,
};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tracing::{info, warn};

/// In the data path: for its owner only.
pub(crate) const OPERATOR_SOCKET: &str = "operator.ipc";

/// Bytes of a message to the Engine API: a block with its blobs fits many times.
const ENGINE_BYTES: usize = 256 << 20;

/// Namespaces of Besu's that are taken and offer nothing: permissions, plugins, networks of BFT.
const BESUS: [&str; 5] = ["clique", "ibft", "perm", "plugins", "qbft"];

/// The runtimes of all servers.
pub(super) struct Servers {
    stop: watch::Sender<bool>,
    public: Runtime,
    engine: Runtime,
}

impl Servers {
    pub(super) fn start(
        options: &Options,
        data_path: &Path,
        backend: &Arc<Backend>,
        worker_pools: &Arc<WorkerPools>,
        metrics: Option<Metrics>,
    ) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let runtime = |name: &str, on_start: fn()| {
            let built = Builder::new_multi_thread()
                .thread_name(name)
                .on_thread_start(on_start)
                .enable_all()
                .build();
            built.wrap_err("can't start the threads of the servers")
        };
        let servers = Self {
            stop,
            public: runtime("rpc-io", yield_to_blocks)?,
            engine: runtime("engine-io", || ())?,
        };
        let start = Start {
            options,
            backend,
            worker_pools,
            stopped,
        };
        // First the one that must not be refused once any other answers.
        start.engine(&servers.engine, data_path)?;
        start.http(&servers.public)?;
        start.websocket(&servers.public)?;
        start.ipc(&servers.public, data_path)?;
        start.operator(&servers.public, data_path)?;
        if let Some(metrics) = metrics {
            let flags = &options.node.operation;
            metrics.start(&servers.public, flags, backend, &start.stopped)?;
        }
        Ok(servers)
    }

    /// Lets what is at hand be answered, for a while.
    pub(super) fn stop(self) {
        let _ = self.stop.send(true);
        self.engine.shutdown_timeout(Duration::from_secs(5));
        self.public.shutdown_timeout(Duration::from_secs(5));
    }
}

struct Start<'a> {
    options: &'a Options,
    backend: &'a Arc<Backend>,
    worker_pools: &'a Arc<WorkerPools>,
    stopped: watch::Receiver<bool>,
}

impl Start<'_> {
    fn http(&self, runtime: &Runtime) -> Result<()> {
        let flags = &self.options.node.http;
        if flags.rpc_http_enabled != Some(true) {
            return Ok(());
        }
        let options = HttpOptions {
            http: true,
            websocket: false,
            access: Access {
                hosts: HostList::new(&flags.host_allowlist),
                origins: Origins::new(&flags.rpc_http_cors_origins),
                authentication: TokenFlags::from(&self.options.node.http_tokens).proof()?,
            },
            tls: tls::of_http(&self.options.node.http_tls)?,
            compress: true,
            max_connections: flags.rpc_http_max_active_connections,
            max_body_bytes: flags.rpc_http_max_request_content_length,
            read_timeout: Duration::from_secs(30),
        };
        let limits = Limits {
            is_pretty: flags.json_pretty_print_enabled == Some(true),
            ..self.limits()
        };
        let dispatcher = self.dispatcher(&flags.rpc_http_api, &[], limits)?;
        let place = (flags.rpc_http_host, flags.rpc_http_port);
        self.serve(
            runtime,
            ("JSON-RPC over HTTP", "--rpc-http-port"),
            place,
            dispatcher,
            options,
        )
    }

    fn websocket(&self, runtime: &Runtime) -> Result<()> {
        let flags = &self.options.node.sockets;
        if flags.rpc_ws_enabled != Some(true) {
            return Ok(());
        }
        let options = HttpOptions {
            http: false,
            websocket: true,
            access: Access {
                hosts: HostList::new(&self.options.node.http.host_allowlist),
                origins: Origins::Any,
                authentication: TokenFlags::from(&self.options.node.socket_tokens).proof()?,
            },
            tls: tls::of_sockets(&self.options.node.socket_tls)?,
            compress: false,
            max_connections: flags.rpc_ws_max_active_connections,
            max_body_bytes: flags.rpc_ws_max_frame_size,
            read_timeout: Duration::from_secs(30),
        };
        let http = &self.options.node.http;
        let timeout = flags
            .ws_timeout_seconds
            .unwrap_or(http.http_timeout_seconds);
        let limits = Limits {
            timeout: Duration::from_secs(timeout),
            is_pretty: http.json_pretty_print_enabled == Some(true),
            ..self.limits()
        };
        let dispatcher = self.dispatcher(&flags.rpc_ws_api, &[], limits)?;
        let place = (flags.rpc_ws_host, flags.rpc_ws_port);
        self.serve(
            runtime,
            ("JSON-RPC over WebSocket", "--rpc-ws-port"),
            place,
            dispatcher,
            options,
        )
    }

    fn ipc(&self, runtime: &Runtime, data_path: &Path) -> Result<()> {
        let flags = &self.options.node.sockets;
        if flags.rpc_ipc_enabled != Some(true) {
            return Ok(());
        }
        let path = flags.rpc_ipc_path.clone();
        let path = path.unwrap_or_else(|| data_path.join("niwaki.ipc"));
        let dispatcher = self.dispatcher(&flags.rpc_ipc_apis, &[], self.limits())?;
        let limit = self.options.node.http.rpc_http_max_request_content_length;
        let _inside = runtime.enter();
        let server = IpcServer::bind(&path, dispatcher, limit).wrap_err_with(|| {
            format!(
                "can't make the socket {}; give --Xrpc-ipc-path",
                path.display()
            )
        })?;
        let api = flags.rpc_ipc_apis.join(",");
        info!(path = %path.display(), %api, "JSON-RPC over IPC");
        runtime.spawn(server.serve(self.stopped.clone()));
        Ok(())
    }

    /// The socket by which this program's own commands reach the node that has the data path.
    fn operator(&self, runtime: &Runtime, data_path: &Path) -> Result<()> {
        let dispatcher = self.dispatcher(&["ADMIN".to_owned()], &[], self.limits())?;
        let path = data_path.join(OPERATOR_SOCKET);
        let _inside = runtime.enter();
        match IpcServer::bind(&path, dispatcher, 1 << 20) {
            Ok(server) => drop(runtime.spawn(server.serve(self.stopped.clone()))),
            // Paths of sockets are short: without it the node runs as well.
            Err(error) => {
                warn!(%error, path = %path.display(), "No commands reach this node: its socket can't be made")
            }
        }
        Ok(())
    }

    fn engine(&self, runtime: &Runtime, data_path: &Path) -> Result<()> {
        let flags = &self.options.node.engine;
        let spec = self.backend.chain().spec();
        if !super::has_engine_port(self.options, spec) {
            return Ok(());
        }
        let proof = match flags.engine_jwt_disabled {
            Some(true) => {
                warn!(
                    "The Engine API asks for no tokens: all who reach its port can drive this node"
                );
                Authentication::None
            }
            _ => {
                let file = flags.engine_jwt_secret.as_deref();
                Authentication::Secret(secret::load(file, data_path)?)
            }
        };
        let options = HttpOptions {
            http: true,
            websocket: true,
            access: Access {
                hosts: HostList::new(&flags.engine_host_allowlist),
                origins: Origins::These(Vec::new()),
                authentication: proof,
            },
            tls: None,
            // A consensus client is near, and waits.
            compress: false,
            max_connections: 64,
            max_body_bytes: ENGINE_BYTES,
            read_timeout: Duration::from_secs(30),
        };
        let dispatcher =
            self.dispatcher(&["ENGINE".to_owned()], &ENGINE_EXTRA_METHODS, self.limits())?;
        let place = (self.options.node.http.rpc_http_host, flags.engine_rpc_port);
        self.serve(
            runtime,
            ("Engine API", "--engine-rpc-port"),
            place,
            dispatcher,
            options,
        )
    }

    /// What every way in bounds.
    fn limits(&self) -> Limits {
        Limits {
            batch_requests: self.options.node.http.rpc_http_max_batch_size,
            timeout: Duration::from_secs(self.options.node.http.http_timeout_seconds),
            ..Limits::default()
        }
    }

    /// A way in to namespaces, which must be known.
    fn dispatcher(&self, api: &[String], also: &[&str], limits: Limits) -> Result<Arc<Dispatcher>> {
        let mut wanted: BTreeSet<String> = api
            .iter()
            .map(|name| name.trim().to_ascii_lowercase())
            .filter(|name| !name.is_empty())
            .collect();
        for name in BESUS {
            if wanted.remove(name) {
                let name = name.to_uppercase();
                info!("The JSON-RPC namespace {name} of Besu's has no methods in this version");
            }
        }
        if let Some(unknown) = wanted
            .iter()
            .find(|name| !NAMESPACES.contains(&name.as_str()))
        {
            return Err(eyre!(
                "there is no JSON-RPC namespace {unknown}; choose of {}",
                NAMESPACES.join(",").to_uppercase()
            ));
        }
        let (backend, worker_pools) = (Arc::clone(self.backend), Arc::clone(self.worker_pools));
        Ok(Arc::new(Dispatcher::new(
            backend,
            worker_pools,
            &wanted,
            also,
            limits,
        )))
    }

    fn serve(
        &self,
        runtime: &Runtime,
        (what, flag): (&str, &str),
        (host, port): (IpAddr, u16),
        dispatcher: Arc<Dispatcher>,
        options: HttpOptions,
    ) -> Result<()> {
        let address = SocketAddr::new(host, port);
        let is_tls = options.tls.is_some();
        let api = dispatcher.namespaces().into_iter().collect::<Vec<_>>();
        let api = api.join(",").to_uppercase();
        let server = runtime
            .block_on(HttpServer::bind(address, dispatcher, options))
            .wrap_err_with(|| {
                format!("can't listen on {address} for {what}; choose another {flag}")
            })?;
        let address = server.address()?;
        let service = match flag {
            "--rpc-http-port" => Some("jsonrpc"),
            "--rpc-ws-port" => Some("ws"),
            _ => None,
        };
        if let Some(service) = service {
            self.backend.operator().add_service(service, address);
        }
        let scheme = match (flag, is_tls) {
            ("--rpc-ws-port", false) => "ws",
            ("--rpc-ws-port", true) => "wss",
            (_, false) => "http",
            (_, true) => "https",
        };
        info!(%address, url = format_args!("{scheme}://{address}"), %api, "{what}");
        runtime.spawn(server.serve(self.stopped.clone()));
        Ok(())
    }
}
