//! A container's host, as Besu's containers name it: its address by the name `HOST_IP`, its ports by variables.

use super::ANSWER;
use crate::discovery::reach::Ports;
use std::net::IpAddr;
use std::path::Path;
use tokio::time::timeout;

/// The name, given to the container with `--add-host`.
const HOST: &str = "HOST_IP";

/// Whether this process runs in a container of Docker or Podman.
pub(super) fn is_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|path| Path::new(path).exists())
}

/// The IPv4 address of the host, if the name has one.
pub(super) async fn host_ip() -> Option<IpAddr> {
    let found = timeout(ANSWER, tokio::net::lookup_host((HOST, 0))).await;
    let mut found = found.ok()?.ok()?.map(|address| address.ip());
    found.find(|ip| ip.is_ipv4() && !ip.is_unspecified())
}

/// The host's ports for ours.
pub(super) fn outer_ports(inner: Ports) -> Ports {
    outer(inner, |name| std::env::var(name).ok())
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
