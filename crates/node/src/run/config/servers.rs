//! The configuration of the servers: HTTP, WebSocket, GraphQL, Engine API, IPC.

use crate::options::NodeOptions;
use crate::run::tls::TlsFlags;
use crate::run::tokens::TokenFlags;
use niwaki_rpc::{DASHBOARD_METHODS, ENGINE_EXTRA_METHODS, HostList, Limits, Origins};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// In the data path, for its owner only.
pub(crate) const OPERATOR_SOCKET: &str = "operator.ipc";

/// Largest message to the Engine API, in bytes: many times a block with its blobs.
const ENGINE_BYTES: usize = 256 << 20;

/// Most connections to the Engine API at a time.
const ENGINE_CONNECTIONS: usize = 64;

/// Largest request by GraphQL, in bytes: a transaction with 6 blobs, in hexadecimal, has 1.6 MiB.
const GRAPHQL_BYTES: usize = 4 << 20;

/// Largest message to the operator's socket, in bytes.
const OPERATOR_BYTES: usize = 1 << 20;

/// Every server of the node; `None` where it is not enabled.
pub(crate) struct ServersConfig {
    pub(crate) engine: Option<ServerConfig>,
    pub(crate) http: Option<ServerConfig>,
    pub(crate) websocket: Option<ServerConfig>,
    pub(crate) graphql: Option<ServerConfig>,
    pub(crate) ipc: Option<IpcConfig>,
    /// The socket by which this program's commands reach the running node.
    pub(crate) operator: IpcConfig,
}

/// A server on a TCP port.
pub(crate) struct ServerConfig {
    /// The message of its log line.
    pub(crate) title: &'static str,
    pub(crate) port_flag: &'static str,
    /// Its name in `net_services`, if it is listed there.
    pub(crate) service: Option<&'static str>,
    pub(crate) address: SocketAddr,
    pub(crate) has_http: bool,
    pub(crate) has_websocket: bool,
    pub(crate) has_dashboard: bool,
    pub(crate) has_engine_rest: bool,
    /// Most blocks of one range, if it serves GraphQL; 0 for no bound.
    pub(crate) graphql: Option<u64>,
    pub(crate) namespaces: Vec<String>,
    /// Methods of other namespaces that it offers too.
    pub(crate) extra_methods: &'static [&'static str],
    pub(crate) hosts: HostList,
    pub(crate) origins: Origins,
    pub(crate) authentication: AuthenticationConfig,
    pub(crate) tls: TlsFlags,
    pub(crate) is_compressed: bool,
    pub(crate) max_connections: usize,
    pub(crate) max_body_bytes: usize,
    pub(crate) limits: Limits,
}

/// How callers authenticate.
pub(crate) enum AuthenticationConfig {
    /// With a token of a user, if the flags ask for one.
    Tokens(TokenFlags),
    /// With a token signed by the Engine API's secret, from this file or the one in the data path.
    EngineSecret(Option<PathBuf>),
    /// The Engine API without a secret.
    OpenEngine,
    /// Not at all: all who reach the port may call.
    Open,
}

/// A server on a Unix socket.
pub(crate) struct IpcConfig {
    pub(crate) path: PathBuf,
    pub(crate) namespaces: Vec<String>,
    pub(crate) max_message_bytes: usize,
    pub(crate) limits: Limits,
}

impl ServersConfig {
    pub(crate) fn resolve(node: &NodeOptions, data_path: &Path, has_engine_api: bool) -> Self {
        let http = node.http.rpc_http_enabled == Some(true);
        let websocket = node.sockets.rpc_ws_enabled == Some(true);
        let graphql = node.graphql.graphql_http_enabled == Some(true);
        let ipc = node.sockets.rpc_ipc_enabled == Some(true);
        Self {
            engine: has_engine_api.then(|| engine(node)),
            http: http.then(|| self::http(node)),
            websocket: websocket.then(|| self::websocket(node)),
            graphql: graphql.then(|| self::graphql(node)),
            ipc: ipc.then(|| self::ipc(node, data_path)),
            operator: IpcConfig {
                path: data_path.join(OPERATOR_SOCKET),
                namespaces: vec!["ADMIN".to_owned()],
                max_message_bytes: OPERATOR_BYTES,
                limits: limits(node),
            },
        }
    }

    /// Those that listen on a port.
    pub(crate) fn on_ports(&self) -> impl Iterator<Item = &ServerConfig> {
        let all = [&self.http, &self.websocket, &self.graphql, &self.engine];
        all.into_iter().flatten()
    }
}

