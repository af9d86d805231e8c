//! Lists walked with a resolver in memory.

use super::*;
use crate::discovery::dns::example::{ENTRIES, ROOT_TEXT, URL};
use crate::key::{NodeId, NodeKey};
use crate::record::RecordEntries;
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use niwaki_crypto::keccak256;
use niwaki_primitives::B256;
use rand::SeedableRng;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// TXT records by names.
#[derive(Clone, Default)]
struct Zone(HashMap<String, Vec<String>>);

fn key(number: u16) -> NodeKey {
    NodeKey::new(B256::left_padding_from(&(number + 1).to_be_bytes())).unwrap()
}

fn url_of(key: &NodeKey, domain: &str) -> ListUrl {
    let mut compressed = [0; 33];
    compressed[0] = 2 + (key.id().0[63] & 1);
    compressed[1..].copy_from_slice(&key.id().0[..32]);
    let key = BASE32_NOPAD.encode(&compressed);
    format!("enrtree://{key}@{domain}").parse().unwrap()
}

/// Records of the first hundred keys, signed once: each signature is another one.
fn record_text(number: usize) -> String {
    static RECORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let entries = RecordEntries::default();
        let records = (0..100).map(|number| Record::sign(&key(number), 1, &entries));
        records.map(|record| record.unwrap().to_string()).collect()
    });
    RECORDS[number].clone()
}

impl Zone {
    fn put(&mut self, domain: &str, text: String) -> EntryName {
        let name = EntryName::of(&text);
        self.0.insert(format!("{name}.{domain}"), vec![text]);
        name
    }

    /// A tree of branches of three over these texts.
    fn put_tree(&mut self, domain: &str, texts: Vec<String>) -> EntryName {
        let mut names: Vec<_> = texts
            .into_iter()
            .map(|text| self.put(domain, text))
            .collect();
        loop {
            let branches = names.chunks(3).map(|names| {
                let names: Vec<String> = names.iter().map(EntryName::to_string).collect();
                format!("enrtree-branch:{}", names.join(","))
            });
            let branches: Vec<String> = branches.collect();
            match &branches[..] {
                [] => return self.put(domain, "enrtree-branch:".into()),
                [root] => return self.put(domain, root.clone()),
                _ => {
                    names = branches
                        .into_iter()
                        .map(|text| self.put(domain, text))
                        .collect()
                }
            }
        }
    }

    fn put_list(
        &mut self,
        key: &NodeKey,
        domain: &str,
        seq: u64,
        records: Vec<String>,
        links: Vec<String>,
    ) {
        let (e, l) = (self.put_tree(domain, records), self.put_tree(domain, links));
        let signed = format!("enrtree-root:v1 e={e} l={l} seq={seq}");
        let signature = BASE64URL_NOPAD.encode(&key.sign(&keccak256(&signed)));
        let texts = ["v=spf1 -all".into(), format!("{signed} sig={signature}")];
        self.0.insert(domain.into(), texts.into());
    }
}

/// A walk: what was found, and what was asked at which time.
#[derive(Default)]
struct Walk {
    found: Vec<NodeId>,
    asked: Vec<(u64, String)>,
    errors: Vec<AnswerError>,
}

fn walk(tree: &mut DnsTree, zone: &Zone, times_ms: std::ops::Range<u64>, is_wanting: bool) -> Walk {
    let mut walk = Walk::default();
    let mut now_ms = times_ms.start;
    while now_ms < times_ms.end {
        let found = match tree.next_step(now_ms, is_wanting) {
            NextStep::Wait(until_ms) => {
                assert!(until_ms > now_ms);
                now_ms = until_ms;
                continue;
            }
            NextStep::Found(record) => Some(record),
            NextStep::Ask(query) => {
                // One at a time.
                assert_eq!(tree.next_step(now_ms, true), NextStep::Wait(u64::MAX));
                walk.asked.push((now_ms, query.name.clone()));
                now_ms += 20;
                match zone.0.get(&query.name) {
                    None => {
                        tree.failed(&query, now_ms);
                        None
                    }
                    Some(texts) => match tree.answer(&query, texts, now_ms, is_wanting) {
                        Ok(record) => record,
                        Err(error) => {
                            walk.errors.push(error);
                            None
                        }
                    },
                }
            }
        };
        walk.found.extend(found.map(|record| record.id()));
    }
    walk
}

