//! Each flag of Besu 26.8.0 starts a node: those of `testdata/besu/flags.txt`, one at a time.

use crate::support::TestDir;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Nodes that start at a time.
const THREADS: usize = 4;
/// What a node of these tests has unless the flag says otherwise.
const ENVIRONMENT: [(&str, &str); 12] = [
    ("NIWAKI_DISCOVERY_ENABLED", "false"),
    ("NIWAKI_ENGINE_RPC_ENABLED", "false"),
    ("NIWAKI_ENGINE_RPC_PORT", "0"),
    ("NIWAKI_GRAPHQL_HTTP_PORT", "0"),
    ("NIWAKI_MEMORY_BUDGET", "128M"),
    ("NIWAKI_METRICS_PORT", "0"),
    ("NIWAKI_NAT_METHOD", "NONE"),
    ("NIWAKI_P2P_INTERFACE", "127.0.0.1"),
    ("NIWAKI_P2P_PORT", "0"),
    ("NIWAKI_RPC_HTTP_PORT", "0"),
    ("NIWAKI_RPC_WS_PORT", "0"),
    ("NO_COLOR", "1"),
];

/// The folder of one start, with the files that flags name.
struct Case {
    dir: TestDir,
}

impl Case {
    fn new() -> Self {
        let dir = TestDir::new();
        dir.file("password", b"changeit\n");
        dir.file("secret", "ab".repeat(32).as_bytes());
        dir.file("config", b"max-peers = 7\n");
        dir.file("static_nodes", b"[]");
        dir.file(
            "permissions",
            b"accounts-allowlist = []\nnodes-allowlist = []\n",
        );
        dir.file("known_clients", b"");
        let user = "[Users.a]\npassword = \"$2a$10$l3GA7K8g6rJ/Yv.YFSygCuI9byngpEzxgWS9qEg5emYDZomQW7fGC\"\n";
        dir.file("credentials", user.as_bytes());
        std::fs::create_dir(dir.data_path()).unwrap();
        Self { dir }
    }

    /// The words of a line, with the places of this case.
    fn words(&self, line: &str) -> Vec<String> {
        let tls = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tls");
        let mut line = line
            .replace("{tls}", &tls.display().to_string())
            .replace(
                "{public_key}",
                &tls.join("public.pem").display().to_string(),
            )
            .replace("{genesis}", &self.dir.genesis.display().to_string())
            .replace("{data}", &self.dir.data_path().display().to_string());
        for name in [
            "password",
            "secret",
            "config",
            "static_nodes",
            "permissions",
            "known_clients",
            "credentials",
        ] {
            let path = self.dir.path(name).display().to_string();
            line = line.replace(&format!("{{{name}}}"), &path);
        }
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// Starts a node, and stops it once it is ready. Returns what is wrong.
    fn start(&self, line: &str) -> Result<(), String> {
        let words = self.words(line);
        let mut command = Command::new(env!("CARGO_BIN_EXE_niwaki"));
        command.envs(ENVIRONMENT).args(&words);
        let names = |flag: &str| words.iter().any(|word| word.starts_with(flag));
        if !names("--genesis-file=") && !names("--network=") {
            command.env("NIWAKI_GENESIS_FILE", &self.dir.genesis);
        }
        if !names("--data-path=") {
            command.env("NIWAKI_DATA_PATH", self.dir.data_path());
        }
        let mut node = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let log = BufReader::new(node.stderr.take().ok_or("no log")?);
        let mut log = log.lines().map_while(Result::ok);
        let mut seen = Vec::new();
        let is_ready = log.any(|line| {
            let is_ready = line.contains("Ready");
            seen.push(line);
            is_ready
        });
        if is_ready {
            let process = rustix::process::Pid::from_child(&node);
            rustix::process::kill_process(process, rustix::process::Signal::TERM)
                .map_err(|error| error.to_string())?;
        }
        seen.extend(log);
        let output = node.wait_with_output().map_err(|error| error.to_string())?;
        // Those print and end.
        let is_printed = matches!(line, "--help" | "--version") && !output.stdout.is_empty();
        match output.status.success() && (is_ready || is_printed) {
            true => Ok(()),
            false => Err(format!("{line}: {}\n{}", output.status, seen.join("\n"))),
        }
    }
}

#[test]
fn each_flag_of_besu_starts_a_node() {
    let text = include_str!("../../../../testdata/besu/flags.txt");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), 293);
    let next = AtomicUsize::new(0);
    let problems = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(problem) = Case::new().start(line) {
                        problems.lock().unwrap().push(problem);
                    }
                }
            });
        }
    });
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}
