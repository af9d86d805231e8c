//! A client as a process, driven through its Engine API with tokens.

use crate::process::{is_running, proc_field};
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_primitives::Bytes;
use niwaki_rpc::JwtSecret;
use serde::Serialize;
use serde_json::Value;
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// A client, and how it is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Contender {
    /// Ours, with the transactions of a block on so many threads; `None` for what it chooses itself.
    Niwaki {
        threads: Option<usize>,
    },
    Geth,
    Reth,
}

/// How clients are started.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) contender: Contender,
    pub(super) program: PathBuf,
    pub(super) genesis: PathBuf,
    /// More flags.
    pub(super) flags: Vec<String>,
}

/// A client that runs.
pub(super) struct Client {
    name: String,
    child: Child,
    agent: ureq::Agent,
    engine: String,
    metrics: Option<String>,
    secret: JwtSecret,
    log: PathBuf,
}

/// What `/proc` tells of a process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Spent {
    /// User and system time of all its threads.
    pub(super) cpu_ms: f64,
    /// Bytes it left for the disk.
    pub(super) written_bytes: u64,
}

/// A large genesis is read first.
const READY_WITHIN: Duration = Duration::from_secs(600);
/// How long a client may take to write what it holds.
const STOPS_WITHIN: Duration = Duration::from_secs(300);
/// The longest that one block may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);
/// A client has nothing to do if it has spent no more than this each time in so many looks.
const IDLE_LOOKS: u32 = 4;
const LOOK_EVERY: Duration = Duration::from_millis(500);
const IDLE_CPU_MS: f64 = 50.0;
const IDLE_BYTES: u64 = 1 << 20;
/// Transactions of one batch.
const OFFERED_AT_ONCE: usize = 100;
/// Milliseconds of one tick of the times in `/proc`.
const TICK_MS: f64 = 10.0;

impl Contender {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Niwaki { threads: None } => "niwaki, default threads".to_owned(),
            Self::Niwaki { threads: Some(1) } => "niwaki, 1 thread".to_owned(),
            Self::Niwaki {
                threads: Some(threads),
            } => format!("niwaki, {threads} threads"),
            Self::Geth => "geth".to_owned(),
            Self::Reth => "reth".to_owned(),
        }
    }
}

impl Setup {
    /// Makes the database in `folder`, with the genesis in it. The client is started upon it once, and
    /// left alone until it has nothing to do: what is made behind a first start is no part of a block.
    pub(super) fn prepare(&self, folder: &Path, stop: &AtomicBool) -> Result<()> {
        self.write_genesis(folder)?;
        let mut client = self.start(folder)?;
        client.settle(stop)?;
        client.stop()?;
        Ok(())
    }

    fn write_genesis(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut command = Command::new(&self.program);
        match self.contender {
            Contender::Niwaki { .. } => command
                .args(["--data-path", "data", "--genesis-file"])
                .arg(&self.genesis)
                .args(["storage", "check", "--head-only"]),
            Contender::Geth => {
                // On loopback only, even where nobody is to connect.
                let config =
                    "[Node.P2P]\nListenAddr = \"127.0.0.1:0\"\nMaxPeers = 0\nNoDiscovery = true\n";
                std::fs::write(folder.join("geth.toml"), config)?;
                command
                    .args(["--datadir", "data", "init"])
                    .arg(&self.genesis)
            }
            Contender::Reth => command
                .args(["init", "--datadir", "data", "--chain"])
                .arg(&self.genesis),
        };
        command.current_dir(folder);
        let name = self.contender.name();
        crate::process::run(command).wrap_err_with(|| format!("{name}: the genesis"))?;
        Ok(())
    }

    /// Starts the client upon the database in `folder`, and waits until it answers.
    pub(super) fn start(&self, folder: &Path) -> Result<Client> {
        let mut secret = [0; 32];
        secret[..4].copy_from_slice(&std::process::id().to_be_bytes());
        let secret = JwtSecret::new(secret);
        std::fs::write(folder.join("secret"), secret.to_hex())?;
        let [engine, other] = free_ports()?;
        let log = folder.join("log");
        let out = OpenOptions::new().create(true).append(true).open(&log)?;
        let mut command = Command::new(&self.program);
        self.arguments(&mut command, engine, other);
        let child = command
            .args(&self.flags)
            .env("RUST_BACKTRACE", "0")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .wrap_err_with(|| format!("can't run {}", self.program.display()))?;
        let has_metrics = matches!(self.contender, Contender::Niwaki { .. });
        let mut client = Client {
            name: self.contender.name(),
            child,
            agent: agent(),
            engine: format!("http://127.0.0.1:{engine}"),
            metrics: has_metrics.then(|| format!("http://127.0.0.1:{other}/metrics")),
            secret,
            log,
        };
        client.wait_until_ready()?;
        Ok(client)
    }

