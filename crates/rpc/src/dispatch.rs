//! Dispatch: from the bytes of a request to the bytes of its response.
//!
//! The servers (HTTP, WebSocket, IPC) call [`Dispatcher::handle`] with a body. A request is parsed without copying:
//! method, id and parameters are slices of the body. Who runs it follows from the row of its method in the tables
//! ([`Method`]):
//!
//! ```text
//! body -> parse -> permitted? -> subscription, rpc_modules, rpc.discover   answered here
//!                             -> Lane::Inline                             run by the calling I/O thread
//!                             -> Lane::Call, a slot is free               run by the calling I/O thread
//!                             -> any other lane                           queued in WorkerPools
//! ```
//!
//! The requests of a batch run one after the other, since one may depend on what the one before it did.
//! Every request has a deadline, counted from its arrival; methods that run long check it.

use crate::backend::Backend;
use crate::eth::learn_senders;
use crate::methods::{self, Lane, Method};
use crate::metrics;
use crate::response_stream::{Chunk, ResponseStream};
use crate::session::Session;
use crate::worker_pools::WorkerPools;
use crate::{Params, RpcError, json};
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Requests of a batch whose transactions' senders are recovered together.
const LEARN_AHEAD: usize = 64;
/// The method that sends one.
const SEND: &str = "eth_sendRawTransaction";

/// What bounds the requests to one server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most requests of a batch.
    pub batch_requests: usize,
    /// Most bytes of all responses to a batch.
    pub batch_bytes: usize,
    /// How long a call, or a batch of calls, may take.
    pub timeout: Duration,
    /// Whether responses are indented for a person to read.
    pub is_pretty: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch_requests: 1024,
            batch_bytes: 64 << 20,
            timeout: Duration::from_secs(30),
            is_pretty: false,
        }
    }
}

/// The methods that one server offers, and its limits.
#[derive(Debug)]
pub struct Dispatcher {
    backend: Arc<Backend>,
    worker_pools: Arc<WorkerPools>,
    methods: HashMap<&'static str, &'static Method>,
    pub(crate) limits: Limits,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    /// Absent in a notification; null is an id like any other.
    #[serde(borrow, default, deserialize_with = "even_null")]
    id: Option<&'a RawValue>,
}

fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(raw: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(raw).map(Some)
}

/// A response, or where it comes from.
enum PendingResponse {
    Ready(Vec<u8>),
    /// From a worker, as a whole.
    Queued(oneshot::Receiver<Vec<u8>>),
    /// From a worker, in chunks.
    Stream(mpsc::Receiver<Chunk>),
    /// An error: the caller may not call this method.
    Unauthorized(Vec<u8>),
    /// A notification gets none.
    None,
}

/// What [`Dispatcher::handle_streaming`] gives.
pub(crate) enum RpcResponse {
    /// The response; `None` if the body held notifications only.
    Whole(Option<Vec<u8>>),
    /// The first chunk, and the channel of the others.
    Stream(Vec<u8>, mpsc::Receiver<Chunk>),
    /// The error for a single request whose caller may not call its method.
    Unauthorized(Vec<u8>),
}

/// How a worker returns its response.
enum ResponseSender {
    Whole(oneshot::Sender<Vec<u8>>),
    Stream(ResponseStream),
}

/// A call to run.
struct Call<'a> {
    method: &'static Method,
    id: Option<&'a str>,
    params: Option<&'a str>,
    deadline: Instant,
    /// Where the response may go while it is written.
    stream: Option<&'a ResponseStream>,
}

/// A call that waits for a worker; id and parameters are slices of the request's body.
struct QueuedCall {
    method: &'static Method,
    id: Option<Bytes>,
    params: Option<Bytes>,
    deadline: Instant,
}

impl Dispatcher {
    /// Offers the methods of `namespaces`, and those that `also` names.
    pub fn new(
        backend: Arc<Backend>,
        worker_pools: Arc<WorkerPools>,
        namespaces: &BTreeSet<String>,
        also: &[&str],
        limits: Limits,
    ) -> Self {
        let methods = methods::all()
            .filter(|method| namespaces.contains(method.namespace()) || also.contains(&method.name))
            .map(|method| (method.name, method))
            .collect();
        Self {
            backend,
            worker_pools,
            methods,
            limits,
        }
    }