fn engine(node: &NodeOptions) -> ServerConfig {
    let flags = &node.engine;
    ServerConfig {
        title: "Engine API",
        port_flag: "--engine-rpc-port",
        service: None,
        address: SocketAddr::new(node.http.rpc_http_host, flags.engine_rpc_port),
        has_http: true,
        has_websocket: true,
        has_dashboard: false,
        has_engine_rest: flags.engine_rest_enabled != Some(false),
        graphql: None,
        namespaces: vec!["ENGINE".to_owned()],
        extra_methods: &ENGINE_EXTRA_METHODS,
        hosts: HostList::new(&flags.engine_host_allowlist),
        origins: Origins::These(Vec::new()),
        authentication: match flags.engine_jwt_disabled {
            Some(true) => AuthenticationConfig::OpenEngine,
            _ => AuthenticationConfig::EngineSecret(flags.engine_jwt_secret.clone()),
        },
        tls: TlsFlags::Off,
        // A consensus client is on the same machine or network, and waits for the response.
        is_compressed: false,
        max_connections: ENGINE_CONNECTIONS,
        max_body_bytes: ENGINE_BYTES,
        limits: limits(node),
    }
}

fn http(node: &NodeOptions) -> ServerConfig {
    let flags = &node.http;
    let has_dashboard = flags.dashboard_enabled == Some(true);
    ServerConfig {
        title: "JSON-RPC over HTTP",
        port_flag: "--rpc-http-port",
        service: Some("jsonrpc"),
        address: SocketAddr::new(flags.rpc_http_host, flags.rpc_http_port),
        has_http: true,
        has_websocket: false,
        has_dashboard,
        has_engine_rest: false,
        graphql: None,
        namespaces: flags.rpc_http_api.clone(),
        extra_methods: match has_dashboard {
            true => &DASHBOARD_METHODS,
            false => &[],
        },
        hosts: HostList::new(&flags.host_allowlist),
        origins: Origins::new(&flags.rpc_http_cors_origins),
        authentication: AuthenticationConfig::Tokens(TokenFlags::from(&node.http_tokens)),
        tls: TlsFlags::Http(node.http_tls.clone()),
        is_compressed: true,
        max_connections: flags.rpc_http_max_active_connections,
        max_body_bytes: flags.rpc_http_max_request_content_length,
        limits: Limits {
            is_pretty: flags.json_pretty_print_enabled == Some(true),
            ..limits(node)
        },
    }
}

fn websocket(node: &NodeOptions) -> ServerConfig {
    let flags = &node.sockets;
    let timeout_s = flags.ws_timeout_seconds;
    let timeout_s = timeout_s.unwrap_or(node.http.http_timeout_seconds);
    ServerConfig {
        title: "JSON-RPC over WebSocket",
        port_flag: "--rpc-ws-port",
        service: Some("ws"),
        address: SocketAddr::new(flags.rpc_ws_host, flags.rpc_ws_port),
        has_http: false,
        has_websocket: true,
        has_dashboard: false,
        has_engine_rest: false,
        graphql: None,
        namespaces: flags.rpc_ws_api.clone(),
        extra_methods: &[],
        hosts: HostList::new(&node.http.host_allowlist),
        origins: Origins::Any,
        authentication: AuthenticationConfig::Tokens(TokenFlags::from(&node.socket_tokens)),
        tls: TlsFlags::WebSocket(node.socket_tls.clone()),
        is_compressed: false,
        max_connections: flags.rpc_ws_max_active_connections,
        max_body_bytes: flags.rpc_ws_max_frame_size,
        limits: Limits {
            timeout: Duration::from_secs(timeout_s),
            is_pretty: node.http.json_pretty_print_enabled == Some(true),
            ..limits(node)
        },
    }
}

fn graphql(node: &NodeOptions) -> ServerConfig {
    let flags = &node.graphql;
    ServerConfig {
        title: "GraphQL over HTTP",
        port_flag: "--graphql-http-port",
        service: None,
        address: SocketAddr::new(flags.graphql_http_host, flags.graphql_http_port),
        has_http: false,
        has_websocket: false,
        has_dashboard: false,
        has_engine_rest: false,
        graphql: Some(flags.graphql_max_blocks_range),
        namespaces: Vec::new(),
        extra_methods: &[],
        hosts: HostList::new(&node.http.host_allowlist),
        origins: Origins::new(&flags.graphql_http_cors_origins),
        authentication: AuthenticationConfig::Open,
        tls: TlsFlags::GraphQl(flags.tls.clone()),
        is_compressed: true,
        max_connections: node.http.rpc_http_max_active_connections,
        max_body_bytes: GRAPHQL_BYTES,
        limits: limits(node),
    }
}

fn ipc(node: &NodeOptions, data_path: &Path) -> IpcConfig {
    let flags = &node.sockets;
    let path = flags.rpc_ipc_path.clone();
    IpcConfig {
        path: path.unwrap_or_else(|| data_path.join("niwaki.ipc")),
        namespaces: flags.rpc_ipc_apis.clone(),
        max_message_bytes: node.http.rpc_http_max_request_content_length,
        limits: limits(node),
    }
}

/// The limits that all servers share.
fn limits(node: &NodeOptions) -> Limits {
    Limits {
        batch_requests: node.http.rpc_http_max_batch_size,
        timeout: Duration::from_secs(node.http.http_timeout_seconds),
        ..Limits::default()
    }
}
