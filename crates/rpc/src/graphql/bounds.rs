//! Refuses a request that is too large before it is checked, and ends one at its deadline or when its answer is too long.

use async_graphql::async_trait::async_trait;
use async_graphql::extensions::{
    Extension, ExtensionContext, ExtensionFactory, NextResolve, ResolveInfo,
};
use async_graphql::parser::types::{ExecutableDocument, Selection, SelectionSet};
use async_graphql::{Pos, ServerError, ServerResult, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// What a value takes besides its text, a member of an object besides its name, and an error besides its message.
const VALUE_BYTES: usize = 32;
const MEMBER_BYTES: usize = 96;
const ERROR_BYTES: usize = 4_096;

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
        let answer = next.run(ctx, info).await;
        let bytes = bytes_of(&answer);
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max_bytes {
            if answer.is_err() {
                // Of a member, and on its way up.
                self.is_ended.store(true, Ordering::Relaxed);
                return answer;
            }
            let most = self.max_bytes;
            let message = format!("the answer is longer than {most} bytes; ask for less at once");
            return self.end(&message, position);
        }
        answer
    }
}

/// What an answer takes. A member is counted with its name by the object that it is in, since a type's name comes
/// without being resolved; its text, or its own members, by itself.
fn bytes_of(answer: &ServerResult<Option<Value>>) -> usize {
    match answer {
        Ok(Some(Value::String(text))) => VALUE_BYTES + text.len(),
        Ok(Some(Value::Object(members))) => {
            let names = members.keys().map(|name| MEMBER_BYTES + name.len());
            VALUE_BYTES + names.sum::<usize>()
        }
        Ok(_) => VALUE_BYTES,
        Err(error) => ERROR_BYTES + error.message.len(),
    }
}

/// Levels of a request with its fragments in their places, before the language is asked what they mean.
const MAX_LEVELS: usize = 64;

/// Whether a document has at most `most` fields, each fragment counted in every place that names it. The checks of the
/// language visit it as often: thirty fragments that name the next one twice would take them minutes.
pub(super) fn is_bounded(document: &ExecutableDocument, most: usize) -> bool {
    let mut expansion = Expansion {
        document,
        most,
        known: HashMap::new(),
    };
    let operations = document.operations.iter();
    let mut sets = operations.map(|(_, operation)| &operation.node.selection_set.node);
    sets.all(|set| expansion.fields(set, 0).is_some())
        && (document.fragments.keys()).all(|name| expansion.of_fragment(name, 0).is_some())
}

/// The fields of fragments that were counted.
struct Expansion<'d> {
    document: &'d ExecutableDocument,
    most: usize,
    /// `None` for one that is being counted: it names itself.
    known: HashMap<&'d str, Option<usize>>,
}

impl<'d> Expansion<'d> {
    /// The fields of a set; `None` if there are too many, or levels.
    fn fields(&mut self, set: &'d SelectionSet, level: usize) -> Option<usize> {
        if level > MAX_LEVELS {
            return None;
        }
        let mut all = 0_usize;
        for selection in &set.items {
            all += match &selection.node {
                Selection::Field(field) => {
                    1 + self.fields(&field.node.selection_set.node, level + 1)?
                }
                Selection::InlineFragment(fragment) => {
                    self.fields(&fragment.node.selection_set.node, level + 1)?
                }
                Selection::FragmentSpread(spread) => {
                    let name = &spread.node.fragment_name.node;
                    1 + self.of_fragment(name, level + 1)?
                }
            };
            if all > self.most {
                return None;
            }
        }
        Some(all)
    }

    /// One that does not exist has none: the language says so later.
    fn of_fragment(&mut self, name: &'d str, level: usize) -> Option<usize> {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let Some(fragment) = self.document.fragments.get(name) else {
            return Some(0);
        };
        self.known.insert(name, None);
        let fields = self.fields(&fragment.node.selection_set.node, level)?;
        self.known.insert(name, Some(fields));
        Some(fields)
    }
}
