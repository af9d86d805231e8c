//! The file of peers that outlives a restart.
//!
//! ```text
//! niwaki peers 1
//! <id, 128 hex digits> <ip> <tcp port> <udp port> <last seen, Unix seconds> <score> <good minutes>
//! ```
//!
//! It is written aside and renamed, so that a crash leaves the old one or the new one. A file that can't be read in full costs one
//! warning and an empty start: what it holds is found again. At most [`MAX_SAVED`] peers are kept, those seen last.

use super::Candidate;
use crate::key::NodeId;
use niwaki_primitives::hex;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Most peers in the file.
pub const MAX_SAVED: usize = 4096;

/// The first line.
const HEAD: &str = "niwaki peers 1";

/// Most bytes of a file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A peer that was connected once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedPeer {
    /// Where it is.
    pub candidate: Candidate,
    /// When it was connected last, in Unix seconds.
    pub last_seen_s: u64,
    /// Its score then, -100 to 100.
    pub score: i8,
    /// Minutes that it was connected with a score of at least 0.
    pub good_minutes: u32,
}

/// Why the file of peers was not read.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The system refused.
    #[error("can't read the saved peers in {}: {error}; starting without them", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file holds something else.
    #[error("line {line} of {} is not a saved peer; starting without them", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
}

/// The peers to be saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedPeers {
    peers: BTreeMap<NodeId, SavedPeer>,
}

impl SavedPeers {
    /// The peers in a file; none if there is no file.
    ///
    /// # Errors
    /// [`SavedError`], which is a warning: the node starts without saved peers.
    pub fn load(path: &Path) -> Result<Self, SavedError> {
        let io = |error| SavedError::Io {
            path: path.into(),
            error,
        };
        let file = match std::fs::File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            file => file.map_err(io)?,
        };
        let mut bytes = Vec::new();
        let mut file = file.take(MAX_FILE_BYTES);
        file.read_to_end(&mut bytes).map_err(io)?;
        Self::parse(&String::from_utf8_lossy(&bytes)).map_err(|line| SavedError::Malformed {
            path: path.into(),
            line,
        })
    }

    /// Reads the text of a file. The error is the number of the line that can't be read.
    pub(crate) fn parse(text: &str) -> Result<Self, usize> {
        let mut lines = text.lines().zip(1..);
        if lines.next().is_none_or(|(line, _)| line != HEAD) {
            return Err(1);
        }
        let mut saved = Self::default();
        for (line, number) in lines {
            if number > MAX_SAVED + 1 {
                return Err(number);
            }
            let peer = SavedPeer::parse(line).ok_or(number)?;
            saved.peers.insert(peer.candidate.id, peer);
        }
        Ok(saved)
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        self.peers
            .values()
            .for_each(|peer| peer.append_to(&mut text));
        text
    }

    /// Writes such a text into a file: into a new one next to it, which then takes its name.
    ///
    /// # Errors
    /// What the system says; the file is as it was.
    pub fn write(path: &Path, text: &str) -> std::io::Result<()> {
        crate::file::replace(path, text)
    }

    /// Notes a peer; minutes add up. The peer seen longest ago gives way if there are too many.
    pub(crate) fn note(&mut self, mut peer: SavedPeer) {
        let id = peer.candidate.id;
        if let Some(old) = self.peers.get(&id) {
            peer.good_minutes = peer.good_minutes.saturating_add(old.good_minutes);
        } else if self.peers.len() >= MAX_SAVED {
            let oldest = self.peers.values().min_by_key(|peer| peer.last_seen_s);
            if let Some(id) = oldest.map(|peer| peer.candidate.id) {
                self.peers.remove(&id);
            }
        }
        self.peers.insert(id, peer);
    }

    /// Drops a peer.
    pub(crate) fn remove(&mut self, id: &NodeId) {
        self.peers.remove(id);
    }

    /// The peers, the best first: by good minutes, of equal ones the one seen last.
    pub fn best(&self) -> Vec<SavedPeer> {
        let mut all: Vec<SavedPeer> = self.peers.values().copied().collect();
        all.sort_by_key(|peer| std::cmp::Reverse((peer.good_minutes, peer.last_seen_s)));
        all
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }
}

