//! The slots: who builds, who hears of it when, what goes wrong, and what must hold whatever does.

mod check;

use crate::PlayOptions;
use crate::accounts::{self, Account, Sent, Stock};
use crate::genesis::{GAS_LIMIT, GENESIS_TIME, SLOT_S, genesis, with_amsterdam};
use crate::load::number;
use crate::process::{Given, Kind, Process};
use crate::report::Report;
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, B256, hex};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Accounts that send.
const ACCOUNTS: u64 = 24;

/// A block that was built, with all that `engine_newPayload` is given.
#[derive(Clone, Debug)]
struct Built {
    number: u64,
    hash: String,
    params: Value,
    is_amsterdam: bool,
}

/// What goes wrong in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    /// Nobody builds.
    Missed,
    /// One client hears of the block only with the next one.
    Late,
    /// Both hear of it twice.
    Repeated,
    /// The two are parted for so many blocks, each building its own; then one way is chosen.
    Parted(u64),
    /// This client is asked to stop, and started again after the block.
    Stopped,
    /// This client is killed, and started again after the block.
    Killed,
}

/// Two clients on one chain.
pub(crate) struct Play {
    clients: [Process; 2],
    random: SmallRng,
    accounts: Vec<Account>,
    stock: Stock,
    chain: Vec<Built>,
    waiting: HashMap<B256, (Sent, u64)>,
    transactions: u64,
    slot: u64,
    /// The first slot of Amsterdam.
    amsterdam: u64,
    report: Report,
}

