//! The state of one connection: its subscriptions, and its caller.

use crate::dispatch::Dispatcher;
use crate::server::Caller;
use crate::subscriptions::{self, SubscriptionKind};
use crate::{Params, RpcError, lock};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::mpsc::Sender;
use tokio::task::AbortHandle;

/// Most subscriptions of one connection.
const MAX_SUBSCRIPTIONS: usize = 256;

/// A connection. One over HTTP can't receive notifications and so has no subscriptions.
#[derive(Debug, Default)]
pub struct Session {
    notify: Option<Sender<Vec<u8>>>,
    subscriptions: Mutex<HashMap<String, AbortHandle>>,
    /// `None` if the server asks for no token.
    caller: Option<Caller>,
}

impl Session {
    /// A connection that receives notifications through `notify`.
    pub fn with_events(notify: Sender<Vec<u8>>) -> Self {
        Self {
            notify: Some(notify),
            subscriptions: Mutex::default(),
            caller: None,
        }
    }

    /// The connection of a caller whose token was checked.
    #[must_use]
    pub fn with_caller(mut self, caller: Option<Caller>) -> Self {
        self.caller = caller;
        self
    }

    /// Whether the caller may call the method, now.
    pub(crate) fn permits(&self, method: &str) -> bool {
        self.caller.as_ref().is_none_or(|caller| caller.may(method))
    }

    /// The result of a call that is about the connection; `None` for all other calls.
    pub(crate) fn handle(
        &self,
        dispatcher: &Dispatcher,
        method: &str,
        params: Option<&str>,
        deadline: Instant,
    ) -> Option<Result<Vec<u8>, RpcError>> {
        if !matches!(method, "eth_subscribe" | "eth_unsubscribe")
            || !dispatcher.offers("eth_blockNumber")
        {
            return None;
        }
        let Some(notify) = &self.notify else {
            let error = RpcError::new(-32601, "notifications not supported");
            return Some(Err(error));
        };
        let params = match Params::new(params, deadline) {
            Ok(params) => params,
            Err(error) => return Some(Err(error)),
        };
        Some(match method {
            "eth_subscribe" => self.subscribe(dispatcher, &params, notify),
            _ => self.unsubscribe(&params),
        })
    }

    fn subscribe(
        &self,
        dispatcher: &Dispatcher,
        params: &Params<'_>,
        notify: &Sender<Vec<u8>>,
    ) -> Result<Vec<u8>, RpcError> {
        let kind = SubscriptionKind::read(params)?;
        let mut subscriptions = lock(&self.subscriptions);
        subscriptions.retain(|_, task| !task.is_finished());
        if subscriptions.len() >= MAX_SUBSCRIPTIONS {
            let message = format!("at most {MAX_SUBSCRIPTIONS} subscriptions for one connection");
            return Err(RpcError::limit(message));
        }
        let backend = dispatcher.backend().clone();
        let Ok(permit) = Arc::clone(&backend.subscription_permits).try_acquire_owned() else {
            let most = backend.options.max_subscriptions;
            let message = format!("{most} subscriptions of all connections are in use");
            return Err(RpcError::limit(message));
        };
        let id = backend.next_id();
        let subscription = subscriptions::run(backend, kind, id.clone(), notify.clone());
        let task = tokio::spawn(async move {
            subscription.await;
            drop(permit);
        });
        subscriptions.insert(id.clone(), task.abort_handle());
        Ok(format!("\"{id}\"").into_bytes())
    }

    fn unsubscribe(&self, params: &Params<'_>) -> Result<Vec<u8>, RpcError> {
        let id: String = params.required(0)?;
        match lock(&self.subscriptions).remove(&id) {
            Some(task) => {
                task.abort();
                Ok(b"true".to_vec())
            }
            None => Err(RpcError::server("subscription not found")),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        lock(&self.subscriptions)
            .values()
            .for_each(AbortHandle::abort);
    }
}
