//! The servers of JSON-RPC, the Engine API and metrics: started and stopped together.
//!
//! The Engine API has a runtime of its own, so that requests of other callers never delay reading those of
//! the consensus client.

use super::config::{AuthenticationConfig, IpcConfig, NodeConfig, ServerConfig};
use super::metrics::Metrics;
use super::secret;
use eyre::{Result, WrapErr, eyre};
use niwaki_rpc::{
    Access, Authentication, Backend, Dispatcher, HttpOptions, HttpServer, IpcServer, Limits,
    NAMESPACES, WorkerPools, yield_to_blocks,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tracing::{info, warn};

/// Namespaces of Besu that are accepted and have no methods: Clique, plugins.
const BESU_NAMESPACES: [&str; 2] = ["clique", "plugins"];

/// How long headers or a body may take to arrive, and a connection may be idle.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// How long requests in progress may take when the node stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The runtimes of all servers.
pub(super) struct Servers {
    stop: watch::Sender<bool>,
    public: Runtime,
    engine: Runtime,
}

impl Servers {
    pub(super) fn start(
        config: &NodeConfig,
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
        let starter = Starter {
            data_path: &config.data_path,
            backend,
            worker_pools,
            stopped,
        };
        // The Engine API first: once any port answers, a consensus client must not be refused.
        let config = &config.servers;
        if let Some(engine) = &config.engine {
            starter.serve(&servers.engine, engine)?;
        }
        for server in [&config.http, &config.websocket, &config.graphql]
            .into_iter()
            .flatten()
        {
            starter.serve(&servers.public, server)?;
        }
        if let Some(ipc) = &config.ipc {
            starter.serve_ipc(&servers.public, ipc)?;
        }
        starter.serve_operator(&servers.public, &config.operator)?;
        if let Some(metrics) = metrics {
            metrics.start(&servers.public, backend, &starter.stopped)?;
        }
        Ok(servers)
    }

    /// Stops all servers; requests in progress have 5 s to finish.
    pub(super) fn stop(self) {
        let _ = self.stop.send(true);
        self.engine.shutdown_timeout(SHUTDOWN_TIMEOUT);
        self.public.shutdown_timeout(SHUTDOWN_TIMEOUT);
    }
}

/// What every server is started with.
struct Starter<'a> {
    data_path: &'a Path,
    backend: &'a Arc<Backend>,
    worker_pools: &'a Arc<WorkerPools>,
    stopped: watch::Receiver<bool>,
}

impl Starter<'_> {
    fn serve(&self, runtime: &Runtime, config: &ServerConfig) -> Result<()> {
        let options = HttpOptions {
            http: config.has_http,
            dashboard: config.has_dashboard,
            graphql: config.graphql,
            engine_rest: config.has_engine_rest,
            websocket: config.has_websocket,
            access: Access {
                hosts: config.hosts.clone(),
                origins: config.origins.clone(),
                authentication: self.authentication(&config.authentication)?,
            },
            tls: config.tls.load()?,
            compress: config.is_compressed,
            max_connections: config.max_connections,
            max_body_bytes: config.max_body_bytes,
            read_timeout: READ_TIMEOUT,
        };
        let scheme = match (
            config.has_websocket && !config.has_http,
            options.tls.is_some(),
        ) {
            (true, false) => "ws",
            (true, true) => "wss",
            (false, false) => "http",
            (false, true) => "https",
        };
        let (namespaces, extra) = (&config.namespaces, config.extra_methods);
        let dispatcher = self.dispatcher(namespaces, extra, config.limits)?;
        let api = dispatcher.namespaces().into_iter().collect::<Vec<_>>();
        let api = api.join(",").to_uppercase();
        let (title, flag, address) = (config.title, config.port_flag, config.address);
        let server = runtime
            .block_on(HttpServer::bind(address, dispatcher, options))
            .wrap_err_with(|| {
                format!("can't listen on {address} for {title}; choose another {flag}")
            })?;
        let address = server.address()?;
        if let Some(service) = config.service {
            self.backend.operator().add_service(service, address);
        }
        let path = if config.graphql.is_some() {
            "/graphql"
        } else {
            ""
        };
        info!(%address, url = format_args!("{scheme}://{address}{path}"), %api, "{title}");
        runtime.spawn(server.serve(self.stopped.clone()));
        Ok(())
    }

    fn serve_ipc(&self, runtime: &Runtime, config: &IpcConfig) -> Result<()> {
        let dispatcher = self.dispatcher(&config.namespaces, &[], config.limits)?;
        let path = config.path.display();
        let _inside = runtime.enter();
        let server = IpcServer::bind(&config.path, dispatcher, config.max_message_bytes)
            .wrap_err_with(|| format!("can't make the socket {path}; give --Xrpc-ipc-path"))?;
        let api = config.namespaces.join(",");
        info!(%path, %api, "JSON-RPC over IPC");
        runtime.spawn(server.serve(self.stopped.clone()));
        Ok(())
    }

    /// Serves the socket of this program's own commands. The node also runs without it: the paths of
    /// sockets are limited to about 100 bytes.
    fn serve_operator(&self, runtime: &Runtime, config: &IpcConfig) -> Result<()> {
        let dispatcher = self.dispatcher(&config.namespaces, &[], config.limits)?;
        let _inside = runtime.enter();
        match IpcServer::bind(&config.path, dispatcher, config.max_message_bytes) {
            Ok(server) => drop(runtime.spawn(server.serve(self.stopped.clone()))),
            Err(error) => {
                warn!(%error, path = %config.path.display(), "No commands reach this node: its socket can't be made")
            }
        }
        Ok(())
    }

    fn authentication(&self, authentication: &AuthenticationConfig) -> Result<Authentication> {
        match authentication {
            AuthenticationConfig::Open => Ok(Authentication::None),
            AuthenticationConfig::Tokens(flags) => flags.authentication(),
            AuthenticationConfig::EngineSecret(file) => {
                let secret = secret::load(file.as_deref(), self.data_path)?;
                Ok(Authentication::Secret(secret))
            }
            AuthenticationConfig::OpenEngine => {
                warn!(
                    "The Engine API asks for no tokens: all who reach its port can drive this node"
                );
                Ok(Authentication::None)
            }
        }
    }

    /// A dispatcher for these namespaces, which must be known, and `extra` methods of others.
    fn dispatcher(
        &self,
        namespaces: &[String],
        extra: &[&str],
        limits: Limits,
    ) -> Result<Arc<Dispatcher>> {
        let mut offered: BTreeSet<String> = namespaces
            .iter()
            .map(|name| name.trim().to_ascii_lowercase())
            .filter(|name| !name.is_empty())
            .collect();
        for name in BESU_NAMESPACES {
            if offered.remove(name) {
                let name = name.to_uppercase();
                info!("The JSON-RPC namespace {name} of Besu's has no methods in this version");
            }
        }
        let is_unknown = |name: &&String| !NAMESPACES.contains(&name.as_str());
        if let Some(unknown) = offered.iter().find(is_unknown) {
            return Err(eyre!(
                "there is no JSON-RPC namespace {unknown}; choose of {}",
                NAMESPACES.join(",").to_uppercase()
            ));
        }
        let (backend, worker_pools) = (Arc::clone(self.backend), Arc::clone(self.worker_pools));
        Ok(Arc::new(Dispatcher::new(
            backend,
            worker_pools,
            &offered,
            extra,
            limits,
        )))
    }
}
