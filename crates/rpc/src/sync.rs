//! `niwaki_syncStatus`, and the hook into the program's sync that it and `eth_syncing` use.
//!
//! The program sets the hook once if it has peers to sync from.

use crate::json::{self, Object};
use crate::methods::{Lane, Method, row};
use crate::params::Params;
use crate::{Backend, RpcResult};
use niwaki_primitives::B256;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("niwaki_syncStatus", "", Lane::Inline, sync_status),
];

/// Says how far the sync is.
pub type SyncHook = Box<dyn Fn() -> SyncReport + Send + Sync>;

/// How far a sync is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncReport {
    /// How a node without state syncs: `full` or `snap`.
    pub mode: &'static str,
    /// What is done now: `idle` if there is nothing to do.
    pub state: &'static str,
    /// How the node gets to the target.
    pub way: Option<&'static str>,
    /// The block to reach.
    pub target: Option<B256>,
    /// The number of the head when this sync began.
    pub start_block: u64,
    /// The number of the head.
    pub current_block: u64,
    /// The number of the lowest block that is stored with all after it.
    pub first_block: u64,
    /// Whether all older blocks have come that are wanted.
    pub is_history_complete: bool,
    /// The number of the block to reach; zero if that is not known.
    pub highest_block: u64,
    /// The lowest header that is linked to the target.
    pub lowest_header: Option<u64>,
    /// The block whose state is downloaded, or was last.
    pub pivot: Option<u64>,
    /// Headers that came in this sync.
    pub headers: u64,
    /// Items of the present job that have not come.
    pub open_items: u64,
    /// Accounts of a downloaded state that have come.
    pub accounts: u64,
    /// Slots.
    pub slots: u64,
    /// Codes.
    pub codes: u64,
    /// Bytes of their rows.
    pub state_bytes: u64,
    /// Nodes of tries that came for healing since the node started.
    pub healed_nodes: u64,
    /// Accounts and slots that the present pass of healing has found to differ.
    pub differing: u64,
    /// How many peers there are.
    pub peers: u64,
    /// Blocks a second.
    pub blocks_per_s: f64,
    /// Seconds that are left at this rate.
    pub remaining_s: Option<u64>,
    /// What is waited for.
    pub waiting_for: Option<String>,
    /// Blocks that were imported since the node started.
    pub imported: u64,
    /// How many syncs reached their targets since the node started.
    pub reached: u64,
    /// The last failures, the oldest first.
    pub failures: Vec<SyncFailureReport>,
}

/// A step of a sync that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailureReport {
    /// Seconds since the node started.
    pub at_s: u64,
    /// What failed, and why.
    pub reason: String,
}

/// The status of the sync; null without peers to sync from.
fn sync_status(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    match backend.operator().sync_report() {
        Some(report) => write(&report, &mut Object::new(out)),
        None => json::null(out),
    }
    Ok(())
}

pub(crate) fn write(report: &SyncReport, object: &mut Object<'_>) {
    object.string("mode", report.mode);
    object.string("state", report.state);
    string_or_null(object, "way", report.way);
    object.data_or_null("target", report.target);
    object.number("startingBlock", report.start_block);
    object.number("currentBlock", report.current_block);
    object.number("highestBlock", report.highest_block);
    object.number("firstBlock", report.first_block);
    object.boolean("historyComplete", report.is_history_complete);
    for (name, number) in [
        ("lowestHeader", report.lowest_header),
        ("pivot", report.pivot),
    ] {
        match number {
            Some(number) => object.number(name, number),
            None => object.null(name),
        }
    }
    object.decimal("headers", report.headers);
    object.decimal("openItems", report.open_items);
    object.decimal("accounts", report.accounts);
    object.decimal("slots", report.slots);
    object.decimal("codes", report.codes);
    object.decimal("stateBytes", report.state_bytes);
    object.decimal("healedNodes", report.healed_nodes);
    object.decimal("differing", report.differing);
    object.decimal("peers", report.peers);
    object.float("blocksPerSecond", report.blocks_per_s, 1);
    match report.remaining_s {
        Some(seconds) => object.decimal("secondsLeft", seconds),
        None => object.null("secondsLeft"),
    }
    string_or_null(object, "waitingFor", report.waiting_for.as_deref());
    object.decimal("imported", report.imported);
    object.decimal("reached", report.reached);
    let mut failures = object.array("failures");
    for failure in &report.failures {
        let mut object = failures.object();
        object.decimal("secondsAfterStart", failure.at_s);
        object.string("reason", &failure.reason);
    }
}

