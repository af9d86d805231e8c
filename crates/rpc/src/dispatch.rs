//! From the bytes of a request to the bytes of its answer.
//!
//! A request is read without copying: method, id and parameters are slices of the body. Cheap
//! methods are answered by the thread that read the request, and so are calls, by as many of these threads
//! as [`Lanes`] lets; the others wait for a worker of their [`Lane`], in a queue that is bounded. The
//! requests of a batch are answered one after the other.

use crate::backend::Backend;
use crate::lanes::Lanes;
use crate::methods::{self, Lane, Method};
use crate::outlet::{Outlet, Part};
use crate::session::Session;
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

/// How much is served at once and at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests in a batch.
    pub batch_requests: usize,
    /// Bytes of all answers to a batch.
    pub batch_bytes: usize,
    /// How long a call, or a batch of calls, may take.
    pub timeout: Duration,
    /// Whether answers have line breaks and blanks for a person to read.
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

/// One way in: which methods it offers, and within what limits.
#[derive(Debug)]
pub struct Dispatcher {
    backend: Arc<Backend>,
    lanes: Arc<Lanes>,
    methods: HashMap<&'static str, &'static Method>,
    limits: Limits,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    /// Absent in a notification; null is an identity like any other.
    #[serde(borrow, default, deserialize_with = "even_null")]
    id: Option<&'a RawValue>,
}

fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(raw: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(raw).map(Some)
}

/// Where an answer comes from.
enum Answer {
    Ready(Vec<u8>),
    Later(oneshot::Receiver<Vec<u8>>),
    Parts(mpsc::Receiver<Part>),
    /// A refusal of a caller who may not call this.
    Unauthorized(Vec<u8>),
    None,
}

/// An answer that need not be whole.
pub(crate) enum InParts {
    /// It is; `None` where only notifications were sent.
    Whole(Option<Vec<u8>>),
    /// A first part, and where the others come from.
    Parts(Vec<u8>, mpsc::Receiver<Part>),
    /// The refusal of a single request whose caller may not call this.
    Unauthorized(Vec<u8>),
}

/// How a worker gives its answer.
enum Reply {
    Whole(oneshot::Sender<Vec<u8>>),
    Parts(Outlet),
}

