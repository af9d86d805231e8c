//! HTTP/1.1: requests by POST, health by GET, WebSocket by upgrade.
//!
//! Everything that a client can send is bounded: connections, bytes of headers and body, and the time for each to
//! arrive.

use crate::dispatch::{Dispatcher, RpcResponse, error_response};
use crate::engine::rest::BASE as REST_BASE;
use crate::graphql::{GraphQl, PATH as GRAPHQL_PATH};
use crate::response_stream::Chunk;
use crate::server::access::{Access, Authentication};
use crate::server::body::ResponseBody;
use crate::server::request_body::{self, BodyError};
use crate::server::tls::Tls;
use crate::server::tokens::Caller;
use crate::server::{gzip, login, socket};
use crate::session::Session;
use crate::{RpcError, dashboard, metrics};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Most bytes of a request before its body.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long a connection may go on once the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that a stream of HTTP/2 may have under way, and requests of a connection at a time.
const STREAM_WINDOW: u32 = 1 << 20;
const MAX_STREAMS: u32 = 32;

/// Options and limits of a server.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Whether it answers requests by POST.
    pub http: bool,
    /// Whether it serves the dashboard.
    pub dashboard: bool,
    /// Whether it answers GraphQL, and if so how many blocks of one range at most; 0 for no bound.
    pub graphql: Option<u64>,
    /// Whether it offers the Engine API by REST too.
    pub engine_rest: bool,
    /// Whether a connection may become a WebSocket.
    pub websocket: bool,
    /// Access control.
    pub access: Access,
    /// TLS, if connections use it.
    pub tls: Option<Tls>,
    /// Whether long responses are compressed for clients that accept it.
    pub compress: bool,
    /// Most connections at a time; further ones are closed at once.
    pub max_connections: usize,
    /// Most bytes of a request's body, or of a WebSocket message.
    pub max_body_bytes: usize,
    /// How long headers or a body may take to arrive, and a connection may be idle.
    pub read_timeout: Duration,
}

/// A server that is bound and does not serve yet.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    dispatcher: Arc<Dispatcher>,
    graphql: Option<Arc<GraphQl>>,
    options: Arc<HttpOptions>,
}

pub(super) type HttpResponse = Response<ResponseBody>;

impl HttpServer {
    /// Binds `address`.
    ///
    /// # Errors
    /// Errors of the system.
    pub async fn bind(
        address: SocketAddr,
        dispatcher: Arc<Dispatcher>,
        options: HttpOptions,
    ) -> std::io::Result<Self> {
        let graphql = options.graphql.map(|max_blocks| {
            let backend = Arc::clone(dispatcher.backend());
            Arc::new(GraphQl::new(
                backend,
                max_blocks,
                dispatcher.limits.batch_bytes,
            ))
        });
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            dispatcher,
            graphql,
            options: Arc::new(options),
        })
    }

    /// Its address.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is true, then finishes the running requests.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let connections = Arc::new(Semaphore::new(self.options.max_connections));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most of the time: a moment later there may be some.
                    tracing::warn!(%error, "Can't accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
                metrics::connection_refused();
                continue;
            };
            let connection = Connection {
                dispatcher: Arc::clone(&self.dispatcher),
                graphql: self.graphql.clone(),
                options: Arc::clone(&self.options),
                stop: stop.clone(),
            };
            tokio::spawn(connection.serve(stream, permit));
        }
    }
}

/// One connection.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) dispatcher: Arc<Dispatcher>,
    graphql: Option<Arc<GraphQl>>,
    pub(super) options: Arc<HttpOptions>,
    stop: watch::Receiver<bool>,
}

