//! The same JSON-RPC requests to both clients, alternating: throughput and latency.
//!
//! The mix of methods is that of the traffic generator that Besu was measured with; the arguments
//! are drawn from the blocks of the chain and their transactions. A fixed number of connections has
//! one request in flight each.

mod requests;

use crate::process::{ClientKind, Process, StartOptions};
use crate::report::{percentile, write_json};
use clap::Args;
use eyre::{Result, WrapErr, ensure, eyre};
use memchr::memmem::find;
pub(crate) use requests::Requests;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Blocks below the head that arguments are drawn from.
const RECENT: u64 = 32;

#[derive(Debug, Args)]
pub(crate) struct LoadOptions {
    /// Path of the niwaki binary.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Path of a geth 1.17 binary; without it only niwaki is measured.
    #[arg(long, value_name = "FILE")]
    geth: Option<PathBuf>,
    /// Genesis file of the chain.
    #[arg(long, value_name = "FILE")]
    genesis: PathBuf,
    /// File with the blocks of the chain.
    #[arg(long, value_name = "FILE")]
    chain: PathBuf,
    /// Requests of each measurement.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    requests: usize,
    /// Connections; a list measures each number.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4,64")]
    connections: Vec<usize>,
    /// Rounds of each measurement, alternating between the clients.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Measure each method separately too.
    #[arg(long)]
    methods: bool,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Results of one round of one client.
#[derive(Clone, Copy, Debug)]
struct Round {
    requests_per_second: f64,
    p50: Duration,
    p99: Duration,
    errors: usize,
    /// CPU time of the client per request, us.
    cpu_us: f64,
}

/// Measures and prints.
pub(crate) fn run(options: &LoadOptions) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let start = |kind, name: &'static str, binary: &PathBuf| {
        let start = StartOptions {
            chain: Some(&options.chain),
            ..StartOptions::genesis(&options.genesis)
        };
        Process::start(kind, name, binary, folder.path().join(name), start)
    };
    let mut clients = vec![start(ClientKind::Niwaki, "niwaki", &options.niwaki)?];
    if let Some(geth) = &options.geth {
        clients.push(start(ClientKind::Geth, "geth", geth)?);
    }
    let requests = Requests::of(&clients[0].client, RECENT)?;
    let mut mixes = vec![("mix".to_owned(), requests.mix(options.requests))];
    if options.methods {
        for (method, bodies) in requests.by_method() {
            let count = options.requests / 5;
            mixes.push((
                method.to_owned(),
                bodies.iter().cycle().take(count).cloned().collect(),
            ));
        }
    }
    let mut report = Vec::new();
    for (name, bodies) in mixes {
        let bodies: Arc<[Vec<u8>]> = bodies.iter().map(|body| post(body)).collect();
        for &connections in &options.connections {
            report.push(measure(
                &clients,
                &name,
                &bodies,
                connections,
                options.rounds,
            )?);
        }
    }
    write_json(options.json.as_deref(), &Value::from(report))
}

/// Alternates `count` rounds between the clients and prints the results.
fn measure(
    clients: &[Process],
    name: &str,
    bodies: &Arc<[Vec<u8>]>,
    connections: usize,
    rounds_each: usize,
) -> Result<Value> {
    let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); clients.len()];
    for _ in 0..rounds_each {
        for (process, rounds) in clients.iter().zip(&mut rounds) {
            rounds.push(round(process, bodies, connections)?);
        }
    }
    let mut value = json!({ "requests": name, "connections": connections, "n": rounds_each });
    for (process, rounds) in clients.iter().zip(&rounds) {
        let of = |value: &dyn Fn(&Round) -> f64| spread(rounds.iter().map(value).collect());
        let per_second = of(&|round| round.requests_per_second);
        let (p50, p99) = (
            of(&|round| round.p50.as_secs_f64() * 1e3),
            of(&|round| round.p99.as_secs_f64() * 1e3),
        );
        let errors: usize = rounds.iter().map(|round| round.errors).sum();
        let cpu = of(&|round| round.cpu_us);
        println!(
            "{name:<28} {connections:>3} connections, {:<8} {:>9.0} ({:.0}..{:.0}) a second, \
             P50 {:.2} ms, P99 {:.2} ms, {:.1} us of its processors, {errors} errors",
            process.client.name,
            per_second[0],
            per_second[1],
            per_second[2],
            p50[0],
            p99[0],
            cpu[0],
        );
        value[process.client.name] = json!({
            "per_second": per_second, "p50_ms": p50, "p99_ms": p99, "processor_us": cpu, "errors": errors,
        });
    }
    if let [first, second] = &rounds[..] {
        let pairs = first.iter().zip(second);
        let ratio = spread(
            pairs
                .map(|(a, b)| a.requests_per_second / b.requests_per_second)
                .collect(),
        );
        println!(
            "{name:<28} ratio {:.2} ({:.2}..{:.2}), n = {rounds_each}",
            ratio[0], ratio[1], ratio[2]
        );
        value["ratio"] = json!(ratio);
    }
    Ok(value)
}