impl Dispatcher {
    /// A way in to the methods of `namespaces`, and to those of `also` by name.
    pub fn new(
        backend: Arc<Backend>,
        lanes: Arc<Lanes>,
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
            lanes,
            methods,
            limits,
        }
    }

    /// What the methods are asked of.
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

    /// The answer to `rpc_modules`: the namespaces that are offered here.
    fn modules(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = json::Object::new(&mut out);
        for namespace in self.namespaces() {
            object.string(namespace, "1.0");
        }
        drop(object);
        out
    }

    /// The answer to `rpc.discover`: the methods that are offered here.
    fn discover(&self) -> Vec<u8> {
        let mut names: Vec<&str> = self.methods.keys().copied().collect();
        names.sort_unstable();
        let mut out = Vec::new();
        let version = self.backend.identity.version.as_str();
        crate::discover::write(&mut out, &names, ("Niwaki JSON-RPC", version));
        out
    }

    /// Whether the method `name` is offered here.
    pub fn offers(&self, name: &str) -> bool {
        self.methods.contains_key(name)
    }

    /// Answers a request or a batch; `None` where only notifications were sent.
    pub async fn answer(self: &Arc<Self>, body: Bytes, session: &Session) -> Option<Vec<u8>> {
        let answer = self.plain_answer(body, session).await;
        self.laid_out(answer)
    }

    /// The answer as it is sent.
    fn laid_out(&self, answer: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match self.limits.is_pretty {
            true => answer.map(|answer| crate::pretty::indented(&answer)),
            false => answer,
        }
    }

    async fn plain_answer(self: &Arc<Self>, body: Bytes, session: &Session) -> Option<Vec<u8>> {
        self.lanes.give_way().await;
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        match first {
            Some(b'[') => self.answer_batch(&body, session).await,
            _ => {
                let Ok(text) = std::str::from_utf8(&body) else {
                    return Some(refusal(None, &RpcError::parse("the body is not UTF-8")));
                };
                let deadline = Instant::now() + self.limits.timeout;
                finished(self.begin(&body, text, session, deadline, false)).await
            }
        }
    }

    /// As [`Dispatcher::answer`], for a way in that can send a long answer while it is made.
    pub(crate) async fn answer_in_parts(
        self: &Arc<Self>,
        body: Bytes,
        session: &Session,
    ) -> InParts {
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        let text = std::str::from_utf8(&body)
            .ok()
            .filter(|_| first != Some(&b'['));
        let Some(text) = text else {
            return InParts::Whole(self.answer(body, session).await);
        };
        self.lanes.give_way().await;
        let deadline = Instant::now() + self.limits.timeout;
        let in_parts = !self.limits.is_pretty;
        let mut parts = match self.begin(&body, text, session, deadline, in_parts) {
            Answer::Parts(parts) => parts,
            Answer::Unauthorized(refusal) => return InParts::Unauthorized(refusal),
            answer => return InParts::Whole(self.laid_out(finished(answer).await)),
        };
        match parts.recv().await {
            Some(Part::More(first)) => InParts::Parts(first, parts),
            Some(Part::Last(whole)) => InParts::Whole(Some(whole)),
            None => InParts::Whole(Some(stopping())),
        }
    }

    async fn answer_batch(self: &Arc<Self>, body: &Bytes, session: &Session) -> Option<Vec<u8>> {
        let requests: Vec<&RawValue> = match serde_json::from_slice(body) {
            Ok(requests) => requests,
            Err(error) => {
                let error = RpcError::parse(format!("parse error: {error}"));
                return Some(refusal(None, &error));
            }
        };
        if requests.is_empty() {
            return Some(refusal(None, &RpcError::invalid_request("empty batch")));
        }
        if requests.len() > self.limits.batch_requests {
            let message = format!(
                "batch of {} requests, at most {} are taken",
                requests.len(),
                self.limits.batch_requests
            );
            return Some(refusal(None, &RpcError::invalid_request(message)));
        }
        // One after the other: a request may count on what the one before it did.
        let deadline = Instant::now() + self.limits.timeout;
        let mut out = vec![b'['];
        for request in requests {
            let answer = self.begin(body, request.get(), session, deadline, false);
            // What is answered at once must not keep the thread from other connections.
            tokio::task::yield_now().await;
            let Some(answer) = finished(answer).await else {
                continue;
            };
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(&answer);
            if out.len() > self.limits.batch_bytes {
                let message = format!(
                    "the answers are longer than {} bytes; ask for fewer at once",
                    self.limits.batch_bytes
                );
                return Some(refusal(None, &RpcError::limit(message)));
            }
        }
        if out.len() == 1 {
            return None;
        }
        out.push(b']');
        Some(out)
    }

    /// Begins to answer the request `text`, which is a part of `body`; in parts, if that may be
    /// and the method is one of long answers.
    fn begin(
        self: &Arc<Self>,
        body: &Bytes,
        text: &str,
        session: &Session,
        deadline: Instant,
        in_parts: bool,
    ) -> Answer {
        let request: Request<'_> = match serde_json::from_str(text) {
            Ok(request) => request,
            Err(error) if error.is_data() => {
                let error = RpcError::invalid_request("invalid request");
                return Answer::Ready(refusal(None, &error));
            }
            Err(error) => {
                let error = RpcError::parse(format!("parse error: {error}"));
                return Answer::Ready(refusal(None, &error));
            }
        };
        let id = request.id.map(RawValue::get);
        if id.is_some_and(|id| id.starts_with(['{', '['])) {
            let error = RpcError::invalid_request("the id must be a string, a number or null");
            return Answer::Ready(refusal(None, &error));
        }
        let Some(method) = request.method.filter(|_| is_version_2(&request.jsonrpc)) else {
            return Answer::Ready(refusal(id, &RpcError::invalid_request("invalid request")));
        };
        // Whatever the name: what is added below is closed until somebody opens it.
        if !session.permits(&method) {
            let refused = || Answer::Unauthorized(refusal(id, &RpcError::unauthorized()));
            return id.map_or(Answer::None, |_| refused());
        }
        let params = request.params.map(RawValue::get);
        if let Some(answer) = session.answer(self, &method, params, deadline) {
            return match id {
                Some(_) => Answer::Ready(envelope(id, answer)),
                None => Answer::None,
            };
        }
        let own = match &*method {
            "rpc_modules" => Some(Self::modules as fn(&Self) -> Vec<u8>),
            "rpc.discover" => Some(Self::discover as _),
            _ => None,
        };
        if let Some(own) = own {
            return match id {
                Some(_) => Answer::Ready(envelope(id, Ok(own(self)))),
                None => Answer::None,
            };
        }
        let Some(&found) = self.methods.get(&*method) else {
            return match id {
                Some(_) => Answer::Ready(refusal(id, &RpcError::method_not_found(&method))),
                None => Answer::None,
            };
        };
        if id.is_none() {
            return Answer::None; // A notification asks for nothing that these methods do.
        }
        let lane = found.lane_of(params);
        let place = self.lanes.run_by_reader(lane, params.map_or(0, str::len));
        if lane == Lane::Inline || place.is_some() {
            let answer = run(&self.backend, found, (id, params), deadline, None);
            return answer.map_or(Answer::None, Answer::Ready);
        }
        let part = |text: &str| body.slice_ref(text.as_bytes());
        let asked = (id.map(part), params.map(part));
        let in_parts = in_parts && lane == Lane::Heavy;
        self.later((found, lane), asked, deadline, in_parts)
    }

    /// Has a worker of `lane` answer.
    fn later(
        &self,
        (method, lane): (&'static Method, Lane),
        (id, params): (Option<Bytes>, Option<Bytes>),
        deadline: Instant,
        in_parts: bool,
    ) -> Answer {
        let (reply, answer) = if in_parts {
            let (outlet, parts) = Outlet::new();
            (Reply::Parts(outlet), Answer::Parts(parts))
        } else {
            let (sender, receiver) = oneshot::channel();
            (Reply::Whole(sender), Answer::Later(receiver))
        };
        let backend = Arc::clone(&self.backend);
        let refused = id.clone();
        let job = move || {
            let (id, params) = (id.as_deref().map(text), params.as_deref().map(text));
            let outlet = match &reply {
                Reply::Parts(outlet) => Some(outlet),
                Reply::Whole(_) => None,
            };
            let answer = if reply.is_closed() {
                return; // Nobody waits any more.
            } else if Instant::now() > deadline {
                let error = RpcError::limit("timed out while waiting for a worker; try again");
                Some(refusal(id, &error))
            } else {
                run(&backend, method, (id, params), deadline, outlet)
            };
            if let Some(answer) = answer {
                reply.send(answer, deadline);
            }
        };
        if self.lanes.run(lane, Box::new(job)) {
            return answer;
        }
        let message = format!("too many calls like {} are waiting; try again", method.name);
        let refused = refused.as_deref().map(text);
        Answer::Ready(refusal(refused, &RpcError::limit(message)))
    }
}

