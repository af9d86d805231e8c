//! The task on a resolver in memory, with a paused clock: it moves on when every task waits.

use super::*;
use crate::discovery::dns::example::*;
use crate::key::NodeId;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Mutex;

/// How the resolver answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Answers,
    Fails,
    Hangs,
}

#[derive(Debug, Default)]
struct Server {
    zone: Zone,
    mood: Mood,
    asked: Vec<(Instant, String)>,
}

/// A task with its resolver.
struct Bench {
    server: Arc<Mutex<Server>>,
    wanted: watch::Sender<bool>,
    dns: Dns,
}

type Texts = Result<Vec<String>, String>;

impl Bench {
    fn start(zone: Zone, mood: Mood, path: Option<PathBuf>) -> Self {
        Self::within(NetRestrict::default(), zone, mood, path)
    }

    fn within(net_restrict: NetRestrict, zone: Zone, mood: Mood, path: Option<PathBuf>) -> Self {
        let server = Server {
            zone,
            mood,
            ..Server::default()
        };
        let server = Arc::new(Mutex::new(server));
        let (wanted, is_wanting) = watch::channel(true);
        let config = DnsConfig {
            lists: vec![url_of(&key(999), DOMAIN)],
            is_wanting,
            net_restrict,
            prefers_ipv6: false,
            path,
        };
        let asked = Arc::clone(&server);
        let dns = start(config, move |name| resolve(&asked, name));
        Self {
            server,
            wanted,
            dns,
        }
    }

    fn set_mood(&self, mood: Mood) {
        self.server.lock().unwrap().mood = mood;
    }

    fn asked(&self) -> Vec<(Instant, String)> {
        self.server.lock().unwrap().asked.clone()
    }

    /// What is found within so many minutes.
    async fn found(&mut self, minutes: u64) -> Vec<NodeId> {
        let mut found = Vec::new();
        let all = async {
            while let Some(DiscoveryEvent::Found(node)) = self.dns.events.recv().await {
                assert_eq!(node.record.unwrap().id(), node.node.id);
                found.push(node.node.id);
            }
        };
        let _ = timeout(Duration::from_secs(60 * minutes), all).await;
        found
    }
}

fn resolve(
    server: &Arc<Mutex<Server>>,
    name: String,
) -> Pin<Box<dyn Future<Output = Texts> + Send>> {
    let mut server = server.lock().unwrap();
    server.asked.push((Instant::now(), name.clone()));
    let texts = server.zone.0.get(&name).cloned().unwrap_or_default();
    match server.mood {
        Mood::Answers => Box::pin(async { Ok(texts) }),
        Mood::Fails => Box::pin(async { Err("no network".to_owned()) }),
        Mood::Hangs => Box::pin(std::future::pending()),
    }
}

fn zone(seq: u64, numbers: std::ops::Range<usize>) -> Zone {
    let mut zone = Zone::default();
    zone.put_list(&key(999), DOMAIN, seq, records(numbers), Vec::new());
    zone
}

