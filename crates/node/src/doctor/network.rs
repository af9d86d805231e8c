//! Ports that the node listens on, the address that others see, the clock.

use super::finding::Finding;
use super::is_public;
use super::machine::{Machine, process_name};
use crate::options::{NatMethodFlag, NodeOptions, Options};
use crate::run::{OPERATOR_SOCKET, ServersConfig};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An address outside, to learn which of its own the machine would send from. Nothing is sent.
const OUTSIDE: &str = "198.51.100.1:9";
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Blocks of the future are refused, and attestations are due a third into a slot.
const WARN_OFFSET_S: f64 = 0.1;
const FAIL_OFFSET_S: f64 = 0.5;
/// Seconds from 1900, where NTP begins, to 1970.
const NTP_EPOCH_S: u64 = 2_208_988_800;

/// A port that the node would listen on.
struct Port {
    flag: &'static str,
    address: SocketAddr,
    is_udp: bool,
}

/// Whether the ports are free, or the node itself has them.
pub(super) fn ports(options: &Options, data_path: &Path, is_running: bool) -> Vec<Finding> {
    if is_running {
        return vec![
            Finding::pass("ports", "the node that runs has them"),
            reachable(data_path),
        ];
    }
    let has_engine = options.node.engine.engine_rpc_enabled;
    let ports = ports_of(
        &options.node,
        data_path,
        has_engine.unwrap_or(is_public(options)),
    );
    let taken: Vec<Finding> = ports.iter().filter_map(check_port).collect();
    if !taken.is_empty() {
        return taken;
    }
    let numbers: BTreeSet<u16> = ports.iter().map(|port| port.address.port()).collect();
    let numbers: Vec<String> = numbers.iter().map(u16::to_string).collect();
    vec![Finding::pass(
        "ports",
        format!("{} are free", numbers.join(", ")),
    )]
}

fn ports_of(node: &NodeOptions, data_path: &Path, has_engine: bool) -> Vec<Port> {
    let tcp = |flag, address| Port {
        flag,
        address,
        is_udp: false,
    };
    let servers = ServersConfig::resolve(node, data_path, has_engine);
    let servers = servers.on_ports();
    let mut ports: Vec<Port> = servers
        .map(|server| tcp(server.port_flag, server.address))
        .collect();
    let metrics = &node.operation;
    if metrics.metrics_enabled == Some(true) {
        let address = SocketAddr::new(metrics.metrics_host, metrics.metrics_port);
        ports.push(tcp("--metrics-port", address));
    }
    let peers = &node.peers;
    if peers.p2p_enabled != Some(false) {
        let address = SocketAddr::new(peers.p2p_interface, peers.p2p_port);
        ports.push(tcp("--p2p-port", address));
        if peers.discovery_enabled != Some(false) {
            let port = peers.p2p_discovery_port.unwrap_or(peers.p2p_port);
            ports.push(Port {
                flag: "--p2p-discovery-port",
                address: SocketAddr::new(peers.p2p_interface, port),
                is_udp: true,
            });
        }
    }
    ports
}

/// What is wrong with a port.
fn check_port(port: &Port) -> Option<Finding> {
    let bound = match port.is_udp {
        true => UdpSocket::bind(port.address).map(drop),
        false => TcpListener::bind(port.address).map(drop),
    };
    let error = bound.err()?;
    let protocol = if port.is_udp { "UDP" } else { "TCP" };
    let found = format!("{protocol} {} ({}): {error}", port.address, port.flag);
    let mend = match error.kind() {
        ErrorKind::AddrInUse => {
            let holder = holder(&Machine::here(), port.address.port(), port.is_udp);
            let holder = holder.unwrap_or_else(|| "the program that has it".to_owned());
            format!("stop {holder}, or choose another {}", port.flag)
        }
        ErrorKind::AddrNotAvailable => {
            "the address is not one of this machine: choose another host".to_owned()
        }
        ErrorKind::PermissionDenied => format!("choose a {} above 1023", port.flag),
        _ => format!("choose another {}", port.flag),
    };
    Some(Finding::fail("ports", found, mend))
}

/// Name and number of the process that has a port, if this user may know.
fn holder(machine: &Machine, port: u16, is_udp: bool) -> Option<String> {
    let tables = match is_udp {
        true => ["proc/net/udp", "proc/net/udp6"],
        false => ["proc/net/tcp", "proc/net/tcp6"],
    };
    let tables = tables.iter().filter_map(|table| machine.read(table));
    let inodes: Vec<String> = tables
        .flat_map(|table| inodes(&table, port, is_udp))
        .collect();
    let wanted: BTreeSet<String> = inodes
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = std::fs::read_dir(machine.path("proc")).ok()?.flatten();
    let mut processes =
        processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let process = processes.find(|process| {
        let open = std::fs::read_dir(machine.path(&format!("proc/{process}/fd")));
        let mut open = open.into_iter().flatten().flatten();
        open.any(|file| {
            let target = std::fs::read_link(file.path()).unwrap_or_default();
            wanted.contains(&*target.to_string_lossy())
        })
    })?;
    let name = process_name(machine, process)?;
    Some(format!("{name} (process {process})"))
}