/// The text of a part of a body that was text as a whole.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("null")
}

fn is_version_2(version: &Option<Cow<'_, str>>) -> bool {
    version.as_deref() == Some("2.0")
}

impl Reply {
    fn is_closed(&self) -> bool {
        match self {
            Self::Whole(sender) => sender.is_closed(),
            Self::Parts(outlet) => outlet.is_closed(),
        }
    }

    /// Gives the end of the answer; whoever asked may have gone.
    fn send(self, answer: Vec<u8>, deadline: Instant) {
        match self {
            Self::Whole(sender) => drop(sender.send(answer)),
            Self::Parts(outlet) => drop(outlet.finish(answer, deadline)),
        }
    }
}

fn stopping() -> Vec<u8> {
    refusal(None, &RpcError::internal("the server is stopping"))
}

/// The answer as a whole; nothing for a notification.
async fn finished(answer: Answer) -> Option<Vec<u8>> {
    match answer {
        Answer::Ready(answer) | Answer::Unauthorized(answer) => Some(answer),
        Answer::Later(task) => Some(task.await.unwrap_or_else(|_| stopping())),
        // Only [`Dispatcher::answer_in_parts`] asks for such a one, and takes it.
        Answer::Parts(_) | Answer::None => None,
    }
}

/// Runs `method` and wraps what it gives, or the end of it where `outlet` has the rest; nothing if
/// it failed after that. A panic of ours is an error to this caller and to nobody else.
fn run(
    backend: &Backend,
    method: &Method,
    (id, params): (Option<&str>, Option<&str>),
    deadline: Instant,
    outlet: Option<&Outlet>,
) -> Option<Vec<u8>> {
    let began = Instant::now();
    let mut out = Vec::with_capacity(256);
    open(&mut out, id);
    out.extend_from_slice(b"\"result\":");
    let is_engine = method.namespace() == "engine";
    if is_engine {
        backend.consensus_spoke();
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut params = Params::new(params, deadline)?;
        params.outlet = outlet;
        (method.run)(backend, &params, &mut out)
    }));
    let result = result.unwrap_or_else(|_| {
        tracing::error!(method = method.name, "A method panicked");
        Err(RpcError::internal("method handler crashed"))
    });
    backend
        .figures()
        .call(method.name, began.elapsed(), &result);
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
        Err(_) if outlet.is_some_and(Outlet::has_begun) => None,
        Err(error) => Some(refusal(id, &error)),
    }
}

fn open(out: &mut Vec<u8>, id: Option<&str>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.unwrap_or("null").as_bytes());
    out.push(b',');
}

/// The envelope of `answer`, a result that is JSON already or an error.
pub(crate) fn envelope(id: Option<&str>, answer: Result<Vec<u8>, RpcError>) -> Vec<u8> {
    match answer {
        Err(error) => refusal(id, &error),
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

/// The answer that refuses.
pub(crate) fn refusal(id: Option<&str>, error: &RpcError) -> Vec<u8> {
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