impl Play {
    pub(crate) fn begin(options: &PlayOptions, folder: &Path) -> Result<Self> {
        let accounts = accounts::make(ACCOUNTS);
        let file = folder.join("genesis.json");
        let mut file_text = genesis(&accounts, GAS_LIMIT);
        if let Some(slot) = options.amsterdam_slot {
            file_text = with_amsterdam(&file_text, GENESIS_TIME + slot * SLOT_S)?;
        }
        std::fs::write(&file, file_text)?;
        let niwaki = std::path::absolute(&options.niwaki)?;
        let start = |kind, name: &'static str, binary: &Path| {
            Process::start(kind, name, binary, folder.join(name), Given::genesis(&file))
                .wrap_err_with(|| {
                    format!(
                        "{name} does not start; see {}",
                        folder.join(name).join("log").display()
                    )
                })
        };
        let second = match &options.geth {
            Some(geth) => start(Kind::Geth, "geth", &std::path::absolute(geth)?)?,
            None => start(Kind::Niwaki, "niwaki-2", &niwaki)?,
        };
        let clients = [start(Kind::Niwaki, "niwaki", &niwaki)?, second];
        let genesis = |process: &Process| -> Result<Value> {
            process
                .client
                .ask("eth_getBlockByNumber", json!(["0x0", false]))
        };
        let first = genesis(&clients[0])?;
        ensure!(
            first["hash"] == genesis(&clients[1])?["hash"],
            "the two begin with different blocks: {first}"
        );
        let genesis = Built {
            number: 0,
            hash: text(&first["hash"])?,
            params: Value::Null,
            is_amsterdam: false,
        };
        eprintln!("making blobs");
        Ok(Self {
            clients,
            random: SmallRng::seed_from_u64(options.seed),
            accounts,
            stock: Stock::new(3)?,
            chain: vec![genesis],
            waiting: HashMap::new(),
            transactions: options.transactions,
            slot: 0,
            amsterdam: options.amsterdam_slot.unwrap_or(u64::MAX),
            report: Report::default(),
        })
    }

    /// Plays one slot, which lasts as long as `length`.
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
            20..29 => Event::Parted(self.random.random_range(1..=7)),
            29..31 => Event::Stopped,
            31..33 => Event::Killed,
            _ => Event::Nothing,
        };
        let name = match event {
            Event::Parted(depth) => format!("slots with the clients parted for {depth}"),
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
                    self.give(index, &built, "VALID")?;
                    if event == Event::Repeated {
                        self.give(index, &built, "VALID")?;
                    }
                }
                self.extend(built)?;
                if event == Event::Repeated {
                    self.choose_all()?;
                }
            }
            Event::Late => {
                let first = self.build(builder, &self.head().clone(), length / 4)?;
                self.give(builder, &first, "VALID")?;
                self.chain.push(first.clone());
                self.choose(builder, "VALID")?;
                self.slot += 1;
                let second = self.build(builder, &first, Duration::from_millis(20))?;
                self.give(builder, &second, "VALID")?;
                self.chain.push(second.clone());
                self.choose(builder, "VALID")?;
                // The other hears of the second before the first.
                let other = 1 - builder;
                self.give(other, &second, "SYNCING")?;
                self.choose(other, "SYNCING")?;
                self.give(other, &first, "VALID")?;
                self.give(other, &second, "VALID")?;
                self.choose(other, "VALID")?;
            }
            Event::Parted(depth) => self.part(builder, depth)?,
            Event::Stopped | Event::Killed => {
                let had = self.head().clone();
                match event {
                    Event::Stopped => self.clients[0].stop()?,
                    _ => self.clients[0].kill()?,
                }
                let built = self.build(1, &self.head().clone(), length / 4)?;
                self.give(1, &built, "VALID")?;
                self.chain.push(built);
                self.choose(1, "VALID")?;
                let began = Instant::now();
                self.clients[0].start_again()?;
                self.report.took("niwaki: starting again", began.elapsed());
                self.forgot_nothing(&had)?;
                self.catch_up(0)?;
                self.resend(0)?;
            }
        }
        self.agree()
    }

    /// What niwaki had said of a block holds after it was stopped or killed: nobody says it again.
    fn forgot_nothing(&self, had: &Built) -> Result<()> {
        let params = json!(["latest", false]);
        let head = self.clients[0].client.ask("eth_getBlockByNumber", params)?;
        ensure!(
            head["hash"] == had.hash,
            "niwaki begins again at {} and had {} {}",
            head["number"],
            had.number,
            had.hash
        );
        Ok(())
    }

    /// Each builds `depth` blocks that the other does not hear of; then the way of one becomes the
    /// chain for both.
    fn part(&mut self, winner: usize, depth: u64) -> Result<()> {
        let loser = 1 - winner;
        let trunk = self.chain.len();
        let mut ways: [Vec<Built>; 2] = [Vec::new(), Vec::new()];
        for step in 0..depth {
            self.slot += u64::from(step > 0);
            for index in [loser, winner] {
                self.chain.truncate(trunk);
                self.chain.extend(ways[index].iter().cloned());
                let parent = self.head().clone();
                let built = self.build(index, &parent, Duration::from_millis(20))?;
                self.give(index, &built, "VALID")?;
                ways[index].push(built.clone());
                self.chain.push(built);
                self.choose(index, "VALID")?;
            }
            self.send_transactions()?;
        }
        self.chain.truncate(trunk);
        self.chain.append(&mut ways[winner]);
        for index in trunk..self.chain.len() {
            let built = self.chain[index].clone();
            self.give(loser, &built, "VALID")?;
        }
        self.choose(loser, "VALID")?;
        self.report
            .add(format!("{}: blocks left behind", self.name(loser)), depth);
        // What only the other way had is not lost: the pool has it again.
        self.resend(winner)?;
        self.resend(loser)
    }

    fn head(&self) -> &Built {
        self.chain.last().expect("the genesis stays")
    }

    fn name(&self, index: usize) -> &'static str {
        self.clients[index].client.name
    }

    fn extend(&mut self, built: Built) -> Result<()> {
        self.chain.push(built);
        self.choose_all()
    }

    fn choose_all(&mut self) -> Result<()> {
        self.choose(0, "VALID")?;
        self.choose(1, "VALID")
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

    /// Tells a client of the fork choice.
    fn choose(&mut self, index: usize, want: &str) -> Result<()> {
        let params = json!([self.fork_choice(), null]);
        let method = match self.head().is_amsterdam {
            true => "engine_forkchoiceUpdatedV4",
            false => "engine_forkchoiceUpdatedV3",
        };
        let (answer, took) = self.clients[index].client.drive(method, params)?;
        let status = &answer["payloadStatus"]["status"];
        ensure!(
            status == want,
            "{} on the fork choice: {answer}, want {want}",
            self.name(index)
        );
        self.report
            .took(format!("{}: forkchoiceUpdated", self.name(index)), took);
        Ok(())
    }

    /// Gives a block to a client.
    fn give(&mut self, index: usize, built: &Built, want: &str) -> Result<()> {
        let params = built.params.clone();
        let method = match built.is_amsterdam {
            true => "engine_newPayloadV5",
            false => "engine_newPayloadV4",
        };
        let (answer, took) = self.clients[index].client.drive(method, params)?;
        ensure!(
            answer["status"] == want,
            "{} on block {} {}: {answer}, want {want}",
            self.name(index),
            built.number,
            built.hash
        );
        if want == "VALID" {
            self.report
                .took(format!("{}: newPayload", self.name(index)), took);
        }
        Ok(())
    }

    /// Has a client build upon `parent`, which is its head or becomes it.
    fn build(&mut self, index: usize, parent: &Built, time: Duration) -> Result<Built> {
        let client = &self.clients[index].client;
        let timestamp = GENESIS_TIME + self.slot * SLOT_S;
        let mark = |what: &str| keccak256(format!("{what} {} {index}", self.slot)).to_string();
        let root = mark("beacon root");
        let mut choice = self.fork_choice();
        choice["headBlockHash"] = Value::from(parent.hash.clone());
        let withdrawals: Vec<Value> = (0..2)
            .map(|at| {
                json!({
                    "index": format!("{:#x}", self.slot * 2 + at),
                    "validatorIndex": "0x1",
                    "address": Address::repeat_byte(0xaa),
                    "amount": "0x64",
                })
            })
            .collect();
        let is_amsterdam = self.slot >= self.amsterdam;
        let mut attributes = json!({
            "timestamp": format!("{timestamp:#x}"),
            "prevRandao": mark("randao"),
            "suggestedFeeRecipient": Address::repeat_byte(0xfe),
            "withdrawals": withdrawals,
            "parentBeaconBlockRoot": root,
        });
        let mut methods = ["engine_forkchoiceUpdatedV3", "engine_getPayloadV5"];
        if is_amsterdam {
            attributes["slotNumber"] = json!(format!("{:#x}", self.slot));
            attributes["targetGasLimit"] = json!(format!("{GAS_LIMIT:#x}"));
            methods = ["engine_forkchoiceUpdatedV4", "engine_getPayloadV6"];
        }
        let params = json!([choice, attributes]);
        let pending = number(&client.ask("txpool_status", json!([]))?["pending"])?;
        let (answer, _) = client.drive(methods[0], params)?;
        ensure!(
            answer["payloadStatus"]["status"] == "VALID" && answer["payloadId"].is_string(),
            "{} does not begin to build: {answer}",
            client.name
        );
        // geth takes a moment to fill its first block.
        std::thread::sleep(time.max(Duration::from_millis(20)));
        let (answer, took) = client.drive(methods[1], json!([answer["payloadId"]]))?;
        let payload = &answer["executionPayload"];
        let commitments = answer["blobsBundle"]["commitments"].as_array();
        let hashes = commitments.into_iter().flatten().map(versioned_hash);
        let hashes: Vec<String> = hashes.collect::<Result<_>>()?;
        let proofs = answer["blobsBundle"]["proofs"]
            .as_array()
            .map_or(0, Vec::len);
        ensure!(
            proofs == 128 * hashes.len(),
            "{proofs} proofs of {} blobs",
            hashes.len()
        );
        let name = client.name;
        let count = payload["transactions"].as_array().map_or(0, Vec::len);
        let built = Built {
            number: number(&payload["blockNumber"])?,
            hash: text(&payload["blockHash"])?,
            params: json!([payload, hashes, root, answer["executionRequests"]]),
            is_amsterdam,
        };
        if is_amsterdam {
            self.report.count(format!("{name}: blocks of Amsterdam"));
        }
        self.report.took(format!("{name}: getPayload"), took);
        self.report.count(format!("{name}: blocks built"));
        self.report
            .add(format!("{name}: transactions in its blocks"), count as u64);
        self.report
            .add(format!("{name}: blobs in its blocks"), hashes.len() as u64);
        if count == 0 && pending > 0 {
            self.report
                .count(format!("{name}: empty blocks while its pool was not"));
        }
        Ok(built)
    }

    /// Sends new transactions to both, each kind in turn.
    fn send_transactions(&mut self) -> Result<()> {
        for _ in 0..self.transactions {
            let sender = self.random.random_range(0..self.accounts.len());
            // An account that delegates may have one in flight: those are kept for that.
            let kind = match sender {
                0..4 => 4,
                4..8 => 3,
                _ => [0, 1, 2, 5, 6][self.random.random_range(0..5)],
            };
            let busy = self.waiting.values().any(|(sent, _)| sent.sender == sender);
            if busy && sender < 8 {
                continue;
            }
            let account = &mut self.accounts[sender];
            let sent = account.send(sender, kind, &self.stock, &mut self.random);
            self.waiting.insert(sent.hash, (sent.clone(), self.slot));
            for index in 0..2 {
                self.send(index, &sent)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, index: usize, sent: &Sent) -> Result<()> {
        let client = &self.clients[index].client;
        match client.ask("eth_sendRawTransaction", json!([sent.raw])) {
            Ok(_) => Ok(()),
            // It is there, or was taken by a block already.
            Err(error) => {
                let text = format!("{error:#}").to_lowercase();
                let is_known = text.contains("already known") || text.contains("nonce too low");
                let waits = text.contains("gapped") || text.contains("in-flight");
                if waits {
                    self.report.count(format!(
                        "{}: transactions that it takes later",
                        self.name(index)
                    ));
                }
                (is_known || waits)
                    .then_some(())
                    .ok_or_else(|| error.wrap_err(format!("a {} transaction", sent.kind)))
            }
        }
    }

    /// Sends again what no block has taken, oldest nonces first.
    fn resend(&mut self, index: usize) -> Result<()> {
        self.settle()?;
        let mut waiting: Vec<(Sent, u64)> = self.waiting.values().cloned().collect();
        waiting.sort_by_key(|(sent, slot)| (*slot, sent.sender));
        for (sent, _) in waiting {
            self.send(index, &sent)?;
        }
        Ok(())
    }

    /// Gives a client the blocks that it lacks, and the fork choice.
    fn catch_up(&mut self, index: usize) -> Result<()> {
        let began = Instant::now();
        let at = self.clients[index]
            .client
            .ask("eth_blockNumber", json!([]))?;
        let at = number(&at)?;
        let missing: Vec<Built> = self
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
            self.give(index, &built, "VALID")?;
        }
        self.choose(index, "VALID")?;
        self.report.took(
            format!("{}: catching up", self.name(index)),
            began.elapsed(),
        );
        Ok(())
    }
}

fn text(value: &Value) -> Result<String> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| eyre!("{value} is no text"))
}

fn versioned_hash(commitment: &Value) -> Result<String> {
    let commitment = hex::decode(text(commitment)?)?;
    Ok(accounts::versioned_hash(&commitment).to_string())
}
