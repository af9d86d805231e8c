//! The frame that an opcode of the C program gets.

use crate::types::{CAddress, CWord};
use niwaki_evm::{HostError, Machine};
use niwaki_primitives::U256;

/// `niwaki_frame`.
#[derive(Debug)]
pub struct CFrame<'m, 'f> {
    machine: &'m mut Machine<'f>,
    /// The error of the frame, if it has failed.
    pub(crate) failed: Option<HostError>,
}

impl<'m, 'f> CFrame<'m, 'f> {
    pub(crate) fn new(machine: &'m mut Machine<'f>) -> Self {
        Self {
            machine,
            failed: None,
        }
    }

    /// Runs `run` unless the frame has failed; false if it has failed now.
    fn run(&mut self, run: impl FnOnce(&mut Machine<'f>) -> Result<(), HostError>) -> bool {
        if self.failed.is_none() {
            self.failed = run(self.machine).err();
        }
        self.failed.is_none()
    }
}

/// Pops a word.
///
/// # Safety
/// `frame` must be the one that the opcode has got; `word` must be valid for writing a word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_frame_pop(frame: &mut CFrame<'_, '_>, word: *mut CWord) -> bool {
    frame.run(|machine| {
        let top = machine.pop()?;
        // SAFETY: as the caller promises.
        unsafe { word.write(top.into()) };
        Ok(())
    })
}

/// Pushes a word.
///
/// # Safety
/// As for [`niwaki_frame_pop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_frame_push(frame: &mut CFrame<'_, '_>, word: &CWord) -> bool {
    frame.run(|machine| Ok(machine.push((*word).into())?))
}

/// Charges gas.
///
/// # Safety
/// As for [`niwaki_frame_pop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_frame_charge(frame: &mut CFrame<'_, '_>, gas: u64) -> bool {
    frame.run(|machine| Ok(machine.charge(gas)?))
}

/// A range of memory.
///
/// # Safety
/// As for [`niwaki_frame_pop`]; `data` must be valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_frame_memory(
    frame: &mut CFrame<'_, '_>,
    offset: &CWord,
    length: &CWord,
    data: *mut *mut u8,
) -> bool {
    frame.run(|machine| {
        let range = machine.memory((*offset).into(), (*length).into())?;
        // SAFETY: as the caller promises.
        unsafe { data.write(range.as_mut_ptr()) };
        Ok(())
    })
}

/// Reads a slot of the frame's account.
///
/// # Safety
/// As for [`niwaki_frame_pop`]; `value` must be valid for writing a word.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_frame_load(
    frame: &mut CFrame<'_, '_>,
    key: &CWord,
    value: *mut CWord,
) -> bool {
    frame.run(|machine| {
        let address = machine.address();
        let found: U256 = machine.state().storage(&address, (*key).into())?;
        // SAFETY: as the caller promises.
        unsafe { value.write(found.into()) };
        Ok(())
    })
}

/// Writes a slot of the frame's account.
///
/// # Safety
/// As for [`niwaki_frame_pop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_frame_store(
    frame: &mut CFrame<'_, '_>,
    key: &CWord,
    value: &CWord,
) -> bool {
    frame.run(|machine| {
        let address = machine.address();
        let mut state = machine.state();
        state.set_storage(&address, (*key).into(), (*value).into())
    })
}

/// Gas left.
///
/// # Safety
/// As for [`niwaki_frame_pop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_frame_gas_left(frame: &CFrame<'_, '_>) -> u64 {
    frame.machine.gas_left()
}

/// Account whose storage is used.
///
/// # Safety
/// As for [`niwaki_frame_pop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_frame_address(frame: &CFrame<'_, '_>) -> CAddress {
    frame.machine.address().into()
}

/// CALLER.
///
/// # Safety
/// As for [`niwaki_frame_pop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn niwaki_frame_caller(frame: &CFrame<'_, '_>) -> CAddress {
    frame.machine.caller().into()
}
