//! A client as a process, driven through its Engine API.

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

/// A client and its variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Contender {
    /// Ours, with the number of threads that execute transactions; `None` for its own choice.
    Niwaki {
        threads: Option<usize>,
    },
    Geth,
    Reth,
}

/// How a client is started.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) contender: Contender,
    pub(super) program: PathBuf,
    pub(super) genesis: PathBuf,
    /// Additional flags.
    pub(super) flags: Vec<String>,
}

/// A running client.
pub(super) struct Client {
    name: String,
    child: Child,
    agent: ureq::Agent,
    engine: String,
    metrics: Option<String>,
    secret: JwtSecret,
    log: PathBuf,
}

/// The cost of a process so far, from `/proc`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Cost {
    /// User and system time of all its threads.
    pub(super) cpu_ms: f64,
    /// Bytes written to the disk.
    pub(super) written_bytes: u64,
}

/// Limit of the start of a client, which may have to read a large genesis.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Limit of the stop of a client, which writes its caches.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
/// Limit of a response to one block.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);
/// A client is idle if its cost stays below these limits in this many polls in a row.
const IDLE_POLLS: u32 = 4;
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const IDLE_CPU_MS: f64 = 50.0;
const IDLE_BYTES: u64 = 1 << 20;
/// Most bytes of an answer: a block with 21 blobs has 6 MB in hexadecimal.
const MAX_ANSWER: u64 = 64 << 20;
/// Transactions per JSON-RPC batch.
const BATCH_TRANSACTIONS: usize = 100;
/// Milliseconds of one tick of the times in `/proc`.
const TICK_MS: f64 = 10.0;

