//! The clients' processes: started, asked to stop, killed, started again.

use crate::client::Client;
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_rpc::JwtSecret;
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Which client a process is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Niwaki,
    Geth,
}

/// What a client is started upon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given<'a> {
    pub(crate) genesis: &'a Path,
    /// A file of blocks that it imports first.
    pub(crate) chain: Option<&'a Path>,
    /// Of niwaki.
    pub(crate) memory_budget: &'a str,
    /// How many it may hold.
    pub(crate) connections: usize,
    /// More flags for niwaki.
    pub(crate) flags: &'a [&'a str],
}

impl<'a> Given<'a> {
    /// A genesis file and nothing else.
    pub(crate) fn genesis(genesis: &'a Path) -> Self {
        Self {
            genesis,
            chain: None,
            memory_budget: "512M",
            connections: 1024,
            flags: &[],
        }
    }
}

/// A client that runs.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) kind: Kind,
    pub(crate) client: Client,
    binary: PathBuf,
    folder: PathBuf,
    ports: [u16; 2],
    flags: Vec<String>,
    child: Child,
}

impl Process {
    /// Starts `binary` in `folder`, which is made.
    pub(crate) fn start(
        kind: Kind,
        name: &'static str,
        binary: &Path,
        folder: PathBuf,
        given: Given<'_>,
    ) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let genesis = folder.join("genesis.json");
        if given.genesis != genesis {
            std::fs::copy(given.genesis, genesis)?;
        }
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(&std::process::id().to_be_bytes());
        let secret = JwtSecret::new(secret);
        std::fs::write(folder.join("secret"), secret.to_hex())?;
        if kind == Kind::Geth {
            prepare_geth(binary, &folder)?;
        }
        if let Some(chain) = given.chain {
            import(kind, binary, &folder, chain)?;
        }
        let ports = [free_port()?, free_port()?];
        let connections = given.connections.to_string();
        let bounds = [
            "--memory-budget",
            given.memory_budget,
            "--rpc-http-max-active-connections",
            &connections,
        ];
        let flags = match kind {
            Kind::Niwaki => [&bounds, given.flags].concat(),
            Kind::Geth => Vec::new(),
        };
        let flags: Vec<String> = flags.into_iter().map(str::to_owned).collect();
        let child = spawn(kind, binary, &folder, ports, &flags)?;
        let client = Client::new(name, ports[0], ports[1], secret);
        let process = Self {
            kind,
            client,
            binary: binary.to_owned(),
            folder,
            ports,
            flags,
            child,
        };
        process.client.wait_until_ready()?;
        Ok(process)
    }

    pub(crate) fn data_path(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Of JSON-RPC and of the Engine API.
    pub(crate) fn ports(&self) -> [u16; 2] {
        self.ports
    }

    /// A client of it that has no connection yet.
    pub(crate) fn anew(&self) -> Client {
        self.client.anew()
    }

    /// Its number in the system.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has used of the processors.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        // Fields 14 and 15, user and system time, in hundredths of a second; the second is a name
        // in brackets.
        let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let ticks: u64 = fields
            .split(' ')
            .skip(11)
            .take(2)
            .map(str::parse::<u64>)
            .sum::<Result<_, _>>()?;
        Ok(Duration::from_millis(ticks * 10))
    }

    /// The file of the chain's genesis.
    pub(crate) fn genesis(&self) -> PathBuf {
        self.folder.join("genesis.json")
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to end, and waits.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(
                began.elapsed() < Duration::from_secs(60),
                "{} does not stop",
                self.client.name
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts it again after it has ended.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.child = spawn(
            self.kind,
            &self.binary,
            &self.folder,
            self.ports,
            &self.flags,
        )?;
        self.client.wait_until_ready()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of the process's status, bytes.
pub(crate) fn memory(process: u32, name: &str) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = value.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| eyre!("{path} has no {name}"))
}

/// A port that nobody has, and that this process gives out once.
pub(crate) fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Below the range of which the system gives ports to whoever connects.
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    for _ in 0..COUNT {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = std::process::id().wrapping_mul(97).wrapping_add(next) % COUNT;
        let port = u16::try_from(FIRST + place)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(eyre!("every port is taken"))
}

fn prepare_geth(binary: &Path, folder: &Path) -> Result<()> {
    // On loopback only, even where nobody is to connect.
    let config = "[Node.P2P]\nListenAddr = \"127.0.0.1:0\"\nMaxPeers = 0\nNoDiscovery = true\n";
    std::fs::write(folder.join("geth.toml"), config)?;
    let output = Command::new(binary)
        .args(["--datadir", "data", "init", "genesis.json"])
        .current_dir(folder)
        .output()
        .wrap_err_with(|| format!("can't run {}", binary.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "geth init: {errors}");
    Ok(())
}

pub(crate) fn import(kind: Kind, binary: &Path, folder: &Path, chain: &Path) -> Result<()> {
    let chain = std::path::absolute(chain)?;
    let words: &[&str] = match kind {
        Kind::Niwaki => &[
            "--data-path",
            "data",
            "--genesis-file",
            "genesis.json",
            "blocks",
            "import",
            "--from",
        ],
        Kind::Geth => &["--datadir", "data", "import"],
    };
    let mut command = Command::new(binary);
    let output = command
        .args(words)
        .arg(chain)
        .current_dir(folder)
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "import of the chain: {errors}");
    Ok(())
}

fn spawn(
    kind: Kind,
    binary: &Path,
    folder: &Path,
    [rpc, engine]: [u16; 2],
    more: &[String],
) -> Result<Child> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))?;
    let (rpc, engine) = (rpc.to_string(), engine.to_string());
    let flags: Vec<&str> = match kind {
        Kind::Niwaki => vec![
            "--data-path",
            "data",
            "--genesis-file",
            "genesis.json",
            "--rpc-http-enabled",
            "--rpc-http-port",
            &rpc,
            "--rpc-http-api",
            "ETH,NET,WEB3,TXPOOL,DEBUG",
            "--engine-rpc-port",
            &engine,
            "--engine-jwt-secret",
            "secret",
        ],
        Kind::Geth => vec![
            "--config",
            "geth.toml",
            "--datadir",
            "data",
            "--http",
            "--http.port",
            &rpc,
            "--http.api",
            "eth,net,web3,txpool,debug",
            "--authrpc.port",
            &engine,
            "--authrpc.jwtsecret",
            "secret",
            "--syncmode",
            "full",
            "--ipcdisable",
            "--nat",
            "none",
        ],
    };
    Command::new(binary)
        .args(flags)
        .args(more)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .wrap_err_with(|| format!("can't run {}", binary.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_bytes_and_a_line_that_is_not_there_is_named() {
        let own = std::process::id();
        assert!(memory(own, "VmHWM:").unwrap() > 1 << 20);
        let error = memory(own, "VmNothing:").unwrap_err().to_string();
        assert!(error.contains("has no VmNothing:"), "{error}");
    }
}
