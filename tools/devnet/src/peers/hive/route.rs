//! The routes of hive's simulation API.
//!
//! In: the method and path of a request. Out: what it asks for, with the numbers and names in the path.

/// What a request asks for. Suites and tests have numbers; nodes are clients by their id, or `simulation`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    About,
    ClientTypes,
    StartSuite,
    EndSuite(u32),
    StartTest(u32),
    /// With the result in the body.
    EndTest(TestId),
    StartClient(TestId),
    OfClient(TestId, &'a str, ClientRoute),
    /// Makes a network, or removes it.
    CreateNetwork(u32, &'a str),
    RemoveNetwork(u32, &'a str),
    /// The suite, the network, the node.
    AddressIn(u32, &'a str, &'a str),
    Connect(u32, &'a str, &'a str),
    Disconnect(u32, &'a str, &'a str),
}

/// What is asked of a client that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientRoute {
    Status,
    Stop,
    Pause,
    Unpause,
    Exec,
    /// Lets another test of the same suite use it too.
    Share(u32),
}

/// A test of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TestId {
    pub(super) suite: u32,
    pub(super) test: u32,
}

/// Why a path is none of the API's.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// There is nothing at that path.
    Unknown,
    /// There is something, with another method.
    Method,
    /// A number in it is none.
    Number(String),
}

/// Reads a method and path.
///
/// # Errors
/// If the API has no such route.
pub(super) fn parse<'a>(method: &str, path: &'a str) -> Result<Route<'a>, NoRoute> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let segments: Vec<&str> = path.split('/').collect();
    match segments.as_slice() {
        ["hive"] => only(method, "GET", Route::About),
        ["clients"] => only(method, "GET", Route::ClientTypes),
        ["testsuite"] => only(method, "POST", Route::StartSuite),
        ["testsuite", suite] => only(method, "DELETE", Route::EndSuite(number(suite)?)),
        ["testsuite", suite, "test"] => only(method, "POST", Route::StartTest(number(suite)?)),
        ["testsuite", suite, "test", test, rest @ ..] => {
            let (suite, test) = (number(suite)?, number(test)?);
            in_test(method, TestId { suite, test }, rest)
        }
        ["testsuite", suite, "network", network] => match method {
            "POST" => Ok(Route::CreateNetwork(number(suite)?, network)),
            "DELETE" => Ok(Route::RemoveNetwork(number(suite)?, network)),
            _ => Err(NoRoute::Method),
        },
        ["testsuite", suite, "network", network, node] => match method {
            "GET" => Ok(Route::AddressIn(number(suite)?, network, node)),
            "POST" => Ok(Route::Connect(number(suite)?, network, node)),
            "DELETE" => Ok(Route::Disconnect(number(suite)?, network, node)),
            _ => Err(NoRoute::Method),
        },
        _ => Err(NoRoute::Unknown),
    }
}

fn in_test<'a>(method: &str, id: TestId, rest: &[&'a str]) -> Result<Route<'a>, NoRoute> {
    let (node, what) = match rest {
        [] => return only(method, "POST", Route::EndTest(id)),
        ["node"] => return only(method, "POST", Route::StartClient(id)),
        ["node", node, what @ ..] => (*node, what),
        _ => return Err(NoRoute::Unknown),
    };
    let what = match (method, what) {
        ("GET", []) => ClientRoute::Status,
        ("DELETE", []) => ClientRoute::Stop,
        ("POST", ["pause"]) => ClientRoute::Pause,
        ("DELETE", ["pause"]) => ClientRoute::Unpause,
        ("POST", ["exec"]) => ClientRoute::Exec,
        ("POST", ["register", test]) => ClientRoute::Share(number(test)?),
        (_, [] | ["pause" | "exec"] | ["register", _]) => return Err(NoRoute::Method),
        _ => return Err(NoRoute::Unknown),
    };
    Ok(Route::OfClient(id, node, what))
}

fn only<'a>(method: &str, expected: &str, route: Route<'a>) -> Result<Route<'a>, NoRoute> {
    match method == expected {
        true => Ok(route),
        false => Err(NoRoute::Method),
    }
}

fn number(text: &str) -> Result<u32, NoRoute> {
    text.parse().map_err(|_| NoRoute::Number(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_18_routes_are_read() {
        let id = TestId { suite: 3, test: 4 };
        let client = |what| Route::OfClient(id, "niwaki-1", what);
        let cases = [
            ("GET /hive", Route::About),
            ("GET /clients", Route::ClientTypes),
            ("POST /testsuite", Route::StartSuite),
            ("DELETE /testsuite/3", Route::EndSuite(3)),
            ("POST /testsuite/3/test", Route::StartTest(3)),
            ("POST /testsuite/3/test/4", Route::EndTest(id)),
            ("POST /testsuite/3/test/4/node", Route::StartClient(id)),
            ("GET NODE", client(ClientRoute::Status)),
            ("DELETE NODE", client(ClientRoute::Stop)),
            ("POST NODE/pause", client(ClientRoute::Pause)),
            ("DELETE NODE/pause", client(ClientRoute::Unpause)),
            ("POST NODE/exec", client(ClientRoute::Exec)),
            ("POST NODE/register/5", client(ClientRoute::Share(5))),
            ("POST NETWORK", Route::CreateNetwork(3, "net")),
            ("DELETE NETWORK", Route::RemoveNetwork(3, "net")),
            (
                "GET NETWORK/simulation",
                Route::AddressIn(3, "net", "simulation"),
            ),
            ("POST NETWORK/n", Route::Connect(3, "net", "n")),
            ("DELETE NETWORK/n", Route::Disconnect(3, "net", "n")),
        ];
        for (request, expected) in cases {
            let request = request.replace("NODE", "/testsuite/3/test/4/node/niwaki-1");
            let request = request.replace("NETWORK", "/testsuite/3/network/net");
            let (method, path) = request.split_once(' ').unwrap();
            assert_eq!(parse(method, path), Ok(expected), "{request}");
        }
    }

    #[test]
    fn a_request_outside_the_api_is_refused_with_its_reason() {
        let number = |text: &str| NoRoute::Number(text.to_owned());
        let cases = [
            ("GET", "/", NoRoute::Unknown),
            ("GET", "/hive/", NoRoute::Unknown),
            ("POST", "/hive", NoRoute::Method),
            ("GET", "/testsuite/3", NoRoute::Method),
            ("DELETE", "/testsuite/x", number("x")),
            ("DELETE", "/testsuite/-1", number("-1")),
            ("POST", "/testsuite/3/test/4294967296", number("4294967296")),
            ("PUT", "/testsuite/3/test/4/node/n", NoRoute::Method),
            ("GET", "/testsuite/3/test/4/node/n/exec", NoRoute::Method),
            ("POST", "/testsuite/3/test/4/node/n/run", NoRoute::Unknown),
            ("POST", "/testsuite/3/test/4/nodes", NoRoute::Unknown),
            ("PUT", "/testsuite/3/network/net", NoRoute::Method),
            ("POST", "/testsuite/3/network", NoRoute::Unknown),
        ];
        for (method, path, expected) in cases {
            assert_eq!(parse(method, path), Err(expected), "{method} {path}");
        }
    }
}
