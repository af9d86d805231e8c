//! More sockets than anybody needs, to a node that must go on answering.
//!
//! They send nothing, or the beginning of a request, and stay open. One connection that was there
//! before asks for the number of the head all the while, and the Engine API is asked at the end. The
//! node may hold as many as it was told to and closes the others; afterwards it must answer who
//! comes anew.

use crate::accounts;
use crate::genesis::{GAS_LIMIT, genesis};
use crate::process::{Given, Kind, Process, memory};
use clap::Args;
use eyre::{Result, WrapErr, bail, ensure};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct SocketOptions {
    /// The binary of niwaki.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// How many sockets; each is an open file here too (`ulimit -n`).
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    sockets: usize,
    /// How many the node may hold: its `--rpc-http-max-active-connections`.
    #[arg(long, value_name = "N", default_value_t = 80)]
    limit: usize,
    /// How long an answer may take meanwhile, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    answer_ms: u64,
    /// Memory that the node may take at most, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory_mib: u64,
}

/// A question is asked after so many sockets.
const EVERY: usize = 100;

/// What an idle socket has sent: nothing, half a line, a request without its end.
const BEGINNINGS: [&str; 3] = [
    "",
    "POST / HT",
    "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 40\r\n\r\n{",
];

/// Files that a node has open besides its connections.
const OTHER_FILES: usize = 300;

pub(crate) fn run(options: &SocketOptions) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("genesis.json");
    std::fs::write(&file, genesis(&accounts::make(1), GAS_LIMIT))?;
    let given = Given {
        connections: options.limit,
        ..Given::genesis(&file)
    };
    let binary = std::path::absolute(&options.niwaki)?;
    let at = folder.path().join("niwaki");
    let node = Process::start(Kind::Niwaki, "niwaki", &binary, at, given)?;

    let mut waits = vec![ask(&node)?];
    let place: SocketAddr = ([127, 0, 0, 1], node.ports()[0]).into();
    let mut sockets = Vec::with_capacity(options.sockets);
    let began = Instant::now();
    for number in 0..options.sockets {
        sockets.push(open(place, number)?);
        if number.is_multiple_of(EVERY) {
            waits.push(ask(&node)?);
        }
    }
    let opened_in = began.elapsed();
    std::thread::sleep(Duration::from_millis(500));
    let held = sockets.iter_mut().filter_map(|s| is_open(s).then_some(()));
    let held = held.count();
    waits.push(ask(&node)?);
    let (_, engine) = node
        .client
        .drive("engine_exchangeCapabilities", json!([[]]))?;
    let files = std::fs::read_dir(format!("/proc/{}/fd", node.id())).map_or(0, Iterator::count);
    drop(sockets);

    let after = answers_again(&node, options)?;
    waits.sort_unstable();
    let most = waits.last().copied().unwrap_or_default();
    let median = waits[waits.len() / 2];
    let memory = memory(node.id(), "VmHWM:")? >> 20;
    println!(
        "{} sockets in {:.1} s, {held} held of {} that may be, {files} files open; the head's number \
         {} times, P50 {:.1} ms, at most {:.1} ms; the Engine API {:.1} ms; a new connection {:.1} ms \
         after they had gone; at most {memory} MiB",
        options.sockets,
        opened_in.as_secs_f64(),
        options.limit,
        waits.len(),
        median.as_secs_f64() * 1e3,
        most.as_secs_f64() * 1e3,
        engine.as_secs_f64() * 1e3,
        after.as_secs_f64() * 1e3,
    );
    let bound = Duration::from_millis(options.answer_ms);
    ensure!(held <= options.limit, "{held} sockets are held");
    ensure!(
        most.max(engine) <= bound,
        "an answer took {:?}",
        most.max(engine)
    );
    ensure!(files <= options.limit + OTHER_FILES, "{files} open files");
    ensure!(memory <= options.memory_mib, "{memory} MiB");
    Ok(())
}

fn ask(node: &Process) -> Result<Duration> {
    let began = Instant::now();
    let asked = node.client.ask("eth_blockNumber", json!([]));
    asked.wrap_err("the connection that was there before")?;
    Ok(began.elapsed())
}

/// Opens a socket, and sends the beginning of something.
fn open(place: SocketAddr, number: usize) -> Result<TcpStream> {
    let mut socket =
        TcpStream::connect_timeout(&place, Duration::from_secs(10)).wrap_err_with(|| {
            format!("socket {number} can't be opened; is `ulimit -n` high enough?")
        })?;
    // The node may have closed it already.
    let _ = socket.write_all(BEGINNINGS[number % BEGINNINGS.len()].as_bytes());
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether the other end still holds it.
fn is_open(socket: &mut TcpStream) -> bool {
    let mut answer = [0; 1024];
    loop {
        match socket.read(&mut answer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// How long it takes until somebody who comes anew is answered.
fn answers_again(node: &Process, options: &SocketOptions) -> Result<Duration> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(options.answer_ms) {
        if node.anew().ask("eth_blockNumber", json!([])).is_ok() {
            return Ok(began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!(
        "nobody who comes anew is answered in {} ms",
        options.answer_ms
    )
}
