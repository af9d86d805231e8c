//! Profiles of a running node, by its command and by JSON-RPC.

use crate::running::{Node, post};
use crate::support::TestDir;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Calls a node that takes processor time as long as this is kept.
struct Load(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Load {
    fn on(node: &Node) -> Self {
        let (is_over, http) = (Arc::new(AtomicBool::new(false)), node.http);
        let ends = Arc::clone(&is_over);
        let caller = std::thread::spawn(move || {
            let call =
                r#"{"jsonrpc":"2.0","id":1,"method":"debug_traceBlockByNumber","params":["0x20"]}"#;
            while !ends.load(Ordering::Relaxed) {
                post(http, call, &[]);
            }
        });
        Self(is_over, Some(caller))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

#[test]
fn a_running_node_profiles_its_processor_and_its_heap() {
    let node = Node::with_chain_and("--profile-heap-enabled");
    let _load = Load::on(&node);
    let folder = node.dir.path("profiles");
    let made = node
        .dir
        .run("profile --seconds 1 --to", &[&folder])
        .succeeded();
    let names = ["cpu.svg", "cpu.pb.gz", "heap.svg", "heap.pb.gz"];
    for name in names {
        let file = folder.join(name);
        assert!(
            made.out.contains(&file.display().to_string()),
            "{}",
            made.out
        );
        assert!(std::fs::metadata(file).unwrap().len() > 100, "{name}");
    }
    // Nothing is written over.
    let again = node.dir.run("profile --seconds 1 --to", &[&folder]);
    again.failed(&["cpu.svg", "exists"]);

    let paths = node.result("debug_writeMemProfile", json!(["first"]));
    let svg = std::fs::read_to_string(paths[0].as_str().unwrap()).unwrap();
    assert!(svg.contains("bytes in use"));
    let memory = node.result("debug_memStats", json!([]));
    let of = |name: &str| memory[name].as_u64().unwrap();
    assert!(of("sampled") > 1 << 20, "{memory}");
    assert!(
        of("resident") <= of("peak") && of("allocated") <= of("active"),
        "{memory}"
    );
}

#[test]
fn names_and_times_of_profiles_are_bounded_and_the_heap_needs_its_flag() {
    let node = Node::with_chain();
    for name in ["../x", "a/b", ".x", "", "a b", &"x".repeat(65)] {
        let refused = node.call("debug_writeMemProfile", json!([name]));
        assert_eq!(refused["error"]["code"], -32602, "{name}");
    }
    for seconds in [json!(0), json!(601), json!("1"), Value::Null] {
        let refused = node.call("debug_cpuProfile", json!(["x", seconds]));
        assert_eq!(refused["error"]["code"], -32602, "{seconds}");
    }
    let refused = node.call("debug_writeMemProfile", json!(["x"]));
    let words = refused["error"]["message"].as_str().unwrap();
    assert!(words.contains("--profile-heap-enabled"), "{words}");
    assert_eq!(
        node.result("debug_memStats", json!([]))["sampled"],
        Value::Null
    );
    let refused = node.call("admin_profile", json!([1, "here"]));
    assert_eq!(refused["error"]["code"], -32602);
    let _load = Load::on(&node);
    let paths = node.result("debug_cpuProfile", json!(["mine", 1]));
    let folder = node.dir.data_path().join("profiles");
    assert_eq!(paths[0], folder.join("mine.svg").display().to_string());
}

#[test]
fn without_a_node_the_command_says_so() {
    let dir = TestDir::new();
    let run = dir.run("profile --seconds 1 --to", &[&dir.path("profiles")]);
    run.failed(&["no node runs", "--data-path"]);
}
