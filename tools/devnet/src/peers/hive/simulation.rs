//! A simulation: its suites, tests, clients and networks, and what is done for each request of the simulator.
//!
//! In: a request that has come whole. Out: the JSON of the response, or why it is refused. Tests may run at the same time: no lock is held
//! while a client starts. A test's clients end with it.

use super::form;
use super::launch::{self, Files, Launch, LocalClient};
use super::networks::Networks;
use super::route::{self, ClientRoute, NoRoute, Route, TestId};
use super::suites::{Clients, Suites, TestResult, TestStart};
use crate::process::ClientKind;
use eyre::Result;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A kind of client that tests may start.
#[derive(Clone, Debug)]
pub(super) struct ClientType {
    pub(super) kind: ClientKind,
    /// hive's name of it.
    pub(super) name: &'static str,
    pub(super) version: String,
    pub(super) binary: PathBuf,
}

/// See the header of the file.
#[derive(Debug)]
pub(super) struct Simulation {
    types: Vec<ClientType>,
    /// Folder of the clients' folders.
    folder: PathBuf,
    start_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    suites: Suites,
    networks: Networks,
    started: u64,
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// One sentence.
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Display) -> Self {
        let why = why.to_string();
        Self { status, why }
    }

    /// The simulator's mistake.
    pub(super) fn bad(why: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// There is no such thing.
    pub(super) fn missing(why: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, why)
    }

    /// A client or this program failed.
    pub(super) fn failure(why: impl Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, why)
    }
}

/// The response to a request.
type Answer = Result<Value, Refusal>;

/// What a client is started with, beside its files.
#[derive(Deserialize)]
struct NodeConfig {
    client: String,
    #[serde(default)]
    networks: Option<Vec<String>>,
    #[serde(default)]
    environment: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Execution {
    command: Vec<String>,
}

impl Simulation {
    pub(super) fn new(types: Vec<ClientType>, folder: PathBuf, start_timeout: Duration) -> Self {
        Self {
            types,
            folder,
            start_timeout,
            state: Mutex::default(),
        }
    }

