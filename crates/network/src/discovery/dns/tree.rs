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
pub(super) const MAX_LISTS: usize = 16;

/// Most names of a list that are asked for in one walk.
const MAX_NAMES: usize = 16_384;

/// Most entries that are remembered, and their bytes.
pub(super) const MAX_CACHED: usize = 16_384;
pub(super) const MAX_CACHED_BYTES: usize = 8 << 20;

/// After a name that could not be resolved its list is left alone for so long; it doubles with each further one.
const FAILED_PAUSE_MS: u64 = 1_000;
const MAX_FAILED_PAUSE_MS: u64 = 5 * 60 * 1000;

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

impl DnsQuery {
    /// Whether it asks for the root of a list.
    pub fn is_root(&self) -> bool {
        self.entry.is_none()
    }
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
    root_text: String,
    /// When the root is asked for: while records are wanted, and otherwise.
    root_due_ms: [u64; 2],
    root_retry_ms: u64,
    /// Names in a row that could not be resolved, and until when the list is left alone for that.
    failures_in_row: u32,
    paused_until_ms: u64,
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
            root_text: String::new(),
            root_due_ms: [0; 2],
            root_retry_ms: ROOT_RETRY_MS,
            failures_in_row: 0,
            paused_until_ms: 0,
            unvisited: Vec::new(),
            heard_of: HashSet::new(),
            failures: HashMap::new(),
        }
    }

    /// When the root is asked for.
    fn due_ms(&self, is_wanting: bool) -> u64 {
        self.root_due_ms[usize::from(!is_wanting)].max(self.paused_until_ms)
    }

    /// When an entry can be asked for, if there is one.
    fn entry_due_ms(&self) -> Option<u64> {
        (!self.unvisited.is_empty()).then_some(self.paused_until_ms)
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
    cached_bytes: usize,
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
            cached_bytes: 0,
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

    /// What is remembered, for a file: the roots, each behind the URL of its list, because a signature does not say of which domain
    /// it is; and the entries.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let lists = self.lists.iter();
        let roots = lists.filter(|list| list.root.is_some());
        let roots = roots.map(|list| format!("{} {}", list.url, list.root_text));
        roots.chain(self.cache.values().cloned())
    }

    /// Remembers the lines of a file. They are trusted no further than a resolver: a root must be signed, and an entry is found by its
    /// hash alone. The walk begins at such a root if no newer one can be had.
    pub fn restore(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            match line.split_once(' ') {
                Some((url, root)) if Root::is_claimed_by(root) => self.restore_root(url, root),
                _ => self.remember(EntryName::of(&line), line),
            }
        }
    }

    fn restore_root(&mut self, url: &str, text: &str) {
        let mut lists = self.lists.iter_mut();
        let Some(list) = lists.find(|list| list.url.to_string() == url) else {
            return;
        };
        if let Ok(root) = Root::parse(text, &list.url) {
            list.root = Some(root);
            list.root_text = text.to_owned();
        }
    }

    fn remember(&mut self, name: EntryName, text: String) {
        if text.len() > MAX_TEXT_BYTES {
            return;
        }
        if self.cache.len() >= MAX_CACHED || self.cached_bytes + text.len() > MAX_CACHED_BYTES {
            self.cache.clear();
            self.cached_bytes = 0;
        }
        self.cached_bytes += text.len();
        let old = self.cache.insert(name, text);
        self.cached_bytes -= old.map_or(0, |old| old.len());
    }

    /// How many names in a row of this list could not be resolved.
    pub fn failures(&self, query: &DnsQuery) -> u32 {
        let list = self.lists.get(query.list);
        list.map_or(0, |list| list.failures_in_row)
    }

    /// What is to be done at `now_ms`. `is_wanting`: there are too few peers, so that records are looked for.
    pub fn next_step(&mut self, now_ms: u64, is_wanting: bool) -> NextStep {
        if self.is_asking {
            return NextStep::Wait(u64::MAX);
        }
        if let Some(found) = self.walk_remembered(is_wanting) {
            return NextStep::Found(found);
        }
        let due_ms = self.due_ms(is_wanting).max(self.next_query_ms);
        if now_ms < due_ms {
            return NextStep::Wait(due_ms);
        }
        let is_due = |list: &List| list.due_ms(is_wanting) <= now_ms;
        let query = match self.lists.iter().position(is_due) {
            Some(list) => Some((list, None)),
            None => self.take_unvisited(now_ms),
        };
        let Some((list, entry)) = query else {
            return NextStep::Wait(now_ms + QUERY_PAUSE_MS);
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

    /// When there is something to ask for next.
    fn due_ms(&self, is_wanting: bool) -> u64 {
        let roots = self.lists.iter().map(|list| list.due_ms(is_wanting));
        let entries = self.lists.iter().filter(|_| is_wanting);
        let entries = entries.filter_map(List::entry_due_ms);
        roots.chain(entries).min().unwrap_or(u64::MAX)
    }

    /// Takes a random entry of a random list.
    fn take_unvisited(&mut self, now_ms: u64) -> Option<(usize, Option<Unvisited>)> {
        let is_due = |list: &List| list.entry_due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let lists = self.lists.iter().enumerate();
        let lists = lists.filter(|(_, list)| is_due(list));
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
    ) -> Result<Option<Box<Record>>, AnswerError> {
        self.is_asking = false;
        if let Some(list) = self.lists.get_mut(query.list) {
            list.failures_in_row = 0;
        }
        let Some(entry) = &query.entry else {
            let taken = self.take_root(query, texts, now_ms);
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
        let visited = self.visit(query.list, entry, text);
        let found = visited.map_err(|error| AnswerError::Entry {
            name: query.name.clone(),
            error,
        })?;
        self.remember(entry.name.clone(), text.clone());
        Ok(found)
    }

    fn take_root(
        &mut self,
        query: &DnsQuery,
        texts: &[String],
        now_ms: u64,
    ) -> Result<(), AnswerError> {
        let again_ms = [ROOT_AGAIN_MS, ROOT_AGAIN_IDLE_MS].map(|ms| self.jittered(ms));
        let Some(list) = self.lists.get_mut(query.list) else {
            return Ok(());
        };
        let claimed = texts.iter().filter(|text| Root::is_claimed_by(text));
        let mut roots = claimed.map(|text| Root::parse(text, &list.url).map(|root| (root, text)));
        let (root, text) = match roots.clone().find_map(Result::ok) {
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
        list.root_due_ms = again_ms.map(|ms| now_ms + ms);
        if list.root.as_ref() != Some(&root) || list.unvisited.is_empty() {
            list.root = Some(root);
            list.root_text.clone_from(text);
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
            list.root_due_ms = [due_ms; 2];
            list.root_retry_ms = (retry_ms * 2).min(ROOT_AGAIN_MS);
            if list.heard_of.is_empty() {
                list.restart();
            }
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

    /// A name could not be resolved in time: the longer that goes on, the more rarely names of its list are asked for.
    pub fn failed(&mut self, query: &DnsQuery, now_ms: u64) {
        self.is_asking = false;
        let doublings = self.failures(query).min(16);
        let pause_ms = (FAILED_PAUSE_MS << doublings).min(MAX_FAILED_PAUSE_MS);
        let pause_ms = self.jittered(pause_ms);
        if let Some(list) = self.lists.get_mut(query.list) {
            list.failures_in_row = list.failures_in_row.saturating_add(1);
            list.paused_until_ms = now_ms + pause_ms;
        }
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
