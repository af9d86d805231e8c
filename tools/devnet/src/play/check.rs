//! What must hold whatever happens: both agree, nothing waits for too long, and at the end everything
//! is equal and niwaki's database is whole.

use super::{Event, Play, text};
use crate::accounts::KINDS;
use crate::load::number;
use crate::report::Report;
use eyre::{Result, WrapErr, ensure, eyre};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// A transaction that no block has taken for so many slots is stuck.
const STUCK_SLOTS: u64 = 60;

impl Play {
    /// Both have the same head, state root and receipts; nothing waits for too long.
    pub(super) fn agree(&mut self) -> Result<()> {
        let mut seen = Vec::new();
        for process in &self.clients {
            let block = process
                .client
                .ask("eth_getBlockByNumber", json!(["latest", false]))?;
            let receipts = process
                .client
                .ask("eth_getBlockReceipts", json!(["latest"]))?;
            seen.push((block["hash"].clone(), block["stateRoot"].clone(), receipts));
        }
        let head = Value::from(self.head().hash.clone());
        ensure!(
            seen.iter().all(|(hash, ..)| *hash == head),
            "heads {seen:?}, want {head}"
        );
        let (first, second) = (&seen[0], &seen[1]);
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
        self.settle()?;
        let stuck = self
            .waiting
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

    /// Forgets what the chain has taken; remembers again what it has lost.
    pub(super) fn settle(&mut self) -> Result<()> {
        // The second client hears of every block, and is never stopped.
        let client = &self.clients[1].client;
        let mut taken = Vec::new();
        for hash in self.waiting.keys() {
            let receipt = client.ask("eth_getTransactionReceipt", json!([hash]))?;
            let Some(block) = receipt["blockNumber"].as_str() else {
                continue;
            };
            let block = number(&Value::from(block))?;
            // Deep enough never to be left behind.
            if block + 8 <= self.head().number {
                taken.push(*hash);
            }
        }
        for hash in taken {
            if let Some((sent, _)) = self.waiting.remove(&hash) {
                self.report.count(format!("transactions: {}", sent.kind));
            }
        }
        Ok(())
    }

    /// The last agreement, and a look at everything on niwaki's disk.
    pub(crate) fn finish(mut self) -> Result<Report> {
        // Slots without new transactions, until all have settled.
        self.transactions = 0;
        for number in 0..20 {
            self.slot += 1;
            self.play(Event::Nothing, Duration::from_millis(400))
                .wrap_err_with(|| format!("slot {number} of the end"))?;
        }
        ensure!(
            self.waiting.is_empty(),
            "in no block: {:?}",
            self.waiting.values()
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

    /// Every block and every receipt of the chain, on both.
    fn compare_all(&mut self) -> Result<()> {
        for built in &self.chain[1..] {
            let ask = |index: usize, method: &str, params: Value| -> Result<Value> {
                self.clients[index].client.ask(method, params)
            };
            let params = || json!([format!("{:#x}", built.number)]);
            let [first, second] = [0, 1].map(|index| ask(index, "eth_getBlockReceipts", params()));
            compare_receipts(&first?, &second?)
                .wrap_err_with(|| format!("block {}", built.number))?;
            let params = || json!([format!("{:#x}", built.number), true]);
            let [first, second] = [0, 1].map(|index| ask(index, "eth_getBlockByNumber", params()));
            let (first, second) = (first?, second?);
            ensure!(
                first == second,
                "block {}: {first} and {second}",
                built.number
            );
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
