//! Structs that can grow: made, read and written whatever the age of the other side.
use std::mem::{size_of, MaybeUninit};
use std::os::raw::c_void;
use std::ptr::copy_nonoverlapping;

use crate::sys::*;

/// A struct of the contract that starts with `size` and `kind`. build.rs lists them.
///
/// # Safety
/// The first two fields are `size: u32` and `kind: u32`, and zeroed bytes are a value.
pub unsafe trait Growable: Copy {
    /// `OCTAVO_KIND_...`
    const KIND: u32;
}

/// The arguments of a kernel or a verb, which run on a stream.
///
/// # Safety
/// `place` sets the struct's `stream`, and its `workspace` where `WORKS` is true.
pub unsafe trait Call: Growable {
    const WORKS: bool;
    fn place(&mut self, stream: *mut c_void, workspace: *mut c_void);
}

include!(concat!(env!("OUT_DIR"), "/growable.rs"));

/// All zero but size and kind.
pub fn fresh<T: Growable>() -> T {
    let mut own = MaybeUninit::<T>::zeroed();
    // SAFETY: Growable says that the struct begins with these two and that the rest may be zero.
    unsafe {
        own.as_mut_ptr().cast::<[u32; 2]>().write([size_of::<T>() as u32, T::KIND]);
        own.assume_init()
    }
}

/// OCTAVO_TAKE: a copy of what both sides know. The rest is zero, and `size` is the smaller of the
/// two.
///
/// # Safety
/// `given` points to a struct of this kind, of as many bytes as its `size` states.
pub unsafe fn take<T: Growable>(given: *const T) -> T {
    let size = given.cast::<u32>().read().min(size_of::<T>() as u32);
    let mut own = MaybeUninit::<T>::zeroed();
    copy_nonoverlapping(given.cast::<u8>(), own.as_mut_ptr().cast::<u8>(), size as usize);
    own.as_mut_ptr().cast::<u32>().write(size);
    own.assume_init()
}

/// Writes `own` to the other side's struct, no further than that one reaches.
///
/// # Safety
/// As for `take`, and nobody else uses `out` meanwhile.
pub unsafe fn give<T: Growable>(own: T, out: *mut T) {
    let size = out.cast::<u32>().read().min(size_of::<T>() as u32) as usize;
    let header = size_of::<[u32; 2]>();
    let from = (&own as *const T).cast::<u8>();
    if size > header {
        copy_nonoverlapping(from.add(header), out.cast::<u8>().add(header), size - header);
    }
}
