//! `niwaki-evm t8n-server`: transitions over HTTP, one per request, so that a test filler does not start a process for
//! each.
//!
//! A request has `state` (`fork`, `chainid`, `reward`) and `input` (`alloc`, `env`, `txs` or `txsRlp`), the
//! response `alloc`, `body` and `result`, as Besu's tool has them.

use super::input::Documents;
use super::{Failure, Rules, document, transition};
use clap::Args;
use eyre::{Result, WrapErr};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, server::conn::http1};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::TcpListener;

/// Limit of a request.
const MAX_REQUEST_BYTES: usize = 256 << 20;

/// Options of `t8n-server`.
#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// Address to listen on. Any client that reaches it may have any code run.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 for one that is free.
    #[arg(long, value_name = "PORT", default_value_t = 3000)]
    port: u16,
}

#[derive(Deserialize)]
struct TransitionRequest {
    state: State,
    input: Documents,
}

#[derive(Deserialize)]
struct State {
    fork: String,
    #[serde(default = "mainnet", alias = "chainId")]
    chainid: u64,
    reward: Option<i128>,
}

fn mainnet() -> u64 {
    1
}

/// Serves until the program is ended.
///
/// # Errors
/// If the address is in use.
pub(crate) fn serve(options: &ServerOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let address = (options.host, options.port);
        let listener = TcpListener::bind(address).await.wrap_err_with(|| {
            format!(
                "can't listen on {}:{}; use another --port",
                address.0, address.1
            )
        })?;
        println!(
            "Transition server listening on {}",
            listener.local_addr()?.port()
        );
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    eprintln!("niwaki-evm: a connection was not accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            tokio::spawn(async move {
                let served = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(respond))
                    .await;
                if let Err(error) = served {
                    eprintln!("niwaki-evm: a connection broke: {error}");
                }
            });
        }
    })
}

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() != Method::POST {
        let allowed = "send a transition by POST";
        return Ok(response(StatusCode::METHOD_NOT_ALLOWED, allowed.to_owned()));
    }
    let body = match Limited::new(request.into_body(), MAX_REQUEST_BYTES)
        .collect()
        .await
    {
        Ok(body) => body.to_bytes(),
        Err(error) => return Ok(response(StatusCode::BAD_REQUEST, error.to_string())),
    };
    let transition = tokio::task::spawn_blocking(move || transition_of(&body));
    Ok(match transition.await {
        Ok(Ok(text)) => response(StatusCode::OK, text),
        Ok(Err(failure)) => response(StatusCode::BAD_REQUEST, failure.to_string()),
        Err(panic) => response(StatusCode::INTERNAL_SERVER_ERROR, panic.to_string()),
    })
}

fn transition_of(body: &[u8]) -> Result<String, Failure> {
    let request: TransitionRequest =
        serde_json::from_slice(body).map_err(|error| Failure::json("the request", error))?;
    let State {
        fork,
        chainid,
        reward,
    } = request.state;
    let rules = Rules::new(&fork, chainid, reward)?;
    let result = transition::apply(&rules, request.input.read(chainid)?, None)?;
    let [alloc, body, result] =
        ["alloc", "body", "result"].map(|name| document(name, &result, rules.fork));
    Ok(json!({ "alloc": alloc, "body": body, "result": result }).to_string())
}

fn response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let kind = match status {
        StatusCode::OK => "application/json",
        _ => "text/plain; charset=utf-8",
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        hyper::header::CONTENT_TYPE,
        kind.parse().expect("a header's value"),
    );
    response
}
