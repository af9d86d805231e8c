//! `niwaki-devnet play`: a consensus client for two execution clients on one chain.
//!
//! In every slot one client builds a block and both import it, through the Engine API. Random events
//! disturb that: missed slots, payloads that arrive late or twice, partitions in which each client
//! builds its own branch, and niwaki stopped or killed. After each slot both clients must agree
//! (`check`).
//!
//! ```text
//! builder   forkchoiceUpdated(attributes) -> getPayload -> newPayload -> forkchoiceUpdated
//! other                                                    newPayload -> forkchoiceUpdated
//! ```

mod check;

use crate::PlayOptions;
use crate::accounts::{self, Account, BlobSidecars, SentTransaction};
use crate::build::{self, BuildRequest, BuiltBlock, text};
use crate::genesis::{GAS_LIMIT, GENESIS_TIME, SLOT_S, genesis, with_amsterdam};
use crate::load::number;
use crate::process::{ClientKind, Process, StartOptions};
use crate::report::Report;
use eyre::{Result, WrapErr, ensure};
use niwaki_primitives::B256;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Accounts that send transactions.
const ACCOUNTS: u64 = 24;

/// What goes wrong in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    /// No block is built.
    Missed,
    /// The other client gets the block only together with the next one.
    Late,
    /// Both clients get the block twice.
    Repeated,
    /// Each client builds this many blocks on its own; then one branch becomes the chain of both.
    Partitioned(u64),
    /// niwaki gets SIGTERM, and is restarted after the block.
    Stopped,
    /// niwaki gets SIGKILL, and is restarted after the block.
    Killed,
}

/// Two clients on one chain.
pub(crate) struct Play {
    clients: [Process; 2],
    random: SmallRng,
    accounts: Vec<Account>,
    sidecars: BlobSidecars,
    chain: Vec<BuiltBlock>,
    /// Transactions in no block that is deep enough, with the slot in which each was sent.
    pending: HashMap<B256, (SentTransaction, u64)>,
    /// Transactions to send in each slot.
    transactions: u64,
    slot: u64,
    amsterdam_slot: u64,
    report: Report,
}