    /// What the program says of its version.
    pub(super) fn version(&self) -> Result<String> {
        let argument = match self.contender {
            Contender::Geth => "version",
            Contender::Niwaki { .. } | Contender::Reth => "--version",
        };
        crate::import::version(&self.program, argument)
    }

    fn arguments(&self, command: &mut Command, engine: u16, other: u16) {
        let (engine, other) = (engine.to_string(), other.to_string());
        match self.contender {
            Contender::Niwaki { threads } => {
                command.args(["--data-path", "data", "--genesis-file"]);
                command.arg(&self.genesis);
                command.args(["--engine-rpc-port", &engine]);
                command.args(["--engine-jwt-secret", "secret"]);
                command.args(["--metrics-enabled", "--metrics-port", &other]);
                // Whatever the fees of the chain are, the pool takes its transactions.
                command.args(["--rpc-tx-feecap=0", "--tx-pool-min-gas-price=0"]);
                if let Some(threads) = threads {
                    let several =
                        format!("--bonsai-parallel-tx-processing-enabled={}", threads > 1);
                    command.arg(several);
                    command.args(["--transaction-threads", &threads.to_string()]);
                }
            }
            Contender::Geth => {
                command.args(["--config", "geth.toml", "--datadir", "data"]);
                command.args(["--authrpc.port", &engine, "--authrpc.jwtsecret", "secret"]);
                command.args(["--syncmode", "full", "--ipcdisable", "--nat", "none"]);
                // What it takes for mainnet; for other networks it would take less.
                command.args(["--cache", "4096", "--rpc.txfeecap", "0"]);
            }
            Contender::Reth => {
                command.args(["node", "--datadir", "data", "--chain"]);
                command.arg(&self.genesis);
                command.args(["--authrpc.port", &engine, "--authrpc.jwtsecret", "secret"]);
                command.args(["--disable-discovery", "--ipcdisable", "--port", &other]);
                command.args(["--addr", "127.0.0.1", "--rpc.txfeecap", "0"]);
            }
        }
    }
}

