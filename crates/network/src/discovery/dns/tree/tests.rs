//! Lists walked with a resolver in memory.

use super::*;
use crate::discovery::dns::example::*;
use crate::key::NodeId;
use rand::SeedableRng;
use std::collections::BTreeSet;

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
            NextStep::Again => continue,
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
                    Some(texts) => match tree.answer(&query, texts, now_ms) {
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
    let saved: Vec<String> = first.lines().collect();
    let mut second = tree(urls);
    second.restore(saved);
    let walk = walk(&mut second, &zone, 0..MINUTE_MS, true);
    assert_eq!(walk.found.len(), 20);
    assert_eq!(walk.asked.len(), 1);
}

#[test]
fn with_a_saved_root_a_node_that_resolves_nothing_finds_what_is_saved() {
    let mut zone = Zone::default();
    zone.put_list(&key(999), DOMAIN, 3, records(0..20), Vec::new());
    let urls = vec![url_of(&key(999), DOMAIN)];
    let mut first = tree(urls.clone());
    walk(&mut first, &zone, 0..10 * MINUTE_MS, true);
    let saved: Vec<String> = first.lines().collect();
    let mut second = tree(urls.clone());
    second.restore(saved.clone());
    let found = walk(&mut second, &Zone::default(), 0..MINUTE_MS, true).found;
    assert_eq!(found.len(), 20);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), ids(0..20));

    // The number of the saved root holds against an older one, and the root of another domain is not taken.
    let (mut old, mut third) = (Zone::default(), tree(urls));
    old.put_list(&key(999), DOMAIN, 2, records(0..20), Vec::new());
    third.restore(saved.clone());
    let errors = walk(&mut third, &old, 0..MINUTE_MS, true).errors;
    assert!(matches!(
        errors[0],
        AnswerError::Old {
            got: 2,
            known: 3,
            ..
        }
    ));
    let mut other = tree(vec![url_of(&key(999), "other.example.org")]);
    other.restore(saved);
    assert_eq!(other.lists[0].root, None);
}

#[test]
fn an_hour_without_a_resolver_costs_at_most_30_queries_and_loses_no_record() {
    let mut zone = Zone::default();
    zone.put_list(&key(999), DOMAIN, 1, records(0..50), Vec::new());
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let first = walk(&mut tree, &zone, 0..5_000, true);
    let dark = walk(&mut tree, &Zone::default(), 5_000..65 * MINUTE_MS, true);
    assert!(dark.asked.len() <= 30, "{:?}", dark.asked);
    let rest = walk(&mut tree, &zone, 65 * MINUTE_MS..180 * MINUTE_MS, true);
    let found = first.found.into_iter().chain(rest.found);
    assert_eq!(found.collect::<BTreeSet<_>>(), ids(0..50));
}

#[test]
fn a_root_of_3_hours_is_asked_for_as_soon_as_records_are_wanted() {
    let mut zone = Zone::default();
    zone.put_list(&key(999), DOMAIN, 1, records(0..5), Vec::new());
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let idle = walk(&mut tree, &zone, 0..180 * MINUTE_MS, false);
    assert_eq!(idle.asked.len(), 1);
    let wanting = walk(&mut tree, &zone, 180 * MINUTE_MS..181 * MINUTE_MS, true);
    assert_eq!(wanting.asked[0].1, DOMAIN);
    assert_eq!(wanting.found.len(), 5);
}

#[test]
fn the_memory_of_entries_is_bounded_in_their_number_and_bytes() {
    let mut tree = tree(Vec::new());
    tree.restore((0..3 * MAX_CACHED).map(|number| format!("enr:{number}")));
    assert!(tree.cache.len() <= MAX_CACHED);
    let long = |number: u64| format!("enr:{number:04000}");
    tree.restore((0..5_000).map(long));
    let bytes: usize = tree.cache.values().map(String::len).sum();
    assert_eq!(bytes, tree.cached_bytes);
    assert!(bytes <= MAX_CACHED_BYTES);
}

#[test]
fn fifteen_lists_that_can_not_be_resolved_do_not_hold_up_the_one_that_can() {
    let mut zone = Zone::default();
    let links = (0..40).map(|number| url_of(&key(number), &format!("l{number}.org")).to_string());
    zone.put_list(&key(999), DOMAIN, 1, records(0..50), links.collect());
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let walk = walk(&mut tree, &zone, 0..4 * MINUTE_MS, true);
    assert_eq!(walk.found.into_iter().collect::<BTreeSet<_>>(), ids(0..50));
}

#[test]
fn one_step_visits_at_most_32_remembered_entries() {
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    let names = (0..MAX_NAMES).map(|number| EntryName::of(&number.to_string()));
    tree.lists[0].add(names.collect(), false);
    let left = |tree: &DnsTree| tree.lists[0].unvisited.records.len();
    while left(&tree) > 0 {
        let before = left(&tree);
        assert_eq!(tree.next_step(0, true), NextStep::Again);
        assert_eq!(before - left(&tree), MAX_VISITS);
    }
    assert!(matches!(tree.next_step(0, true), NextStep::Ask(_)));
    assert_eq!(tree.lists[0].missing.records.len(), MAX_NAMES);
}

