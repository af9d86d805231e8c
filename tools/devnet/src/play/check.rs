//! The checks of `play`: both clients agree after every slot and no transaction is stuck; at the end
//! every block and receipt is equal and niwaki's database has no problems.

use super::{Event, Play};
use crate::accounts::KINDS;
use crate::build::text;
use crate::load::number;
use crate::report::Report;
use eyre::{Result, WrapErr, ensure, eyre};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// Slots after which a transaction that is in no block counts as stuck.
const STUCK_SLOTS: u64 = 60;

impl Play {
    /// Checks that both clients have the same head, state root and receipts, and that no transaction is stuck.
    pub(super) fn check_agreement(&mut self) -> Result<()> {
        let mut heads = Vec::new();
        for process in &self.clients {
            let client = &process.client;
            let block = client.block("latest")?;
            let receipts = client.call("eth_getBlockReceipts", json!(["latest"]))?;
            heads.push((block["hash"].clone(), block["stateRoot"].clone(), receipts));
        }
        let head = Value::from(self.head().hash.clone());
        ensure!(
            heads.iter().all(|(hash, ..)| *hash == head),
            "heads {heads:?}, expected {head}"
        );
        let (first, second) = (&heads[0], &heads[1]);
        ensure!(
            first.1 == second.1,
            "state roots {} and {}",
            first.1,
            second.1
        );
        compare_receipts(&first.2, &second.2)?;
        self.report.head = self.head().number;
        self.report.head_hash = self.head().hash.clone();
        self.report.state_root = text(&first.1)?;
        self.drop_included()?;
        let stuck = self
            .pending
            .values()
            .find(|(_, slot)| self.slot - slot > STUCK_SLOTS);
        match stuck {
            Some((sent, since)) => Err(eyre!(
                "{sent:?} of slot {since} is in no block by slot {}",
                self.slot
            )),
            None => Ok(()),
        }
    }

    /// Drops the transactions that are included deep enough to stay so; the others remain pending.
    pub(super) fn drop_included(&mut self) -> Result<()> {
        // The second client gets every block and is never stopped.
        let client = &self.clients[1].client;
        let mut included = Vec::new();
        for hash in self.pending.keys() {
            let receipt = client.call("eth_getTransactionReceipt", json!([hash]))?;
            let Some(block) = receipt["blockNumber"].as_str() else {
                continue;
            };
            let block = number(&Value::from(block))?;
            // Deeper than any reorg of the play.
            if block + 8 <= self.head().number {
                included.push(*hash);
            }
        }
        for hash in included {
            if let Some((sent, _)) = self.pending.remove(&hash) {
                self.report.count(format!("transactions: {}", sent.kind));
            }
        }
        Ok(())
    }

    /// Plays out the pending transactions, compares the two chains and checks niwaki's database.
    pub(crate) fn finish(mut self) -> Result<Report> {
        // Slots without new transactions, until all are included.
        self.transactions = 0;
        for number in 0..20 {
            self.slot += 1;
            self.play(Event::Nothing, Duration::from_millis(400))
                .wrap_err_with(|| format!("slot {number} of the end"))?;
        }
        ensure!(
            self.pending.is_empty(),
            "in no block: {:?}",
            self.pending.values()
        );
        for kind in KINDS {
            let count = self.report.counts.get(&format!("transactions: {kind}"));
            ensure!(
                count.is_some(),
                "no block has a {kind} transaction; play more slots"
            );
        }
        self.compare_all()?;
        let niwaki = &mut self.clients[0];
        niwaki.stop()?;
        let output = Command::new(niwaki.binary())
            .arg("--data-path")
            .arg(niwaki.data_path())
            .arg("--genesis-file")
            .arg(niwaki.genesis())
            .args(["storage", "check"])
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && printed.contains("no problems found"),
            "niwaki's database: {printed}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(self.report)
    }

    /// Compares every block and every receipt of the chain.
    fn compare_all(&mut self) -> Result<()> {
        for built in &self.chain[1..] {
            let number = built.number;
            let call = |method: &str, params: Value| -> Result<[Value; 2]> {
                let [first, second] = &self.clients;
                let first = first.client.call(method, params.clone())?;
                Ok([first, second.client.call(method, params)?])
            };
            let tag = format!("{number:#x}");
            let [first, second] = call("eth_getBlockReceipts", json!([tag]))?;
            compare_receipts(&first, &second).wrap_err_with(|| format!("block {number}"))?;
            let [first, second] = call("eth_getBlockByNumber", json!([tag, true]))?;
            ensure!(first == second, "block {number}: {first} and {second}");
            ensure!(first["hash"] == built.hash.as_str(), "{first}");
        }
        self.report.add(
            "blocks and receipts equal on both",
            self.chain.len() as u64 - 1,
        );
        Ok(())
    }
}

fn compare_receipts(first: &Value, second: &Value) -> Result<()> {
    ensure!(first == second, "receipts {first} and {second}");
    Ok(())
}