impl Client {
    fn wait_until_ready(&mut self) -> Result<()> {
        let began = Instant::now();
        let request = super::requests::request(
            "engine_exchangeCapabilities",
            &Value::from(vec![Value::Array(Vec::new())]),
        );
        loop {
            self.check_alive()?;
            // Its metrics may be there later than its engine's port.
            let answer = self.post(&request).and_then(|_| self.metrics());
            match answer {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > READY_WITHIN => {
                    return Err(error.wrap_err("it does not begin to answer"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Sends a request of which the answer must say that a block is valid; how long that took.
    pub(super) fn drive(&self, request: &str) -> Result<Duration> {
        let token = self.token()?;
        let began = Instant::now();
        let text = self.send(request, &token)?;
        let took = began.elapsed();
        let answer: Value = serde_json::from_str(&text)
            .wrap_err_with(|| format!("{}: not JSON: {text}", self.name))?;
        let result = &answer["result"];
        let status = match &result["payloadStatus"]["status"] {
            Value::Null => &result["status"],
            status => status,
        };
        ensure!(status == "VALID", "{}: {answer}", self.name);
        Ok(took)
    }

    /// Sends transactions to its pool; how many it has taken, and what it said of the first that it refused.
    pub(super) fn offer(&self, transactions: &[Bytes]) -> Result<(u64, Option<Value>)> {
        let (mut taken, mut refused) = (0, None);
        for lot in transactions.chunks(OFFERED_AT_ONCE) {
            let text = self.post(&super::requests::send_raw(lot))?;
            let answers: Vec<Value> = serde_json::from_str(&text)
                .wrap_err_with(|| format!("{}: not a batch: {text}", self.name))?;
            let is_taken = |answer: &&Value| answer["result"].is_string();
            taken += answers.iter().filter(is_taken).count() as u64;
            refused = refused.or(answers.into_iter().find(|answer| !is_taken(&answer)));
        }
        Ok((taken, refused))
    }

    fn post(&self, request: &str) -> Result<String> {
        self.send(request, &self.token()?)
    }

    fn token(&self) -> Result<String> {
        let now = UNIX_EPOCH.elapsed()?.as_secs();
        Ok(format!("Bearer {}", self.secret.token(now)))
    }

    fn send(&self, request: &str, token: &str) -> Result<String> {
        let at = || format!("{} does not answer", self.name);
        let answer = self
            .agent
            .post(&self.engine)
            .header("content-type", "application/json")
            .header("authorization", token)
            .send(request);
        let mut answer = answer.wrap_err_with(at)?;
        answer.body_mut().read_to_string().wrap_err_with(at)
    }

    /// Refuses a client that has ended before it was asked to.
    fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(());
        };
        Err(eyre!(
            "{} ended by itself ({status}): {}",
            self.name,
            self.last_words()
        ))
    }

    /// Waits until it has nothing to do.
    fn settle(&mut self, stop: &AtomicBool) -> Result<()> {
        let began = Instant::now();
        let mut before = self.spent();
        let mut idle = 0;
        while idle < IDLE_LOOKS {
            ensure!(!stop.load(Ordering::Relaxed), "stopped as asked");
            ensure!(
                began.elapsed() < READY_WITHIN,
                "{} goes on working before there is a block: {}",
                self.name,
                self.last_words()
            );
            std::thread::sleep(LOOK_EVERY);
            self.check_alive()?;
            let now = self.spent();
            let is_idle = now.cpu_ms - before.cpu_ms <= IDLE_CPU_MS
                && now.written_bytes.saturating_sub(before.written_bytes) <= IDLE_BYTES;
            idle = if is_idle { idle + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    /// The figures that our client shows to Prometheus, if it is ours.
    pub(super) fn metrics(&self) -> Result<Option<String>> {
        let Some(url) = &self.metrics else {
            return Ok(None);
        };
        let mut answer = self.agent.get(url).call().wrap_err("the metrics")?;
        Ok(Some(answer.body_mut().read_to_string()?))
    }

    /// What it has spent since its start.
    pub(super) fn spent(&self) -> Spent {
        spent(self.child.id())
    }

    /// The most memory it has held.
    pub(super) fn peak_rss_bytes(&self) -> Option<u64> {
        proc_field(self.child.id(), "status", "VmHWM:").map(|kib| kib << 10)
    }

    /// Asks it to end and waits until it has; what it has spent in all.
    pub(super) fn stop(mut self) -> Result<Spent> {
        let process = self.child.id();
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        )
        .wrap_err_with(|| format!("can't stop {}", self.name))?;
        let began = Instant::now();
        // Its status is left waiting, so that what it has spent can still be read.
        while is_running(process) {
            ensure!(
                began.elapsed() < STOPS_WITHIN,
                "{} does not stop: {}",
                self.name,
                self.last_words()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let spent = spent(process);
        self.child.wait()?;
        Ok(spent)
    }

    /// The end of its log.
    pub(super) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        if lines.is_empty() {
            return "nothing is in its log; is the disk full?".to_owned();
        }
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spent(process: u32) -> Spent {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Fields 14 and 15; the second is a name in brackets.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Spent {
        cpu_ms: ticks as f64 * TICK_MS,
        written_bytes: proc_field(process, "io", "write_bytes:").unwrap_or(0),
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(ANSWERS_WITHIN))
        .http_status_as_error(false)
        .build()
        .into()
}

/// Two ports that nobody has, not the same one twice.
fn free_ports() -> Result<[u16; 2]> {
    let listen = || TcpListener::bind(("127.0.0.1", 0)).wrap_err("can't get a port");
    let listeners = [listen()?, listen()?];
    let [first, second] = &listeners;
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that is but a process, with what it has logged.
    fn client(program: &str, log: &Path) -> Client {
        Client {
            name: "it".to_owned(),
            child: Command::new(program).spawn().unwrap(),
            agent: agent(),
            engine: String::new(),
            metrics: None,
            secret: JwtSecret::new([0; 32]),
            log: log.to_owned(),
        }
    }

    #[test]
    fn a_client_that_ends_by_itself_is_not_one_with_nothing_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let settle = || {
            let outcome = client("false", &log).settle(&AtomicBool::new(false));
            outcome.unwrap_err().to_string()
        };
        let silent = settle();
        assert!(
            silent.contains("exit status: 1") && silent.contains("disk full"),
            "{silent}"
        );
        std::fs::write(&log, "one\ntwo\nthree\nfour\n").unwrap();
        let told = settle();
        assert!(told.ends_with("two / three / four"), "{told}");
    }
}
