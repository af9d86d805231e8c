//! `docs/rpc.md` lists every method. `NIWAKI_WRITE_DOCS=1 cargo test` writes it.

use crate::methods::{CONNECTION_METHODS, Lane, NAMESPACES};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "# JSON-RPC methods\n
Every method, by namespace; `--rpc-http-api`, `--rpc-ws-api` and `--Xrpc-ipc-apis` say which namespaces a port offers, and `rpc.discover` returns the same
list as an OpenRPC document. A parameter with `?` may be left out, one with `*` stands for any number. Who runs a method says what it costs at most, and what
it waits for:

| runs | what |
|---|---|
| at once | microseconds, by the thread that read the request |
| call | runs code or reads many rows: by that thread if it is free, else by a worker |
| heavy | searches and traces, by workers of their own |
| engine | blocks and fork choices, one after the other |
| payload | payloads and blobs, beside them |
| long | minutes |

What each returns is in execution-apis, in geth's and in Besu's documentation; where this node differs: [JSON-RPC](node.md#json-rpc), [simulation and
traces](tracing.md). Its own methods (`niwaki`) are described in [node.md](node.md), [peers.md](peers.md) and [consortium.md](consortium.md).
";

fn runs(lane: Lane) -> &'static str {
    match lane {
        Lane::Inline => "at once",
        Lane::Call => "call",
        Lane::Heavy => "heavy",
        Lane::Engine => "engine",
        Lane::Payload => "payload",
        Lane::Long => "long",
    }
}

fn parameters(names: &str) -> String {
    let names = names.split_whitespace().map(|name| format!("`{name}`"));
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_page_of_methods_lists_each() {
    let mut page = HEAD.to_owned();
    for namespace in NAMESPACES {
        let _ = writeln!(
            page,
            "\n## {namespace}\n\n| method | parameters | runs |\n|---|---|---|"
        );
        let rows = crate::methods::all().filter(|method| method.namespace() == namespace);
        let rows = rows.map(|row| (row.name, row.params, runs(row.lane)));
        let own = CONNECTION_METHODS
            .iter()
            .filter(|(name, _)| name.split('_').next() == Some(namespace));
        let mut rows: Vec<_> = rows
            .chain(own.map(|(name, params)| (*name, *params, "at once")))
            .collect();
        rows.sort_unstable();
        for (name, names, runs) in rows {
            let _ = writeln!(page, "| `{name}` | {} | {runs} |", parameters(names));
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rpc.md");
    if std::env::var_os("NIWAKI_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "NIWAKI_WRITE_DOCS=1 cargo test writes docs/rpc.md anew"
    );
}
