//! The three ways to reach the body of the next opcode, by name.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU8, Ordering},
};

/// How opcodes are dispatched. No result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Each handler jumps to the next, and hot code has superinstructions.
    Fused,
    /// Each handler jumps to the next.
    Threaded,
    /// A loop calls one body after another; the only one on processors other than x86-64.
    Loop,
}

/// The dispatch of new machines.
static DEFAULT: AtomicU8 = AtomicU8::new(0);

impl Dispatch {
    /// All, fastest first.
    pub const ALL: [Self; 3] = [Self::Fused, Self::Threaded, Self::Loop];

    /// The name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Threaded => "threaded",
            Self::Loop => "loop",
        }
    }

    /// Makes this the dispatch of all machines that are created from now on.
    pub fn set_default(self) {
        DEFAULT.store(self as u8, Ordering::Relaxed);
    }
}

impl Default for Dispatch {
    fn default() -> Self {
        Self::ALL[usize::from(DEFAULT.load(Ordering::Relaxed))]
    }
}

impl FromStr for Dispatch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|dispatch| dispatch.name() == name);
        found.ok_or_else(|| format!("no dispatch is called {name}: use fused, threaded or loop"))
    }
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
