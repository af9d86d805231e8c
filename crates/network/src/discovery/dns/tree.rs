//! Lists as a machine: which name is asked for next, and what its answer means. No resolver, no clock.
//!
//! A list is walked at random and lazily: an entry is asked for only while candidates are wanted, so that a start costs tens of queries
//! and not the thousands of the whole list. Links come before records, because they are few and lead to more lists. At most 3 names
//! a second are asked for, one at a time. A list to which nothing links any more is dropped.
//!
//! ```text
//! next_step -> Ask(query) -> the resolver -> answer | failed -> next_step -> Wait(until) ...
//! ```

use super::entry::{Entry, EntryError, EntryName, ListUrl, MAX_TEXT_BYTES, Root};
use super::pool::{Pool, Unvisited};
use crate::record::Record;
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Between two queries: 3 a second.
const QUERY_PAUSE_MS: u64 = 334;

/// A root is asked for again after so long while there are too few peers, and otherwise.
const ROOT_AGAIN_MS: u64 = 30 * 60 * 1000;
const ROOT_AGAIN_IDLE_MS: u64 = 6 * 60 * 60 * 1000;

/// A root that could not be had is asked for again after so long; it doubles to [`ROOT_AGAIN_MS`].
const ROOT_RETRY_MS: u64 = 10_000;

/// Most lists, those that are linked to included.
pub(super) const MAX_LISTS: usize = 16;

/// Most links of a list that count: those of its last walk and of this one.
const MAX_LINKS: usize = 2 * MAX_LISTS;

/// Most names of a list that are asked for in one walk.
const MAX_NAMES: usize = 16_384;

/// Most entries that are remembered, and their bytes.
pub(super) const MAX_CACHED: usize = 16_384;
pub(super) const MAX_CACHED_BYTES: usize = 8 << 20;

/// Most remembered entries that are visited in one step.
const MAX_VISITS: usize = 32;

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

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Resolve a name, then call [`DnsTree::answer`] or [`DnsTree::failed`].
    Ask(DnsQuery),
    /// Nothing until this time (ms).
    Wait(u64),
    /// Call again: more is remembered than one step visits.
    Again,
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
    /// The operator named it.
    is_given: bool,
    root: Option<Root>,
    root_text: String,
    /// The lists to which it links, and whether this walk has seen that.
    links: BTreeMap<ListUrl, bool>,
    /// When the root is asked for: while records are wanted, and otherwise.
    root_due_ms: [u64; 2],
    root_retry_ms: u64,
    /// Names in a row that could not be resolved, and until when the list is left alone for that.
    failures_in_row: u32,
    paused_until_ms: u64,
    /// Whether its last query was answered.
    is_answered: bool,
    /// Entries that may be remembered, and those that are not.
    unvisited: Pool,
    missing: Pool,
    /// Names that this walk has heard of.
    heard_of: HashSet<EntryName>,
    failures: HashMap<EntryName, u8>,
}

