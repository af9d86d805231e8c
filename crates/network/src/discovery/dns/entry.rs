//! The texts of a list: what they say, and whether they are what they claim to be.

use crate::node::is_name;
use crate::record::{Record, RecordError};
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use niwaki_crypto::{keccak256, recover_public_key};
use niwaki_primitives::FixedBytes;
use std::fmt;
use std::str::FromStr;

const ROOT: &str = "enrtree-root:v1";
const BRANCH: &str = "enrtree-branch:";
const LINK: &str = "enrtree://";
const RECORD: &str = "enr:";

/// Most bytes of a text. Lists keep to 512, so that an answer is one UDP packet.
pub(super) const MAX_TEXT_BYTES: usize = 4096;

/// A name is the beginning of a hash: these many bytes of it. Lists take 16.
const MIN_HASH_BYTES: usize = 12;
const MAX_HASH_BYTES: usize = 32;
const HASH_BYTES: usize = 16;

/// Why a text is no entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// It begins with nothing that is known.
    #[error("an entry of no known kind")]
    Kind,
    /// It is too long.
    #[error("an entry of {got} bytes, at most {MAX_TEXT_BYTES} are read")]
    TooLong {
        /// Its bytes.
        got: usize,
    },
    /// It is not written as it must be.
    #[error("{0}")]
    Syntax(&'static str),
    /// The root is signed by another key than the URL's, or changed.
    #[error("the signature is not that of the list's key")]
    Signature,
    /// Its hash is not its name: it was changed.
    #[error("the text does not have the hash that it was asked for by")]
    Hash,
    /// Its record is none.
    #[error(transparent)]
    Record(#[from] RecordError),
}

const UNPRINTABLE: EntryError =
    EntryError::Syntax("an entry must be of printable characters of ASCII");

/// Whether it is a line of a file, whatever it says.
fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Whether a text may be an entry or begin with the URL of a list: without a look at the rest.
pub(super) fn may_be_entry(text: &str) -> bool {
    let is_known = [RECORD, BRANCH, LINK].iter();
    is_known.copied().any(|kind| text.starts_with(kind)) && is_printable(text)
}

/// The name of an entry: the beginning of the Keccak-256 hash of its text, in base32.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryName(String);

impl EntryName {
    /// The name of a text, with 16 bytes of its hash.
    pub fn of(text: &str) -> Self {
        let hash = keccak256(text);
        Self(BASE32_NOPAD.encode(&hash[..HASH_BYTES]))
    }

    /// Whether this text has the hash.
    pub fn names(&self, text: &str) -> bool {
        let expected = BASE32_NOPAD.decode(self.0.as_bytes());
        expected.is_ok_and(|expected| keccak256(text).starts_with(&expected))
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EntryName {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Self, EntryError> {
        let bytes = BASE32_NOPAD.decode(text.as_bytes());
        let length = bytes.map(|bytes| bytes.len()).unwrap_or_default();
        match (MIN_HASH_BYTES..=MAX_HASH_BYTES).contains(&length) {
            true => Ok(Self(text.into())),
            false => Err(EntryError::Syntax(
                "a name must be 12 to 32 bytes of a hash in base32",
            )),
        }
    }
}

/// Where a list is, and which key signs it: `enrtree://<key in base32>@<domain>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListUrl {
    /// The compressed public key.
    key: [u8; 33],
    /// The DNS name, in lower case.
    domain: String,
}

impl ListUrl {
    /// The DNS name.
    pub fn domain(&self) -> &str {
        &self.domain
    }
}

impl FromStr for ListUrl {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Self, EntryError> {
        let rest = text.strip_prefix(LINK);
        let rest = rest.ok_or(EntryError::Syntax("a list must begin with enrtree://"))?;
        let (key, domain) = rest
            .split_once('@')
            .ok_or(EntryError::Syntax("a list must be enrtree://KEY@DOMAIN"))?;
        let key = BASE32_NOPAD.decode(key.as_bytes()).ok();
        let key: Option<[u8; 33]> = key.and_then(|key| key.try_into().ok());
        let key = key.filter(|key| matches!(key[0], 2 | 3));
        let key = key.ok_or(EntryError::Syntax(
            "the key of a list must be a compressed public key (33 bytes) in base32",
        ))?;
        match is_name(domain) {
            true => Ok(Self {
                key,
                domain: domain.to_ascii_lowercase(),
            }),
            false => Err(EntryError::Syntax("the domain of a list is no DNS name")),
        }
    }
}

impl fmt::Display for ListUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = BASE32_NOPAD.encode(&self.key);
        write!(f, "{LINK}{key}@{}", self.domain)
    }
}

