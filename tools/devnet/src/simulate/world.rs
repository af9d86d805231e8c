//! Nodes, what is on the way between them, and the time.

use super::chain::SimChain;
use super::due::{Due, describe};
use super::laws::Laws;
use super::liars::Liars;
use super::node::SimNode;
use super::scenario::{Scenario, Trouble};
use niwaki_bft::machine::{Action, Candidate, DigestForm, Event, Record, Timer, Verdict};
use niwaki_bft::wire::{Message, View};
use niwaki_primitives::{Address, Header};
use niwaki_rules::{BftExtra, BftRules};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// When the network begins, milliseconds since 1970.
const BEGIN_MS: u64 = 1_700_000_000_000;
/// After the trouble, in so much time each node must have got on.
const RECOVERY_MS: u64 = 45_000;
/// By so many blocks.
const RECOVERY_BLOCKS: u64 = 2;
/// What messages of later rounds and heights may take in a node.
const MAX_WAITING_BYTES: usize = 65 << 20;

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) blocks: u64,
    /// Blocks that nodes finished in a round after the first one.
    pub(super) finished_later: u64,
    /// Messages that were refused.
    pub(super) refused: u64,
    pub(super) evidence: u64,
    pub(super) starts: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.finished_later += other.finished_later;
        self.refused += other.refused;
        self.evidence += other.evidence;
        self.starts += other.starts;
    }
}

pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) rng: SmallRng,
    pub(super) now_ms: u64,
    pub(super) nodes: Vec<SimNode>,
    due: BTreeMap<(u64, u64), Due>,
    count: u64,
    laws: Laws,
    liars: Liars,
    pub(super) is_calm: bool,
    /// Nodes that may not be linked until the time is over.
    pub(super) cut_until_ms: BTreeMap<usize, u64>,
    pub(super) part: BTreeSet<usize>,
    isolated_height: u64,
    pub(super) counts: Counts,
    /// The events, if they are wanted.
    pub(super) trace: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(scenario: Scenario, is_traced: bool) -> Self {
        let mut rng = SmallRng::seed_from_u64(scenario.seed ^ 0x5eed);
        let count = scenario.validators + scenario.spares;
        let mut rules = BftRules::new(scenario.protocol);
        rules.epoch_blocks = 10;
        rules.empty_period_s = scenario.empty_period_s;
        rules.period_ms = (scenario.period_ms < 1_000).then_some(scenario.period_ms);
        rules.period_s = scenario.period_ms / 1_000;
        // Digests of round 0 are GoQuorum's.
        rules.is_quorum = scenario.digest == DigestForm::RoundZero;
        let signers = (0..scenario.validators).map(|number| super::node::signer(number, &scenario));
        let validators: Vec<Address> = signers.map(|signer| signer.address()).collect();
        let chain = SimChain::new(Arc::new(rules), &validators);
        let nodes = (0..count)
            .map(|number| SimNode::new(number, chain.clone(), &scenario, &mut rng))
            .collect();
        let mut world = Self {
            rng,
            now_ms: BEGIN_MS,
            nodes,
            due: BTreeMap::new(),
            count: 0,
            laws: Laws::default(),
            liars: Liars::new(&scenario),
            is_calm: false,
            cut_until_ms: BTreeMap::new(),
            part: BTreeSet::new(),
            isolated_height: 0,
            counts: Counts::default(),
            trace: is_traced.then(Vec::new),
            scenario,
        };
        world.plan();
        world
    }

    fn plan(&mut self) {
        for node in 0..self.nodes.len() {
            let after_ms = self.rng.random_range(0..500);
            self.after(after_ms, Due::Start { node });
        }
        for liar in 0..self.scenario.liars {
            self.after(1_000, Due::Lie { node: liar });
        }
        self.after(1_000, Due::Trouble);
        self.after(self.scenario.trouble_ms, Due::Calm);
    }

    pub(super) fn after(&mut self, ms: u64, due: Due) {
        self.at(self.now_ms + ms, due);
    }

    pub(super) fn at(&mut self, at_ms: u64, due: Due) {
        self.count += 1;
        self.due.insert((at_ms, self.count), due);
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// Which law was broken.
    pub(super) fn run(&mut self) -> Result<Counts, String> {
        let end_ms = BEGIN_MS + self.scenario.trouble_ms + RECOVERY_MS;
        let mut goal = None;
        while let Some(((at_ms, _), due)) = self.due.pop_first() {
            if at_ms > end_ms {
                break;
            }
            self.now_ms = at_ms;
            if let Some(trace) = &mut self.trace {
                trace.push(describe(at_ms - BEGIN_MS, &due));
            }
            self.happen(due)?;
            if self.is_calm {
                let lowest = self.lowest();
                let goal = *goal.get_or_insert(self.highest() + RECOVERY_BLOCKS);
                if lowest >= goal {
                    self.counts.blocks = self.laws.decided();
                    return Ok(self.counts);
                }
            }
        }
        let machines = self.nodes.iter().map(|node| node.machine.as_ref());
        let views = machines.map(|machine| machine.map(|one| (one.view(), one.phase())));
        let views: Vec<_> = views.collect();
        Err(format!(
            "no progress after the trouble: blocks {} to {}, {views:?}",
            self.lowest(),
            self.highest(),
        ))
    }

    fn honest(&self) -> impl Iterator<Item = &SimNode> {
        self.nodes.iter().filter(|node| !node.is_liar)
    }

    pub(super) fn lowest(&self) -> u64 {
        self.honest()
            .map(|node| node.chain.height())
            .min()
            .unwrap_or_default()
    }

    fn highest(&self) -> u64 {
        self.honest()
            .map(|node| node.chain.height())
            .max()
            .unwrap_or_default()
    }

    fn happen(&mut self, due: Due) -> Result<(), String> {
        match due {
            Due::Start { node } => self.start(node)?,
            Due::Stop { node } => self.stop(node)?,
            Due::Level { node, life } if self.lives(node, life) => {
                self.step(node, Event::Level(true))?;
            }
            Due::Timer {
                node,
                timer,
                number,
            } if self.nodes[node].timers.get(&timer.kind) == Some(&number) => {
                self.step(node, Event::Timer(timer))?;
            }
            Due::Message { from, to, message } => self.deliver(from, to, message)?,
            Due::Judged {
                node,
                life,
                hash,
                verdict,
            } if self.lives(node, life) => {
                self.step(node, Event::Judged { hash, verdict })?;
            }
            Due::Build {
                node,
                life,
                view,
                timestamp,
            } if self.lives(node, life) => {
                self.build(node, view, timestamp)?;
            }
            Due::Record { node, life, record } if self.lives(node, life) => {
                let node = &mut self.nodes[node];
                node.journal.push(*record);
                // The first record makes the journal.
                node.is_wiped = false;
            }
            Due::Send {
                node,
                life,
                to,
                message,
            } if self.lives(node, life) => {
                self.send(node, to, message)?;
            }
            Due::Import { node, life, header } if self.lives(node, life) => {
                self.import(node, header, true)?;
            }
            Due::Block { from, to, header } => self.take_block(from, to, header)?,
            Due::Fetch { from, to } => self.fetch(from, to)?,
            Due::Link { one, other } => self.link(one, other)?,
            Due::Trouble => self.trouble()?,
            Due::Lie { node } => self.lie(node),
            Due::Calm => self.calm(),
            _ => {}
        }
        Ok(())
    }

    fn lives(&self, node: usize, life: u64) -> bool {
        self.nodes[node].life == life && self.nodes[node].machine.is_some()
    }

    fn start(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].machine.is_some() {
            return Ok(());
        }
        self.nodes[node].start(self.now_ms);
        self.counts.starts += 1;
        let life = self.nodes[node].life;
        let level_ms = match self.nodes[node].is_wiped {
            true => 5_000,
            false => self.rng.random_range(50..500),
        };
        self.after(level_ms, Due::Level { node, life });
        if self.rng.random_bool(0.5) {
            self.step(node, Event::Work(true))?;
        }
        for other in 0..self.nodes.len() {
            let after_ms = self.rng.random_range(5..300);
            self.after(after_ms, Due::Link { one: node, other });
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, node: usize) -> Result<(), String> {
        self.nodes[node].machine = None;
        for other in std::mem::take(&mut self.nodes[node].linked) {
            self.unlinked(other, node)?;
        }
        let after_ms = self.rng.random_range(100..3_000);
        self.after(after_ms, Due::Start { node });
        Ok(())
    }

    /// One event for the machine of a node, if it is up; then its actions, in their order.
    pub(super) fn step(&mut self, node: usize, event: Event) -> Result<(), String> {
        let now_ms = self.nodes[node].clock_ms(self.now_ms);
        let Some(machine) = &mut self.nodes[node].machine else {
            return Ok(());
        };
        let mut actions = Vec::new();
        machine
            .step(now_ms, event, &mut actions)
            .map_err(|error| error.to_string())?;
        let waiting = machine.waiting_bytes();
        if waiting > MAX_WAITING_BYTES {
            return Err(format!("{waiting} bytes wait in node {node}"));
        }
        for action in actions {
            self.act(node, action)?;
        }
        Ok(())
    }

    /// Begins an action. What leaves the node leaves it after what was recorded before.
    fn act(&mut self, node: usize, action: Action) -> Result<(), String> {
        let life = self.nodes[node].life;
        let ready_ms = self.nodes[node].busy_until_ms.max(self.now_ms);
        match action {
            Action::Record(record) => {
                if let Record::Certificate { certificate, .. } = &record
                    && !self.nodes[node].is_liar
                {
                    let validators = self.nodes[node].chain.validators();
                    Laws::prepared(certificate, self.scenario.protocol, validators)?;
                }
                let durable_ms = ready_ms + self.rng.random_range(0..4);
                self.nodes[node].busy_until_ms = durable_ms;
                let record = Box::new(record);
                self.at(durable_ms, Due::Record { node, life, record });
            }
            Action::Send { to, message } => {
                self.at(
                    ready_ms,
                    Due::Send {
                        node,
                        life,
                        to,
                        message,
                    },
                );
            }
            Action::Finish { header, .. } => {
                let import_ms = ready_ms + self.rng.random_range(0..20);
                let header = Arc::from(header);
                self.at(import_ms, Due::Import { node, life, header });
            }
            Action::Set { timer, at_ms } => self.set(node, timer, at_ms),
            Action::Build { view, timestamp } => {
                let after_ms = self.rng.random_range(1..30);
                self.after(
                    after_ms,
                    Due::Build {
                        node,
                        life,
                        view,
                        timestamp,
                    },
                );
            }
            Action::Judge(candidate) => self.judge(node, &candidate),
            Action::Sync { .. } => self.sync(node),
            Action::Stop(message) if !self.nodes[node].is_liar => {
                let (kind, view) = (message.kind(), message.view());
                return Err(format!(
                    "node {node} takes its own {kind:?} at {view:?} for strange"
                ));
            }
            Action::Evidence(messages) => {
                self.counts.evidence += 1;
                self.check_evidence(&messages[0])?;
            }
            Action::Refused { .. } => self.counts.refused += 1,
            Action::Stop(_) => {}
        }
        Ok(())
    }

    /// Evidence is never against an honest validator.
    fn check_evidence(&self, message: &Message) -> Result<(), String> {
        let author = message.author();
        let mut honest = self.honest();
        match honest.any(|node| node.address() == author) {
            true => Err(format!("evidence against the honest {author}: {message:?}")),
            false => Ok(()),
        }
    }

    fn set(&mut self, node: usize, timer: Timer, at_ms: u64) {
        let number = self.count;
        self.nodes[node].timers.insert(timer.kind, number);
        let skew_ms = self.nodes[node].skew_ms;
        let at_ms = at_ms.saturating_add_signed(-skew_ms).max(self.now_ms);
        self.at(
            at_ms,
            Due::Timer {
                node,
                timer,
                number,
            },
        );
    }

    fn judge(&mut self, node: usize, candidate: &Candidate) {
        let header = &candidate.block.header;
        let verdict = match self.nodes[node].chain.is_valid(header) {
            _ if self.has(Trouble::StorageFaults) && self.rng.random_bool(0.1) => Verdict::Fault,
            true => Verdict::Valid,
            false => Verdict::Invalid,
        };
        let slow = self.has(Trouble::SlowExecution) && self.rng.random_bool(0.1);
        let execution_ms = match slow {
            true => self.rng.random_range(500..4_000),
            false => self.rng.random_range(1..40),
        };
        // A block of the future waits until it may be there.
        let clock_ms = self.nodes[node].clock_ms(self.now_ms);
        let early_ms = (header.timestamp * 1_000).saturating_sub(clock_ms + 1_000);
        let (life, hash) = (self.nodes[node].life, candidate.hash);
        let due = Due::Judged {
            node,
            life,
            hash,
            verdict,
        };
        self.after(execution_ms + early_ms, due);
    }

    fn build(&mut self, node: usize, view: View, timestamp: u64) -> Result<(), String> {
        let vanity = self.rng.random();
        let own = &self.nodes[node];
        let built = match own.chain.height() + 1 == view.height {
            true => {
                let block = own
                    .chain
                    .build(own.address(), timestamp, own.vote(), vanity);
                Some((Arc::new(block), None))
            }
            false => None,
        };
        self.step(node, Event::Built { view, built })
    }

    fn send(
        &mut self,
        node: usize,
        to: Option<Address>,
        message: Arc<Message>,
    ) -> Result<(), String> {
        let sender = &self.nodes[node];
        if !sender.is_liar {
            // Its chain may have passed the height since it made the message.
            let validators = sender.chain.validators_at(message.view().height);
            self.laws.sent(&message, &sender.journal, &validators)?;
        }
        let linked: Vec<usize> = sender.linked.iter().copied().collect();
        for peer in linked {
            let is_meant = to.is_none_or(|to| to == self.nodes[peer].address());
            if is_meant && !self.keeps_back(node, &message) {
                self.convey(node, peer, Arc::clone(&message));
            }
        }
        Ok(())
    }

    /// A liar that does not send what it has signed.
    fn keeps_back(&mut self, node: usize, message: &Message) -> bool {
        let is_vote = matches!(message, Message::Commit(_) | Message::Prepare(_));
        self.nodes[node].is_liar && is_vote && self.rng.random_bool(0.3)
    }

    /// Puts a message on its way.
    pub(super) fn convey(&mut self, from: usize, to: usize, message: Arc<Message>) {
        let delay_ms = self.delay_ms();
        self.after(delay_ms, Due::Message { from, to, message });
    }

    fn delay_ms(&mut self) -> u64 {
        let is_slow = self.has(Trouble::Delays) && self.rng.random_bool(0.2);
        match is_slow {
            true => self.rng.random_range(20..2_000),
            false => self.rng.random_range(1..20),
        }
    }

    pub(super) fn has(&self, trouble: Trouble) -> bool {
        !self.is_calm && self.scenario.has(trouble)
    }

    fn deliver(&mut self, from: usize, to: usize, message: Arc<Message>) -> Result<(), String> {
        // What was under way when a connection ended is lost.
        if !self.nodes[to].linked.contains(&from) {
            return Ok(());
        }
        if self.nodes[to].is_liar {
            self.liars.saw(&message);
        }
        let bytes = 1_000;
        let message = Box::new(Message::clone(&message));
        self.step(to, Event::Message { message, bytes })
    }

    /// A sealed block becomes the head of a node's chain.
    fn import(&mut self, node: usize, header: Arc<Header>, is_own: bool) -> Result<(), String> {
        let chain = &self.nodes[node].chain;
        if header.number != chain.height() + 1 {
            let known = chain.header(header.number).map(|known| chain.hash(known));
            return match known.is_none_or(|known| known == chain.hash(&header)) {
                true => Ok(()),
                false => Err(format!(
                    "node {node} finished a sibling of block {}",
                    header.number
                )),
            };
        }
        let parent = chain.head();
        let appended = self.nodes[node].chain.append(Arc::clone(&header));
        if let Err(reason) = appended {
            // Another node's block may be bad, one's own never.
            return match is_own && !self.nodes[node].is_liar {
                true => Err(format!("node {node} finished what is refused: {reason}")),
                false => Ok(()),
            };
        }
        if !self.nodes[node].is_liar {
            let chain = &self.nodes[node].chain;
            let extra = BftExtra::decode(chain.protocol(), &header.extra_data);
            let round = extra.map(|extra| extra.round).unwrap_or_default();
            self.counts.finished_later += u64::from(round > 0 && is_own);
            self.laws.finished(chain, &header, &parent, round)?;
        }
        if is_own {
            self.announce(node, &header)?;
        }
        let head = Box::new(self.nodes[node].chain.head());
        self.step(node, Event::Head(head))
    }

    fn announce(&mut self, node: usize, header: &Arc<Header>) -> Result<(), String> {
        let is_first = header.number > self.isolated_height;
        if is_first && self.has(Trouble::Isolation) && self.rng.random_bool(0.5) {
            self.isolated_height = header.number;
            let until = self.now_ms + self.rng.random_range(2_000..9_000);
            return self.cut(node, until);
        }
        for peer in self.nodes[node].linked.clone() {
            let delay_ms = self.delay_ms();
            let header = Arc::clone(header);
            self.after(
                delay_ms,
                Due::Block {
                    from: node,
                    to: peer,
                    header,
                },
            );
        }
        Ok(())
    }

    fn take_block(&mut self, from: usize, to: usize, header: Arc<Header>) -> Result<(), String> {
        if self.nodes[to].machine.is_none() || !self.nodes[to].linked.contains(&from) {
            return Ok(());
        }
        match header.number > self.nodes[to].chain.height() + 1 {
            true => {
                self.after(20, Due::Fetch { from, to });
                Ok(())
            }
            false => self.import(to, header, false),
        }
    }

    /// A node gets what it lacks of another one's chain.
    fn fetch(&mut self, from: usize, to: usize) -> Result<(), String> {
        if self.nodes[to].machine.is_none() || !self.nodes[to].linked.contains(&from) {
            return Ok(());
        }
        let first = self.nodes[to].chain.height() + 1;
        for number in first..=self.nodes[from].chain.height() {
            if let Some(header) = self.nodes[from].chain.header(number).cloned() {
                self.import(to, header, false)?;
            }
        }
        Ok(())
    }

    /// A node asks one of its peers for blocks.
    fn sync(&mut self, node: usize) {
        let linked = self.nodes[node].linked.iter().copied();
        let best = linked.max_by_key(|peer| self.nodes[*peer].chain.height());
        if let Some(from) = best {
            self.after(30, Due::Fetch { from, to: node });
        }
    }

    pub(super) fn lie(&mut self, node: usize) {
        let next_ms = self.rng.random_range(20..400);
        self.after(next_ms, Due::Lie { node });
        let lies = self
            .liars
            .lies(node, &self.nodes, &mut self.rng, self.now_ms);
        for (message, to) in lies {
            for peer in self.nodes[node].linked.clone() {
                if to.is_none_or(|to| to == peer) {
                    self.convey(node, peer, Arc::clone(&message));
                }
            }
        }
    }
}