impl Cost {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            cpu_ms: self.cpu_ms - before.cpu_ms,
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

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
    /// Creates the database with the genesis in `folder`. Then starts the client once and waits until it is idle, so
    /// that the background work of a first start does not count in a block.
    pub(super) fn prepare(&self, folder: &Path, stop: &AtomicBool) -> Result<()> {
        self.write_genesis(folder)?;
        let mut client = self.start(folder)?;
        client.wait_until_idle(stop)?;
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
                // Listen on loopback only.
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

    /// Starts the client on the database in `folder` and waits until it responds.
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

    /// The version that the program prints.
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
                // Alone, unless the caller's flags say how it meets peers.
                if !self
                    .flags
                    .iter()
                    .any(|flag| flag.starts_with("--p2p-enabled"))
                {
                    command.arg("--p2p-enabled=false");
                }
                command.args(["--metrics-enabled", "--metrics-port", &other]);
                // The pool accepts the chain's transactions whatever their fees.
                command.args(["--rpc-tx-feecap=0", "--tx-pool-min-gas-price=0"]);
                if let Some(threads) = threads {
                    let is_parallel = threads > 1;
                    command.arg(format!(
                        "--bonsai-parallel-tx-processing-enabled={is_parallel}"
                    ));
                    command.args(["--transaction-threads", &threads.to_string()]);
                }
            }
            Contender::Geth => {
                command.args(["--config", "geth.toml", "--datadir", "data"]);
                command.args(["--authrpc.port", &engine, "--authrpc.jwtsecret", "secret"]);
                command.args(["--syncmode", "full", "--ipcdisable", "--nat", "none"]);
                // Its default on mainnet; on other networks it is lower.
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
            // Its metrics may start later than its Engine API.
            let response = self.post(&request).and_then(|_| self.metrics());
            match response {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > START_TIMEOUT => {
                    return Err(error.wrap_err("it does not respond"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Sends a request whose response must say VALID; returns the time until the response.
    pub(super) fn send_valid(&self, request: &str) -> Result<Duration> {
        let token = self.token()?;
        let began = Instant::now();
        let text = self.send(request, &token)?;
        let took = began.elapsed();
        let response: Value = serde_json::from_str(&text)
            .wrap_err_with(|| format!("{}: not JSON: {text}", self.name))?;
        let result = &response["result"];
        let status = match &result["payloadStatus"]["status"] {
            Value::Null => &result["status"],
            status => status,
        };
        ensure!(status == "VALID", "{}: {response}", self.name);
        Ok(took)
    }

    /// Sends transactions to its pool; returns how many it accepted, and the first refusal.
    pub(super) fn send_transactions(&self, transactions: &[Bytes]) -> Result<(u64, Option<Value>)> {
        let (mut accepted, mut refused) = (0, None);
        for batch in transactions.chunks(BATCH_TRANSACTIONS) {
            let text = self.post(&super::requests::send_raw(batch))?;
            let responses: Vec<Value> = serde_json::from_str(&text)
                .wrap_err_with(|| format!("{}: not a batch: {text}", self.name))?;
            let is_accepted = |response: &&Value| response["result"].is_string();
            accepted += responses.iter().filter(is_accepted).count() as u64;
            let refusal = responses.into_iter().find(|one| !is_accepted(&one));
            refused = refused.or(refusal);
        }
        Ok((accepted, refused))
    }

    /// The response to a request.
    pub(super) fn post(&self, request: &str) -> Result<String> {
        self.send(request, &self.token()?)
    }

    /// The result of a call.
    pub(super) fn call(&self, method: &str, params: &Value) -> Result<Value> {
        let text = self.post(&super::requests::request(method, params))?;
        let mut response: Value = serde_json::from_str(&text)
            .wrap_err_with(|| format!("{}: not JSON: {text}", self.name))?;
        ensure!(response.get("error").is_none(), "{method}: {response}");
        Ok(response["result"].take())
    }

    /// The answer of the Engine API by REST, to a POST of `body` or to a GET.
    pub(super) fn rest(&self, path: &str, fork: &str, body: Option<&[u8]>) -> Result<Vec<u8>> {
        let (url, token) = (format!("{}/engine/v1/{path}", self.engine), self.token()?);
        let mut response = match body {
            Some(body) => self
                .agent
                .post(&url)
                .header("content-type", "application/octet-stream")
                .header("eth-execution-version", fork)
                .header("authorization", token)
                .send(body)?,
            None => self
                .agent
                .get(&url)
                .header("eth-execution-version", fork)
                .header("authorization", token)
                .call()?,
        };
        let body = response.body_mut().with_config().limit(MAX_ANSWER);
        let answer = body.read_to_vec()?;
        ensure!(
            response.status() == 200,
            "{url}: {}: {}",
            response.status(),
            String::from_utf8_lossy(&answer)
        );
        Ok(answer)
    }

    fn token(&self) -> Result<String> {
        let now = UNIX_EPOCH.elapsed()?.as_secs();
        Ok(format!("Bearer {}", self.secret.token(now)))
    }

    fn send(&self, request: &str, token: &str) -> Result<String> {
        let at = || format!("{} does not respond", self.name);
        let response = self
            .agent
            .post(&self.engine)
            .header("content-type", "application/json")
            .header("authorization", token)
            .send(request);
        let mut response = response.wrap_err_with(at)?;
        let body = response.body_mut().with_config().limit(MAX_ANSWER);
        body.read_to_string().wrap_err_with(at)
    }

    /// Fails if the client has exited by itself.
    fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(());
        };
        Err(eyre!(
            "{} ended by itself ({status}): {}",
            self.name,
            self.last_log_lines()
        ))
    }

    /// Waits until it is idle.
    fn wait_until_idle(&mut self, stop: &AtomicBool) -> Result<()> {
        let began = Instant::now();
        let mut before = self.cost();
        let mut idle = 0;
        while idle < IDLE_POLLS {
            ensure!(!stop.load(Ordering::Relaxed), "stopped by Ctrl-C");
            ensure!(
                began.elapsed() < START_TIMEOUT,
                "{} does not become idle: {}",
                self.name,
                self.last_log_lines()
            );
            std::thread::sleep(POLL_INTERVAL);
            self.check_alive()?;
            let now = self.cost();
            let cost = now.since(before);
            let is_idle = cost.cpu_ms <= IDLE_CPU_MS && cost.written_bytes <= IDLE_BYTES;
            idle = if is_idle { idle + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    /// Its Prometheus metrics; `None` for peers.
    pub(super) fn metrics(&self) -> Result<Option<String>> {
        let Some(url) = &self.metrics else {
            return Ok(None);
        };
        let mut response = self.agent.get(url).call().wrap_err("the metrics")?;
        Ok(Some(response.body_mut().read_to_string()?))
    }

    /// Its cost since its start.
    pub(super) fn cost(&self) -> Cost {
        cost(self.child.id())
    }

    /// Its peak resident memory.
    pub(super) fn peak_rss_bytes(&self) -> Option<u64> {
        proc_field(self.child.id(), "status", "VmHWM:").map(|kib| kib << 10)
    }

    /// Stops it and waits until it has exited; returns its total cost.
    pub(super) fn stop(mut self) -> Result<Cost> {
        let process = self.child.id();
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        )
        .wrap_err_with(|| format!("can't stop {}", self.name))?;
        let began = Instant::now();
        // Its exit status is not collected yet, so that /proc still has its cost.
        while is_running(process) {
            ensure!(
                began.elapsed() < STOP_TIMEOUT,
                "{} does not stop: {}",
                self.name,
                self.last_log_lines()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let cost = cost(process);
        self.child.wait()?;
        Ok(cost)
    }

    /// The last 3 lines of its log.
    pub(super) fn last_log_lines(&self) -> String {
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

fn cost(process: u32) -> Cost {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Fields 14 and 15; the second is a name in brackets.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Cost {
        cpu_ms: ticks as f64 * TICK_MS,
        written_bytes: proc_field(process, "io", "write_bytes:").unwrap_or(0),
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(RESPONSE_TIMEOUT))
        .http_status_as_error(false)
        .build()
        .into()
}

/// Two different free ports.
fn free_ports() -> Result<[u16; 2]> {
    let listen = || TcpListener::bind(("127.0.0.1", 0)).wrap_err("can't get a port");
    let listeners = [listen()?, listen()?];
    let [first, second] = &listeners;
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that is any program, with its log.
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
    fn a_client_that_exits_is_not_idle_and_its_log_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let wait = || {
            let outcome = client("false", &log).wait_until_idle(&AtomicBool::new(false));
            outcome.unwrap_err().to_string()
        };
        let silent = wait();
        assert!(
            silent.contains("exit status: 1") && silent.contains("disk full"),
            "{silent}"
        );
        std::fs::write(&log, "one\ntwo\nthree\nfour\n").unwrap();
        let quoted = wait();
        assert!(quoted.ends_with("two / three / four"), "{quoted}");
    }
}
