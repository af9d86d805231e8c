//! The networks of a simulation. All of them are loopback: a client has one address in all of its networks, the simulator one in each.
//!
//! Addresses are of one /16 of 127/8, which the process id chooses, so that simulations side by side do not meet.

use super::simulation::Refusal;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The network in which every client is.
const BRIDGE: &str = "bridge";

/// The simulator, as a node of a network.
const SIMULATION: &str = "simulation";

/// Addresses by node and network.
#[derive(Debug)]
pub(super) struct Networks {
    /// The address given last.
    last: u32,
    simulation: Ipv4Addr,
    clients: BTreeMap<String, Ipv4Addr>,
    /// The nodes of each network of a suite.
    networks: BTreeMap<(u32, String), BTreeMap<String, Ipv4Addr>>,
}

impl Default for Networks {
    fn default() -> Self {
        // 127.0 is left to other programs.
        let second = u8::try_from(std::process::id() % 255 + 1).unwrap_or(1);
        let simulation = Ipv4Addr::new(127, second, 0, 1);
        Self {
            last: simulation.to_bits(),
            simulation,
            clients: BTreeMap::new(),
            networks: BTreeMap::new(),
        }
    }
}

impl Networks {
    /// An address that was not given before, and `is_free`.
    pub(super) fn new_address(
        &mut self,
        is_free: impl Fn(Ipv4Addr) -> bool,
    ) -> Result<Ipv4Addr, Refusal> {
        let end = self.simulation.to_bits() | 0xffff;
        while self.last + 1 < end {
            self.last += 1;
            let address = Ipv4Addr::from_bits(self.last);
            if is_free(address) {
                return Ok(address);
            }
        }
        let ports = "8545, 8546, 8551 and 30303";
        let why = format!("no loopback address is left with its ports {ports} free");
        Err(Refusal::failure(why))
    }

    /// Notes the address of a client that runs.
    pub(super) fn add_client(&mut self, node: &str, address: Ipv4Addr) {
        self.clients.insert(node.to_owned(), address);
    }

    pub(super) fn remove_client(&mut self, node: &str) {
        self.clients.remove(node);
        for nodes in self.networks.values_mut() {
            nodes.remove(node);
        }
    }

    pub(super) fn create(&mut self, suite: u32, network: &str) -> Result<(), Refusal> {
        if network == BRIDGE || self.check(suite, network).is_ok() {
            return Err(Refusal::bad(format!("network {network:?} exists")));
        }
        let key = (suite, network.to_owned());
        self.networks.insert(key, BTreeMap::new());
        Ok(())
    }

    pub(super) fn remove(&mut self, suite: u32, network: &str) -> Result<(), Refusal> {
        self.check(suite, network)?;
        self.networks.remove(&(suite, network.to_owned()));
        Ok(())
    }

    /// Removes the networks of a suite.
    pub(super) fn remove_all(&mut self, suite: u32) {
        self.networks.retain(|(of, _), _| *of != suite);
    }

    /// Whether a suite has such a network.
    pub(super) fn check(&self, suite: u32, network: &str) -> Result<(), Refusal> {
        match self.networks.contains_key(&(suite, network.to_owned())) {
            true => Ok(()),
            false => Err(Refusal::missing(format!(
                "suite {suite} has no network {network:?}"
            ))),
        }
    }

    pub(super) fn connect(&mut self, suite: u32, network: &str, node: &str) -> Result<(), Refusal> {
        self.check(suite, network)?;
        let address = match node {
            SIMULATION => self.new_address(|_| true)?,
            _ => self.client(node)?,
        };
        let nodes = self.networks.get_mut(&(suite, network.to_owned()));
        if let Some(nodes) = nodes {
            nodes.entry(node.to_owned()).or_insert(address);
        }
        Ok(())
    }

    pub(super) fn disconnect(
        &mut self,
        suite: u32,
        network: &str,
        node: &str,
    ) -> Result<(), Refusal> {
        self.address(suite, network, node)?;
        let nodes = self.networks.get_mut(&(suite, network.to_owned()));
        if let Some(nodes) = nodes {
            nodes.remove(node);
        }
        Ok(())
    }

    /// The address of a node in a network.
    pub(super) fn address(
        &self,
        suite: u32,
        network: &str,
        node: &str,
    ) -> Result<Ipv4Addr, Refusal> {
        match (network, node) {
            (BRIDGE, SIMULATION) => return Ok(self.simulation),
            (BRIDGE, node) => return self.client(node),
            _ => self.check(suite, network)?,
        }
        let nodes = self.networks.get(&(suite, network.to_owned()));
        let address = nodes.and_then(|nodes| nodes.get(node)).copied();
        address.ok_or_else(|| Refusal::missing(format!("{node} is not in network {network:?}")))
    }

    fn client(&self, node: &str) -> Result<Ipv4Addr, Refusal> {
        let address = self.clients.get(node).copied();
        address.ok_or_else(|| Refusal::missing(format!("no client {node:?} runs")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_loopback_free_and_never_given_twice() {
        let mut networks = Networks::default();
        let simulation = networks.address(0, BRIDGE, SIMULATION).unwrap();
        let first = networks.new_address(|_| true).unwrap();
        let third = networks
            .new_address(|address| address.octets()[3] != 3)
            .unwrap();
        assert_eq!(simulation.octets()[3], 1);
        assert_eq!((first.octets()[3], third.octets()[3]), (2, 4));
        assert!([simulation, first, third].iter().all(Ipv4Addr::is_loopback));
        let error = networks.new_address(|_| false).unwrap_err();
        assert!(error.why.contains("no loopback address is left"));
    }

    #[test]
    fn the_simulator_has_another_address_in_each_network_a_client_the_same() {
        let mut networks = Networks::default();
        let client = networks.new_address(|_| true).unwrap();
        networks.add_client("niwaki-1", client);
        networks.create(7, "net").unwrap();
        assert!(networks.create(7, "net").is_err());
        assert!(networks.create(7, BRIDGE).is_err());
        for node in ["niwaki-1", SIMULATION] {
            assert!(networks.address(7, "net", node).is_err());
            networks.connect(7, "net", node).unwrap();
        }
        assert_eq!(networks.address(7, "net", "niwaki-1"), Ok(client));
        assert_eq!(networks.address(7, BRIDGE, "niwaki-1"), Ok(client));
        let simulation = networks.address(7, "net", SIMULATION).unwrap();
        assert_ne!(networks.address(7, BRIDGE, SIMULATION), Ok(simulation));
        // A second time changes nothing.
        networks.connect(7, "net", SIMULATION).unwrap();
        assert_eq!(networks.address(7, "net", SIMULATION), Ok(simulation));
        networks.disconnect(7, "net", SIMULATION).unwrap();
        assert!(networks.address(7, "net", SIMULATION).is_err());
    }

    #[test]
    fn networks_end_with_their_suite_and_clients_leave_them() {
        let mut networks = Networks::default();
        networks.add_client("geth-1", Ipv4Addr::new(127, 1, 1, 1));
        networks.create(1, "a").unwrap();
        networks.create(2, "a").unwrap();
        networks.connect(2, "a", "geth-1").unwrap();
        networks.remove_all(1);
        assert!(networks.check(1, "a").is_err());
        networks.remove_client("geth-1");
        assert!(networks.address(2, "a", "geth-1").is_err());
        assert!(networks.address(2, BRIDGE, "geth-1").is_err());
        assert!(networks.connect(2, "a", "geth-1").is_err());
        networks.remove(2, "a").unwrap();
        assert!(networks.remove(2, "a").is_err());
    }
}
