//! A server of one text page, rendered at each request.

use super::http::{plain, with_header};
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

/// Most connections at a time.
const MAX_CONNECTIONS: usize = 32;

type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves the text of `page` at `path` until `stop` is true. When this returns, the address is bound; the caller must
/// run the returned future.
///
/// # Errors
/// Errors of the system.
pub async fn serve_text(
    address: SocketAddr,
    path: &'static str,
    page: Page,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<(SocketAddr, impl Future<Output = ()> + Send)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    let serving = async move {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
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
                    let response = response(&request, path, &page);
                    async move { Ok::<_, Infallible>(response) }
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

fn response(request: &Request<Incoming>, path: &str, page: &Page) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    }
    if request.uri().path() != path {
        return plain(StatusCode::NOT_FOUND, path);
    }
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    with_header(plain(StatusCode::OK, &page()), header::CONTENT_TYPE, kind)
}
