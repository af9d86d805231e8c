//! Ends a request at its deadline, or when its answer is too long.

use async_graphql::async_trait::async_trait;
use async_graphql::extensions::{
    Extension, ExtensionContext, ExtensionFactory, NextResolve, ResolveInfo,
};
use async_graphql::{Pos, ServerError, ServerResult, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// What a field takes besides its text: its name, and its place in the tree of values.
const FIELD_BYTES: usize = 64;

/// When the caller of a request stops waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(pub(super) Instant);

/// Makes the bounds of each request.
pub(super) struct BoundsFactory {
    /// Most bytes of an answer.
    pub(super) max_bytes: usize,
}

impl ExtensionFactory for BoundsFactory {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Bounds {
            max_bytes: self.max_bytes,
            bytes: AtomicUsize::new(0),
            is_ended: AtomicBool::new(false),
        })
    }
}

struct Bounds {
    max_bytes: usize,
    bytes: AtomicUsize,
    is_ended: AtomicBool,
}

impl Bounds {
    /// Ends the request: the first field that meets a bound says so, all others are null.
    fn end(&self, message: &str, position: Pos) -> ServerResult<Option<Value>> {
        match self.is_ended.swap(true, Ordering::Relaxed) {
            true => Ok(Some(Value::Null)),
            false => Err(ServerError::new(message, Some(position))),
        }
    }
}

#[async_trait]
impl Extension for Bounds {
    async fn resolve(
        &self,
        ctx: &ExtensionContext<'_>,
        info: ResolveInfo<'_>,
        next: NextResolve<'_>,
    ) -> ServerResult<Option<Value>> {
        let position = info.field.name.pos;
        let deadline = ctx.data_opt::<Deadline>();
        let is_late = deadline.is_some_and(|deadline| Instant::now() > deadline.0);
        if is_late || self.is_ended.load(Ordering::Relaxed) {
            return self.end("request timed out", position);
        }
        let value = next.run(ctx, info).await?;
        let text = match &value {
            Some(Value::String(text)) => text.len(),
            _ => 0,
        };
        let bytes = FIELD_BYTES + text;
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max_bytes {
            let most = self.max_bytes;
            let message = format!("the answer is longer than {most} bytes; ask for less at once");
            return self.end(&message, position);
        }
        Ok(value)
    }
}
