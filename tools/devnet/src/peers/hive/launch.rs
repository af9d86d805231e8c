//! A client of a simulation: a process where hive has a container.
//!
//! In: the kind, the simulator's variables and files, and an address of 127/8 that is the client's alone, so that its ports are those that
//! simulators expect: 8545 (JSON-RPC), 8546 (WebSocket), 8551 (Engine API), 30303 (peers and discovery). The flags do what
//! hive's scripts for clients do. The process is killed when the value is dropped.

use super::genesis::{self, Variables};
use crate::client::Client;
use crate::process::{self, ClientKind};
use eyre::{Result, WrapErr, bail, ensure, eyre};
use niwaki_rpc::JwtSecret;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The secret of the Engine API, which hive and its simulators share.
const SECRET: [u8; 32] = *b"secretsecretsecretsecretsecretse";

const RPC_PORT: u16 = 8545;
const SOCKET_PORT: u16 = 8546;
const ENGINE_PORT: u16 = 8551;
const P2P_PORT: u16 = 30303;

/// The network id if the simulator names none, as in hive.
const NETWORK_ID: &str = "1337";

/// Variables that ask for what the clients here can't do.
const UNSUPPORTED: [(&str, &str); 4] = [
    ("HIVE_MINER", "proof of work or Clique blocks"),
    ("HIVE_CLIQUE_PERIOD", "Clique"),
    ("HIVE_CLIQUE_PRIVATEKEY", "Clique"),
    ("HIVE_GRAPHQL_ENABLED", "GraphQL"),
];

/// Files by their path in the client, relative to its folder.
pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What to start.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub(super) kind: ClientKind,
    pub(super) binary: &'a Path,
    /// New folder for data, files and log.
    pub(super) folder: PathBuf,
    pub(super) address: Ipv4Addr,
    pub(super) variables: Variables,
    pub(super) files: Files,
    /// How long it may take until the port is open that the simulator waits for.
    pub(super) timeout: Duration,
}

/// A running client.
#[derive(Debug)]
pub(super) struct LocalClient {
    rpc: Client,
    process: Mutex<Child>,
}

