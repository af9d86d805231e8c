//! A nibble path: where a node is in a trie, or what an extension or leaf skips.

use alloy_primitives::B256;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Up to 64 nibbles (4 bits each, one a byte), compared as the trie orders its keys: nibble by
/// nibble, a path before its continuations.
#[derive(Clone, Copy)]
pub struct Path {
    nibbles: [u8; Path::MAX],
    len: u8,
}

impl Path {
    /// The most nibbles a path can hold: those of a 32-byte key.
    pub const MAX: usize = 64;
    /// The path of the root.
    pub const EMPTY: Self = Self {
        nibbles: [0; Self::MAX],
        len: 0,
    };

    /// The 64 nibbles of a hashed key.
    pub fn of_hash(key: &B256) -> Self {
        Self::of_key(key.as_slice()).expect("32 bytes are 64 nibbles")
    }

    /// The nibbles of a key of any length up to 32 bytes; `None` if it is longer.
    pub fn of_key(key: &[u8]) -> Option<Self> {
        if key.len() > Self::MAX / 2 {
            return None;
        }
        let mut path = Self::EMPTY;
        for (pair, byte) in path.nibbles.chunks_exact_mut(2).zip(key) {
            pair[0] = byte >> 4;
            pair[1] = byte & 0x0f;
        }
        path.len = u8::try_from(key.len() * 2).expect("at most 64");
        Some(path)
    }

    /// A path of these nibbles; `None` if there are more than 64 or one is above 15.
    pub fn of_nibbles(nibbles: &[u8]) -> Option<Self> {
        if nibbles.iter().any(|nibble| *nibble > 0x0f) {
            return None;
        }
        Self::EMPTY.join(nibbles)
    }

    /// The nibbles, one a byte.
    pub fn as_slice(&self) -> &[u8] {
        &self.nibbles[..usize::from(self.len)]
    }

    /// How many nibbles.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether this is the path of the root.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// This path continued by `more`; `None` if that is longer than 64 nibbles.
    pub fn join(&self, more: &[u8]) -> Option<Self> {
        let (start, end) = (self.len(), self.len() + more.len());
        let mut path = *self;
        path.nibbles.get_mut(start..end)?.copy_from_slice(more);
        path.len = u8::try_from(end).ok()?;
        Some(path)
    }

    /// The first `len` nibbles, as a path.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn first(&self, len: usize) -> Self {
        assert!(len <= self.len(), "{len} nibbles of {self}");
        let mut path = *self;
        path.nibbles[len..].fill(0);
        path.len = u8::try_from(len).expect("at most 64");
        path
    }

    /// The nibbles from `start` on, as a path; empty if `start` is past the end.
    pub fn skip(&self, start: usize) -> Self {
        let rest = self.as_slice().get(start..).unwrap_or_default();
        Self::EMPTY.join(rest).expect("a part is not longer")
    }

    /// The least path of at most this length that comes after all continuations of this one; `None`
    /// if there is none.
    pub fn next(&self) -> Option<Self> {
        let last = self.as_slice().iter().rposition(|nibble| *nibble < 0x0f)?;
        let mut next = self.first(last + 1);
        next.nibbles[last] += 1;
        Some(next)
    }

    /// The key whose nibbles these are, if there are 64 of them.
    pub fn to_hash(&self) -> Option<B256> {
        if self.len() != Self::MAX {
            return None;
        }
        let mut key = B256::ZERO;
        for (byte, pair) in key.iter_mut().zip(self.nibbles.chunks_exact(2)) {
            *byte = (pair[0] << 4) | pair[1];
        }
        Some(key)
    }

    /// The first nibbles packed two a byte, an odd last one in the high half: the prefix that
    /// every key below this path begins with (up to the half byte).
    pub fn packed(&self) -> Vec<u8> {
        let pack = |pair: &[u8]| (pair[0] << 4) | pair.get(1).copied().unwrap_or(0);
        self.as_slice().chunks(2).map(pack).collect()
    }
}

/// How many leading nibbles `a` and `b` share.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Path {}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Path {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl Hash for Path {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for nibble in self.as_slice() {
            write!(f, "{nibble:x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::Path;
    use alloy_primitives::B256;

    #[test]
    fn a_32_byte_key_is_64_nibbles_and_back() {
        let key = B256::repeat_byte(0xa5);
        assert_eq!(Path::of_hash(&key).to_hash(), Some(key));
        assert_eq!(Path::of_key(&[0x12, 0x3f]).unwrap().to_string(), "123f");
        assert_eq!(Path::of_key(&[0; 33]), None);
    }

    #[test]
    fn a_path_never_grows_past_64_nibbles() {
        let full = Path::of_hash(&B256::ZERO);
        assert_eq!(full.join(&[1]), None);
        assert_eq!(full.join(&[]), Some(full));
        assert_eq!(full.skip(63).len(), 1);
        assert_eq!(full.skip(70).len(), 0);
        assert_eq!(Path::of_nibbles(&[16]), None);
    }

    #[test]
    fn a_path_sorts_before_its_continuations() {
        let short = Path::of_nibbles(&[1, 2]).unwrap();
        let long = Path::of_nibbles(&[1, 2, 0]).unwrap();
        assert!(short < long);
        assert!(long < Path::of_nibbles(&[1, 3]).unwrap());
        assert_eq!(long.packed(), [0x12, 0x00]);
    }

    #[test]
    fn the_next_path_comes_after_all_continuations() {
        let next = |nibbles: &[u8]| Path::of_nibbles(nibbles).unwrap().next();
        assert_eq!(next(&[1, 2]), Path::of_nibbles(&[1, 3]));
        assert_eq!(next(&[1, 15, 15]), Path::of_nibbles(&[2]));
        assert_eq!((next(&[15, 15]), next(&[])), (None, None));
    }
}
