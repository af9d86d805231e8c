//! The body of an answer: whole, or in parts as they are made.

use crate::outlet::Part;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::Receiver;

/// An answer that ended before its end.
#[derive(Debug, thiserror::Error)]
#[error("the answer could not be finished")]
pub(crate) struct Unfinished;

/// What is sent.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    /// All of it, of known length.
    Whole(Full<Bytes>),
    /// A first part, and where the others come from until the last one has come.
    Parts {
        /// Taken once it is sent.
        first: Option<Bytes>,
        /// `None` after the last one.
        rest: Option<Receiver<Part>>,
    },
}

impl From<Full<Bytes>> for AnswerBody {
    fn from(whole: Full<Bytes>) -> Self {
        Self::Whole(whole)
    }
}

impl Body for AnswerBody {
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
            Self::Parts { first, rest } => (first, rest),
        };
        let data = |part: Vec<u8>| Poll::Ready(Some(Ok(Frame::data(Bytes::from(part)))));
        if let Some(first) = first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(receiver) = rest else {
            return Poll::Ready(None);
        };
        match ready!(receiver.poll_recv(cx)) {
            Some(Part::More(part)) => data(part),
            Some(Part::Last(part)) => {
                *rest = None;
                data(part)
            }
            None => Poll::Ready(Some(Err(Unfinished))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Parts { first, rest } => first.is_none() && rest.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Parts { .. } => SizeHint::default(),
        }
    }
}
