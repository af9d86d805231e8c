//! The clients' processes: start, stop (SIGTERM), kill (SIGKILL), restart.

mod p2p;

use crate::client::Client;
use crate::genesis::CHAIN_ID;
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_rpc::JwtSecret;
pub(crate) use p2p::P2pOptions;
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Which client a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ClientKind {
    Niwaki,
    Geth,
    Reth,
    Besu,
    /// GoQuorum, a validator among ours; it takes part in nothing else.
    #[value(skip)]
    Quorum,
}

impl ClientKind {
    /// Whether it is started as geth is.
    pub(crate) fn is_like_geth(self) -> bool {
        matches!(self, Self::Geth | Self::Quorum)
    }
}

/// A client with a large genesis file reads it before it opens its ports.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// Options of Besu's virtual machine, if `BESU_OPTS` has none: several share this machine.
const BESU_JVM: &str = "-Xmx512m -XX:+UseSerialGC";

/// API groups that niwaki serves: all that read state or run code.
pub(crate) const APIS: &str = "ETH,NET,WEB3,TXPOOL,DEBUG,TRACE";

/// The same, and what manages peers.
const APIS_WITH_PEERS: &str = "ADMIN,ETH,IBFT,NET,NIWAKI,QBFT,WEB3,TXPOOL,DEBUG,TRACE";

/// How to start a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartOptions<'a> {
    pub(crate) genesis: &'a Path,
    /// A file of blocks to import before the start.
    pub(crate) chain: Option<&'a Path>,
    /// niwaki's `--memory-budget`.
    pub(crate) memory_budget: &'a str,
    /// niwaki's `--rpc-http-max-active-connections`.
    pub(crate) connections: usize,
    /// More flags for niwaki, or for Besu.
    pub(crate) flags: &'a [&'a str],
    /// How it takes part in the network of peers, if at all.
    pub(crate) p2p: Option<P2pOptions<'a>>,
}

impl<'a> StartOptions<'a> {
    /// A genesis file and defaults.
    pub(crate) fn genesis(genesis: &'a Path) -> Self {
        Self {
            genesis,
            chain: None,
            memory_budget: "512M",
            connections: 1024,
            flags: &[],
            p2p: None,
        }
    }
}

/// A running client.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) kind: ClientKind,
    pub(crate) client: Client,
    binary: PathBuf,
    folder: PathBuf,
    rpc_port: u16,
    engine_port: u16,
    flags: Vec<String>,
    child: Child,
}

impl Process {
    /// Starts the niwaki at `binary` as [`Self::start`] does.
    pub(crate) fn start_niwaki(
        binary: &Path,
        folder: PathBuf,
        options: StartOptions<'_>,
    ) -> Result<Self> {
        Self::start(ClientKind::Niwaki, "niwaki", binary, folder, options)
    }

    /// Starts `binary` with its data in `folder`, which it creates, and waits until the port responds.
    pub(crate) fn start(
        kind: ClientKind,
        name: &'static str,
        binary: &Path,
        folder: PathBuf,
        options: StartOptions<'_>,
    ) -> Result<Self> {
        let binary = std::path::absolute(binary)?;
        std::fs::create_dir_all(&folder)?;
        let genesis = folder.join("genesis.json");
        if options.genesis != genesis {
            std::fs::copy(options.genesis, genesis)?;
        }
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(&std::process::id().to_be_bytes());
        let secret = JwtSecret::new(secret);
        std::fs::write(folder.join("secret"), secret.to_hex())?;
        let network = match options.p2p {
            Some(p2p) => Some((p2p, free_port()?)),
            None => None,
        };
        if kind.is_like_geth() {
            std::fs::write(folder.join("geth.toml"), p2p::geth_config(kind, network))?;
            init(kind, &binary, &folder)?;
        }
        if let Some(chain) = options.chain {
            import(kind, &binary, &folder, chain)?;
        }
        let (rpc_port, engine_port) = (free_port()?, free_port()?);
        let connections = options.connections.to_string();
        let limits = [
            "--memory-budget",
            options.memory_budget,
            "--rpc-http-max-active-connections",
            &connections,
        ];
        let flags = match kind {
            ClientKind::Niwaki => [&limits, options.flags].concat(),
            ClientKind::Geth | ClientKind::Quorum | ClientKind::Reth => Vec::new(),
            ClientKind::Besu => options.flags.to_vec(),
        };
        let flags = flags.into_iter().map(str::to_owned);
        let flags: Vec<String> = flags.chain(p2p::flags(kind, network)).collect();
        let child = spawn(
            command(kind, &binary, rpc_port, engine_port, &flags),
            &folder,
        )?;
        let client = Client::new(name, rpc_port, engine_port, secret);
        let mut process = Self {
            kind,
            client,
            binary,
            folder,
            rpc_port,
            engine_port,
            flags,
            child,
        };
        process.wait_until_ready()?;
        Ok(process)
    }