fn string_or_null(object: &mut Object<'_>, name: &str, text: Option<&str>) {
    match text {
        Some(text) => object.string(name, text),
        None => object.null(name),
    }
}

/// What has come of a state, as go-ethereum and Besu name it.
pub(crate) fn write_downloaded_state(report: &SyncReport, object: &mut Object<'_>) {
    let is_healing = report.state == "heal";
    let healing = if is_healing { report.open_items } else { 0 };
    let came = report.accounts + report.slots + report.codes + report.healed_nodes;
    for (name, count) in [
        ("syncedAccounts", report.accounts),
        ("syncedStorage", report.slots),
        ("syncedBytecodes", report.codes),
        ("healedTrienodes", report.healed_nodes),
        ("healingTrienodes", healing),
        ("pulledStates", came),
        ("knownStates", came + healing),
    ] {
        object.number(name, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn written(report: &SyncReport) -> Value {
        json_of(|object| write(report, object))
    }

    fn json_of(write: impl FnOnce(&mut Object<'_>)) -> Value {
        let mut out = Vec::new();
        write(&mut Object::new(&mut out));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn a_state_that_is_downloaded_has_the_fields_of_other_clients() {
        let mut report = SyncReport {
            state: "heal",
            accounts: 16,
            slots: 32,
            codes: 1,
            healed_nodes: 3,
            open_items: 4,
            ..SyncReport::default()
        };
        let written = json_of(|object| write_downloaded_state(&report, object));
        let expected = json!({
            "syncedAccounts": "0x10", "syncedStorage": "0x20", "syncedBytecodes": "0x1", "healedTrienodes": "0x3",
            "healingTrienodes": "0x4", "pulledStates": "0x34", "knownStates": "0x38",
        });
        assert_eq!(written, expected);
        // What is open then are parts of the build.
        report.state = "build";
        let written = json_of(|object| write_downloaded_state(&report, object));
        assert_eq!(written["healingTrienodes"], "0x0");
    }

    #[test]
    fn a_status_has_all_its_fields_and_null_for_what_is_not_known() {
        let report = SyncReport {
            mode: "full",
            state: "idle",
            ..SyncReport::default()
        };
        let expected = json!({
            "mode": "full", "state": "idle", "way": null, "target": null, "startingBlock": "0x0",
            "currentBlock": "0x0", "highestBlock": "0x0", "firstBlock": "0x0", "historyComplete": false, "lowestHeader": null, "pivot": null, "headers": 0,
            "openItems": 0, "accounts": 0, "slots": 0, "codes": 0, "stateBytes": 0, "healedNodes": 0, "differing": 0, "peers": 0, "blocksPerSecond": 0.0, "secondsLeft": null,
            "waitingFor": null, "imported": 0, "reached": 0, "failures": [],
        });
        assert_eq!(written(&report), expected);
        let report = SyncReport {
            way: Some("backward"),
            target: Some(B256::repeat_byte(1)),
            lowest_header: Some(17),
            blocks_per_s: 12.34,
            remaining_s: Some(5),
            waiting_for: Some("a pause".to_owned()),
            failures: vec![SyncFailureReport {
                at_s: 3,
                reason: "no \"answer\"".to_owned(),
            }],
            ..report
        };
        let written = written(&report);
        assert_eq!(written["blocksPerSecond"], json!(12.3));
        assert_eq!(written["lowestHeader"], "0x11");
        assert_eq!(
            written["failures"],
            json!([{"secondsAfterStart": 3, "reason": "no \"answer\""}])
        );
        assert_eq!(
            (&written["way"], &written["waitingFor"]),
            (&json!("backward"), &json!("a pause"))
        );
    }
}