fn set(found: Vec<NodeId>) -> BTreeSet<NodeId> {
    found.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn all_50_records_are_found_by_at_most_3_queries_a_second() {
    let mut bench = Bench::start(zone(1, 0..50), Mood::Answers, None);
    let found = bench.found(5).await;
    assert_eq!((found.len(), set(found)), (50, ids(0..50)));
    let asked = bench.asked();
    for pair in asked.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= Duration::from_millis(333));
    }
    let expected = DnsQueries {
        answered: asked.len() as u64,
        refused: 0,
        failed: 0,
    };
    assert_eq!(bench.dns.figures.queries(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_query_without_an_answer_is_given_up_after_7_seconds() {
    let mut bench = Bench::start(zone(1, 0..9), Mood::Hangs, None);
    assert!(bench.found(1).await.is_empty());
    let asked = bench.asked();
    // The root is asked for again 10 s later, a quarter more or less.
    let gap = (asked[1].0 - asked[0].0).as_millis();
    assert!((14_500..=19_600).contains(&gap), "{gap}");
    assert!(bench.dns.figures.queries().failed >= 2);
    bench.set_mood(Mood::Answers);
    assert_eq!(set(bench.found(10).await), ids(0..9));
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_was_changed_on_the_way_is_dropped() {
    let mut zone = zone(1, 0..10);
    let name = zone.0.iter().find(|(_, texts)| texts[0] == record_text(3));
    let name = name.unwrap().0.clone();
    zone.0.insert(name, vec![record_text(77)]);
    let mut bench = Bench::start(zone, Mood::Answers, None);
    let found = set(bench.found(10).await);
    assert_eq!(found.len(), 9);
    assert!(!found.contains(&key(77).id()) && !found.contains(&key(3).id()));
    assert_eq!(bench.dns.figures.queries().refused, 3);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_goes_back_to_an_older_number_is_refused() {
    let mut bench = Bench::start(zone(2, 0..5), Mood::Answers, None);
    assert_eq!(set(bench.found(10).await), ids(0..5));
    bench.server.lock().unwrap().zone = zone(1, 20..25);
    assert!(bench.found(180).await.is_empty());
    assert!(bench.dns.figures.queries().refused >= 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_saved_entries_are_not_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = || Some(folder.path().join("dns"));
    let mut first = Bench::start(zone(1, 0..20), Mood::Answers, path());
    assert_eq!(set(first.found(10).await), ids(0..20));
    drop(first);
    for mood in [Mood::Answers, Mood::Fails] {
        let mut second = Bench::start(zone(1, 0..20), mood, path());
        let found = second.found(10).await;
        assert_eq!((found.len(), set(found)), (20, ids(0..20)), "{mood:?}");
        let asked = second.asked();
        assert!(asked.iter().all(|asked| asked.1 == DOMAIN), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_fails_for_an_hour_is_asked_30_times_at_most_and_then_used() {
    let mut bench = Bench::start(zone(1, 0..9), Mood::Fails, None);
    assert!(bench.found(60).await.is_empty());
    let asked = bench.asked().len();
    assert!((8..=30).contains(&asked), "{asked}");
    bench.set_mood(Mood::Answers);
    assert_eq!(set(bench.found(60).await), ids(0..9));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_file_is_left_aside_and_replaced_and_changed_lines_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns");
    std::fs::write(&path, [0xff; 500]).unwrap();
    let mut first = Bench::start(zone(1, 0..20), Mood::Answers, Some(path.clone()));
    assert_eq!(set(first.found(10).await), ids(0..20));
    drop(first);
    let lines = cache::load(&path).unwrap();
    let poisoned = lines.into_iter().map(|line| match line == record_text(3) {
        true => record_text(77),
        false => line,
    });
    cache::write(&path, poisoned).unwrap();
    let mut second = Bench::start(zone(1, 0..20), Mood::Answers, Some(path));
    assert_eq!(set(second.found(10).await), ids(0..20));
    assert_eq!(second.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_no_records_are_wanted_only_the_root_is_asked_for() {
    let mut bench = Bench::start(zone(1, 0..9), Mood::Answers, None);
    bench.wanted.send_replace(false);
    assert!(bench.found(60).await.is_empty());
    assert_eq!(bench.asked().len(), 1);
    bench.wanted.send_replace(true);
    assert_eq!(set(bench.found(5).await), ids(0..9));
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_owner() {
    let bench = Bench::start(zone(1, 0..9), Mood::Answers, None);
    let Bench {
        server,
        wanted,
        dns,
    } = bench;
    drop(dns);
    wanted.closed().await;
    assert_eq!(Arc::strong_count(&server), 1);
}

#[tokio::test(start_paused = true)]
async fn the_operator_hears_of_the_same_trouble_once_an_hour() {
    let mut line = HeldBack::default();
    let mut said = 0;
    for _ in 0..3 * 60 {
        said += u32::from(line.may_say());
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    assert_eq!(said, 3);
}

#[tokio::test(start_paused = true)]
async fn records_outside_of_the_networks_are_read_and_not_handed_out() {
    let elsewhere: NetRestrict = "192.0.2.0/24".parse().into_iter().collect();
    let mut bench = Bench::within(elsewhere, zone(1, 0..9), Mood::Answers, None);
    assert!(bench.found(5).await.is_empty());
    assert!(bench.dns.figures.queries().answered > 9);
}