    /// What the methods work on.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// The namespaces that are offered here, ascending.
    pub fn namespaces(&self) -> BTreeSet<&'static str> {
        self.methods
            .values()
            .map(|method| method.namespace())
            .collect()
    }

    /// The result of `rpc_modules`: the namespaces that are offered here.
    fn modules(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = json::Object::new(&mut out);
        for namespace in self.namespaces() {
            object.string(namespace, "1.0");
        }
        drop(object);
        out
    }

    /// The result of `rpc.discover`: the methods that are offered here.
    fn discover(&self) -> Vec<u8> {
        let mut methods: Vec<&Method> = self.methods.values().copied().collect();
        methods.sort_unstable_by_key(|method| method.name);
        let mut out = Vec::new();
        let version = self.backend.identity.version.as_str();
        crate::discover::write(&mut out, &methods, "Niwaki JSON-RPC", version);
        out
    }

    /// Whether the method `name` is offered here.
    pub fn offers(&self, name: &str) -> bool {
        self.methods.contains_key(name)
    }

    /// Handles a request or a batch; `None` if the body held notifications only.
    pub async fn handle(self: &Arc<Self>, body: Bytes, session: &Session) -> Option<Vec<u8>> {
        let response = self.handle_unformatted(body, session).await;
        self.format(response)
    }

    /// Indents a response if the server does so.
    fn format(&self, response: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match self.limits.is_pretty {
            true => response.map(|response| crate::pretty::indented(&response)),
            false => response,
        }
    }

    async fn handle_unformatted(
        self: &Arc<Self>,
        body: Bytes,
        session: &Session,
    ) -> Option<Vec<u8>> {
        self.worker_pools.wait_for_block().await;
        if is_batch(&body) {
            return self.handle_batch(&body, session).await;
        }
        let Ok(text) = std::str::from_utf8(&body) else {
            let error = RpcError::parse("the body is not UTF-8");
            return Some(error_response(None, &error));
        };
        let deadline = Instant::now() + self.limits.timeout;
        wait(self.start(&body, text, session, deadline, false)).await
    }

    /// As [`Dispatcher::handle`], for a server that can send a long response while it is written.
    pub(crate) async fn handle_streaming(
        self: &Arc<Self>,
        body: Bytes,
        session: &Session,
    ) -> RpcResponse {
        let text = std::str::from_utf8(&body).ok();
        let Some(text) = text.filter(|_| !is_batch(&body)) else {
            return RpcResponse::Whole(self.handle(body, session).await);
        };
        self.worker_pools.wait_for_block().await;
        let deadline = Instant::now() + self.limits.timeout;
        let can_stream = !self.limits.is_pretty;
        let mut chunks = match self.start(&body, text, session, deadline, can_stream) {
            PendingResponse::Stream(chunks) => chunks,
            PendingResponse::Unauthorized(error) => return RpcResponse::Unauthorized(error),
            response => return RpcResponse::Whole(self.format(wait(response).await)),
        };
        match chunks.recv().await {
            Some(Chunk::More(first)) => RpcResponse::Stream(first, chunks),
            Some(Chunk::Last(whole)) => RpcResponse::Whole(Some(whole)),
            None => RpcResponse::Whole(Some(stopping())),
        }
    }

    /// Runs `job` on a worker of `lane`, with the deadline of a request that arrives now; `None` if it is not run: too many
    /// wait there, its time is over, or its caller has gone.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        job: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Option<T> {
        self.worker_pools.wait_for_block().await;
        let deadline = Instant::now() + self.limits.timeout;
        let (sender, result) = oneshot::channel();
        let job = move || {
            if !sender.is_closed() && Instant::now() <= deadline {
                drop(sender.send(job(deadline)));
            }
        };
        let is_queued = self.worker_pools.run(lane, Box::new(job));
        if is_queued { result.await.ok() } else { None }
    }

    async fn handle_batch(self: &Arc<Self>, body: &Bytes, session: &Session) -> Option<Vec<u8>> {
        let refuse = |error: RpcError| Some(error_response(None, &error));
        let requests: Vec<&RawValue> = match serde_json::from_slice(body) {
            Ok(requests) => requests,
            Err(error) => return refuse(RpcError::parse(format!("parse error: {error}"))),
        };
        let (count, max) = (requests.len(), self.limits.batch_requests);
        if count == 0 {
            return refuse(RpcError::invalid_request("empty batch"));
        }
        if count > max {
            let message = format!("batch of {count} requests, at most {max} are taken");
            return refuse(RpcError::invalid_request(message));
        }
        // One after the other: a request may depend on what the one before it did.
        let deadline = Instant::now() + self.limits.timeout;
        let mut out = vec![b'['];
        for (index, request) in requests.iter().enumerate() {
            if index.is_multiple_of(LEARN_AHEAD) {
                let ahead = requests[index..].iter().take(LEARN_AHEAD);
                self.learn_senders(ahead.map(|request| request.get()), session);
            }
            let response = self.start(body, request.get(), session, deadline, false);
            // A batch of inline calls must not keep the thread from other connections.
            tokio::task::yield_now().await;
            let Some(response) = wait(response).await else {
                continue;
            };
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(&response);
            if out.len() > self.limits.batch_bytes {
                let message = format!(
                    "the answers are longer than {} bytes; ask for fewer at once",
                    self.limits.batch_bytes
                );
                return refuse(RpcError::limit(message));
            }
        }
        if out.len() == 1 {
            return None;
        }
        out.push(b']');
        Some(out)
    }

    /// Recovers the senders of transactions that these requests send.
    fn learn_senders<'a>(&self, requests: impl Iterator<Item = &'a str>, session: &Session) {
        if !self.methods.contains_key(SEND) || !session.permits(SEND) {
            return;
        }
        let sent = requests.filter_map(|text| {
            let request = parse(text).ok()?;
            let params = request
                .params
                .filter(|_| request.method.as_deref() == Some(SEND))?;
            let params: Vec<&str> = serde_json::from_str(params.get()).ok()?;
            params.first().copied()
        });
        learn_senders(&self.backend, sent);
    }

    /// Runs or queues the request `text`, a slice of `body`. With `can_stream` a worker of the lane `Heavy`
    /// returns its response in chunks.
    fn start(
        self: &Arc<Self>,
        body: &Bytes,
        text: &str,
        session: &Session,
        deadline: Instant,
        can_stream: bool,
    ) -> PendingResponse {
        let request = match parse(text) {
            Ok(request) => request,
            Err(error) => return PendingResponse::Ready(error_response(None, &error)),
        };
        let id = request.id.map(RawValue::get);
        let Some(method) = request.method.filter(|_| is_version_2(&request.jsonrpc)) else {
            let error = RpcError::invalid_request("invalid request");
            return PendingResponse::Ready(error_response(id, &error));
        };
        // Checked before the name: a method that is added below is closed until an operator opens it.
        if !session.permits(&method) {
            let refused =
                || PendingResponse::Unauthorized(error_response(id, &RpcError::unauthorized()));
            return id.map_or(PendingResponse::None, |_| refused());
        }
        let params = request.params.map(RawValue::get);
        let respond = |result| match id {
            Some(_) => PendingResponse::Ready(response(id, result)),
            None => PendingResponse::None,
        };
        if let Some(result) = session.handle(self, &method, params, deadline) {
            return respond(result);
        }
        let Some(&found) = self.methods.get(&*method) else {
            return respond(match &*method {
                "rpc_modules" => Ok(self.modules()),
                "rpc.discover" => Ok(self.discover()),
                _ => Err(RpcError::method_not_found(&method)),
            });
        };
        if id.is_none() {
            return PendingResponse::None; // These methods do nothing but respond.
        }
        let lane = found.lane_of(params);
        let bytes = params.map_or(0, str::len);
        let slot = self.worker_pools.try_on_io_thread(lane, bytes);
        if lane == Lane::Inline || slot.is_some() {
            let call = Call {
                method: found,
                id,
                params,
                deadline,
                stream: None,
            };
            let response = call.run(&self.backend);
            return response.map_or(PendingResponse::None, PendingResponse::Ready);
        }
        let slice = |text: &str| body.slice_ref(text.as_bytes());
        let call = QueuedCall {
            method: found,
            id: id.map(slice),
            params: params.map(slice),
            deadline,
        };
        self.enqueue(call, lane, can_stream && lane == Lane::Heavy)
    }

    /// Has a worker of `lane` run `call`.
    fn enqueue(&self, call: QueuedCall, lane: Lane, is_streamed: bool) -> PendingResponse {
        let (reply, response) = if is_streamed {
            let (stream, chunks) = ResponseStream::new();
            (
                ResponseSender::Stream(stream),
                PendingResponse::Stream(chunks),
            )
        } else {
            let (sender, receiver) = oneshot::channel();
            (
                ResponseSender::Whole(sender),
                PendingResponse::Queued(receiver),
            )
        };
        let (name, id) = (call.method.name, call.id.clone());
        let backend = Arc::clone(&self.backend);
        let job = move || {
            if !reply.is_closed()
                && let Some(response) = call.run(&backend, reply.stream())
            {
                reply.send(response, call.deadline);
            }
        };
        if self.worker_pools.run(lane, Box::new(job)) {
            return response;
        }
        let message = format!("too many calls like {name} are waiting; try again");
        let id = id.as_deref().map(text);
        PendingResponse::Ready(error_response(id, &RpcError::limit(message)))
    }
}

fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"[")
}

fn parse(text: &str) -> Result<Request<'_>, RpcError> {
    let request: Request<'_> =
        serde_json::from_str(text).map_err(|error| match error.is_data() {
            true => RpcError::invalid_request("invalid request"),
            false => RpcError::parse(format!("parse error: {error}")),
        })?;
    let id = request.id.map(RawValue::get);
    if id.is_some_and(|id| id.starts_with(['{', '['])) {
        let message = "the id must be a string, a number or null";
        return Err(RpcError::invalid_request(message));
    }
    Ok(request)
}

/// A slice of a body that was UTF-8 as a whole.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("null")
}

fn is_version_2(version: &Option<Cow<'_, str>>) -> bool {
    version.as_deref() == Some("2.0")
}

impl ResponseSender {
    fn is_closed(&self) -> bool {
        match self {
            Self::Whole(sender) => sender.is_closed(),
            Self::Stream(stream) => stream.is_closed(),
        }
    }

    fn stream(&self) -> Option<&ResponseStream> {
        match self {
            Self::Whole(_) => None,
            Self::Stream(stream) => Some(stream),
        }
    }

    /// Sends the response, or the end of it; the client may have gone.
    fn send(self, response: Vec<u8>, deadline: Instant) {
        match self {
            Self::Whole(sender) => drop(sender.send(response)),
            Self::Stream(stream) => drop(stream.finish(response, deadline)),
        }
    }
}

