//! Texts of the contract: UTF-8 with a length.
use std::sync::Mutex;

use crate::sys::octavo_str;

/// Borrowed: the other side copies what it keeps.
pub const fn borrow(text: &str) -> octavo_str {
    octavo_str { data: text.as_ptr().cast(), size: text.len() as u64 }
}

/// A copy, in which bytes that are no UTF-8 are replaced.
///
/// # Safety
/// `data` points to `size` bytes, or is null.
pub unsafe fn owned(text: octavo_str) -> String {
    if text.data.is_null() || text.size == 0 {
        return String::new();
    }
    let bytes = std::slice::from_raw_parts(text.data.cast::<u8>(), text.size as usize);
    String::from_utf8_lossy(bytes).into_owned()
}

/// The text of a constant of the bindings, which ends with a zero.
pub const fn constant(bytes: &'static [u8]) -> octavo_str {
    octavo_str { data: bytes.as_ptr().cast(), size: bytes.len() as u64 - 1 }
}

/// A text that outlives every session: each different one is kept once.
pub fn kept(text: &str) -> &'static str {
    static KEPT: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut all = KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(same) = all.iter().find(|one| **one == text) {
        return same;
    }
    let new: &'static str = Box::leak(text.to_owned().into_boxed_str());
    all.push(new);
    new
}