/// The root of a list, whose signature is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The tree of records.
    pub records: EntryName,
    /// The tree of links.
    pub links: EntryName,
    /// It rises with each change.
    pub seq: u64,
}

impl Root {
    /// Whether a text claims to be a root. A name may have other texts.
    pub(super) fn is_claimed_by(text: &str) -> bool {
        text.starts_with(ROOT)
    }

    /// Reads a root and checks its signature: of the URL's key, over what stands before ` sig=`.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn parse(text: &str, url: &ListUrl) -> Result<Self, EntryError> {
        const SYNTAX: EntryError =
            EntryError::Syntax("a root must be enrtree-root:v1 e=.. l=.. seq=.. sig=..");
        if text.len() > MAX_TEXT_BYTES {
            return Err(EntryError::TooLong { got: text.len() });
        }
        if !is_printable(text) {
            return Err(UNPRINTABLE);
        }
        let (signed, signature) = text.split_once(" sig=").ok_or(SYNTAX)?;
        let mut fields = signed.split(' ');
        if fields.next() != Some(ROOT) {
            return Err(SYNTAX);
        }
        let mut field = |name| fields.next().and_then(|field| field.strip_prefix(name));
        let (records, links, seq) = (field("e="), field("l="), field("seq="));
        let (Some(records), Some(links), Some(seq), None) = (records, links, seq, fields.next())
        else {
            return Err(SYNTAX);
        };
        let root = Self {
            records: records.parse()?,
            links: links.parse()?,
            seq: seq.parse().map_err(|_| SYNTAX)?,
        };
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).ok();
        let signature: Option<[u8; 65]> = signature.and_then(|bytes| bytes.try_into().ok());
        match is_signed_by(signed, signature.ok_or(SYNTAX)?, &url.key) {
            true => Ok(root),
            false => Err(EntryError::Signature),
        }
    }
}

/// Whether the key with this compressed form signed the text. The last byte of the signature is not looked at: signers write it in
/// several ways, and one of the two possible keys is the right one or none is.
fn is_signed_by(text: &str, mut signature: [u8; 65], key: &[u8; 33]) -> bool {
    let hash = keccak256(text);
    [0, 1].into_iter().any(|parity| {
        signature[64] = parity;
        let signer = recover_public_key(&hash, &signature);
        signer.is_ok_and(|signer| compress(&signer) == *key)
    })
}

fn compress(key: &FixedBytes<64>) -> [u8; 33] {
    let mut compressed = [0; 33];
    compressed[0] = 2 + (key[63] & 1);
    compressed[1..].copy_from_slice(&key[..32]);
    compressed
}

/// An entry below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The names of more entries.
    Branch(Vec<EntryName>),
    /// Another list.
    Link(ListUrl),
    /// A node.
    Record(Box<Record>),
}

