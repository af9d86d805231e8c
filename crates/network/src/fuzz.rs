//! For fuzzers: each reader of bytes that come from outside, with valid inputs and the law that holds of it.
//!
//! Most readers are private to this crate. `niwaki-devnet fuzz-wire` reaches them here; the node uses nothing of this module.
//!
//! ```text
//! valid(rng) -> bytes -> (the fuzzer changes them) -> seal -> read -> value -> write -> bytes -> read -> the same value
//! ```
//!
//! Some messages come in an envelope of MACs, hashes or signatures, behind which no random change gets. There `valid` gives what is in
//! it, and `seal` puts the changed body into a right envelope.
//!
//! | file | what it is |
//! |---|---|
//! | `eth` | the messages of `eth`, all versions |
//! | `values` | random blocks, receipts and transactions |
//! | `connection` | handshakes, frames, Snappy, the base protocol |
//! | `found` | discovery v4, records, DNS lists, nodes as text, saved peers |
//! | `roster` | sequences of events |

mod connection;
mod eth;
mod found;
mod roster;
mod snap;
mod values;

use rand::rngs::SmallRng;
use std::fmt;

/// How the bytes of a target are written, so that a fuzzer can change their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RLP after so many bytes of something else.
    Rlp(usize),
    /// Words and lines.
    Text,
    /// No structure that is known outside.
    Bytes,
}

type Make = Box<dyn Fn(&mut SmallRng) -> Vec<u8> + Send + Sync>;
type Allowance = Box<dyn Fn(&[u8]) -> usize + Send + Sync>;
type Seal = Box<dyn Fn(&[u8], &mut SmallRng) -> Vec<u8> + Send + Sync>;
type Read = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;
type Law = Box<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

/// A reader.
pub struct Target {
    /// Its name, such as `answer/receipts/70`.
    pub name: String,
    /// How its inputs are written.
    pub form: Form,
    allowance: Allowance,
    valid: Make,
    seal: Option<Seal>,
    read: Read,
    law: Law,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.name).finish()
    }
}

impl Target {
    /// A reader whose values are written again: the law is that they survive it.
    fn new<T: PartialEq + fmt::Debug>(
        name: impl Into<String>,
        form: Form,
        valid: impl Fn(&mut SmallRng) -> Vec<u8> + Send + Sync + 'static,
        read: impl Fn(&[u8]) -> Option<T> + Clone + Send + Sync + 'static,
        write: impl Fn(&T) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let reread = read.clone();
        let law = move |data: &[u8]| {
            let Some(value) = reread(data) else {
                return Ok(());
            };
            let written = write(&value);
            match reread(&written) {
                None => Err(format!(
                    "{value:?} is not read again from what it is written as"
                )),
                Some(again) if again != value => Err(format!("{value:?} becomes {again:?}")),
                Some(again) if write(&again) != written => {
                    Err(format!("{value:?} is written in two ways"))
                }
                Some(_) => Ok(()),
            }
        };
        Self {
            name: name.into(),
            form,
            allowance: linear(8, 16 << 10),
            valid: Box::new(valid),
            seal: None,
            read: Box::new(move |data| read(data).is_some()),
            law: Box::new(law),
        }
    }

    fn allowed(mut self, per_byte: usize, constant: usize) -> Self {
        self.allowance = linear(per_byte, constant);
        self
    }

    fn sealed_by(
        mut self,
        seal: impl Fn(&[u8], &mut SmallRng) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.seal = Some(Box::new(seal));
        self
    }

    /// A valid input, or what is in its envelope.
    pub fn valid(&self, rng: &mut SmallRng) -> Vec<u8> {
        (self.valid)(rng)
    }

    /// Puts a body into its envelope; without one the body is the input.
    pub fn seal(&self, body: Vec<u8>, rng: &mut SmallRng) -> Vec<u8> {
        match &self.seal {
            Some(seal) => seal(&body, rng),
            None => body,
        }
    }

    /// Reads an input once. Returns whether it was one.
    pub fn read(&self, input: &[u8]) -> bool {
        (self.read)(input)
    }

    /// How many bytes reading this input may allocate in all, freed ones too.
    pub fn allowed_bytes(&self, input: &[u8]) -> usize {
        (self.allowance)(input)
    }

    /// Checks the law of an input.
    ///
    /// # Errors
    /// How the input breaks it.
    pub fn check(&self, input: &[u8]) -> Result<(), String> {
        (self.law)(input)
    }
}

/// So many bytes for each byte of an input, and some besides.
fn linear(per_byte: usize, constant: usize) -> Allowance {
    Box::new(move |input| {
        per_byte
            .saturating_mul(input.len())
            .saturating_add(constant)
    })
}

/// All readers.
pub fn targets() -> Vec<Target> {
    let mut all = eth::targets();
    all.extend(connection::targets());
    all.extend(found::targets());
    all.push(roster::target());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::HashSet;

    #[test]
    fn every_reader_reads_its_valid_inputs_and_keeps_its_law() {
        let mut rng = SmallRng::seed_from_u64(1);
        for target in targets() {
            for _ in 0..8 {
                let body = target.valid(&mut rng);
                let input = target.seal(body, &mut rng);
                assert!(target.read(&input), "{target:?}: {input:?}");
                assert_eq!(target.check(&input), Ok(()), "{target:?}");
            }
        }
    }

    #[test]
    fn names_are_distinct() {
        let all = targets();
        let names: HashSet<&str> = all.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
    }
}