    /// Does what a request asks for.
    ///
    /// # Errors
    /// With a status from 400 if the request is wrong or names what does not exist, 500 if a client fails.
    pub(super) fn handle(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Answer {
        let route = route::parse(method, path).map_err(|no_route| match no_route {
            NoRoute::Unknown => Refusal::missing(format!("there is no {path}")),
            NoRoute::Method => {
                let why = format!("{path} has no {method}");
                Refusal::new(StatusCode::METHOD_NOT_ALLOWED, why)
            }
            NoRoute::Number(text) => Refusal::bad(format!("{text:?} in {path} is no number")),
        })?;
        match route {
            Route::About => Ok(json!({
                "sourceCommit": "", "sourceDate": "", "buildDate": "", "command": ["niwaki-devnet", "peers", "hive"],
            })),
            Route::ClientTypes => Ok(self.types.iter().map(ClientType::to_json).collect()),
            Route::StartSuite => {
                let start: TestStart = from_json(body)?;
                self.state().suites.start_suite(start).map(Value::from)
            }
            Route::EndSuite(suite) => {
                self.state().suites.end_suite(suite)?;
                self.state().networks.remove_all(suite);
                Ok(Value::Null)
            }
            Route::StartTest(suite) => {
                let start: TestStart = from_json(body)?;
                self.state()
                    .suites
                    .start_test(suite, start)
                    .map(Value::from)
            }
            Route::EndTest(id) => {
                let result: TestResult = from_json(body)?;
                let clients = self.state().suites.end_test(id, result)?;
                self.forget(clients);
                Ok(Value::Null)
            }
            Route::StartClient(id) => self.start_client(id, content_type, body),
            Route::OfClient(id, node, what) => self.of_client(id, node, what, body),
            Route::CreateNetwork(suite, network) => {
                let mut state = self.state();
                state.suites.running(suite)?;
                state.networks.create(suite, network)?;
                Ok(Value::Null)
            }
            Route::RemoveNetwork(suite, network) => {
                self.state().networks.remove(suite, network)?;
                Ok(Value::Null)
            }
            Route::AddressIn(suite, network, node) => {
                let address = self.state().networks.address(suite, network, node)?;
                Ok(address.to_string().into())
            }
            Route::Connect(suite, network, node) => {
                self.state().networks.connect(suite, network, node)?;
                Ok(Value::Null)
            }
            Route::Disconnect(suite, network, node) => {
                self.state().networks.disconnect(suite, network, node)?;
                Ok(Value::Null)
            }
        }
    }

    fn start_client(&self, id: TestId, content_type: &str, body: &[u8]) -> Answer {
        self.state().suites.running_test(id)?;
        let (config, files) = read_form(content_type, body)?;
        let kind = self.types.iter().find(|kind| kind.name == config.client);
        let kind = kind.ok_or_else(|| {
            let names: Vec<&str> = self.types.iter().map(|kind| kind.name).collect();
            let name = &config.client;
            Refusal::bad(format!(
                "there is no client {name:?}, but {}",
                names.join(", ")
            ))
        })?;
        let networks = config.networks.unwrap_or_default();
        let mut variables = config.environment.unwrap_or_default();
        variables.retain(|name, _| name.starts_with("HIVE_"));
        let (node, address) = {
            let mut state = self.state();
            for network in &networks {
                state.networks.check(id.suite, network)?;
            }
            state.started += 1;
            let node = format!("{}-{:08}", kind.name, state.started);
            (node, state.networks.new_address(launch::is_free)?)
        };
        let launch = Launch {
            kind: kind.kind,
            binary: &kind.binary,
            folder: self.folder.join(&node),
            address,
            variables,
            files,
            timeout: self.start_timeout,
        };
        if let Some(why) = launch.refusal() {
            return Err(Refusal::bad(why));
        }
        let client = launch
            .start()
            .map_err(|error| Refusal::failure(format!("{node} did not start: {error:#}")))?;
        let mut state = self.state();
        state.suites.add_client(id, &node, Arc::new(client))?;
        state.networks.add_client(&node, address);
        for network in &networks {
            state.networks.connect(id.suite, network, &node)?;
        }
        Ok(json!({ "id": node, "ip": address.to_string() }))
    }

    fn of_client(&self, id: TestId, node: &str, what: ClientRoute, body: &[u8]) -> Answer {
        let client = self.state().suites.client(id, node)?;
        match what {
            ClientRoute::Status => {
                let name = node.rsplit_once('-').map_or(node, |(name, _)| name);
                return Ok(json!({ "id": node, "name": name }));
            }
            ClientRoute::Stop => {
                drop(client);
                let stopped = self.state().suites.remove_client(id, node)?;
                self.forget(BTreeMap::from([(node.to_owned(), stopped)]));
            }
            ClientRoute::Pause => client.pause(true).map_err(Refusal::failure)?,
            ClientRoute::Unpause => client.pause(false).map_err(Refusal::failure)?,
            ClientRoute::Exec => return execute(&client, body),
            ClientRoute::Share(test) => {
                let other = TestId { test, ..id };
                self.state().suites.add_client(other, node, client)?;
            }
        }
        Ok(Value::Null)
    }

    /// Drops clients. Those that no other test uses end, and leave the networks.
    fn forget(&self, clients: Clients) {
        for (node, client) in clients {
            if let Some(last) = Arc::into_inner(client) {
                self.state().networks.remove_client(&node);
                drop::<LocalClient>(last);
            }
        }
    }

    /// All suites with their results.
    pub(super) fn suites(&self) -> Suites {
        std::mem::take(&mut self.state().suites)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientType {
    /// Clients here get the chain by execution: none has the role of snap sync.
    fn to_json(&self) -> Value {
        json!({ "name": self.name, "version": self.version, "meta": { "roles": ["eth1"] } })
    }
}

fn from_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad(format!("the request can't be read: {error}")))
}

fn read_form(content_type: &str, body: &[u8]) -> Result<(NodeConfig, Files), Refusal> {
    let mut config = None;
    let mut files = Files::new();
    for part in form::parts(content_type, body).map_err(Refusal::bad)? {
        if part.is_file {
            files.insert(inside(&part.name)?, part.content.to_vec());
        } else if part.name == "config" {
            config = Some(from_json(part.content)?);
        }
    }
    let config = config.ok_or_else(|| Refusal::bad("the form has no part config"))?;
    Ok((config, files))
}

/// The path of a file inside the client's folder.
fn inside(name: &str) -> Result<PathBuf, Refusal> {
    let path = Path::new(name.strip_prefix('/').unwrap_or(name));
    let mut parts = path.components();
    match parts.next().is_some()
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
    {
        true => Ok(path.to_owned()),
        false => Err(Refusal::bad(format!("{name:?} is no path inside a client"))),
    }
}

/// Runs what clients of hive have as scripts.
fn execute(client: &LocalClient, body: &[u8]) -> Answer {
    let Execution { command } = from_json(body)?;
    match command
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["enode.sh"] => {
            let enode = client.enode().map_err(Refusal::failure)?;
            Ok(json!({ "stdout": format!("{enode}\n"), "stderr": "", "exitCode": 0 }))
        }
        [] => Err(Refusal::bad("the command is empty")),
        _ => {
            let why = format!("only enode.sh can be run, not {command:?}");
            Err(Refusal::bad(why))
        }
    }
}

#[cfg(test)]
mod tests;
