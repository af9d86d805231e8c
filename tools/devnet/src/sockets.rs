//! More connections to a node than its limit; it must keep responding.
//!
//! The connections send nothing, or the beginning of a request, and stay open. One connection that
//! was opened first calls `eth_blockNumber` throughout, and the Engine API is called at the end. The
//! node must hold no more than `--limit` connections and close the others. Once all are closed it
//! must respond to a new connection.

use crate::accounts;
use crate::genesis::{GAS_LIMIT, genesis};
use crate::process::{Process, StartOptions, memory};
use crate::report::percentile;
use clap::Args;
use eyre::{Result, WrapErr, bail, ensure};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct SocketOptions {
    /// Path of the niwaki binary.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Connections to open; each is an open file of this process too (`ulimit -n`).
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    sockets: usize,
    /// The node's --rpc-http-max-active-connections.
    #[arg(long, value_name = "N", default_value_t = 80)]
    limit: usize,
    /// Longest allowed latency of a response meanwhile, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    answer_ms: u64,
    /// Largest allowed resident memory of the node, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory_mib: u64,
}

/// Connections opened from one latency measurement to the next.
const CALL_EVERY: usize = 100;

/// What an idle connection has sent: nothing, half a line, a request without its end.
const PARTIAL_REQUESTS: [&str; 3] = [
    "",
    "POST / HT",
    "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 40\r\n\r\n{",
];

/// Files that a node may have open in addition to its connections.
const OTHER_FILES: usize = 300;

pub(crate) fn run(options: &SocketOptions) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("genesis.json");
    std::fs::write(&file, genesis(&accounts::make(1), GAS_LIMIT))?;
    let start = StartOptions {
        connections: options.limit,
        ..StartOptions::genesis(&file)
    };
    let data = folder.path().join("niwaki");
    let node = Process::start_niwaki(&options.niwaki, data, start)?;

    let mut waits = vec![time_call(&node)?];
    let address: SocketAddr = ([127, 0, 0, 1], node.rpc_port()).into();
    let mut sockets = Vec::with_capacity(options.sockets);
    let began = Instant::now();
    for number in 0..options.sockets {
        sockets.push(open(address, number)?);
        if number.is_multiple_of(CALL_EVERY) {
            waits.push(time_call(&node)?);
        }
    }
    let opened_in = began.elapsed();
    std::thread::sleep(Duration::from_millis(500));
    let still_open = sockets.iter_mut().map(is_open).filter(|is_open| *is_open);
    let still_open = still_open.count();
    waits.push(time_call(&node)?);
    let (_, engine) = node
        .client
        .call_engine("engine_exchangeCapabilities", json!([[]]))?;
    let files = std::fs::read_dir(format!("/proc/{}/fd", node.id())).map_or(0, Iterator::count);
    drop(sockets);

    let reconnect = time_until_response(&node, options)?;
    waits.sort_unstable();
    let (median, longest) = (percentile(&waits, 50), percentile(&waits, 100));
    let memory = memory(node.id(), "VmHWM:")? >> 20;
    println!(
        "{} sockets in {:.1} s, {still_open} open of {} allowed, {files} files open; the head's number \
         {} times, P50 {:.1} ms, at most {:.1} ms; the Engine API {:.1} ms; a new connection {:.1} ms \
         after these were closed; at most {memory} MiB",
        options.sockets,
        opened_in.as_secs_f64(),
        options.limit,
        waits.len(),
        median.as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e3,
        engine.as_secs_f64() * 1e3,
        reconnect.as_secs_f64() * 1e3,
    );
    let bound = Duration::from_millis(options.answer_ms);
    ensure!(
        still_open <= options.limit,
        "{still_open} connections are open"
    );
    ensure!(
        longest.max(engine) <= bound,
        "a response took {:?}",
        longest.max(engine)
    );
    ensure!(files <= options.limit + OTHER_FILES, "{files} open files");
    ensure!(memory <= options.memory_mib, "{memory} MiB");
    Ok(())
}

/// Latency of `eth_blockNumber` over the connection that was opened first.
fn time_call(node: &Process) -> Result<Duration> {
    let began = Instant::now();
    let response = node.client.block_number();
    response.wrap_err("the connection that was opened first")?;
    Ok(began.elapsed())
}

/// Opens a connection and sends part of a request.
fn open(address: SocketAddr, number: usize) -> Result<TcpStream> {
    let mut socket =
        TcpStream::connect_timeout(&address, Duration::from_secs(10)).wrap_err_with(|| {
            format!("socket {number} can't be opened; is `ulimit -n` high enough?")
        })?;
    // The node may have closed it already.
    let _ = socket.write_all(PARTIAL_REQUESTS[number % PARTIAL_REQUESTS.len()].as_bytes());
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether the node has not closed the connection.
fn is_open(socket: &mut TcpStream) -> bool {
    let mut buffer = [0; 1024];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// How long it takes until a call over a new connection succeeds.
fn time_until_response(node: &Process, options: &SocketOptions) -> Result<Duration> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(options.answer_ms) {
        let client = node.client.with_new_connections();
        if client.block_number().is_ok() {
            return Ok(began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!(
        "no response over a new connection in {} ms",
        options.answer_ms
    )
}
