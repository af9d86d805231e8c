//! Runs state tests by go-ethereum's `evm statetest`: long-running processes read file names and write traces.

use crate::case::Case;
use crate::state_test::without_expectation;
use crate::trace::Trace;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The program, and its idle processes.
#[derive(Debug)]
pub struct Statetest {
    program: PathBuf,
    /// Folder of the files of cases.
    folder: PathBuf,
    idle: Mutex<Vec<Process>>,
    started: AtomicU64,
}

#[derive(Debug)]
struct Process {
    number: u64,
    child: Child,
    stdin: ChildStdin,
    stderr: BufReader<ChildStderr>,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Statetest {
    /// The program at `program`; cases are passed by files in `folder`, which must exist.
    pub fn new(program: PathBuf, folder: PathBuf) -> Self {
        Self {
            program,
            folder,
            idle: Mutex::new(Vec::new()),
            started: AtomicU64::new(0),
        }
    }

    fn start(&self) -> std::io::Result<Process> {
        let mut command = Command::new(&self.program);
        command
            .args(["--verbosity", "0", "statetest", "--trace"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // Ctrl-C is for this process, not for the program.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().expect("piped");
        let stderr = BufReader::with_capacity(1 << 16, child.stderr.take().expect("piped"));
        Ok(Process {
            number: self.started.fetch_add(1, Ordering::Relaxed),
            child,
            stdin,
            stderr,
        })
    }

    /// The traces of the first transactions of the cases.
    ///
    /// # Panics
    /// If the program can't be run or its output can't be read, since nothing was compared then.
    pub(crate) fn run(&self, cases: &[Case]) -> Vec<Trace> {
        let idle = self.idle.lock().expect("no thread panics with it").pop();
        let name = self.program.display();
        let mut process = idle.map_or_else(|| self.start(), Ok);
        let traces = process.as_mut().map_err(|error| error.to_string());
        let traces = traces.and_then(|process| self.request(process, cases));
        match (process, traces) {
            (Ok(process), Ok(traces)) => {
                let mut idle = self.idle.lock().expect("no thread panics with it");
                idle.push(process);
                traces
            }
            (_, Err(error)) => panic!("{name} did not run the cases: {error}"),
            (Err(error), _) => panic!("{name}: {error}"),
        }
    }

    fn request(&self, process: &mut Process, cases: &[Case]) -> Result<Vec<Trace>, String> {
        let message = |error: std::io::Error| error.to_string();
        let mut names = String::new();
        for (at, case) in cases.iter().enumerate() {
            let path = self.folder.join(format!("{}-{at}.json", process.number));
            std::fs::write(&path, without_expectation("case", case).to_string())
                .map_err(message)?;
            names += &format!("{}\n", path.display());
        }
        process.stdin.write_all(names.as_bytes()).map_err(message)?;
        let mut line = String::new();
        let mut read = |_| {
            let mut trace = Trace::unread();
            loop {
                line.clear();
                if process.stderr.read_line(&mut line).map_err(message)? == 0 {
                    return Err("it has ended".to_owned());
                }
                let last = trace.read(&line);
                if last.map_err(|error| format!("{error} in what it writes: {line}"))? {
                    return Ok(trace);
                }
            }
        };
        cases.iter().map(&mut read).collect()
    }
}
