//! The body of a response: whole, or in chunks as they are written.

use crate::response_stream::Chunk;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::Receiver;

/// A streamed response broke off.
#[derive(Debug, thiserror::Error)]
#[error("the answer could not be finished")]
pub(crate) struct Unfinished;

/// The body of an HTTP response.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    /// All of it, of known length.
    Whole(Full<Bytes>),
    /// The first chunk, and the channel of the others.
    Stream {
        /// `None` once it is sent.
        first: Option<Bytes>,
        /// `None` after the last one.
        rest: Option<Receiver<Chunk>>,
    },
}

impl From<Full<Bytes>> for ResponseBody {
    fn from(whole: Full<Bytes>) -> Self {
        Self::Whole(whole)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Unfinished;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unfinished>>> {
        let (first, rest) = match self.get_mut() {
            Self::Whole(whole) => {
                let frame = ready!(Pin::new(whole).poll_frame(cx));
                return Poll::Ready(frame.map(|frame| frame.map_err(|never| match never {})));
            }
            Self::Stream { first, rest } => (first, rest),
        };
        let data = |part: Vec<u8>| Poll::Ready(Some(Ok(Frame::data(Bytes::from(part)))));
        if let Some(first) = first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(receiver) = rest else {
            return Poll::Ready(None);
        };
        match ready!(receiver.poll_recv(cx)) {
            Some(Chunk::More(part)) => data(part),
            Some(Chunk::Last(part)) => {
                *rest = None;
                data(part)
            }
            None => Poll::Ready(Some(Err(Unfinished))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Stream { first, rest } => first.is_none() && rest.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Stream { .. } => SizeHint::default(),
        }
    }
}