const OTHERS: [&str; 2] = ["b.example.org", "c.example.org"];

/// Two lists, and one that links to that of this number.
fn linking(seq: u64, number: usize) -> Zone {
    let mut zone = Zone::default();
    for (at, domain) in OTHERS.into_iter().enumerate() {
        let records = records(10 * at + 10..10 * at + 14);
        zone.put_list(&key(998), domain, 1, records, Vec::new());
    }
    let link = url_of(&key(998), OTHERS[number]).to_string();
    zone.put_list(&key(999), DOMAIN, seq, records(0..4), vec![link]);
    zone
}

fn domains(tree: &DnsTree) -> Vec<&str> {
    tree.lists.iter().map(|list| list.url.domain()).collect()
}

#[test]
fn a_list_to_which_nothing_links_any_more_is_dropped_and_a_lost_answer_drops_none() {
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    walk(&mut tree, &linking(1, 0), 0..10 * MINUTE_MS, true);
    assert_eq!(domains(&tree), [DOMAIN, OTHERS[0]]);

    let mut dark = linking(2, 1);
    let link = url_of(&key(998), OTHERS[1]).to_string();
    let lost = format!("{}.{DOMAIN}", EntryName::of(&link));
    let branch = format!("enrtree-branch:{}", EntryName::of(&link));
    let lost_branch = format!("{}.{DOMAIN}", EntryName::of(&branch));
    dark.0
        .retain(|name, _| *name != lost && *name != lost_branch);
    walk(&mut tree, &dark, 10 * MINUTE_MS..80 * MINUTE_MS, true);
    assert_eq!(tree.lists[0].root.as_ref().map(|root| root.seq), Some(2));
    assert_eq!(domains(&tree), [DOMAIN, OTHERS[0]]);

    walk(
        &mut tree,
        &linking(3, 1),
        80 * MINUTE_MS..160 * MINUTE_MS,
        true,
    );
    assert_eq!(domains(&tree), [DOMAIN, OTHERS[1]]);
}

#[test]
fn a_dropped_list_makes_room_for_one_that_had_none() {
    let mut zone = Zone::default();
    let link = |number: u16| url_of(&key(number), &format!("l{number}.org")).to_string();
    zone.put_list(
        &key(999),
        DOMAIN,
        1,
        Vec::new(),
        (0..15).map(link).collect(),
    );
    let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
    walk(&mut tree, &zone, 0..10 * MINUTE_MS, true);
    assert_eq!(tree.lists.len(), MAX_LISTS);
    zone.put_list(&key(999), DOMAIN, 2, Vec::new(), vec![link(20)]);
    walk(&mut tree, &zone, 10 * MINUTE_MS..80 * MINUTE_MS, true);
    assert_eq!(domains(&tree), [DOMAIN, "l20.org"]);
}

#[test]
fn the_saved_root_of_a_linked_list_holds_after_a_restart_and_is_saved_again() {
    let urls = vec![url_of(&key(999), DOMAIN)];
    let mut first = tree(urls.clone());
    walk(&mut first, &linking(1, 0), 0..10 * MINUTE_MS, true);
    let saved: Vec<String> = first.lines().collect();
    let mut second = tree(urls);
    second.restore(saved.clone());
    let again: BTreeSet<String> = second.lines().collect();
    assert_eq!(again, saved.into_iter().collect());
    let found = walk(&mut second, &Zone::default(), 0..MINUTE_MS, true).found;
    let expected: BTreeSet<_> = ids(0..4).into_iter().chain(ids(10..14)).collect();
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    assert!(second.saved_roots.is_empty());
}

#[test]
fn roots_that_are_saved_for_unknown_lists_are_at_most_16() {
    let mut zone = Zone::default();
    let mut tree = tree(Vec::new());
    for number in 0..40 {
        let domain = format!("l{number}.org");
        zone.put_list(&key(number), &domain, 1, Vec::new(), Vec::new());
        let root = &zone.0[&domain][1];
        tree.restore([format!("{} {root}", url_of(&key(number), &domain))]);
    }
    assert_eq!(tree.saved_roots.len(), MAX_LISTS);
}

#[test]
fn one_list_that_is_answered_shows_that_the_resolver_works() {
    let zone = linking(1, 0);
    let mut half = zone.clone();
    half.0.retain(|name, _| !name.ends_with(OTHERS[0]));
    for (zone, expected) in [(zone, true), (half, true), (Zone::default(), false)] {
        let mut tree = tree(vec![url_of(&key(999), DOMAIN)]);
        walk(&mut tree, &zone, 0..10 * MINUTE_MS, true);
        assert_eq!(tree.is_any_answered(), expected);
    }
}