/// Of `/proc/net/tcp` or `udp`: the sockets that listen on a port.
fn inodes(table: &str, port: u16, is_udp: bool) -> Vec<String> {
    let lines = table.lines().skip(1);
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let is_port = u16::from_str_radix(local, 16).ok()? == port;
        let listens = is_udp || *fields.get(3)? == "0A";
        (is_port && listens).then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    };
    lines.filter_map(of).collect()
}

/// Whether peers have dialled the node that runs.
fn reachable(data_path: &Path) -> Finding {
    let check = "reachable";
    let peers = match ask_peers(&data_path.join(OPERATOR_SOCKET)) {
        Ok(peers) => peers,
        Err(error) => return Finding::unknown(check, format!("the node does not say: {error}")),
    };
    let peers = peers["result"].as_array().cloned().unwrap_or_default();
    let is_inbound = |peer: &&Value| peer["network"]["inbound"] == true;
    let (all, inbound) = (peers.len(), peers.iter().filter(is_inbound).count());
    let found = format!("{inbound} of {all} peers have dialled this node");
    match inbound {
        0 => Finding::unknown(
            check,
            format!("{found}; on a public network some do within an hour"),
        ),
        _ => Finding::pass(check, found),
    }
}

fn ask_peers(socket: &Path) -> io::Result<Value> {
    let mut node = UnixStream::connect(socket)?;
    node.set_read_timeout(Some(ANSWER_WITHIN))?;
    node.write_all(br#"{"jsonrpc":"2.0","id":1,"method":"admin_peers","params":[]}"#)?;
    let mut response = String::new();
    BufReader::new(node).read_line(&mut response)?;
    Ok(serde_json::from_str(&response)?)
}

/// The address that other nodes see.
pub(super) fn address(options: &Options) -> Finding {
    let peers = &options.node.peers;
    let check = "address";
    if peers.p2p_enabled == Some(false) {
        return Finding::pass(check, "no peers are wanted (--p2p-enabled=false)");
    }
    if let Some(host) = peers.p2p_host {
        return Finding::pass(check, format!("{host}, given by --p2p-host"));
    }
    let socket = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect(OUTSIDE)?;
        socket.local_addr()
    });
    match socket {
        Ok(own) => grade_address(own.ip(), peers.nat_method),
        Err(error) => Finding::unknown(check, format!("no way out: {error}")),
    }
}