impl Launch<'_> {
    /// What of it can't be done, if anything: the simulator's mistake, not the client's.
    pub(super) fn refusal(&self) -> Option<String> {
        let asks = |name: &str| {
            self.variables
                .get(name)
                .is_some_and(|value| !value.is_empty())
        };
        if let Some((name, what)) = UNSUPPORTED.iter().find(|(name, _)| asks(name)) {
            return Some(format!(
                "{name} is not supported: no client here has {what}"
            ));
        }
        if let Err(why) = self.live_port() {
            return Some(why);
        }
        match (self.kind, self.node_type()) {
            (_, "" | "full" | "archive") | (ClientKind::Geth, "snap") => None,
            (_, kind) => Some(format!(
                "HIVE_NODETYPE={kind} is not supported by this client"
            )),
        }
    }

    /// Imports the files' blocks, starts the process and waits until its port is open.
    ///
    /// # Errors
    /// If it ends or takes too long; with the end of its log.
    pub(super) fn start(&self) -> Result<LocalClient> {
        let genesis = self.files.get(Path::new("genesis.json"));
        let genesis = genesis::map(genesis.map(Vec::as_slice), &self.variables);
        let genesis = genesis.map_err(|why| eyre!(why))?;
        for (path, content) in &self.files {
            let path = self.folder.join(path);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(path, content)?;
        }
        std::fs::create_dir_all(&self.folder)?;
        std::fs::write(self.folder.join("genesis.json"), genesis.to_string())?;
        let secret = JwtSecret::new(SECRET);
        std::fs::write(self.folder.join("secret"), secret.to_hex())?;
        if self.kind == ClientKind::Geth {
            // No flag of geth names the address on which it listens for peers.
            let config = format!("[Node.P2P]\nListenAddr = \"{}:{P2P_PORT}\"\n", self.address);
            std::fs::write(self.folder.join("geth.toml"), config)?;
            process::init(self.kind, self.binary, &self.folder)?;
        }
        self.import()?;
        let mut command = Command::new(self.binary);
        command.args(self.flags());
        let child = process::spawn(command, &self.folder)?;
        let at = |port| SocketAddr::from((self.address, port));
        let name = match self.kind {
            ClientKind::Niwaki => "niwaki",
            _ => "geth",
        };
        let client = LocalClient {
            rpc: Client::at(name, at(RPC_PORT), at(ENGINE_PORT), secret),
            process: Mutex::new(child),
        };
        self.wait_until_live(&client)
            .wrap_err_with(|| format!("the end of its log:\n{}", self.end_of_log()))?;
        Ok(client)
    }

    /// Imports `chain.rlp`, then the files of `blocks` in the order of their numbers. A file that can't be imported is only noted in the log:
    /// some simulators send invalid blocks.
    fn import(&self) -> Result<()> {
        let chain = Path::new("chain.rlp");
        let mut files: Vec<&Path> = self.files.keys().map(PathBuf::as_path).collect();
        files.retain(|path| *path == chain || path.starts_with("blocks"));
        files.sort_by_key(|path| (*path != chain, leading_number(path)));
        for file in files {
            let path = self.folder.join(file);
            if let Err(error) = process::import(self.kind, self.binary, &self.folder, &path) {
                let mut log = std::fs::OpenOptions::new();
                let log = log.create(true).append(true);
                let mut log = log.open(self.folder.join("log"))?;
                writeln!(log, "{}: {error:#}", file.display())?;
            }
        }
        Ok(())
    }

    fn flags(&self) -> Vec<String> {
        let variable = |name: &str| self.variables.get(name).map_or("", String::as_str);
        let (address, boot_node) = (self.address, variable("HIVE_BOOTNODE"));
        let network = match variable("HIVE_NETWORK_ID") {
            "" => NETWORK_ID,
            id => id,
        };
        let node_type = self.node_type();
        let flags = match self.kind {
            ClientKind::Niwaki => format!(
                "--data-path=data --genesis-file=genesis.json --network-id={network} --memory-budget=512M \
                 --rpc-http-enabled --rpc-http-host={address} --rpc-http-port={RPC_PORT} --host-allowlist=* \
                 --rpc-http-api=ADMIN,DEBUG,ETH,NET,TRACE,TXPOOL,WEB3 --rpc-ws-enabled --rpc-ws-host={address} \
                 --rpc-ws-port={SOCKET_PORT} --rpc-ws-api=ADMIN,DEBUG,ETH,NET,TRACE,TXPOOL,WEB3 \
                 --engine-rpc-port={ENGINE_PORT} --engine-host-allowlist=* --engine-jwt-secret=secret \
                 --p2p-host={address} --p2p-interface={address} --p2p-port={P2P_PORT} --bootnodes={boot_node} \
                 --tx-pool-min-gas-price=1 --tx-pool-max-future-by-sender=5000{}",
                if node_type == "archive" {
                    " --data-storage-format=X_BONSAI_ARCHIVE"
                } else {
                    ""
                }
            ),
            _ => format!(
                "--config=geth.toml --datadir=data --networkid={network} --syncmode={} --gcmode={} --ipcdisable \
                 --datadir.minfreedisk=0 --http --http.addr={address} --http.port={RPC_PORT} \
                 --http.api=admin,debug,eth,net,txpool,web3 --ws --ws.addr={address} --ws.port={SOCKET_PORT} --ws.origins=* \
                 --ws.api=admin,debug,eth,net,txpool,web3 --authrpc.addr={address} --authrpc.port={ENGINE_PORT} \
                 --authrpc.jwtsecret=secret --nat=extip:{address} --netrestrict=127.0.0.0/8 --bootnodes={boot_node}",
                if node_type == "snap" { "snap" } else { "full" },
                if node_type == "archive" {
                    "archive"
                } else {
                    "full"
                }
            ),
        };
        flags.split(' ').map(str::to_owned).collect()
    }

    fn node_type(&self) -> &str {
        self.variables.get("HIVE_NODETYPE").map_or("", |kind| kind)
    }

    /// The port that must be open before the simulator goes on; `None` if it does not wait.
    fn live_port(&self) -> Result<Option<u16>, String> {
        match self
            .variables
            .get("HIVE_CHECK_LIVE_PORT")
            .map(|port| port.as_str())
        {
            None | Some("") => Ok(Some(RPC_PORT)),
            Some(port) => match port.parse() {
                Ok(0) => Ok(None),
                Ok(port) => Ok(Some(port)),
                Err(_) => Err(format!("HIVE_CHECK_LIVE_PORT must be a port, got {port:?}")),
            },
        }
    }

    fn wait_until_live(&self, client: &LocalClient) -> Result<()> {
        let Some(port) = self.live_port().map_err(|why| eyre!(why))? else {
            return Ok(());
        };
        let address = SocketAddr::from((self.address, port));
        let began = Instant::now();
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if let Some(status) = client.process().try_wait()? {
                bail!("the client ended by itself: {status}");
            }
            let within = self.timeout;
            ensure!(
                began.elapsed() < within,
                "port {port} is not open within {within:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn end_of_log(&self) -> String {
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl LocalClient {
    /// The URL by which peers reach it, as soon as it listens for them: the port for requests is open earlier.
    pub(super) fn enode(&self) -> Result<String> {
        let began = Instant::now();
        loop {
            match self.rpc.enode() {
                Ok(enode) => return Ok(enode),
                Err(error) if began.elapsed() > Duration::from_secs(20) => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Stops the process where it is, or lets it go on.
    pub(super) fn pause(&self, is_paused: bool) -> Result<()> {
        let signal = if is_paused { "-STOP" } else { "-CONT" };
        let id = self.process().id().to_string();
        let status = Command::new("kill").args([signal, &id]).status()?;
        ensure!(status.success(), "kill {signal} {id}: {status}");
        Ok(())
    }

    fn process(&self) -> MutexGuard<'_, Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LocalClient {
    fn drop(&mut self) {
        let mut process = self.process();
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Whether no other process listens on the client's ports at an address.
pub(super) fn is_free(address: Ipv4Addr) -> bool {
    let ports = [RPC_PORT, SOCKET_PORT, ENGINE_PORT, P2P_PORT];
    let tcp = |port: &u16| TcpListener::bind((address, *port)).is_ok();
    ports.iter().all(tcp) && UdpSocket::bind((address, P2P_PORT)).is_ok()
}

/// The number with which a file's name begins, such as 12 of `blocks/0012.rlp`.
fn leading_number(path: &Path) -> (u64, &Path) {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    let end = name.find(|c: char| !c.is_ascii_digit());
    let digits = &name[..end.unwrap_or(name.len())];
    (digits.parse().unwrap_or(u64::MAX), path)
}

#[cfg(test)]
mod tests;
