//! Lists as a machine: which name is asked for next, and what its answer means. No resolver, no clock.
//!
//! A list is walked at random and lazily: an entry is asked for only while candidates are wanted, so that a start costs tens of queries
//! and not the thousands of the whole list. Links come before records, because they are few and lead to more lists. At most 3 names
//! a second are asked for, one at a time.
//!
//! ```text
//! next_step -> Ask(query) -> the resolver -> answer | failed -> next_step -> Wait(until) ...
//! ```

use super::entry::{Entry, EntryError, EntryName, ListUrl, MAX_TEXT_BYTES, Root};
use crate::record::Record;
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::{HashMap, HashSet};

/// Between two queries: 3 a second.
const QUERY_PAUSE_MS: u64 = 334;

/// A root is asked for again after so long while there are too few peers, and otherwise.
const ROOT_AGAIN_MS: u64 = 30 * 60 * 1000;
const ROOT_AGAIN_IDLE_MS: u64 = 6 * 60 * 60 * 1000;

/// A root that could not be had is asked for again after so long; it doubles to [`ROOT_AGAIN_MS`].
const ROOT_RETRY_MS: u64 = 10_000;

/// Most lists, those that are linked to included.
const MAX_LISTS: usize = 16;

/// Most names of a list that are asked for in one walk.
const MAX_NAMES: usize = 16_384;

/// Most entries that are remembered: with at most 512 bytes each some 8 MiB.
const MAX_CACHED: usize = 16_384;

/// An entry that could not be had so often is left out until the next walk.
const MAX_FAILURES: u8 = 3;

/// A name to resolve: its TXT records are the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsQuery {
    /// The DNS name.
    pub name: String,
    list: usize,
    /// `None`: the root.
    entry: Option<Unvisited>,
}

/// An entry that was not visited in this walk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unvisited {
    name: EntryName,
    /// Of the tree of links.
    is_link: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Resolve a name, then call [`DnsTree::answer`] or [`DnsTree::failed`].
    Ask(DnsQuery),
    /// Nothing until this time (ms).
    Wait(u64),
    /// A record that was remembered: no query was needed.
    Found(Box<Record>),
}

/// Why an answer was of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// No text is one of the list.
    #[error("{name}: {error}")]
    Entry {
        /// The DNS name.
        name: String,
        /// What is wrong with the text that was closest.
        error: EntryError,
    },
    /// There was no text.
    #[error("{name} has no entry of a list")]
    Empty {
        /// The DNS name.
        name: String,
    },
    /// The root is older than one that was seen before.
    #[error("the root of {domain} has number {got}, {known} was seen before")]
    Old {
        /// The list.
        domain: String,
        /// Its number.
        got: u64,
        /// The number that was seen.
        known: u64,
    },
}

/// A list.
#[derive(Debug)]
struct List {
    url: ListUrl,
    root: Option<Root>,
    root_due_ms: u64,
    root_retry_ms: u64,
    unvisited: Vec<Unvisited>,
    /// Names that this walk has heard of.
    heard_of: HashSet<EntryName>,
    failures: HashMap<EntryName, u8>,
}

impl List {
    fn new(url: ListUrl) -> Self {
        Self {
            url,
            root: None,
            root_due_ms: 0,
            root_retry_ms: ROOT_RETRY_MS,
            unvisited: Vec::new(),
            heard_of: HashSet::new(),
            failures: HashMap::new(),
        }
    }

    /// Begins a walk at the root.
    fn restart(&mut self) {
        self.heard_of.clear();
        self.failures.clear();
        self.unvisited.clear();
        if let Some(root) = self.root.clone() {
            self.add(vec![root.links], true);
            self.add(vec![root.records], false);
        }
    }

    fn add(&mut self, names: Vec<EntryName>, is_link: bool) {
        for name in names {
            if self.heard_of.len() < MAX_NAMES && self.heard_of.insert(name.clone()) {
                self.unvisited.push(Unvisited { name, is_link });
            }
        }
    }

    /// Where the entries are of which one is visited next: of the links if there are any. `keep` says which come into question.
    fn candidates(&self, keep: impl Fn(&EntryName) -> bool) -> Vec<usize> {
        let all = self.unvisited.iter().enumerate();
        let all = all.filter(|(_, entry)| keep(&entry.name));
        let (links, records): (Vec<_>, Vec<_>) = all.partition(|(_, entry)| entry.is_link);
        let chosen = if links.is_empty() { records } else { links };
        chosen.into_iter().map(|(at, _)| at).collect()
    }
}

