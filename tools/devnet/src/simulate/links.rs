//! Connections of nodes.

use super::due::Due;
use super::world::World;
use niwaki_bft::machine::Event;

impl World {
    pub(super) fn unlinked(&mut self, node: usize, other: usize) -> Result<(), String> {
        self.nodes[node].linked.remove(&other);
        let address = self.nodes[other].address();
        self.step(node, Event::PeerDown(address))
    }

    pub(super) fn unlink(&mut self, one: usize, other: usize) -> Result<(), String> {
        if self.nodes[one].linked.contains(&other) {
            self.unlinked(one, other)?;
            self.unlinked(other, one)?;
        }
        Ok(())
    }

    fn may_link(&self, one: usize, other: usize) -> bool {
        let is_cut = |node| {
            let until = self.cut_until_ms.get(&node);
            until.is_some_and(|until| *until > self.now_ms)
        };
        let are_up = self.nodes[one].machine.is_some() && self.nodes[other].machine.is_some();
        let is_parted = self.part.contains(&one) != self.part.contains(&other);
        let is_troubled = is_cut(one) || is_cut(other) || is_parted;
        one != other && are_up && (self.is_calm || !is_troubled)
    }

    /// Two nodes connect, or try again later.
    pub(super) fn link(&mut self, one: usize, other: usize) -> Result<(), String> {
        if self.nodes[one].linked.contains(&other) || one == other {
            return Ok(());
        }
        if !self.may_link(one, other) {
            if self.nodes[one].machine.is_some() {
                self.after(300, Due::Link { one, other });
            }
            return Ok(());
        }
        for (node, peer) in [(one, other), (other, one)] {
            self.nodes[node].linked.insert(peer);
            let address = self.nodes[peer].address();
            self.step(node, Event::PeerUp(address))?;
            // Both say where their chains end.
            self.after(
                20,
                Due::Fetch {
                    from: peer,
                    to: node,
                },
            );
        }
        Ok(())
    }

    /// Ends all connections of a node, until a time.
    pub(super) fn cut(&mut self, node: usize, until_ms: u64) -> Result<(), String> {
        self.cut_until_ms.insert(node, until_ms);
        for other in self.nodes[node].linked.clone() {
            self.unlink(node, other)?;
            self.after(300, Due::Link { one: node, other });
        }
        Ok(())
    }
}
