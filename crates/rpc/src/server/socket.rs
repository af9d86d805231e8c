//! WebSocket: each message is a request or a response; subscriptions send notifications in between.

use crate::dispatch::Dispatcher;
use crate::metrics;
use crate::server::tokens::Caller;
use crate::session::Session;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::Request;
use hyper::header;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Messages that a client may leave unread.
const MAX_UNREAD_MESSAGES: usize = 1024;

/// Requests of one connection that run at the same time.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// How often the server pings a client.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Whether the request is an upgrade to WebSocket.
pub(crate) fn is_upgrade<B>(request: &Request<B>) -> bool {
    let upgrade = request.headers().get(header::UPGRADE);
    upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Serves one connection until it ends or `stop` is true.
pub(crate) async fn serve<S>(
    stream: S,
    dispatcher: Arc<Dispatcher>,
    max_message_bytes: usize,
    caller: Option<Caller>,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(max_message_bytes))
        .max_frame_size(Some(max_message_bytes));
    let stream = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut to_client, mut from_client) = stream.split();
    let (sender, mut responses) = mpsc::channel::<Vec<u8>>(MAX_UNREAD_MESSAGES);
    let _gauge = metrics::ws_connection();

    let writer = tokio::spawn(async move {
        let mut ping = tokio::time::interval(PING_INTERVAL);
        ping.tick().await;
        loop {
            let message = tokio::select! {
                response = responses.recv() => match response {
                    Some(response) => text(response),
                    None => break,
                },
                _ = ping.tick() => Message::Ping(Bytes::new()),
            };
            if to_client.send(message).await.is_err() {
                break;
            }
        }
        let _ = to_client.close().await;
    });

    let session = Arc::new(Session::with_events(sender.clone()).with_caller(caller));
    let concurrent = Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS));
    loop {
        let message = tokio::select! {
            message = from_client.next() => message,
            _ = stop.wait_for(|stop| *stop) => break,
            () = sender.closed() => break,
        };
        let body = match message {
            Some(Ok(Message::Text(text))) => Bytes::from(text),
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Ok(Message::Close(_)) | Err(_)) | None => break,
        };
        let Ok(permit) = Arc::clone(&concurrent).acquire_owned().await else {
            break;
        };
        let (dispatcher, session) = (Arc::clone(&dispatcher), Arc::clone(&session));
        let sender = sender.clone();
        tokio::spawn(async move {
            let _permit = permit;
            if let Some(response) = dispatcher.handle(body, &session).await {
                let _ = sender.send(response).await;
            }
        });
    }
    drop((session, sender));
    let _ = tokio::time::timeout(Duration::from_secs(5), writer).await;
}

fn text(response: Vec<u8>) -> Message {
    // Responses are JSON and so UTF-8; should one not be, it is sent as bytes.
    match String::from_utf8(response) {
        Ok(text) => Message::text(text),
        Err(error) => Message::binary(error.into_bytes()),
    }
}