impl Connection {
    async fn serve(self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true);
        match self.options.tls.clone() {
            None => self.serve_stream(stream, permit).await,
            Some(tls) => {
                if let Some(stream) = tls.accept(stream).await {
                    self.serve_stream(stream, permit).await;
                }
            }
        }
    }

    async fn serve_stream<S>(self, stream: S, permit: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut stop = self.stop.clone();
        // A WebSocket outlives the HTTP connection that it was upgraded from.
        let permit = Arc::new(permit);
        let timeout = self.options.read_timeout;
        let _gauge = metrics::http_connection();
        let speaks_http2 = self.options.engine_rest;
        let has_asked = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&has_asked);
        let service = service_fn(move |request| {
            asked.store(true, Ordering::Relaxed);
            let (this, permit) = (self.clone(), Arc::clone(&permit));
            async move { Ok::<_, Infallible>(this.respond(request, permit).await) }
        });
        let stream = TokioIo::new(stream);
        let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
        if !speaks_http2 {
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(timeout)
                .max_buf_size(MAX_HEAD_BYTES)
                .pipeline_flush(true)
                .serve_connection(stream, service)
                .with_upgrades();
            return serve_until(serving, stopped, |serving| serving.graceful_shutdown()).await;
        }
        // A consensus client may speak HTTP/2 (EIP-8178); wallets and pages need not.
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(timeout)
            .max_buf_size(MAX_HEAD_BYTES)
            .pipeline_flush(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(4 * STREAM_WINDOW)
            .max_concurrent_streams(MAX_STREAMS)
            .keep_alive_interval(timeout)
            .max_header_list_size(64 << 10);
        let serving = builder.serve_connection_with_upgrades(stream, service);
        tokio::select! {
            () = serve_until(serving, stopped, |serving| serving.graceful_shutdown()) => {},
            () = silence(&has_asked, timeout) => {},
        }
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> HttpResponse {
        let access = &self.options.access;
        let text = |name| header_text(request.headers(), name);
        let forbidden = |message: &str| {
            let body = format!("{{\"message\":\"{message}\"}}");
            plain(StatusCode::FORBIDDEN, &body)
        };
        let authority = request
            .uri()
            .authority()
            .map(|authority| authority.as_str());
        if !access.hosts.allows(text(header::HOST).or(authority)) {
            return forbidden("Host not authorized.");
        }
        let origin = text(header::ORIGIN).map(str::to_owned);
        let origin = origin.as_deref();
        let allowed = origin.map(|origin| access.origins.allowed(origin));
        let is_own = || access.is_own_page(origin, text(header::HOST));
        if matches!(allowed, Some(None)) && !is_own() {
            return forbidden("Origin not allowed.");
        }
        let mut response = self.route(request, permit).await;
        if let Some(allowed) = allowed.flatten().and_then(|text| text.parse().ok()) {
            allow_origin(response.headers_mut(), allowed);
        }
        response
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> HttpResponse {
        if let Some(graphql) = &self.graphql
            && *request.method() != Method::OPTIONS
            && request.uri().path() == GRAPHQL_PATH
        {
            return self.answer_graphql(graphql, request).await;
        }
        if self.options.engine_rest && request.uri().path().starts_with(REST_BASE) {
            return match self.authorize(request.headers()) {
                Err(refused) => *refused,
                Ok(_) => self.answer_rest(request).await,
            };
        }
        match *request.method() {
            Method::OPTIONS => plain(StatusCode::NO_CONTENT, ""),
            Method::GET if socket::is_upgrade(&request) && self.options.websocket => {
                match self.authorize(request.headers()) {
                    Err(refused) => *refused,
                    Ok(caller) => self.upgrade(request, permit, caller),
                }
            }
            Method::GET => match self.page(request.uri().path()) {
                Some(page) => page,
                None => self.health(request.uri().path(), request.uri().query()),
            },
            Method::POST if request.uri().path() == login::PATH && !self.is_engine() => {
                self.login(request).await
            }
            Method::POST if self.options.http => match self.authorize(request.headers()) {
                Err(refused) => *refused,
                Ok(caller) => self.post(request, caller).await,
            },
            _ => plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
        }
    }

    /// Whether this server is the Engine API's: tokens are signed with its secret.
    fn is_engine(&self) -> bool {
        let authentication = &self.options.access.authentication;
        matches!(authentication, Authentication::Secret(_))
    }

    /// The caller, if tokens identify one; or the response to a request without a valid token.
    pub(super) fn authorize(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, Box<HttpResponse>> {
        let token = header_text(headers, header::AUTHORIZATION);
        let refused = match &self.options.access.authentication {
            Authentication::None => return Ok(None),
            Authentication::Secret(secret) => match secret.check(token) {
                Ok(()) => return Ok(None),
                Err(error) => {
                    self.dispatcher.backend().engine_log.token_refused(&error);
                    let refused = plain(StatusCode::UNAUTHORIZED, &error.to_string());
                    return Err(Box::new(refused));
                }
            },
            Authentication::Tokens(tokens) => match tokens.caller(token) {
                Ok(caller) => return Ok(Some(caller)),
                Err(error) => {
                    tracing::debug!(%error, "a request is refused");
                    unauthorized(error_response(None, &RpcError::unauthorized()))
                }
            },
        };
        metrics::token_refused();
        Err(Box::new(refused))
    }

    /// Exchanges a user's name and password for a token.
    async fn login(&self, request: Request<Incoming>) -> HttpResponse {
        let login = match &self.options.access.authentication {
            Authentication::Tokens(tokens) => tokens.login(),
            _ => None,
        };
        let Some(login) = login else {
            return plain(StatusCode::BAD_REQUEST, "logins are not enabled");
        };
        match self.body(request, login::MAX_BYTES).await {
            Ok(body) => login::respond(login, &body).await,
            Err(error) => error.response(),
        }
    }

    /// The part of the dashboard at `path`.
    fn page(&self, path: &str) -> Option<HttpResponse> {
        let parts = dashboard::PAGE.iter().filter(|_| self.options.dashboard);
        let mut found = parts.filter(|part| part.path == path);
        let part = found.next()?;
        let mut response = plain(StatusCode::OK, part.text);
        for (name, value) in [
            (header::CONTENT_TYPE, part.content_type),
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, dashboard::SECURITY_POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
        ] {
            response = with_header(response, name, value);
        }
        Some(response)
    }

    fn health(&self, path: &str, query: Option<&str>) -> HttpResponse {
        let backend = self.dispatcher.backend();
        let (status, body) = match path {
            "/liveness" => (StatusCode::OK, "{\"status\":\"UP\"}".to_owned()),
            "/readiness" => match backend.readiness(query.unwrap_or_default()) {
                Ok(()) => (StatusCode::OK, "{\"status\":\"UP\"}".to_owned()),
                Err(why) => {
                    let mut body = Vec::new();
                    let mut object = crate::json::Object::new(&mut body);
                    object.string("status", "DOWN");
                    object.string("reason", &why);
                    drop(object);
                    let body = String::from_utf8(body).unwrap_or_default();
                    (StatusCode::SERVICE_UNAVAILABLE, body)
                }
            },
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        json(status, body)
    }

    /// The whole body of a request.
    pub(super) async fn body(
        &self,
        request: Request<Incoming>,
        most: usize,
    ) -> Result<Bytes, BodyError> {
        request_body::read(request.into_body(), most, self.options.read_timeout).await
    }

    async fn post(&self, request: Request<Incoming>, caller: Option<Caller>) -> HttpResponse {
        let compress = self.options.compress && gzip::is_accepted(request.headers());
        let body = match self.body(request, self.options.max_body_bytes).await {
            Ok(body) => body,
            Err(error) => return error.response(),
        };
        let session = Session::default().with_caller(caller);
        match self.dispatcher.handle_streaming(body, &session).await {
            RpcResponse::Whole(Some(response)) if compress && response.len() >= gzip::MIN_BYTES => {
                match gzip::whole(response).await {
                    Ok(shorter) => compressed(json(StatusCode::OK, shorter)),
                    Err(_) => {
                        let message = "can't compress the answer";
                        plain(StatusCode::INTERNAL_SERVER_ERROR, message)
                    }
                }
            }
            RpcResponse::Whole(response) => json(StatusCode::OK, response.unwrap_or_default()),
            RpcResponse::Stream(first, rest) if compress => {
                let rest = gzip::stream(first, rest);
                compressed(json_stream(None, rest))
            }
            RpcResponse::Stream(first, rest) => json_stream(Some(first.into()), rest),
            RpcResponse::Unauthorized(body) => unauthorized(body),
        }
    }

    fn upgrade(
        &self,
        mut request: Request<Incoming>,
        permit: Arc<OwnedSemaphorePermit>,
        caller: Option<Caller>,
    ) -> HttpResponse {
        let Some(key) = request.headers().get(header::SEC_WEBSOCKET_KEY) else {
            return plain(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is missing");
        };
        let accept = derive_accept_key(key.as_bytes());
        let this = self.clone();
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let _permit = permit;
            if let Ok(upgraded) = upgraded.await {
                let limit = this.options.max_body_bytes;
                let stream = TokioIo::new(upgraded);
                socket::serve(stream, this.dispatcher, limit, caller, this.stop).await;
            }
        });
        let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(&accept) {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        response
    }
}

pub(super) fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    let allow = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Content-Type, Authorization, Accept, Origin, X-Requested-With",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    for (name, value) in allow {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// A streamed JSON response.
fn json_stream(first: Option<Bytes>, rest: Receiver<Chunk>) -> HttpResponse {
    let rest = Some(rest);
    json_body(StatusCode::OK, ResponseBody::Stream { first, rest })
}

/// Serves a connection until it ends, or for 5 s more once `stopped` ends.
async fn serve_until<C: Future>(
    serving: C,
    stopped: impl Future<Output = ()>,
    shut_down: impl FnOnce(Pin<&mut C>),
) {
    tokio::pin!(serving, stopped);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = stopped => shut_down(serving.as_mut()),
    }
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, serving).await;
}

/// Ends after `timeout` if the connection has asked for nothing by then: until the first bytes have told which HTTP is
/// spoken, no other limit holds.
async fn silence(has_asked: &AtomicBool, timeout: Duration) {
    tokio::time::sleep(timeout).await;
    if has_asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

fn compressed(response: HttpResponse) -> HttpResponse {
    with_header(response, header::CONTENT_ENCODING, "gzip")
}

/// The caller is not authorized.
fn unauthorized(body: Vec<u8>) -> HttpResponse {
    let response = json(StatusCode::UNAUTHORIZED, body);
    with_header(response, header::WWW_AUTHENTICATE, "Bearer")
}

pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    json_body(status, ResponseBody::Whole(Full::new(body.into())))
}

fn json_body(status: StatusCode, body: ResponseBody) -> HttpResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    with_header(response, header::CONTENT_TYPE, "application/json")
}

/// The response with one more header.
pub(super) fn with_header<B>(
    mut response: Response<B>,
    name: header::HeaderName,
    value: &'static str,
) -> Response<B> {
    response
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
    response
}

/// A plain text response.
pub(super) fn plain<B: From<Full<Bytes>>>(status: StatusCode, text: &str) -> Response<B> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes()));
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_asks_for_nothing_ends_and_one_that_has_asked_stays() {
        let has_asked = AtomicBool::new(false);
        let (limit, hour) = (Duration::from_secs(30), Duration::from_secs(3_600));
        let began = tokio::time::Instant::now();
        silence(&has_asked, limit).await;
        assert_eq!(began.elapsed(), limit);
        has_asked.store(true, Ordering::Relaxed);
        let ended = tokio::time::timeout(hour, silence(&has_asked, limit)).await;
        assert!(ended.is_err());
    }
}
