//! Listeners to moves of the head.

use crate::tree::StoredHeader;
use crate::{BlockId, Chain};
use niwaki_primitives::Address;
use niwaki_threads::lock;
use std::sync::Arc;

/// The head moved.
#[derive(Clone, Debug)]
pub struct HeadChange {
    /// The new head.
    pub head: StoredHeader,
    /// The blocks that are no longer canonical, highest first.
    pub removed: Vec<BlockId>,
    /// The blocks that became canonical, lowest first; the last one is the head, unless the head went back.
    pub added: Vec<BlockId>,
    /// Every account that differs between the two heads; known only if the new head is a child of the old one.
    pub changed: Option<Arc<[Address]>>,
}

/// Called with every move of the head, in order, by the thread that moved it. That thread holds the writer's lock, so a
/// listener should only pass the change on.
pub type HeadListener = Box<dyn Fn(&HeadChange) + Send + Sync>;

impl Chain {
    /// Calls `listener` with every move of the head from now on.
    pub fn on_head(&self, listener: HeadListener) {
        lock(&self.listeners).push(listener);
    }

    pub(crate) fn notify_listeners(&self, change: &HeadChange) {
        for listener in lock(&self.listeners).iter() {
            listener(change);
        }
    }
}
