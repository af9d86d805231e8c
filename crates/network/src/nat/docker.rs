//! A container's host, as Besu's containers name it: its address by the name `HOST_IP`, its ports by variables.

use crate::address::is_special;
use crate::discovery::reach::Ports;
use std::net::Ipv4Addr;
use std::path::Path;

/// The name, given to the container with `--add-host`.
const HOST: &str = "HOST_IP";
/// The file to which `--add-host` writes. The DNS is not asked: its answer would choose this node's address.
const HOSTS: &str = "/etc/hosts";

/// What a container tells of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    /// Its address, if it is named.
    pub(super) ip: Option<Ipv4Addr>,
    /// Its ports for ours; 0 where none is named.
    pub(super) ports: Ports,
}

impl Host {
    /// What is told here. `inner` are our ports.
    pub(super) fn read(inner: Ports) -> Self {
        let hosts = std::fs::read_to_string(HOSTS).unwrap_or_default();
        Self {
            ip: ip_of(&hosts),
            ports: outer(inner, |name| std::env::var(name).ok()),
        }
    }
}

/// Whether this process runs in a container of Docker or Podman.
pub(super) fn is_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|path| Path::new(path).exists())
}

/// The first IPv4 address with the name in a file of hosts, if others can reach it. A row: an address, its names, perhaps a comment
/// after `#`.
fn ip_of(hosts: &str) -> Option<Ipv4Addr> {
    let row = |line: &str| {
        let mut fields = line.split('#').next()?.split_whitespace();
        let ip: Ipv4Addr = fields.next()?.parse().ok()?;
        let is_named = fields.any(|name| name.eq_ignore_ascii_case(HOST));
        (is_named && !ip.is_loopback() && !is_special(ip.into())).then_some(ip)
    };
    hosts.lines().find_map(row)
}

fn outer(inner: Ports, variable: impl Fn(&str) -> Option<String>) -> Ports {
    let port = |inner: u16| {
        let value = variable(&format!("HOST_PORT_{inner}"));
        value.and_then(|port| port.trim().parse().ok()).unwrap_or(0)
    };
    Ports {
        tcp: port(inner.tcp),
        udp: port(inner.udp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_the_first_address_of_its_name_in_the_file_that_others_can_reach() {
        for (hosts, expected) in [
            ("", None),
            ("203.0.113.7 HOST_IP", Some([203, 0, 113, 7])),
            (
                "127.0.0.1 localhost\n::1\tHOST_IP\n10.0.0.1\tother host_ip # x",
                Some([10, 0, 0, 1]),
            ),
            (
                "203.0.113.7 HOST_IP\n203.0.113.8 HOST_IP",
                Some([203, 0, 113, 7]),
            ),
            ("# 203.0.113.7 HOST_IP\n203.0.113.8 a # HOST_IP", None),
            ("127.0.0.1 HOST_IP\n0.0.0.0 HOST_IP\nx HOST_IP", None),
            ("203.0.113.7 HOST_IP.example.org\nHOST_IP", None),
        ] {
            assert_eq!(ip_of(hosts), expected.map(Ipv4Addr::from), "{hosts:?}");
        }
    }

    #[test]
    fn a_variable_names_the_hosts_port_and_what_is_no_port_is_ignored() {
        let inner = Ports {
            tcp: 30303,
            udp: 30304,
        };
        let with = |value: &str| {
            outer(inner, |name| {
                (name == "HOST_PORT_30303").then(|| value.to_owned())
            })
        };
        assert_eq!(with("50303"), Ports { tcp: 50303, udp: 0 });
        for wrong in ["", "x", "70000", "-1"] {
            assert_eq!(with(wrong), Ports::default(), "{wrong:?}");
        }
    }
}
