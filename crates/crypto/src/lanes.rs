//! How many computations the processor's vector registers hold side by side.

/// How many of one kind are computed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// One after the other.
    One,
    /// Four at once, with AVX2.
    Four,
    /// Eight at once, with AVX-512.
    Eight,
}

impl Lanes {
    /// Every way, whether the processor has it or not.
    pub const ALL: [Self; 3] = [Self::One, Self::Four, Self::Eight];

    /// The widest way that the processor has.
    pub fn best() -> Self {
        let mut ways = Self::ALL.into_iter().rev();
        ways.find(|way| way.is_available()).unwrap_or(Self::One)
    }

    /// Whether the processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::One => true,
            #[cfg(target_arch = "x86_64")]
            Self::Four => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Eight => std::arch::is_x86_feature_detected!("avx512f"),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}
