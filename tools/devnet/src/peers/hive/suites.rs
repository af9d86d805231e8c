//! The suites of a simulation with their tests: what runs, what has ended and how, for how long.

use super::launch::LocalClient;
use super::route::TestId;
use super::simulation::Refusal;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients by their id.
pub(super) type Clients = BTreeMap<String, Arc<LocalClient>>;

/// With what a suite or a test begins.
#[derive(Debug, Deserialize)]
pub(super) struct TestStart {
    pub(super) name: String,
}

/// How the simulator says that a test ended.
#[derive(Debug, Deserialize)]
pub(super) struct TestResult {
    pub(super) pass: bool,
    #[serde(default)]
    pub(super) details: String,
}

/// All suites and tests, by their numbers. A test's number is unique over all suites.
#[derive(Debug, Default)]
pub(super) struct Suites {
    suites: BTreeMap<u32, Suite>,
    tests: BTreeMap<u32, Test>,
}

#[derive(Debug)]
struct Suite {
    name: String,
    is_running: bool,
}

#[derive(Debug)]
struct Test {
    suite: u32,
    name: String,
    began: Instant,
    /// Its result and how long it took; `None` while it runs.
    ended: Option<(TestResult, Duration)>,
    clients: Clients,
    /// The ids of all clients that it had.
    nodes: Vec<String>,
}

/// A test as it is reported.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) suite: String,
    pub(super) test: String,
    pub(super) pass: bool,
    pub(super) details: String,
    pub(super) time: Duration,
    /// The ids of its clients.
    pub(super) nodes: Vec<String>,
}

impl Outcome {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "suite": self.suite, "test": self.test, "pass": self.pass, "details": self.details,
            "seconds": self.time.as_secs_f64(), "clients": self.nodes,
        })
    }
}

impl Suites {
    /// Begins a suite. Returns its number.
    pub(super) fn start_suite(&mut self, start: TestStart) -> Result<u32, Refusal> {
        let name = named(start, "suite")?;
        let number = next(&self.suites);
        let suite = Suite {
            name,
            is_running: true,
        };
        self.suites.insert(number, suite);
        Ok(number)
    }

    /// Ends a suite whose tests have all ended.
    pub(super) fn end_suite(&mut self, suite: u32) -> Result<(), Refusal> {
        self.running(suite)?;
        let mut tests = self.tests.iter();
        if let Some((test, _)) = tests.find(|(_, test)| test.suite == suite && test.ended.is_none())
        {
            let why = format!("test {test} of suite {suite} has not ended");
            return Err(Refusal::bad(why));
        }
        if let Some(suite) = self.suites.get_mut(&suite) {
            suite.is_running = false;
        }
        Ok(())
    }

    /// Begins a test. Returns its number.
    pub(super) fn start_test(&mut self, suite: u32, start: TestStart) -> Result<u32, Refusal> {
        self.running(suite)?;
        let name = named(start, "test")?;
        let number = next(&self.tests);
        let test = Test {
            suite,
            name,
            began: Instant::now(),
            ended: None,
            clients: Clients::new(),
            nodes: Vec::new(),
        };
        self.tests.insert(number, test);
        Ok(number)
    }

    /// Ends a test. Returns its clients.
    pub(super) fn end_test(&mut self, id: TestId, result: TestResult) -> Result<Clients, Refusal> {
        self.running(id.suite)?;
        let suite = self.suite_name(id.suite);
        let test = self.test(id)?;
        let time = test.began.elapsed();
        let verdict = if result.pass { "passes" } else { "FAILS" };
        eprintln!(
            "{verdict:<7} {suite}: {}, {:.1} s",
            test.name,
            time.as_secs_f64()
        );
        test.ended = Some((result, time));
        Ok(std::mem::take(&mut test.clients))
    }

    /// Checks that a suite runs.
    pub(super) fn running(&self, suite: u32) -> Result<(), Refusal> {
        match self
            .suites
            .get(&suite)
            .is_some_and(|suite| suite.is_running)
        {
            true => Ok(()),
            false => Err(Refusal::bad(format!("no suite {suite} runs"))),
        }
    }

    /// Checks that a test runs.
    pub(super) fn running_test(&mut self, id: TestId) -> Result<(), Refusal> {
        self.running(id.suite)?;
        self.test(id).map(|_| ())
    }

    /// Adds a client to a test.
    pub(super) fn add_client(
        &mut self,
        id: TestId,
        node: &str,
        client: Arc<LocalClient>,
    ) -> Result<(), Refusal> {
        let test = self.test(id)?;
        test.clients.insert(node.to_owned(), client);
        test.nodes.push(node.to_owned());
        Ok(())
    }

    /// A client of a test.
    pub(super) fn client(&mut self, id: TestId, node: &str) -> Result<Arc<LocalClient>, Refusal> {
        let client = self.test(id)?.clients.get(node).map(Arc::clone);
        client.ok_or_else(|| no_client(id, node))
    }

    /// Takes a client from a test.
    pub(super) fn remove_client(
        &mut self,
        id: TestId,
        node: &str,
    ) -> Result<Arc<LocalClient>, Refusal> {
        let client = self.test(id)?.clients.remove(node);
        client.ok_or_else(|| no_client(id, node))
    }

    /// All tests in their order. One that still runs has failed: the simulator left it.
    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        let outcome = |test: &Test| {
            let (pass, details, time) = match &test.ended {
                Some((result, time)) => (result.pass, result.details.clone(), *time),
                None => (false, "the test did not end".into(), test.began.elapsed()),
            };
            Outcome {
                suite: self.suite_name(test.suite),
                test: test.name.clone(),
                pass,
                details,
                time,
                nodes: test.nodes.clone(),
            }
        };
        self.tests.values().map(outcome).collect()
    }

    fn suite_name(&self, suite: u32) -> String {
        let suite = self.suites.get(&suite);
        suite.map(|suite| suite.name.clone()).unwrap_or_default()
    }

    /// A test that runs.
    fn test(&mut self, id: TestId) -> Result<&mut Test, Refusal> {
        let test = self.tests.get_mut(&id.test);
        let test = test.filter(|test| test.suite == id.suite && test.ended.is_none());
        test.ok_or_else(|| Refusal::bad(format!("no test {} of suite {} runs", id.test, id.suite)))
    }
}

fn named(start: TestStart, what: &str) -> Result<String, Refusal> {
    match start.name.is_empty() {
        true => Err(Refusal::bad(format!("the {what} has no name"))),
        false => Ok(start.name),
    }
}

fn no_client(id: TestId, node: &str) -> Refusal {
    Refusal::missing(format!("test {} has no client {node:?}", id.test))
}

fn next<T>(map: &BTreeMap<u32, T>) -> u32 {
    map.last_key_value().map_or(1, |(last, _)| last + 1)
}