fn stopping() -> Vec<u8> {
    error_response(None, &RpcError::internal("the server is stopping"))
}

/// The response as a whole; nothing for a notification.
async fn wait(response: PendingResponse) -> Option<Vec<u8>> {
    match response {
        PendingResponse::Ready(response) | PendingResponse::Unauthorized(response) => {
            Some(response)
        }
        PendingResponse::Queued(response) => Some(response.await.unwrap_or_else(|_| stopping())),
        // Only [`Dispatcher::handle_streaming`] requests a stream, and reads it itself.
        PendingResponse::Stream(_) | PendingResponse::None => None,
    }
}

impl QueuedCall {
    /// Runs the call on a worker; see [`Call::run`]. One that has waited beyond its deadline is refused.
    fn run(&self, backend: &Backend, stream: Option<&ResponseStream>) -> Option<Vec<u8>> {
        let id = self.id.as_deref().map(text);
        if Instant::now() > self.deadline {
            let error = RpcError::limit("timed out while waiting for a worker; try again");
            return Some(error_response(id, &error));
        }
        let call = Call {
            method: self.method,
            id,
            params: self.params.as_deref().map(text),
            deadline: self.deadline,
            stream,
        };
        call.run(backend)
    }
}

impl Call<'_> {
    /// Runs the method and returns the response, or the end of it if the rest went to `stream`; `None` if the method
    /// failed after that. A panic of a method is an error to its caller only.
    fn run(self, backend: &Backend) -> Option<Vec<u8>> {
        let (method, began) = (self.method, Instant::now());
        let mut out = Vec::with_capacity(256);
        open(&mut out, self.id);
        out.extend_from_slice(b"\"result\":");
        let is_engine = method.namespace() == "engine";
        if is_engine {
            backend.record_consensus_call();
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut params = Params::new(self.params, self.deadline)?;
            params.stream = self.stream;
            (method.run)(backend, &params, &mut out)
        }));
        let result = result.unwrap_or_else(|_| {
            tracing::error!(method = method.name, "A method panicked");
            Err(RpcError::internal("method handler crashed"))
        });
        metrics::record_call(method.name, began.elapsed(), &result);
        if let Err(error) = &result
            && is_engine
        {
            backend.engine_log.failed(method.name, error);
        }
        match result {
            Ok(()) => {
                out.push(b'}');
                Some(out)
            }
            Err(_) if self.stream.is_some_and(ResponseStream::has_started) => None,
            Err(error) => Some(error_response(self.id, &error)),
        }
    }
}

fn open(out: &mut Vec<u8>, id: Option<&str>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.unwrap_or("null").as_bytes());
    out.push(b',');
}

/// The response with a result that is JSON already, or with an error.
pub(crate) fn response(id: Option<&str>, result: Result<Vec<u8>, RpcError>) -> Vec<u8> {
    match result {
        Err(error) => error_response(id, &error),
        Ok(result) => {
            let mut out = Vec::with_capacity(result.len() + 48);
            open(&mut out, id);
            out.extend_from_slice(b"\"result\":");
            out.extend_from_slice(&result);
            out.push(b'}');
            out
        }
    }
}

/// The response with an error.
pub(crate) fn error_response(id: Option<&str>, error: &RpcError) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    open(&mut out, id);
    write_error(&mut out, error);
    out.push(b'}');
    out
}

fn write_error(out: &mut Vec<u8>, error: &RpcError) {
    out.extend_from_slice(b"\"error\":{\"code\":");
    out.extend_from_slice(error.code.to_string().as_bytes());
    out.extend_from_slice(b",\"message\":");
    json::string(out, &error.message);
    if let Some(data) = &error.data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data.as_bytes());
    }
    out.push(b'}');
}