    /// Waits until the port for requests responds.
    fn wait_until_ready(&mut self) -> Result<()> {
        let began = Instant::now();
        while let Err(error) = self.client.block_number() {
            let why = match self.exit_status()? {
                Some(status) => eyre!("it has ended: {status}"),
                None if began.elapsed() > READY_WITHIN => error,
                None => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
            };
            let (name, log) = (self.client.name, self.log());
            return Err(why.wrap_err(format!("{name} does not start; its log:\n{log}")));
        }
        Ok(())
    }

    /// What the client has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The status with which the process has ended; `None` while it runs.
    pub(crate) fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub(crate) fn data_path(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The port of JSON-RPC over HTTP.
    pub(crate) fn rpc_port(&self) -> u16 {
        self.rpc_port
    }

    /// The address of the Engine API, and its secret in hex.
    pub(crate) fn engine(&self) -> Result<(String, String)> {
        let secret = std::fs::read_to_string(self.folder.join("secret"))?;
        Ok((format!("http://127.0.0.1:{}", self.engine_port), secret))
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU time the process has used, user and system.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        // Fields 14 and 15 are user and system time in hundredths of a second. Field 2 is the name, in brackets.
        let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let ticks: u64 = fields
            .split(' ')
            .skip(11)
            .take(2)
            .map(str::parse::<u64>)
            .sum::<Result<_, _>>()?;
        Ok(Duration::from_millis(ticks * 10))
    }

    /// Bytes that the process has had written to the disk.
    pub(crate) fn written_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/io", self.id());
        let text = std::fs::read_to_string(&path)?;
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix("write_bytes: "));
        let value = value.ok_or_else(|| eyre!("{path} has no write_bytes"))?;
        Ok(value.parse()?)
    }

    /// Path of the genesis file.
    pub(crate) fn genesis(&self) -> PathBuf {
        self.folder.join("genesis.json")
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// What `niwaki storage check` prints of its database, and whether it found no problem. The process must have ended.
    pub(crate) fn check_storage(&self) -> Result<(bool, String)> {
        let output = self.storage("check").output()?;
        let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_clean = output.status.success() && printed.contains("no problems found");
        printed.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((is_clean, printed))
    }

    /// A command `niwaki storage` for its database.
    pub(crate) fn storage(&self, what: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .arg("--data-path")
            .arg(self.data_path())
            .arg("--genesis-file")
            .arg(self.genesis())
            .args(["storage", what]);
        command
    }

    /// Sends SIGKILL and waits for the exit.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM and waits up to 60 seconds for the exit.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        let began = Instant::now();
        while self.exit_status()?.is_none() {
            ensure!(
                began.elapsed() < Duration::from_secs(60),
                "{} does not stop",
                self.client.name
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts the process again after [`Self::kill`] or [`Self::stop`].
    pub(crate) fn restart(&mut self) -> Result<()> {
        let command = command(
            self.kind,
            &self.binary,
            self.rpc_port,
            self.engine_port,
            &self.flags,
        );
        self.child = spawn(command, &self.folder)?;
        self.wait_until_ready()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of one line of `/proc/PID/status`, bytes.
pub(crate) fn memory(process: u32, name: &str) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = value.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| eyre!("{path} has no {name}"))
}

/// The folder that was `given`, created, or else the `temporary` one.
///
/// # Errors
/// If the given folder exists.
pub(crate) fn new_folder(given: Option<&Path>, temporary: &Path) -> Result<PathBuf> {
    let Some(folder) = given else {
        return Ok(temporary.to_owned());
    };
    let path = folder.display();
    ensure!(!folder.exists(), "{path} exists; name a new folder");
    std::fs::create_dir_all(folder)?;
    Ok(std::path::absolute(folder)?)
}

/// A free port, each returned at most once by this process.
pub(crate) fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Below the range of the kernel's ephemeral ports.
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    for _ in 0..COUNT {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = std::process::id().wrapping_mul(97).wrapping_add(next) % COUNT;
        let port = u16::try_from(FIRST + offset)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(eyre!("no port is free"))
}

/// Creates the database of `genesis.json` in `folder`.
pub(crate) fn init(kind: ClientKind, binary: &Path, folder: &Path) -> Result<()> {
    let args = match kind {
        ClientKind::Niwaki => {
            "--data-path data --genesis-file genesis.json storage check --head-only"
        }
        ClientKind::Geth | ClientKind::Quorum => "--datadir data init genesis.json",
        // It begins when it starts.
        ClientKind::Reth | ClientKind::Besu => return Ok(()),
    };
    let output = Command::new(binary)
        .args(args.split(' '))
        .current_dir(folder)
        .output()
        .wrap_err_with(|| format!("can't run {}", binary.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the genesis: {errors}");
    Ok(())
}

/// Imports a file of blocks into the data folder before the client starts.
pub(crate) fn import(kind: ClientKind, binary: &Path, folder: &Path, chain: &Path) -> Result<()> {
    let chain = std::path::absolute(chain)?;
    let args = match kind {
        ClientKind::Niwaki => "--data-path data --genesis-file genesis.json blocks import --from",
        ClientKind::Geth | ClientKind::Quorum => "--datadir data import",
        ClientKind::Reth => "import --chain genesis.json --datadir data",
        ClientKind::Besu => "--data-path=data --genesis-file=genesis.json blocks import --from",
    };
    let mut command = Command::new(binary);
    command.args(args.split(' ')).arg(chain);
    let output = command.current_dir(folder).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "import of the chain: {errors}");
    Ok(())
}

fn command(
    kind: ClientKind,
    binary: &Path,
    rpc_port: u16,
    engine_port: u16,
    more_flags: &[String],
) -> Command {
    let has_peers = more_flags.iter().any(|flag| flag.starts_with("--p2p-port"));
    let apis = if has_peers { APIS_WITH_PEERS } else { APIS };
    let flags = match kind {
        ClientKind::Niwaki => format!(
            "--data-path data --genesis-file genesis.json --rpc-http-enabled --rpc-http-port {rpc_port} \
             --rpc-http-api {apis} --engine-rpc-port {engine_port} --engine-jwt-secret secret"
        ),
        ClientKind::Geth => format!(
            "--config geth.toml --datadir data --http --http.port {rpc_port} \
             --http.api admin,eth,net,web3,txpool,debug --authrpc.port {engine_port} --authrpc.jwtsecret secret \
             --ipcdisable --nat none"
        ),
        ClientKind::Reth => format!(
            "node --chain genesis.json --datadir data --http --http.port {rpc_port} \
             --http.api admin,eth,net,web3,txpool,debug --authrpc.port {engine_port} --authrpc.jwtsecret secret \
             --ipcdisable --color never --log.file.max-files 0"
        ),
        // It keeps all states: with fewer, a kill costs it blocks that it helped to finish.
        ClientKind::Quorum => format!(
            "--config geth.toml --datadir data --networkid {CHAIN_ID} --http --http.port {rpc_port} \
             --http.api admin,eth,net,web3,txpool,debug,istanbul --ipcdisable --nat none --gcmode archive --mine \
             --miner.threads 1 --miner.gasprice 0"
        ),
        ClientKind::Besu => format!(
            "--data-path=data --genesis-file=genesis.json --data-storage-format=BONSAI --sync-min-peers=1 --min-gas-price=0 \
             --rpc-http-enabled --rpc-http-host=127.0.0.1 --rpc-http-port={rpc_port} --host-allowlist=* \
             --rpc-http-api=ADMIN,ETH,NET,WEB3,TXPOOL,QBFT,IBFT --engine-rpc-port={engine_port} --engine-jwt-secret=secret \
             --engine-host-allowlist=*"
        ),
    };
    let mut command = Command::new(binary);
    command.args(flags.split(' ')).args(more_flags);
    if kind == ClientKind::Quorum {
        // Without a manager of private transactions.
        command.env("PRIVATE_CONFIG", "ignore");
    }
    if kind == ClientKind::Besu && std::env::var_os("BESU_OPTS").is_none() {
        command.env("BESU_OPTS", BESU_JVM);
    }
    command
}

/// Starts `command` in `folder`, with its output appended to the file `log` there.
pub(crate) fn spawn(mut command: Command, folder: &Path) -> Result<Child> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))?;
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .wrap_err_with(|| format!("can't run {}", command.get_program().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_bytes_and_error_names_missing_line() {
        let own = std::process::id();
        assert!(memory(own, "VmHWM:").unwrap() > 1 << 20);
        let error = memory(own, "VmNothing:").unwrap_err().to_string();
        assert!(error.contains("has no VmNothing:"), "{error}");
    }
}