/// The lists.
#[derive(Debug)]
pub struct DnsTree {
    lists: Vec<List>,
    /// Texts by their names: the same for every list and every root, so that a new root costs only what is new.
    cache: HashMap<EntryName, String>,
    next_query_ms: u64,
    is_asking: bool,
    rng: SmallRng,
}

impl DnsTree {
    /// Lists to begin with; of more than 16 the first.
    pub fn new(urls: Vec<ListUrl>, rng: SmallRng) -> Self {
        let mut tree = Self {
            lists: Vec::new(),
            cache: HashMap::new(),
            next_query_ms: 0,
            is_asking: false,
            rng,
        };
        urls.into_iter().for_each(|url| tree.add_list(url));
        tree
    }

    fn add_list(&mut self, url: ListUrl) {
        let is_known = self.lists.iter().any(|list| list.url == url);
        if !is_known && self.lists.len() < MAX_LISTS {
            self.lists.push(List::new(url));
        }
    }

    /// The texts that are remembered, for a file.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.cache.values().map(String::as_str)
    }

    /// Remembers texts of a file. They are trusted no further than those of a resolver: a text is found by its hash alone.
    pub fn restore(&mut self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.remember(EntryName::of(&text), text);
        }
    }

    fn remember(&mut self, name: EntryName, text: String) {
        if text.len() > MAX_TEXT_BYTES {
            return;
        }
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        self.cache.insert(name, text);
    }

    /// What is to be done at `now_ms`. `is_wanting`: there are too few peers, so that records are looked for.
    pub fn next_step(&mut self, now_ms: u64, is_wanting: bool) -> NextStep {
        if self.is_asking {
            return NextStep::Wait(u64::MAX);
        }
        if let Some(found) = self.walk_remembered(is_wanting) {
            return NextStep::Found(found);
        }
        let roots = self.lists.iter().map(|list| list.root_due_ms);
        let next_root_ms = roots.min().unwrap_or(u64::MAX);
        let is_due = |list: &List| list.root_due_ms <= now_ms;
        let due = self.lists.iter().position(is_due);
        if due.is_none() && !(is_wanting && self.has_unvisited()) {
            return NextStep::Wait(next_root_ms);
        }
        if now_ms < self.next_query_ms {
            return NextStep::Wait(self.next_query_ms);
        }
        let query = match due {
            Some(list) => Some((list, None)),
            None => self.take_unvisited(),
        };
        let Some((list, entry)) = query else {
            return NextStep::Wait(next_root_ms);
        };
        let domain = self.lists.get(list).map_or("", |list| list.url.domain());
        let name = match &entry {
            None => domain.to_owned(),
            Some(entry) => format!("{}.{domain}", entry.name),
        };
        self.is_asking = true;
        self.next_query_ms = now_ms + QUERY_PAUSE_MS;
        NextStep::Ask(DnsQuery { name, list, entry })
    }

    fn has_unvisited(&self) -> bool {
        self.lists.iter().any(|list| !list.unvisited.is_empty())
    }

    /// Takes a random entry of a random list.
    fn take_unvisited(&mut self) -> Option<(usize, Option<Unvisited>)> {
        let lists = self.lists.iter().enumerate();
        let lists = lists.filter(|(_, list)| !list.unvisited.is_empty());
        let lists: Vec<usize> = lists.map(|(at, _)| at).collect();
        let at = *lists.get(self.rng.random_range(0..lists.len().max(1)))?;
        let list = self.lists.get_mut(at)?;
        let candidates = list.candidates(|_| true);
        let chosen = self.rng.random_range(0..candidates.len().max(1));
        let entry = list.unvisited.swap_remove(*candidates.get(chosen)?);
        Some((at, Some(entry)))
    }

    /// Visits entries that are remembered, until one is a record.
    fn walk_remembered(&mut self, is_wanting: bool) -> Option<Box<Record>> {
        let mut at = 0;
        while is_wanting && at < self.lists.len() {
            let list = self.lists.get_mut(at)?;
            let candidates = list.candidates(|name| self.cache.contains_key(name));
            let chosen = self.rng.random_range(0..candidates.len().max(1));
            let Some(chosen) = candidates.get(chosen) else {
                at += 1;
                continue;
            };
            let entry = list.unvisited.swap_remove(*chosen);
            let text = self.cache.get(&entry.name).cloned().unwrap_or_default();
            if let Ok(Some(record)) = self.visit(at, &entry, &text) {
                return Some(record);
            }
        }
        None
    }

    /// What an entry says: more names, another list, or a record, which is returned.
    fn visit(
        &mut self,
        list: usize,
        entry: &Unvisited,
        text: &str,
    ) -> Result<Option<Box<Record>>, EntryError> {
        let is_link = entry.is_link;
        match (Entry::parse(text, &entry.name)?, is_link) {
            (Entry::Branch(names), _) => {
                if let Some(list) = self.lists.get_mut(list) {
                    list.add(names, is_link);
                }
                Ok(None)
            }
            (Entry::Link(url), true) => {
                self.add_list(url);
                Ok(None)
            }
            (Entry::Record(record), false) => Ok(Some(record)),
            (Entry::Link(_), false) | (Entry::Record(_), true) => {
                Err(EntryError::Syntax("an entry in the wrong tree"))
            }
        }
    }

    /// The TXT records of a name, each joined of its strings. Returns the record that was found, if it was one.
    ///
    /// # Errors
    /// [`AnswerError`]; the walk goes on without the entry, or with the old root.
    pub fn answer(
        &mut self,
        query: &DnsQuery,
        texts: &[String],
        now_ms: u64,
        is_wanting: bool,
    ) -> Result<Option<Box<Record>>, AnswerError> {
        self.is_asking = false;
        let Some(entry) = &query.entry else {
            let taken = self.take_root(query, texts, now_ms, is_wanting);
            if taken.is_err() {
                self.retry_root(query.list, now_ms);
            }
            return taken.map(|()| None);
        };
        let Some(text) = texts.iter().find(|text| entry.name.names(text)) else {
            self.retry(query.list, entry);
            let name = query.name.clone();
            return Err(match texts.is_empty() {
                true => AnswerError::Empty { name },
                false => AnswerError::Entry {
                    name,
                    error: EntryError::Hash,
                },
            });
        };
        self.remember(entry.name.clone(), text.clone());
        let visited = self.visit(query.list, entry, text);
        visited.map_err(|error| AnswerError::Entry {
            name: query.name.clone(),
            error,
        })
    }

    fn take_root(
        &mut self,
        query: &DnsQuery,
        texts: &[String],
        now_ms: u64,
        is_wanting: bool,
    ) -> Result<(), AnswerError> {
        let again_ms = match is_wanting {
            true => ROOT_AGAIN_MS,
            false => ROOT_AGAIN_IDLE_MS,
        };
        let again_ms = self.jittered(again_ms);
        let Some(list) = self.lists.get_mut(query.list) else {
            return Ok(());
        };
        let claimed = texts.iter().filter(|text| Root::is_claimed_by(text));
        let mut roots = claimed.map(|text| Root::parse(text, &list.url));
        let root = match roots.clone().find_map(Result::ok) {
            Some(root) => root,
            None => {
                let name = query.name.clone();
                return Err(match roots.next() {
                    Some(Err(error)) => AnswerError::Entry { name, error },
                    _ => AnswerError::Empty { name },
                });
            }
        };
        let known = list.root.as_ref().map_or(0, |root| root.seq);
        if root.seq < known {
            return Err(AnswerError::Old {
                domain: list.url.domain().into(),
                got: root.seq,
                known,
            });
        }
        list.root_retry_ms = ROOT_RETRY_MS;
        list.root_due_ms = now_ms + again_ms;
        if list.root.as_ref() != Some(&root) || list.unvisited.is_empty() {
            list.root = Some(root);
            list.restart();
        }
        Ok(())
    }

    fn retry_root(&mut self, list: usize, now_ms: u64) {
        let Some(retry_ms) = self.lists.get(list).map(|list| list.root_retry_ms) else {
            return;
        };
        let due_ms = now_ms + self.jittered(retry_ms);
        if let Some(list) = self.lists.get_mut(list) {
            list.root_due_ms = due_ms;
            list.root_retry_ms = (retry_ms * 2).min(ROOT_AGAIN_MS);
        }
    }

    fn retry(&mut self, list: usize, entry: &Unvisited) {
        if let Some(list) = self.lists.get_mut(list) {
            let failures = list.failures.entry(entry.name.clone()).or_insert(0);
            *failures = failures.saturating_add(1);
            if *failures < MAX_FAILURES {
                list.unvisited.push(entry.clone());
            }
        }
    }

    /// A name could not be resolved in time.
    pub fn failed(&mut self, query: &DnsQuery, now_ms: u64) {
        self.is_asking = false;
        match &query.entry {
            None => self.retry_root(query.list, now_ms),
            Some(entry) => self.retry(query.list, entry),
        }
    }

    /// Up to a quarter more or less, so that nodes which began together don't ask together.
    fn jittered(&mut self, ms: u64) -> u64 {
        ms - ms / 4 + self.rng.random_range(0..=ms / 2)
    }
}

#[cfg(test)]
mod tests;