fn tree(urls: Vec<ListUrl>) -> DnsTree {
    DnsTree::new(urls, SmallRng::seed_from_u64(1))
}

fn ids(numbers: std::ops::Range<u16>) -> BTreeSet<NodeId> {
    numbers.map(|number| key(number).id()).collect()
}

fn records(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(record_text).collect()
}

const DOMAIN: &str = "list.example.org";
const MINUTE_MS: u64 = 60_000;

#[test]
fn the_list_of_the_specification_gives_three_records_and_a_link() {
    let mut zone = Zone::default();
    for (name, text) in ENTRIES {
        zone.0
            .insert(format!("{name}.nodes.example.org"), vec![text.into()]);
    }
    zone.0
        .insert("nodes.example.org".into(), vec![ROOT_TEXT.into()]);
    let mut tree = tree(vec![URL.parse().unwrap()]);
    let walk = walk(&mut tree, &zone, 0..MINUTE_MS, true);
    assert_eq!(walk.found.len(), 3, "{:?}", walk.errors);
    assert_eq!(tree.lists.len(), 2);
    assert_eq!(tree.lists[1].url.domain(), "morenodes.example.org");
}

#[test]
fn a_wanting_walk_finds_each_record_once_with_at_most_3_queries_a_second() {
    let mut zone = Zone::default();
    zone.put_list(&key(999), DOMAIN, 1, records(0..50), Vec::new());
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let walk = walk(&mut tree, &zone, 0..10 * MINUTE_MS, true);
    assert_eq!(walk.found.len(), 50);
    assert_eq!(walk.found.into_iter().collect::<BTreeSet<_>>(), ids(0..50));
    let names: BTreeSet<_> = walk.asked.iter().map(|asked| &asked.1).collect();
    assert_eq!(names.len(), walk.asked.len());
    for pair in walk.asked.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= QUERY_PAUSE_MS);
    }
}

#[test]
fn a_node_with_enough_peers_asks_for_the_root_alone_every_6_hours() {
    let mut zone = Zone::default();
    zone.put_list(&key(999), DOMAIN, 1, records(0..50), Vec::new());
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let walk = walk(&mut tree, &zone, 0..48 * 60 * MINUTE_MS, false);
    assert!((7..=11).contains(&walk.asked.len()), "{}", walk.asked.len());
    assert!(walk.asked.iter().all(|asked| asked.1 == DOMAIN));
    assert!(walk.found.is_empty());
}

#[test]
fn a_changed_entry_is_dropped_and_asked_for_three_times() {
    let mut zone = Zone::default();
    zone.put_list(&key(999), DOMAIN, 1, records(0..10), Vec::new());
    let name = format!("{}.{DOMAIN}", EntryName::of(&record_text(3)));
    zone.0.insert(name.clone(), vec![record_text(77)]);
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let walk = walk(&mut tree, &zone, 0..10 * MINUTE_MS, true);
    assert_eq!(walk.found.len(), 9);
    let asked = walk.asked.iter().filter(|asked| asked.1 == name);
    assert_eq!(asked.count(), 3);
    let expected = AnswerError::Entry {
        name,
        error: EntryError::Hash,
    };
    assert_eq!(walk.errors, vec![expected; 3]);
}