impl Play {
    pub(crate) fn new(options: &PlayOptions, folder: &Path) -> Result<Self> {
        let accounts = accounts::make(ACCOUNTS);
        let file = folder.join("genesis.json");
        let mut file_text = genesis(&accounts, GAS_LIMIT);
        if let Some(slot) = options.amsterdam_slot {
            file_text = with_amsterdam(&file_text, GENESIS_TIME + slot * SLOT_S)?;
        }
        std::fs::write(&file, file_text)?;
        let start = |kind, name: &'static str, binary: &Path| {
            let start = StartOptions::genesis(&file);
            Process::start(kind, name, binary, folder.join(name), start)
        };
        let niwaki = &options.niwaki;
        let second = match &options.geth {
            Some(geth) => start(ClientKind::Geth, "geth", geth)?,
            None => start(ClientKind::Niwaki, "niwaki-2", niwaki)?,
        };
        let clients = [start(ClientKind::Niwaki, "niwaki", niwaki)?, second];
        let hash = &clients[0].client.block("0x0")?["hash"];
        clients[1].client.check_hash("0x0", hash)?;
        let genesis = BuiltBlock {
            number: 0,
            hash: text(hash)?,
            params: Value::Null,
            is_amsterdam: false,
        };
        eprintln!("making blobs");
        Ok(Self {
            clients,
            random: SmallRng::seed_from_u64(options.seed),
            accounts,
            sidecars: BlobSidecars::new(3)?,
            chain: vec![genesis],
            pending: HashMap::new(),
            transactions: options.transactions,
            slot: 0,
            amsterdam_slot: options.amsterdam_slot.unwrap_or(u64::MAX),
            report: Report::default(),
        })
    }

    /// Plays one slot of `length`.
    pub(crate) fn slot(&mut self, number: u64, length: Duration) -> Result<()> {
        let began = Instant::now();
        self.slot = self.slot.max(number) + u64::from(self.slot >= number);
        let event = self.event(number);
        self.send_transactions()?;
        self.play(event, length)
            .wrap_err_with(|| format!("slot {number}, {event:?}"))?;
        if number.is_multiple_of(20) {
            eprintln!("slot {number}: head {}", self.head().number);
        }
        std::thread::sleep(length.saturating_sub(began.elapsed()));
        Ok(())
    }

    fn event(&mut self, number: u64) -> Event {
        if number < 8 {
            return Event::Nothing;
        }
        let event = match self.random.random_range(0..100) {
            0..5 => Event::Missed,
            5..13 => Event::Late,
            13..20 => Event::Repeated,
            20..29 => Event::Partitioned(self.random.random_range(1..=7)),
            29..31 => Event::Stopped,
            31..33 => Event::Killed,
            _ => Event::Nothing,
        };
        let name = match event {
            Event::Partitioned(depth) => format!("slots with the clients parted for {depth}"),
            other => format!("slots: {other:?}").to_lowercase(),
        };
        self.report.count(name);
        event
    }

    fn play(&mut self, event: Event, length: Duration) -> Result<()> {
        let builder = self.random.random_range(0..2);
        match event {
            Event::Missed => return Ok(()),
            Event::Nothing | Event::Repeated => {
                let built = self.build(builder, &self.head().clone(), length / 4)?;
                for index in [builder, 1 - builder] {
                    self.send_payload(index, &built, "VALID")?;
                    if event == Event::Repeated {
                        self.send_payload(index, &built, "VALID")?;
                    }
                }
                self.extend(built)?;
                if event == Event::Repeated {
                    self.send_fork_choice_to_both()?;
                }
            }
            Event::Late => {
                let first = self.build(builder, &self.head().clone(), length / 4)?;
                self.send_payload(builder, &first, "VALID")?;
                self.chain.push(first.clone());
                self.send_fork_choice(builder, "VALID")?;
                self.slot += 1;
                let second = self.build(builder, &first, Duration::from_millis(20))?;
                self.send_payload(builder, &second, "VALID")?;
                self.chain.push(second.clone());
                self.send_fork_choice(builder, "VALID")?;
                // The other client gets the second block before the first.
                let other = 1 - builder;
                self.send_payload(other, &second, "SYNCING")?;
                self.send_fork_choice(other, "SYNCING")?;
                self.send_payload(other, &first, "VALID")?;
                self.send_payload(other, &second, "VALID")?;
                self.send_fork_choice(other, "VALID")?;
            }
            Event::Partitioned(depth) => self.partition(builder, depth)?,
            Event::Stopped | Event::Killed => {
                let head_before = self.head().clone();
                match event {
                    Event::Stopped => self.clients[0].stop()?,
                    _ => self.clients[0].kill()?,
                }
                let built = self.build(1, &self.head().clone(), length / 4)?;
                self.send_payload(1, &built, "VALID")?;
                self.chain.push(built);
                self.send_fork_choice(1, "VALID")?;
                let began = Instant::now();
                self.clients[0].restart()?;
                self.report.took("niwaki: starting again", began.elapsed());
                self.check_head_after_restart(&head_before)?;
                self.catch_up(0)?;
                self.resend(0)?;
            }
        }
        self.check_agreement()
    }

    /// Checks that niwaki has the same head after a stop or kill: the consensus client does not send it again.
    fn check_head_after_restart(&self, head_before: &BuiltBlock) -> Result<()> {
        let head = self.clients[0].client.block("latest")?;
        ensure!(
            head["hash"] == head_before.hash,
            "niwaki restarts at block {}, expected {} {}",
            head["number"],
            head_before.number,
            head_before.hash
        );
        Ok(())
    }

    /// Each client builds `depth` blocks that the other does not get; then the branch of `winner` becomes the chain
    /// of both.
    fn partition(&mut self, winner: usize, depth: u64) -> Result<()> {
        let loser = 1 - winner;
        let trunk = self.chain.len();
        let mut branches: [Vec<BuiltBlock>; 2] = [Vec::new(), Vec::new()];
        for step in 0..depth {
            self.slot += u64::from(step > 0);
            for index in [loser, winner] {
                self.chain.truncate(trunk);
                self.chain.extend(branches[index].iter().cloned());
                let parent = self.head().clone();
                let built = self.build(index, &parent, Duration::from_millis(20))?;
                self.send_payload(index, &built, "VALID")?;
                branches[index].push(built.clone());
                self.chain.push(built);
                self.send_fork_choice(index, "VALID")?;
            }
            self.send_transactions()?;
        }
        self.chain.truncate(trunk);
        self.chain.append(&mut branches[winner]);
        for index in trunk..self.chain.len() {
            let built = self.chain[index].clone();
            self.send_payload(loser, &built, "VALID")?;
        }
        self.send_fork_choice(loser, "VALID")?;
        self.report
            .add(format!("{}: blocks left behind", self.name(loser)), depth);
        // The transactions of the lost branch are pending again.
        self.resend(winner)?;
        self.resend(loser)
    }

    fn head(&self) -> &BuiltBlock {
        self.chain.last().expect("the genesis stays")
    }

    fn name(&self, index: usize) -> &'static str {
        self.clients[index].client.name
    }

    fn extend(&mut self, built: BuiltBlock) -> Result<()> {
        self.chain.push(built);
        self.send_fork_choice_to_both()
    }

    fn send_fork_choice_to_both(&mut self) -> Result<()> {
        self.send_fork_choice(0, "VALID")?;
        self.send_fork_choice(1, "VALID")
    }

    fn fork_choice(&self) -> Value {
        let back = |count: usize| match self.chain.len().checked_sub(count + 1) {
            Some(index) if index > 0 => self.chain[index].hash.clone(),
            _ => B256::ZERO.to_string(),
        };
        json!({
            "headBlockHash": self.head().hash,
            "safeBlockHash": back(9),
            "finalizedBlockHash": back(18),
        })
    }

    /// Sends the fork choice to a client and checks the status.
    fn send_fork_choice(&mut self, index: usize, expected: &str) -> Result<()> {
        let params = json!([self.fork_choice(), null]);
        let method = self.head().fork_choice_method();
        let (response, took) = self.clients[index].client.call_engine(method, params)?;
        let status = &response["payloadStatus"]["status"];
        ensure!(
            status == expected,
            "{} on the fork choice: {response}, expected {expected}",
            self.name(index)
        );
        self.report
            .took(format!("{}: forkchoiceUpdated", self.name(index)), took);
        Ok(())
    }

    /// Sends a block to a client and checks the status.
    fn send_payload(&mut self, index: usize, built: &BuiltBlock, expected: &str) -> Result<()> {
        let params = built.params.clone();
        let method = built.new_payload_method();
        let (response, took) = self.clients[index].client.call_engine(method, params)?;
        ensure!(
            response["status"] == expected,
            "{} on block {} {}: {response}, expected {expected}",
            self.name(index),
            built.number,
            built.hash
        );
        if expected == "VALID" {
            self.report
                .took(format!("{}: newPayload", self.name(index)), took);
        }
        Ok(())
    }

    /// Has a client build a block on top of `parent`, which is its head or becomes it.
    fn build(&mut self, index: usize, parent: &BuiltBlock, time: Duration) -> Result<BuiltBlock> {
        let client = &self.clients[index].client;
        let mut fork_choice = self.fork_choice();
        fork_choice["headBlockHash"] = Value::from(parent.hash.clone());
        let pending = number(&client.call("txpool_status", json!([]))?["pending"])?;
        let request = BuildRequest {
            fork_choice,
            slot: self.slot,
            builder: index,
            is_amsterdam: self.slot >= self.amsterdam_slot,
            time,
        };
        let (built, took) = build::build(client, &request)?;
        let name = client.name;
        if built.is_amsterdam {
            self.report.count(format!("{name}: blocks of Amsterdam"));
        }
        self.report.took(format!("{name}: getPayload"), took);
        self.report.count(format!("{name}: blocks built"));
        let transactions = built.transactions() as u64;
        self.report
            .add(format!("{name}: transactions in its blocks"), transactions);
        self.report
            .add(format!("{name}: blobs in its blocks"), built.blobs() as u64);
        if transactions == 0 && pending > 0 {
            self.report
                .count(format!("{name}: empty blocks while its pool was not"));
        }
        Ok(built)
    }

    /// Sends new transactions of every kind to both clients.
    fn send_transactions(&mut self) -> Result<()> {
        for _ in 0..self.transactions {
            let sender = self.random.random_range(0..self.accounts.len());
            // A delegating account may have one transaction in flight, so these accounts send no other kind.
            let kind = match sender {
                0..4 => 4,
                4..8 => 3,
                _ => [0, 1, 2, 5, 6][self.random.random_range(0..5)],
            };
            let busy = self.pending.values().any(|(sent, _)| sent.sender == sender);
            if busy && sender < 8 {
                continue;
            }
            let account = &mut self.accounts[sender];
            let sent = account.send(sender, kind, &self.sidecars, &mut self.random);
            self.pending.insert(sent.hash, (sent.clone(), self.slot));
            for index in 0..2 {
                self.send(index, &sent)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, index: usize, sent: &SentTransaction) -> Result<()> {
        let client = &self.clients[index].client;
        match client.call("eth_sendRawTransaction", json!([sent.raw])) {
            Ok(_) => Ok(()),
            // The pool or a block already has it.
            Err(error) => {
                let text = format!("{error:#}").to_lowercase();
                let is_known = text.contains("already known") || text.contains("nonce too low");
                let must_wait = text.contains("gapped") || text.contains("in-flight");
                if must_wait {
                    self.report.count(format!(
                        "{}: transactions that it takes later",
                        self.name(index)
                    ));
                }
                (is_known || must_wait)
                    .then_some(())
                    .ok_or_else(|| error.wrap_err(format!("a {} transaction", sent.kind)))
            }
        }
    }

    /// Sends the pending transactions again, oldest first.
    fn resend(&mut self, index: usize) -> Result<()> {
        self.drop_included()?;
        let mut pending: Vec<(SentTransaction, u64)> = self.pending.values().cloned().collect();
        pending.sort_by_key(|(sent, slot)| (*slot, sent.sender));
        for (sent, _) in pending {
            self.send(index, &sent)?;
        }
        Ok(())
    }

    /// Sends a client the blocks that it lacks, and the fork choice.
    fn catch_up(&mut self, index: usize) -> Result<()> {
        let began = Instant::now();
        let at = self.clients[index].client.block_number()?;
        let missing: Vec<BuiltBlock> = self
            .chain
            .iter()
            .filter(|built| built.number > at)
            .cloned()
            .collect();
        self.report.add(
            format!("{}: blocks to catch up with", self.name(index)),
            missing.len() as u64,
        );
        for built in missing {
            self.send_payload(index, &built, "VALID")?;
        }
        self.send_fork_choice(index, "VALID")?;
        self.report.took(
            format!("{}: catching up", self.name(index)),
            began.elapsed(),
        );
        Ok(())
    }
}