impl List {
    fn new(url: ListUrl, is_given: bool) -> Self {
        Self {
            url,
            is_given,
            root: None,
            root_text: String::new(),
            links: BTreeMap::new(),
            root_due_ms: [0; 2],
            root_retry_ms: ROOT_RETRY_MS,
            failures_in_row: 0,
            paused_until_ms: 0,
            is_answered: false,
            unvisited: Pool::default(),
            missing: Pool::default(),
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
        (!self.missing.is_empty()).then_some(self.paused_until_ms)
    }

    /// Begins a walk at the root.
    fn restart(&mut self) {
        self.heard_of.clear();
        self.failures.clear();
        (self.unvisited, self.missing) = Default::default();
        self.links.values_mut().for_each(|is_seen| *is_seen = false);
        if let Some(root) = self.root.clone() {
            self.add(vec![root.links], true);
            self.add(vec![root.records], false);
        }
    }

    fn add(&mut self, names: Vec<EntryName>, is_link: bool) {
        for name in names {
            if self.heard_of.len() < MAX_NAMES && self.heard_of.insert(name.clone()) {
                self.unvisited.add(Unvisited { name, is_link });
            }
        }
    }

    fn link(&mut self, url: ListUrl) {
        if self.links.len() < MAX_LINKS || self.links.contains_key(&url) {
            self.links.insert(url, true);
        }
    }

    /// Forgets the links of its last walk once this one has seen all. Returns whether there were any that are gone.
    fn settle_links(&mut self) -> bool {
        let all_are_seen = self.unvisited.links.is_empty() && self.missing.links.is_empty();
        let before = self.links.len();
        self.links.retain(|_, is_seen| *is_seen || !all_are_seen);
        self.links.len() != before
    }
}

/// The lists.
#[derive(Debug)]
pub struct DnsTree {
    lists: Vec<List>,
    /// Texts by their names: the same for every list and every root, so that a new root costs only what is new.
    cache: HashMap<EntryName, String>,
    cached_bytes: usize,
    /// Saved roots of lists that are not known yet, with their texts.
    saved_roots: BTreeMap<ListUrl, (Root, String)>,
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
            saved_roots: BTreeMap::new(),
            next_query_ms: 0,
            is_asking: false,
            rng,
        };
        urls.into_iter().for_each(|url| tree.add_list(url, true));
        tree
    }

    fn add_list(&mut self, url: ListUrl, is_given: bool) {
        let is_known = self.lists.iter().any(|list| list.url == url);
        if is_known || self.lists.len() >= MAX_LISTS {
            return;
        }
        let saved = self.saved_roots.remove(&url);
        let mut list = List::new(url, is_given);
        if let Some((root, text)) = saved {
            (list.root, list.root_text) = (Some(root), text);
        }
        self.lists.push(list);
    }

    /// Drops the lists to which nothing links any more, and takes those for which there was no room.
    fn settle_links(&mut self) {
        let mut has_changed = false;
        for list in &mut self.lists {
            has_changed |= list.settle_links();
        }
        if !has_changed {
            return;
        }
        let given = self.lists.iter().filter(|list| list.is_given);
        let mut linked: Vec<ListUrl> = given.map(|list| list.url.clone()).collect();
        let mut at = 0;
        while let Some(url) = linked.get(at) {
            let list = self.lists.iter().find(|list| list.url == *url);
            let links = list.into_iter().flat_map(|list| list.links.keys());
            let new: Vec<_> = links.filter(|url| !linked.contains(url)).cloned().collect();
            linked.extend(new);
            at += 1;
        }
        self.lists.retain(|list| linked.contains(&list.url));
        linked.into_iter().for_each(|url| self.add_list(url, false));
    }

    /// What is remembered, for a file: the roots, each behind the URL of its list, because a signature does not say of which domain
    /// it is; and the entries.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let lists = self.lists.iter();
        let roots = lists.filter(|list| list.root.is_some());
        let roots = roots.map(|list| (&list.url, &list.root_text));
        let saved = self.saved_roots.iter();
        let roots = roots.chain(saved.map(|(url, (_, text))| (url, text)));
        let roots = roots.map(|(url, text)| format!("{url} {text}"));
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
        let Ok(url) = url.parse::<ListUrl>() else {
            return;
        };
        let Ok(root) = Root::parse(text, &url) else {
            return;
        };
        let mut lists = self.lists.iter_mut();
        match lists.find(|list| list.url == url) {
            Some(list) => (list.root, list.root_text) = (Some(root), text.to_owned()),
            None if self.saved_roots.len() < MAX_LISTS => {
                self.saved_roots.insert(url, (root, text.to_owned()));
            }
            None => {}
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

    /// The domain of its list.
    pub fn domain(&self, query: &DnsQuery) -> &str {
        let list = self.lists.get(query.list);
        list.map_or("", |list| list.url.domain())
    }

    /// Whether the last query of any list was answered: then the resolver works.
    pub fn is_any_answered(&self) -> bool {
        self.lists.iter().any(|list| list.is_answered)
    }

    /// What is to be done at `now_ms`. `is_wanting`: there are too few peers, so that records are looked for.
    pub fn next_step(&mut self, now_ms: u64, is_wanting: bool) -> NextStep {
        if self.is_asking {
            return NextStep::Wait(u64::MAX);
        }
        self.settle_links();
        if let Some(step) = is_wanting.then(|| self.walk_remembered()).flatten() {
            return step;
        }
        let due_ms = self.due_ms(is_wanting).max(self.next_query_ms);
        if now_ms < due_ms {
            return NextStep::Wait(due_ms);
        }
        let is_due = |list: &List| list.due_ms(is_wanting) <= now_ms;
        let query = match self.lists.iter().position(is_due) {
            Some(list) => Some((list, None)),
            None => self.take_missing(now_ms),
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
    fn take_missing(&mut self, now_ms: u64) -> Option<(usize, Option<Unvisited>)> {
        let is_due = |list: &List| list.entry_due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let lists = self.lists.iter().enumerate();
        let lists = lists.filter(|(_, list)| is_due(list));
        let lists: Vec<usize> = lists.map(|(at, _)| at).collect();
        let at = *lists.get(self.rng.random_range(0..lists.len().max(1)))?;
        let entry = self.lists.get_mut(at)?.missing.take(&mut self.rng)?;
        Some((at, Some(entry)))
    }

    /// Visits entries that are remembered, until one is a record, and puts the others aside. `None`: there are no more.
    fn walk_remembered(&mut self) -> Option<NextStep> {
        for _ in 0..MAX_VISITS {
            let mut lists = self.lists.iter();
            let at = lists.position(|list| !list.unvisited.is_empty())?;
            let list = self.lists.get_mut(at)?;
            let entry = list.unvisited.take(&mut self.rng)?;
            let Some(text) = self.cache.get(&entry.name).cloned() else {
                list.missing.add(entry);
                continue;
            };
            if let Ok(Some(record)) = self.visit(at, &entry, &text) {
                return Some(NextStep::Found(record));
            }
        }
        Some(NextStep::Again)
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
                if let Some(list) = self.lists.get_mut(list) {
                    list.link(url.clone());
                }
                self.add_list(url, false);
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
            list.is_answered = true;
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
        let is_walked = list.unvisited.is_empty() && list.missing.is_empty();
        if is_walked || list.root.as_ref() != Some(&root) {
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
                list.missing.add(entry.clone());
            } else if entry.is_link {
                // What it would have said is not known: the links of the last walk hold.
                list.links.values_mut().for_each(|is_seen| *is_seen = true);
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
            list.is_answered = false;
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
