//! Who is told that the head moved.

use crate::tree::StoredHeader;
use crate::{BlockId, Chain};
use niwaki_primitives::Address;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The head moved.
#[derive(Clone, Debug)]
pub struct HeadChange {
    /// The new head.
    pub head: StoredHeader,
    /// The blocks that are no longer canonical, highest first.
    pub removed: Vec<BlockId>,
    /// The blocks that became canonical, lowest first; the last one is the head, unless the head
    /// went back.
    pub added: Vec<BlockId>,
    /// Every account that differs between the two heads, where that is known: where the new head is a
    /// child of the old one.
    pub changed: Option<Arc<[Address]>>,
}

/// What is called with every move of the head, in order, by the thread that moved it. It holds the
/// writer's lock then: a listener does no more than pass the news on.
pub type HeadListener = Box<dyn Fn(&HeadChange) + Send + Sync>;

/// Those who listen.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<Vec<HeadListener>>);

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listeners(..)")
    }
}

impl Chain {
    /// Has `listener` told of every move of the head from now on.
    pub fn on_head(&self, listener: HeadListener) {
        let listeners = self.listeners().0.lock();
        let mut listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        listeners.push(listener);
    }

    pub(crate) fn tell(&self, change: &HeadChange) {
        let listeners = self.listeners().0.lock();
        for listener in listeners.unwrap_or_else(PoisonError::into_inner).iter() {
            listener(change);
        }
    }
}
