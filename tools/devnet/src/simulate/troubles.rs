//! What goes wrong, and the end of it.

use super::chain::SimChain;
use super::due::Due;
use super::scenario::Trouble;
use super::world::World;
use niwaki_bft::machine::Event;
use niwaki_primitives::Address;
use niwaki_rules::Vote;
use rand::Rng;
use std::collections::BTreeSet;

impl World {
    /// Something goes wrong.
    pub(super) fn trouble(&mut self) -> Result<(), String> {
        if self.is_calm {
            return Ok(());
        }
        let next_ms = self.rng.random_range(50..1_500);
        self.after(next_ms, Due::Trouble);
        let node = self.rng.random_range(0..self.nodes.len());
        let other = self.rng.random_range(0..self.nodes.len());
        if self.has(Trouble::Disconnects) && self.rng.random_bool(0.5) {
            self.unlink(node, other)?;
            self.after(500, Due::Link { one: node, other });
        }
        if self.has(Trouble::Crashes) && self.rng.random_bool(0.4) {
            self.stop_soon(node);
        }
        if self.has(Trouble::Blackouts) && self.rng.random_bool(0.1) {
            (0..self.nodes.len()).for_each(|node| self.stop_soon(node));
        }
        if self.has(Trouble::Partitions) && self.rng.random_bool(0.3) {
            self.partition()?;
        }
        if self.has(Trouble::Wipes) && self.rng.random_bool(0.2) {
            self.wipe(node)?;
        }
        if self.has(Trouble::Votes) && self.rng.random_bool(0.5) {
            self.vote(node);
        }
        if self.rng.random_bool(0.3) {
            let has_work = self.rng.random_bool(0.5);
            self.step(node, Event::Work(has_work))?;
        }
        Ok(())
    }

    fn stop_soon(&mut self, node: usize) {
        let after_ms = self.rng.random_range(0..50);
        self.after(after_ms, Due::Stop { node });
    }

    fn partition(&mut self) -> Result<(), String> {
        let all = 0..self.nodes.len();
        let (part, rest): (BTreeSet<usize>, _) =
            all.partition::<BTreeSet<usize>, _>(|_| self.rng.random_bool(0.5));
        self.part = part.clone();
        for one in part {
            for other in rest.iter().copied() {
                self.unlink(one, other)?;
                self.after(300, Due::Link { one, other });
            }
        }
        Ok(())
    }

    /// One node loses all it had, once: it counts as faulty.
    fn wipe(&mut self, node: usize) -> Result<(), String> {
        let was_wiped = self.nodes.iter().any(|node| node.chain.height() == 0);
        if self.scenario.validators < 4 || was_wiped || self.lowest() < 2 {
            return Ok(());
        }
        self.scenario.troubles.remove(&Trouble::Wipes);
        let genesis: Vec<Address> = (0..self.scenario.validators)
            .map(|node| self.nodes[node].address())
            .collect();
        let rules = self.nodes[node].chain.head().rules;
        let wiped = &mut self.nodes[node];
        wiped.chain = SimChain::new(rules, &genesis);
        wiped.journal.clear();
        wiped.is_wiped = true;
        self.stop(node)
    }

    /// All vote on one node from now on.
    fn vote(&mut self, node: usize) {
        let validator = self.nodes[node].address();
        let validators = self.nodes[0].chain.validators();
        let is_add = !validators.contains(&validator);
        if !is_add && validators.as_slice().len() < 3 {
            return;
        }
        for node in &mut self.nodes {
            node.votes = vec![Vote { validator, is_add }];
        }
    }

    /// The trouble is over: all nodes are up and connected. Liars go on.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        for one in 0..self.nodes.len() {
            self.nodes[one].skew_ms = 0;
            self.after(0, Due::Start { node: one });
            for other in 0..self.nodes.len() {
                self.after(10, Due::Link { one, other });
            }
        }
    }
}
