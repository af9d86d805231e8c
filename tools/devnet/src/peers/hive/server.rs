//! The HTTP server of a simulation, on a port of 127.0.0.1 that the system chooses.
//!
//! Each request is handled whole on a thread that may block: starting a client takes seconds. A refusal is JSON with one field, `error`.

use super::simulation::{Refusal, Simulation};
use eyre::Result;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

/// Largest request: a chain with its genesis file.
const MAX_BODY_BYTES: usize = 256 << 20;

/// A server; it ends when the value is dropped.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Serves `simulation`.
    pub(super) fn start(simulation: Arc<Simulation>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(async move {
            // An error here is one of a single connection.
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&simulation)));
                }
            }
        });
        Ok(Self {
            address,
            _runtime: runtime,
        })
    }
}

async fn serve(stream: TcpStream, simulation: Arc<Simulation>) {
    let service = service_fn(move |request| {
        let simulation = Arc::clone(&simulation);
        async move { Ok::<_, Infallible>(respond(request, simulation).await) }
    });
    // The simulator may leave at any time.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn respond(request: Request<Incoming>, simulation: Arc<Simulation>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let why = format!("the request is longer than {MAX_BODY_BYTES} bytes");
            return refuse(&Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        Err(error) => return refuse(&Refusal::bad(format!("the request is incomplete: {error}"))),
    };
    let content_type = head.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    let handling = tokio::task::spawn_blocking(move || {
        simulation.handle(head.method.as_str(), head.uri.path(), &content_type, &body)
    });
    match handling.await {
        Ok(Ok(value)) => json_response(StatusCode::OK, &value),
        Ok(Err(refusal)) => refuse(&refusal),
        Err(error) => refuse(&Refusal::failure(error)),
    }
}

fn refuse(refusal: &Refusal) -> Response<Full<Bytes>> {
    json_response(refusal.status, &json!({ "error": refusal.why }))
}

fn json_response(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
