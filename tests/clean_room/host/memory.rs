//! Buffers between guard pages. The last byte of a buffer, rounded up to its alignment, lies before a
//! page that nobody may touch, and another such page comes before the first one. What remains of
//! the pages around the data holds a pattern, which `free` compares.

use crate::abi::*;
use std::cell::RefCell;
use std::collections::BTreeMap;

extern "C" {
    fn mmap(at: *mut c_void, n: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, n: usize) -> i32;
    fn mprotect(at: *mut c_void, n: usize, prot: i32) -> i32;
}
const PAGE: usize = 4096;
const PATTERN: u8 = 0xc5;
/// A pattern that is NaN in f32, bf16 and most formats of codes, for memory that nobody wrote.
pub const JUNK: u8 = 0xff;

struct Buffer {
    map: usize,
    pages: usize,
    bytes: usize,
}
#[derive(Default)]
struct Arena {
    live: BTreeMap<usize, Buffer>,
    locked: bool,
}
thread_local!(static ARENA: RefCell<Arena> = RefCell::default());

/// Memory filled with JUNK, as little aligned as `align` allows. Of 0 bytes: an address, but no
/// byte that can be touched.
pub fn alloc(bytes: usize, align: usize) -> *mut u8 {
    let reach = (bytes + align - 1) / align * align;
    let pages = (reach + PAGE - 1) / PAGE;
    unsafe {
        let map = mmap(std::ptr::null_mut(), (pages + 2) * PAGE, 0, 0x22, -1, 0) as usize;
        assert!(map != usize::MAX, "out of memory");
        let (first, end) = (map + PAGE, map + PAGE + pages * PAGE);
        let data = end - reach;
        if pages > 0 {
            assert!(mprotect(first as *mut c_void, pages * PAGE, 3) == 0);
            std::ptr::write_bytes(first as *mut u8, PATTERN, pages * PAGE);
            std::ptr::write_bytes(data as *mut u8, JUNK, bytes);
        }
        ARENA.with(|a| a.borrow_mut().live.insert(data, Buffer { map, pages, bytes }));
        data as *mut u8
    }
}

pub fn free(data: *mut u8) {
    lock(false);
    let b = ARENA.with(|a| a.borrow_mut().live.remove(&(data as usize))).expect("a live buffer");
    unsafe {
        let (first, end) = (b.map + PAGE, b.map + PAGE + b.pages * PAGE);
        let around = (first..data as usize).chain(data as usize + b.bytes..end);
        for at in around {
            assert!(
                *(at as *const u8) == PATTERN,
                "a byte beside a buffer of {} was written",
                b.bytes
            );
        }
        munmap(b.map as *mut c_void, (b.pages + 2) * PAGE);
    }
}

/// Takes every buffer away, as device memory is for the host's code, or gives it back.
pub fn lock(yes: bool) {
    ARENA.with(|a| {
        let mut a = a.borrow_mut();
        if a.locked != yes {
            for b in a.live.values().filter(|b| b.pages > 0) {
                let prot = if yes { 0 } else { 3 };
                unsafe { mprotect((b.map + PAGE) as *mut c_void, b.pages * PAGE, prot) };
            }
            a.locked = yes;
        }
    })
}