/// Median, minimum and maximum.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    [
        at(values.len() / 2),
        at(0),
        at(values.len().saturating_sub(1)),
    ]
}

/// Sends every body once, over `connections` connections.
fn round(process: &Process, bodies: &Arc<[Vec<u8>]>, connections: usize) -> Result<Round> {
    let port = process.rpc_port();
    let cpu_before = process.cpu_time()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let next = Arc::new(AtomicUsize::new(0));
        let began = Instant::now();
        let tasks: Vec<_> = (0..connections)
            .map(|_| tokio::spawn(connection(port, Arc::clone(bodies), Arc::clone(&next))))
            .collect();
        let (mut times, mut errors) = (Vec::with_capacity(bodies.len()), 0);
        for task in tasks {
            let (mut of_one, failed) = task.await??;
            times.append(&mut of_one);
            errors += failed;
        }
        let took = began.elapsed();
        ensure!(times.len() == bodies.len(), "{} responses", times.len());
        times.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let count = times.len() as f64;
        let cpu = process.cpu_time()?.saturating_sub(cpu_before);
        Ok(Round {
            cpu_us: cpu.as_secs_f64() * 1e6 / count,
            requests_per_second: count / took.as_secs_f64(),
            p50: percentile(&times, 50),
            p99: percentile(&times, 99),
            errors,
        })
    })
}

/// One connection: sends the next request once the response to the last one has arrived.
async fn connection(
    port: u16,
    bodies: Arc<[Vec<u8>]>,
    next: Arc<AtomicUsize>,
) -> Result<(Vec<Duration>, usize)> {
    let mut connection = Connection::open(port).await?;
    let (mut times, mut errors) = (Vec::new(), 0);
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(request) = bodies.get(index) else {
            return Ok((times, errors));
        };
        let (took, is_error) = connection.time_request(request).await?;
        times.push(took);
        errors += usize::from(is_error);
    }
}

/// A keep-alive HTTP connection with one request in flight.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(1 << 16),
        })
    }

    /// Sends `request`, made by [`post`]. Returns the latency and whether the response is an error.
    pub(crate) async fn time_request(&mut self, request: &[u8]) -> Result<(Duration, bool)> {
        let began = Instant::now();
        self.stream.write_all(request).await?;
        let is_error = read_response(&mut self.stream, &mut self.buffer)
            .await
            .wrap_err_with(|| String::from_utf8_lossy(request).into_owned())?;
        Ok((began.elapsed(), is_error))
    }
}

/// The bytes of an HTTP request with `body`.
pub(crate) fn post(body: &str) -> Vec<u8> {
    format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Reads one response and returns whether it is an error.
async fn read_response(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<bool> {
    buffer.clear();
    let mut read = async |buffer: &mut Vec<u8>| -> Result<()> {
        let count = stream.read_buf(buffer).await?;
        ensure!(count > 0, "the connection was closed");
        Ok(())
    };
    let head = loop {
        read(buffer).await?;
        if let Some(end) = find(buffer, b"\r\n\r\n") {
            break end + 4;
        }
    };
    ensure!(
        buffer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&buffer[..head])
    );
    match content_length(&buffer[..head]) {
        Some(length) => {
            while buffer.len() < head + length {
                read(buffer).await?;
            }
        }
        // Chunked encoding ends with an empty chunk.
        None => {
            while !buffer.ends_with(b"0\r\n\r\n") {
                read(buffer).await?;
            }
        }
    }
    let first = &buffer[head..buffer.len().min(head + 200)];
    Ok(find(first, b"\"error\":").is_some())
}

/// The content length in an HTTP head.
fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let mut lines = head.split(|byte| *byte == b'\n');
    let line = lines.find(|line| {
        line.get(..NAME.len())
            .is_some_and(|name| name.eq_ignore_ascii_case(NAME))
    })?;
    std::str::from_utf8(&line[NAME.len()..])
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Parses a QUANTITY.
pub(crate) fn number(value: &Value) -> Result<u64> {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    let digits = digits.ok_or_else(|| eyre!("{value} is not a QUANTITY"))?;
    u64::from_str_radix(digits, 16).wrap_err_with(|| value.to_string())
}
