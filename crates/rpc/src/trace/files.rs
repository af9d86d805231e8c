//! `debug_standardTraceBlockToFile`: writes a file for each transaction of a block, with a line for each opcode
//! (EIP-3155), into the folder `traces` of the data path.
//!
//! Writing ends at the deadline of the request. Incomplete files are removed.

use super::subject::{PastBlock, Subject};
use crate::blocks::FullBlock;
use crate::json::{self, Array, Object};
use crate::params::Params;
use crate::simulation::{SimulatedBlock, SimulationResult};
use crate::{Backend, RpcError, RpcResult};
use niwaki_evm::{CallEnd, CallStart, Step, Tracer};
use niwaki_primitives::{B256, hex};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Options: one transaction only, and whether lines include memory.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    tx_hash: Option<B256>,
    /// geth's.
    enable_memory: bool,
    /// Besu's.
    disable_memory: Option<bool>,
}

/// Traces a stored block, by hash.
pub(super) fn block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    let block = backend.block(&hash)?;
    let block = block.ok_or_else(|| RpcError::server(format!("block {hash:#x} not found")))?;
    write_files(backend, params, block, out)
}

/// Traces one of the last invalid blocks, by hash.
pub(super) fn bad_block(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let hash = params.hash(0)?;
    let refused = backend.chain().refused_blocks();
    let found = refused.iter().find(|refused| refused.0 == hash);
    let found = found.ok_or_else(|| RpcError::server(format!("bad block {hash:#x} not found")))?;
    let block = FullBlock::new((*found.1).clone(), hash);
    write_files(backend, params, Arc::new(block), out)
}

fn write_files(
    backend: &Backend,
    params: &Params<'_>,
    block: Arc<FullBlock>,
    out: &mut Vec<u8>,
) -> RpcResult {
    let options: Options = params.optional(1)?.unwrap_or_default();
    let folder = backend.operator().traces_folder();
    let folder = folder.ok_or_else(|| RpcError::server("this program has no folder for traces"))?;
    let transactions = &block.body.transactions;
    if let Some(requested) = options.tx_hash
        && !transactions.iter().any(|tx| *tx.tx_hash() == requested)
    {
        let message = format!("transaction {requested:#x} not found in block");
        return Err(RpcError::server(message));
    }
    fs::create_dir_all(folder).map_err(|error| io_error("make the folder", folder, &error))?;
    let past = PastBlock::new(backend, block, false)?;
    let mut files = TraceFiles::default();
    let mut index = 0;
    past.each(backend, params, |block, subject| {
        let hash = *past.block.body.transactions[index].tx_hash();
        let at = index;
        index += 1;
        if options.tx_hash.is_some_and(|requested| requested != hash) {
            return subject.run(block, &mut crate::simulation::NoopTracer, params.deadline);
        }
        let short = |hash: &B256| hex::encode(&hash[..4]);
        let name = format!(
            "block_0x{}-{at}-0x{}-{}",
            short(&past.block.id.hash),
            short(&hash),
            backend.next_id()
        );
        let path = folder.join(name);
        files.paths.push(path.clone());
        let memory = options.enable_memory || options.disable_memory == Some(false);
        write_file(&path, block, subject, memory, params.deadline)
    })?;
    let mut list = Array::new(out);
    for path in &files.paths {
        json::string(list.item(), &path.display().to_string());
    }
    files.are_complete = true;
    Ok(())
}

fn io_error(what: &str, path: &Path, error: &std::io::Error) -> RpcError {
    RpcError::server(format!("can't {what} {}: {error}", path.display()))
}

/// Trace files, which are removed unless all of them are complete.
#[derive(Default)]
struct TraceFiles {
    paths: Vec<PathBuf>,
    are_complete: bool,
}

impl Drop for TraceFiles {
    fn drop(&mut self) {
        if !self.are_complete {
            for path in &self.paths {
                let _ = fs::remove_file(path); // It may not exist.
            }
        }
    }
}

fn write_file(
    path: &Path,
    block: &SimulatedBlock<'_>,
    subject: &Subject<'_>,
    memory: bool,
    deadline: Instant,
) -> Result<SimulationResult, RpcError> {
    let failed = |error: std::io::Error| io_error("write", path, &error);
    let file = File::create_new(path).map_err(failed)?;
    let mut lines = FileTracer {
        file: BufWriter::new(file),
        memory,
        line: Vec::new(),
        open: None,
        error: None,
    };
    let run = subject.run(block, &mut lines, deadline);
    if let Some(error) = lines.error {
        return Err(failed(error));
    }
    let run = run?;
    let mut last = Vec::new();
    let mut object = Object::new(&mut last);
    object.string("output", &hex::encode(&run.result.output));
    object.number("gasUsed", run.result.gas_used);
    if let Some(failure) = run.failure {
        object.string("error", &failure.to_string());
    }
    drop(object);
    last.push(b'\n');
    lines.file.write_all(&last).map_err(failed)?;
    lines.file.flush().map_err(failed)?;
    Ok(run)
}

/// A tracer that writes a line for each opcode.
struct FileTracer {
    file: BufWriter<File>,
    memory: bool,
    /// The line of the current opcode, without what is known only after it has run.
    line: Vec<u8>,
    /// Its gas before, and its mnemonic.
    open: Option<(i64, String)>,
    error: Option<std::io::Error>,
}

impl FileTracer {
    fn end(&mut self, cost: i64) {
        let Some((_, name)) = self.open.take() else {
            return;
        };
        self.line.extend_from_slice(b",\"gasCost\":");
        json::number(&mut self.line, u64::try_from(cost).unwrap_or(0));
        self.line.extend_from_slice(b",\"opName\":");
        json::string(&mut self.line, &name);
        self.line.extend_from_slice(b"}\n");
        let written = self.file.write_all(&self.line);
        self.error = self.error.take().or(written.err());
    }
}

impl Tracer for FileTracer {
    fn step(&mut self, step: &Step<'_>) {
        self.end(0);
        if step.is_code_empty() {
            return;
        }
        self.line.clear();
        let mut object = Object::new(&mut self.line);
        object.decimal("pc", step.pc() as u64);
        object.decimal("op", u64::from(step.opcode()));
        object.number("gas", step.gas().unsigned_abs());
        if self.memory {
            object.data("memory", step.memory());
        }
        object.decimal("memSize", step.memory_len() as u64);
        let mut stack = object.array("stack");
        for word in step.stack() {
            json::quantity(stack.item(), &word);
        }
        drop(stack);
        object.decimal("depth", step.depth() as u64);
        object.decimal("refund", u64::try_from(step.refund()).unwrap_or(0));
        drop(object);
        self.line.pop(); // Reopens the object: `end` writes more members.
        let name = step.mnemonic().map_or_else(
            || format!("opcode {:#x} not defined", step.opcode()),
            str::to_owned,
        );
        self.open = Some((step.gas(), name));
    }

    fn step_end(&mut self, gas_left: i64, _: i64) {
        if let Some((gas, _)) = &self.open {
            let cost = gas - gas_left;
            self.end(cost);
        }
    }

    fn should_stop(&mut self) -> bool {
        self.error.is_some()
    }

    fn enter(&mut self, _: &CallStart<'_>) {
        self.end(0);
    }

    fn exit(&mut self, _: &CallEnd<'_>) {
        self.end(0);
    }
}
