//! The opcode bodies, one file per chapter of the Yellow Paper's instruction table.

pub(crate) mod arithmetic;
pub(crate) mod bitwise;
pub(crate) mod block;
pub(crate) mod control;
pub(crate) mod environment;
pub(crate) mod memory;
pub(crate) mod stack;
pub(crate) mod storage;
pub(crate) mod system;

/// Declares an opcode: `op!(Name = code, in => out, |r| body)`. The body is an expression of type
/// `bool`; it runs with the static gas charged and the stack checked.
macro_rules! op {
    ($(#[$doc:meta])* $name:ident = $code:literal, $in:literal => $out:literal, |$r:ident| $body:expr) => {
        op!($(#[$doc])* $name = $code, $in => $out, size 1, |$r| $body);
    };
    ($(#[$doc:meta])* $name:ident = $code:literal, $in:literal => $out:literal, size $size:literal, |$r:ident| $body:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl crate::interpreter::Op for $name {
            const CODE: u8 = $code;
            const IN: usize = $in;
            const OUT: usize = $out;
            const SIZE: usize = $size;
            #[inline(always)]
            unsafe fn run($r: &mut crate::interpreter::Regs) -> bool {
                // SAFETY: the wrapper has checked the stack for this opcode; the frame, its
                // memory and its code outlive the run.
                unsafe { $body }
            }
        }
    };
}
pub(crate) use op;

/// An opcode that reads two words and does nothing but leave one.
#[cfg(target_arch = "x86_64")]
pub(crate) trait Binary: crate::interpreter::Op {
    /// The result for the top word `a` and the word `b` below.
    fn apply(a: &[u64; 4], b: &[u64; 4]) -> [u64; 4];
}

/// An opcode that pops two words and pushes one: `a` is the top.
macro_rules! binary {
    ($(#[$doc:meta])* $name:ident = $code:literal, |$a:ident, $b:ident| $result:expr) => {
        crate::ops::op!($(#[$doc])* $name = $code, 2 => 1, |r| {
            let ($a, $b) = (&(*r.peek(0)).0, &(*r.peek(1)).0);
            let result: [u64; 4] = $result;
            crate::word::write(r.peek(1), result);
            r.pop(1);
            true
        });
        #[cfg(target_arch = "x86_64")]
        impl crate::ops::Binary for $name {
            #[inline(always)]
            fn apply($a: &[u64; 4], $b: &[u64; 4]) -> [u64; 4] {
                $result
            }
        }
    };
}
pub(crate) use binary;

/// An opcode that pushes one word: `[u64; 4]`.
macro_rules! push {
    ($(#[$doc:meta])* $name:ident = $code:literal, |$r:ident| $result:expr) => {
        crate::ops::op!($(#[$doc])* $name = $code, 0 => 1, |$r| {
            let result: [u64; 4] = $result;
            crate::word::write($r.sp, result);
            $r.sp = $r.sp.add(1);
            true
        });
    };
}
pub(crate) use push;
