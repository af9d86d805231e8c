//! WebSocket: a message is a request, an answer is a message; subscriptions send more.

use crate::dispatch::Dispatcher;
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
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Messages to a client that does not read them, after which it is let go.
const UNREAD: usize = 1024;

/// Requests of one connection that are answered at the same time.
const AT_ONCE: usize = 64;

/// How often a silent client is asked whether it is there.
const PING: Duration = Duration::from_secs(30);

/// Whether the request asks for a WebSocket.
pub(crate) fn is_upgrade<B>(request: &Request<B>) -> bool {
    request
        .headers()
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// What the client's key is answered with (RFC 6455).
pub(crate) fn accept_key(key: &[u8]) -> String {
    derive_accept_key(key)
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
    let (sender, mut answers) = mpsc::channel::<Vec<u8>>(UNREAD);
    let figures = *dispatcher.backend().figures();
    let _counted = figures.ws_connection();

    let writer = tokio::spawn(async move {
        let mut ping = tokio::time::interval(PING);
        ping.tick().await;
        loop {
            let message = tokio::select! {
                answer = answers.recv() => match answer {
                    Some(answer) => text(answer),
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

    let session = Arc::new(Session::with_events(sender.clone()).of(caller));
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
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
        let Ok(permit) = Arc::clone(&at_once).acquire_owned().await else {
            break;
        };
        let (dispatcher, session) = (Arc::clone(&dispatcher), Arc::clone(&session));
        let sender = sender.clone();
        tokio::spawn(async move {
            let _permit = permit;
            if let Some(answer) = dispatcher.answer(body, &session).await {
                let _ = sender.send(answer).await;
            }
        });
    }
    drop((session, sender));
    let _ = tokio::time::timeout(Duration::from_secs(5), writer).await;
}

fn text(answer: Vec<u8>) -> Message {
    // Answers are JSON, which is UTF-8; were one not, bytes are better than nothing.
    match String::from_utf8(answer) {
        Ok(text) => Message::text(text),
        Err(error) => Message::binary(error.into_bytes()),
    }
}