fn grade_address(own: IpAddr, nat: NatMethodFlag) -> Finding {
    let is_private = match own {
        IpAddr::V4(ip) => {
            ip.is_private() || ip.is_loopback() || ip.is_link_local() || is_shared(ip.octets())
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    };
    match is_private && nat == NatMethodFlag::None {
        true => Finding::warn(
            "address",
            format!("{own}, of a private network, and --nat-method=NONE"),
            "others cannot dial this node: forward the port and set --p2p-host, or --nat-method=AUTO",
        ),
        false => Finding::pass("address", own.to_string()),
    }
}

/// Addresses that a provider shares among customers (RFC 6598).
fn is_shared([first, second, ..]: [u8; 4]) -> bool {
    first == 100 && second & 0xc0 == 0x40
}

/// How far the clock is off, as an NTP server says (RFC 4330).
pub(super) fn clock(server: &str) -> Finding {
    if server.eq_ignore_ascii_case("none") {
        return Finding::unknown("clock", "not compared (--ntp-server=none)");
    }
    match offset(server) {
        Ok(offset) => grade_offset(offset, server),
        Err(error) => Finding::unknown("clock", format!("not compared: {server}: {error}")),
    }
}

fn grade_offset(offset: f64, server: &str) -> Finding {
    let found = format!("{:+.0} ms of {server}", offset * 1e3);
    let mend = "run chrony, systemd-timesyncd or another client of NTP";
    match offset.abs() {
        off if off >= FAIL_OFFSET_S => Finding::fail("clock", found, mend),
        off if off >= WARN_OFFSET_S => Finding::warn("clock", found, mend),
        _ => Finding::pass("clock", found),
    }
}

/// Seconds by which the server's clock is ahead of this one.
fn offset(server: &str) -> io::Result<f64> {
    let with_port = match server.contains(':') {
        true => server.to_owned(),
        false => format!("{server}:123"),
    };
    let mut addresses = with_port.to_socket_addrs()?;
    let address = addresses
        .find(SocketAddr::is_ipv4)
        .ok_or_else(|| io::Error::other("no address"))?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut request = [0; 48];
    request[0] = 0x23; // Version 4, a client.
    let sent = since_1900()?;
    request[40..48].copy_from_slice(&sent.to_be_bytes());
    socket.send(&request)?;
    let mut answer = [0; 48];
    let length = socket.recv(&mut answer)?;
    let came = since_1900()?;
    if length < 48 {
        return Err(io::Error::other("the answer is too short"));
    }
    offset_of(&answer, sent, came)
}

/// The offset by the times in an answer, and those at which the request was sent and the answer came.
fn offset_of(answer: &[u8; 48], sent: u64, came: u64) -> io::Result<f64> {
    let time = |at: usize| {
        let bytes = answer
            .get(at..at + 8)
            .and_then(|bytes| bytes.try_into().ok());
        u64::from_be_bytes(bytes.unwrap_or_default())
    };
    let (is_server, stratum) = (answer[0] & 7 == 4, answer[1]);
    if !is_server || !(1..16).contains(&stratum) || time(24) != sent {
        return Err(io::Error::other("no answer of a server whose clock is set"));
    }
    let there = seconds(time(32), sent) + seconds(time(40), came);
    Ok(there / 2.0)
}

/// Seconds from `from` to `to`, both in units of 2^-32 s.
fn seconds(to: u64, from: u64) -> f64 {
    to.wrapping_sub(from).cast_signed() as f64 / 4_294_967_296.0
}

/// The time in units of 2^-32 s since 1900.
fn since_1900() -> io::Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(|_| io::Error::other("the clock is before 1970"))?;
    let whole = now.as_secs().wrapping_add(NTP_EPOCH_S) << 32;
    let part = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
    Ok(whole | part)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Grade;
    use super::*;
    use clap::Parser;

    fn options(words: &[&str]) -> Options {
        Options::try_parse_from([&["niwaki"], words].concat()).unwrap()
    }

    #[test]
    fn a_port_that_is_taken_is_named_with_its_flag_and_its_holder() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let options = options(&[
            "--rpc-http-enabled",
            "--rpc-http-port",
            &port,
            "--p2p-enabled=false",
            "--engine-rpc-enabled=false",
        ]);
        let findings = ports(&options, Path::new("/nowhere"), false);
        assert_eq!(findings[0].grade, Grade::Fail);
        assert!(
            findings[0].found.contains("--rpc-http-port"),
            "{}",
            findings[0].found
        );
        let mend = findings[0].mend.clone().unwrap();
        let own = format!("process {}", std::process::id());
        assert!(mend.contains(&own), "{mend}");
        drop(taken);
        assert_eq!(
            ports(&options, Path::new("/nowhere"), false)[0].grade,
            Grade::Pass
        );
    }

    #[test]
    fn a_private_address_needs_a_way_in() {
        for (ip, nat, grade) in [
            ("192.168.1.4", NatMethodFlag::None, Grade::Warn),
            ("100.64.0.1", NatMethodFlag::None, Grade::Warn),
            ("100.128.0.1", NatMethodFlag::None, Grade::Pass),
            ("10.0.0.1", NatMethodFlag::Auto, Grade::Pass),
            ("203.0.113.7", NatMethodFlag::None, Grade::Pass),
            ("fd00::1", NatMethodFlag::None, Grade::Warn),
        ] {
            let finding = grade_address(ip.parse().unwrap(), nat);
            assert_eq!(finding.grade, grade, "{ip}");
        }
    }

    /// An NTP server on loopback whose clock is so many seconds ahead.
    fn ntp_server(ahead: i64) -> String {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut packet = [0; 48];
            let (_, from) = server.recv_from(&mut packet).unwrap();
            let now = since_1900().unwrap().wrapping_add_signed(ahead << 32);
            let now = now.to_be_bytes();
            let request = packet;
            packet[0] = 0x24;
            packet[1] = 2;
            packet[24..32].copy_from_slice(&request[40..48]);
            packet[32..40].copy_from_slice(&now);
            packet[40..48].copy_from_slice(&now);
            server.send_to(&packet, from).unwrap();
        });
        address
    }

    #[test]
    fn the_clock_is_compared_with_a_server() {
        for (ahead, grade) in [(0, Grade::Pass), (3, Grade::Fail), (-3, Grade::Fail)] {
            let finding = clock(&ntp_server(ahead));
            assert_eq!(finding.grade, grade, "{}", finding.found);
        }
        for (offset, grade) in [(0.02, Grade::Pass), (-0.2, Grade::Warn), (0.6, Grade::Fail)] {
            assert_eq!(grade_offset(offset, "here").grade, grade);
        }
        assert_eq!(clock("none").grade, Grade::Unknown);
    }

    #[test]
    fn an_answer_to_another_request_is_none() {
        let mut answer = [0; 48];
        (answer[0], answer[1]) = (0x24, 1);
        answer[24..32].copy_from_slice(&7_u64.to_be_bytes());
        assert!(offset_of(&answer, 8, 9).is_err());
        assert!(offset_of(&answer, 7, 9).is_ok());
        answer[1] = 16;
        assert!(offset_of(&answer, 7, 9).is_err());
    }
}
