//! A page of text, made when it is asked for.

use super::http::plain;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// Connections at a time.
const CONNECTIONS: usize = 32;

type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves what `page` makes at `path`, until `stop` is true. The address, which it gives, is bound
/// when this returns; the rest is to be run.
///
/// # Errors
/// As the system gives it.
pub async fn serve_text(
    address: SocketAddr,
    path: &'static str,
    page: Page,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<(SocketAddr, impl Future<Output = ()> + Send)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    let serving = async move {
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let permit = Arc::clone(&connections).try_acquire_owned();
            let (Ok((stream, _)), Ok(permit)) = (accepted, permit) else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let page = Arc::clone(&page);
            tokio::spawn(async move {
                let _permit = permit;
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = answer(&request, path, &page);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let serving = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(Duration::from_secs(30))
                    .serve_connection(TokioIo::new(stream), service);
                let _ = serving.await;
            });
        }
    };
    Ok((bound, serving))
}

fn answer(request: &Request<Incoming>, path: &str, page: &Page) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    }
    if request.uri().path() != path {
        return plain(StatusCode::NOT_FOUND, path);
    }
    let mut answer = plain(StatusCode::OK, &page());
    answer.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    answer
}