impl Entry {
    /// Reads the entry that was asked for by `name`.
    ///
    /// # Errors
    /// [`EntryError`], [`EntryError::Hash`] first of all.
    pub fn parse(text: &str, name: &EntryName) -> Result<Self, EntryError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(EntryError::TooLong { got: text.len() });
        }
        if !name.names(text) {
            return Err(EntryError::Hash);
        }
        if !is_printable(text) {
            return Err(UNPRINTABLE);
        }
        if let Some(names) = text.strip_prefix(BRANCH) {
            let names = names.split(',').filter(|name| !name.is_empty());
            let names: Result<_, _> = names.map(EntryName::from_str).collect();
            return Ok(Self::Branch(names?));
        }
        if text.starts_with(LINK) {
            return Ok(Self::Link(text.parse()?));
        }
        match text.starts_with(RECORD) {
            true => Ok(Self::Record(Box::new(text.parse()?))),
            false => Err(EntryError::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::*;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_root_of_the_specification_is_signed_by_the_key_of_its_url() {
        let url: ListUrl = URL.parse().unwrap();
        assert_eq!(url.domain(), "nodes.example.org");
        assert_eq!(url.to_string(), URL);
        let root = Root::parse(ROOT_TEXT, &url).unwrap();
        assert_eq!(root.seq, 1);
        assert_eq!(root.records.to_string(), "JWXYDBPXYWG6FX3GMDIBFA6CJ4");
        assert_eq!(root.links.to_string(), "C7HRFPF3BLGF3YR4DY5KX3SMBE");
    }

    #[test]
    fn a_root_that_was_changed_or_is_of_another_key_is_refused() {
        let url: ListUrl = URL.parse().unwrap();
        let changed = ROOT_TEXT.replace("seq=1", "seq=2");
        assert_eq!(Root::parse(&changed, &url), Err(EntryError::Signature));
        let mut other = url.clone();
        other.key[0] ^= 1;
        assert_eq!(Root::parse(ROOT_TEXT, &other), Err(EntryError::Signature));
        for text in [
            "",
            "enrtree-root:v1",
            &format!("{ROOT_TEXT}\n"),
            "enrtree-root:v2 e=JWXYDBPXYWG6FX3GMDIBFA6CJ4 l=C7HRFPF3BLGF3YR4DY5KX3SMBE seq=1 sig=AA",
            "enrtree-root:v1 e=JWXY l=C7HRFPF3BLGF3YR4DY5KX3SMBE seq=1 sig=AA",
            &ROOT_TEXT.replace("seq=1", "seq=x"),
            &ROOT_TEXT.replace("seq=1", "seq=1 x=1"),
            &ROOT_TEXT[..ROOT_TEXT.len() - 1],
        ] {
            assert!(Root::parse(text, &url).is_err(), "{text}");
        }
    }

    #[test]
    fn the_entries_of_the_specification_have_their_names() {
        for (name, text) in ENTRIES {
            let name: EntryName = name.parse().unwrap();
            assert_eq!(EntryName::of(text), name);
            let entry = Entry::parse(text, &name).unwrap();
            match entry {
                Entry::Branch(names) => assert_eq!(names.len(), 3),
                Entry::Link(url) => assert_eq!(url.domain(), "morenodes.example.org"),
                Entry::Record(record) => assert_eq!(record.node(), None),
            }
            let changed = format!("{text} ");
            assert_eq!(Entry::parse(&changed, &name), Err(EntryError::Hash));
        }
    }

    #[test]
    fn bad_entries_are_refused_and_an_empty_branch_is_none() {
        let parse = |text: &str| Entry::parse(text, &EntryName::of(text));
        assert_eq!(parse("enrtree-branch:"), Ok(Entry::Branch(Vec::new())));
        assert_eq!(parse("v=spf1 -all"), Err(EntryError::Kind));
        assert!(parse("enrtree-branch:12").is_err());
        assert!(parse("enrtree-branch:JWXYDBPXYWG6FX3GMDIBFA6CJ4,x").is_err());
        assert!(parse("enr:AAAA").is_err());
        let record = ENTRIES[2].1;
        assert!(parse(record).is_ok() && may_be_entry(record));
        for text in [
            format!("{record}\n"),
            format!("\t{record}"),
            "enrtree-branch:\u{e9}".into(),
        ] {
            assert_eq!(parse(&text), Err(UNPRINTABLE));
            assert!(!may_be_entry(&text));
        }
        let got = MAX_TEXT_BYTES + 1;
        assert_eq!(parse(&"x".repeat(got)), Err(EntryError::TooLong { got }));
    }

    #[test]
    fn urls_that_are_none_are_refused() {
        let key = "AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2";
        for text in [
            "",
            "enrtree://nodes.example.org",
            &format!("enrtree://{key}"),
            &format!("enrtree://{key}@"),
            &format!("enrtree://{key}@a b"),
            &format!("enrtree://{}@nodes.example.org", &key[1..]),
            &format!("enrtree://{}@nodes.example.org", key.to_lowercase()),
            &format!(
                "enrtree://A{}@nodes.example.org",
                &key[1..].replace('M', "A")
            ),
        ] {
            let url = text.parse::<ListUrl>();
            assert!(matches!(url, Err(EntryError::Syntax(_))), "{text}: {url:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "(enrtree-root:v1 e=|enrtree-branch:|enrtree://|enr:|)[A-Z2-7=@, a-z.]{0,200}") {
            let url: ListUrl = URL.parse().unwrap();
            let _ = Root::parse(&text, &url);
            let _ = Entry::parse(&text, &EntryName::of(&text));
        }
    }
}