#[test]
fn a_newer_root_costs_only_what_is_new_and_an_older_one_is_refused() {
    let (mut old, mut new) = (Zone::default(), Zone::default());
    old.put_list(&key(999), DOMAIN, 1, records(0..9), Vec::new());
    new.put_list(&key(999), DOMAIN, 2, records(0..10), Vec::new());
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let first = walk(&mut tree, &old, 0..20 * MINUTE_MS, true);
    assert_eq!(first.found.len(), 9);
    let second = walk(&mut tree, &new, 20 * MINUTE_MS..60 * MINUTE_MS, true);
    let found: BTreeSet<_> = second.found.into_iter().collect();
    assert_eq!(found, ids(0..10));
    // The root, the branch above the three old branches and the new one, the new branch, the record.
    let texts: Vec<_> = second
        .asked
        .iter()
        .filter(|asked| asked.1 != DOMAIN)
        .collect();
    assert!(texts.len() <= 4, "{texts:?}");
    let third = walk(&mut tree, &old, 60 * MINUTE_MS..120 * MINUTE_MS, true);
    let expected = AnswerError::Old {
        domain: DOMAIN.into(),
        got: 1,
        known: 2,
    };
    assert_eq!(third.errors.first(), Some(&expected));
}

#[test]
fn a_root_of_another_key_leads_nowhere() {
    let mut zone = Zone::default();
    zone.put_list(&key(998), DOMAIN, 1, records(0..5), Vec::new());
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let walk = walk(&mut tree, &zone, 0..10 * MINUTE_MS, true);
    assert!(walk.found.is_empty());
    assert!(walk.asked.iter().all(|asked| asked.1 == DOMAIN));
    // 10 s, 20 s, 40 s .. with a quarter of jitter.
    assert!((5..=8).contains(&walk.asked.len()), "{:?}", walk.asked);
    assert!(matches!(
        &walk.errors[0],
        AnswerError::Entry {
            error: EntryError::Signature,
            ..
        }
    ));
}

#[test]
fn links_are_followed_and_two_lists_that_link_to_each_other_end() {
    let mut zone = Zone::default();
    let (a, b) = ("a.example.org", "b.example.org");
    let link = |to, domain| vec![url_of(&key(to), domain).to_string()];
    zone.put_list(&key(998), a, 1, records(0..4), link(999, b));
    zone.put_list(&key(999), b, 1, records(4..8), link(998, a));
    let mut tree = tree(vec![url_of(&key(998), a)]);
    let walk = walk(&mut tree, &zone, 0..10 * MINUTE_MS, true);
    assert_eq!(walk.found.into_iter().collect::<BTreeSet<_>>(), ids(0..8));
    assert_eq!(tree.lists.len(), 2);
}

#[test]
fn at_most_16_lists_are_followed() {
    let mut zone = Zone::default();
    let links = (0..40).map(|number| url_of(&key(number), &format!("l{number}.org")).to_string());
    zone.put_list(&key(999), DOMAIN, 1, records(0..1), links.collect());
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    walk(&mut tree, &zone, 0..10 * MINUTE_MS, true);
    assert_eq!(tree.lists.len(), MAX_LISTS);
}

#[test]
fn records_in_the_tree_of_links_and_links_in_that_of_records_are_refused() {
    let mut zone = Zone::default();
    let link = url_of(&key(998), "other.org").to_string();
    zone.put_list(&key(999), DOMAIN, 1, vec![link], records(0..1));
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let walk = walk(&mut tree, &zone, 0..MINUTE_MS, true);
    assert!(walk.found.is_empty());
    assert_eq!(walk.errors.len(), 2);
    assert_eq!(tree.lists.len(), 1);
}

#[test]
fn texts_of_a_file_save_all_queries_but_that_of_the_root() {
    let mut zone = Zone::default();
    zone.put_list(&key(999), DOMAIN, 1, records(0..20), Vec::new());
    let urls = vec![url_of(&key(999), DOMAIN)];
    let mut first = tree(urls.clone());
    walk(&mut first, &zone, 0..10 * MINUTE_MS, true);
    let saved: Vec<String> = first.texts().map(str::to_owned).collect();
    let mut second = tree(urls);
    second.restore(saved);
    let walk = walk(&mut second, &zone, 0..MINUTE_MS, true);
    assert_eq!(walk.found.len(), 20);
    assert_eq!(walk.asked.len(), 1);
}
