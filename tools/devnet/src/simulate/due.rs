//! What happens at a time.

use niwaki_bft::machine::{Record, Timer, Verdict};
use niwaki_bft::wire::{Message, View};
use niwaki_primitives::{Address, B256, Header};
use std::sync::Arc;

/// What is due at a time.
#[derive(Debug)]
pub(super) enum Due {
    Start {
        node: usize,
    },
    Stop {
        node: usize,
    },
    Level {
        node: usize,
        life: u64,
    },
    Timer {
        node: usize,
        timer: Timer,
        number: u64,
    },
    Message {
        from: usize,
        to: usize,
        message: Arc<Message>,
    },
    Judged {
        node: usize,
        life: u64,
        hash: B256,
        verdict: Verdict,
    },
    Build {
        node: usize,
        life: u64,
        view: View,
        timestamp: u64,
    },
    Record {
        node: usize,
        life: u64,
        record: Box<Record>,
    },
    Send {
        node: usize,
        life: u64,
        to: Option<Address>,
        message: Arc<Message>,
    },
    Import {
        node: usize,
        life: u64,
        header: Arc<Header>,
    },
    Block {
        from: usize,
        to: usize,
        header: Arc<Header>,
    },
    Fetch {
        from: usize,
        to: usize,
    },
    Link {
        one: usize,
        other: usize,
    },
    Trouble,
    Lie {
        node: usize,
    },
    Calm,
}

/// One line of a trace.
pub(super) fn describe(at_ms: u64, due: &Due) -> String {
    match due {
        Due::Message { from, to, message } => {
            let (kind, view) = (message.kind(), message.view());
            let View { height, round } = view;
            format!("{at_ms:>7} ms  {from} -> {to}: {kind:?} {height}/{round}")
        }
        Due::Send { node, message, .. } => {
            let View { height, round } = message.view();
            format!(
                "{at_ms:>7} ms  {node} says {:?} {height}/{round}",
                message.kind()
            )
        }
        Due::Record { node, record, .. } => match **record {
            Record::Round(view) => format!("{at_ms:>7} ms  {node} records round {view:?}"),
            Record::Vote { view, kind, digest } => {
                format!("{at_ms:>7} ms  {node} records {kind:?} {view:?} {digest}")
            }
            Record::Certificate { height, .. } => {
                format!("{at_ms:>7} ms  {node} records a certificate at {height}")
            }
        },
        Due::Import { node, header, .. } => {
            format!("{at_ms:>7} ms  {node} imports its block {}", header.number)
        }
        Due::Block { from, to, header } => {
            format!("{at_ms:>7} ms  {from} -> {to}: block {}", header.number)
        }
        Due::Timer { node, timer, .. } => format!("{at_ms:>7} ms  {node}: {timer:?}"),
        other => format!("{at_ms:>7} ms  {other:?}"),
    }
}