impl SavedPeer {
    fn append_to(&self, text: &mut String) {
        let Candidate {
            id,
            address,
            udp_port,
        } = self.candidate;
        let (ip, port) = (address.ip(), address.port());
        let (seen, score, minutes) = (self.last_seen_s, self.score, self.good_minutes);
        text.push_str(&format!(
            "{id} {ip} {port} {udp_port} {seen} {score} {minutes}\n"
        ));
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let id: [u8; 64] = hex::decode(fields.next()?).ok()?.try_into().ok()?;
        let ip: IpAddr = fields.next()?.parse().ok()?;
        let address = SocketAddr::new(ip, fields.next()?.parse().ok()?);
        let udp_port = fields.next()?.parse().ok()?;
        let candidate = Candidate {
            id: NodeId(id.into()),
            address,
            udp_port,
        };
        let peer = Self {
            candidate,
            last_seen_s: fields.next()?.parse().ok()?,
            score: fields.next()?.parse().ok()?,
            good_minutes: fields.next()?.parse().ok()?,
        };
        fields.next().is_none().then_some(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::FixedBytes;
    use proptest::prelude::*;

    fn peer(number: u64) -> SavedPeer {
        let candidate = Candidate {
            id: NodeId(FixedBytes::left_padding_from(&number.to_be_bytes())),
            address: SocketAddr::new([8, 8, 8, 8].into(), 30303),
            udp_port: 30304,
        };
        SavedPeer {
            candidate,
            last_seen_s: 1_700_000_000 + number,
            score: -7,
            good_minutes: 3,
        }
    }

    #[test]
    fn what_is_written_is_read_and_the_file_beside_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers");
        assert!(SavedPeers::load(&path).unwrap().is_empty());
        let mut saved = SavedPeers::default();
        (0..9).for_each(|number| saved.note(peer(number)));
        SavedPeers::write(&path, &saved.text()).unwrap();
        assert_eq!(SavedPeers::load(&path).unwrap(), saved);
        saved.note(peer(1));
        SavedPeers::write(&path, &saved.text()).unwrap();
        let read = SavedPeers::load(&path).unwrap();
        assert_eq!(read.best()[0].good_minutes, 6);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_cut_or_of_something_else_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers");
        let mut saved = SavedPeers::default();
        saved.note(peer(1));
        saved.note(peer(2));
        let text = saved.text();
        let cut = &text[..text.len() - 150];
        let long = format!("{text}{}", text.lines().last().unwrap()).replace(" 3\n", " 3 4\n");
        for (text, expected) in [("", 1), ("{}", 1), (cut, 3), (&long, 2)] {
            std::fs::write(&path, text).unwrap();
            match SavedPeers::load(&path).unwrap_err() {
                SavedError::Malformed { line, .. } => assert_eq!(line, expected),
                other => panic!("{other}"),
            }
        }
        std::fs::write(&path, [0xff; 100]).unwrap();
        assert!(SavedPeers::load(&path).is_err());
        let folder = SavedPeers::load(folder.path()).unwrap_err();
        assert!(matches!(folder, SavedError::Io { .. }), "{folder}");
    }

    #[test]
    fn of_5000_peers_those_4096_are_kept_that_were_seen_last() {
        let mut saved = SavedPeers::default();
        (0..5000).for_each(|number| saved.note(peer(number)));
        assert_eq!(saved.len(), MAX_SAVED);
        let oldest = saved.best().into_iter().map(|peer| peer.last_seen_s).min();
        assert_eq!(oldest, Some(1_700_000_000 + 5000 - 4096));
        assert_eq!(SavedPeers::parse(&saved.text()), Ok(saved));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[ -~\n]{0,300}") {
            let _ = SavedPeers::parse(&text);
            let _ = SavedPeers::parse(&format!("{HEAD}\n{text}"));
        }
    }
}
