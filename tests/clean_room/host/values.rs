//! Matrices in f32 and bf16 as the host computes with them.

use crate::abi::*;
use crate::memory;

pub fn address(t: &Tensor, row: usize, col: usize) -> *mut u8 {
    (t.data as *mut u8).wrapping_add((row * t.stride as usize + col) * dtype_bytes(t.dtype, 1))
}
pub fn put(t: &Tensor, row: usize, col: usize, value: f32) {
    unsafe {
        match t.dtype {
            F32 => (address(t, row, col) as *mut f32).write(value),
            _ => {
                let bits = value.to_bits();
                let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
                (address(t, row, col) as *mut u16).write(if value.is_nan() {
                    0x7fc0
                } else {
                    rounded as u16
                })
            }
        }
    }
}
pub fn get(t: &Tensor, row: usize, col: usize) -> f32 {
    unsafe {
        match t.dtype {
            F32 => (address(t, row, col) as *const f32).read(),
            _ => f32::from_bits(((address(t, row, col) as *const u16).read() as u32) << 16),
        }
    }
}
pub fn rows_of(t: Tensor, begin: usize, end: usize) -> Tensor {
    let data =
        if begin == end { std::ptr::null_mut() } else { address(&t, begin, 0) as *mut c_void };
    Tensor { data, rows: (end - begin) as i64, ..t }
}
pub fn each(t: &Tensor, mut f: impl FnMut(usize, usize)) {
    for r in 0..t.rows as usize {
        for c in 0..t.cols as usize {
            f(r, c);
        }
    }
}
/// FNV-1a of further bytes.
pub fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |h, b| (h ^ *b as u64).wrapping_mul(0x100000001b3))
}
/// FNV-1a of further numbers. NaN is one value: its bits depend on the processor.
pub fn fold(hash: u64, values: impl Iterator<Item = f32>) -> u64 {
    values.fold(hash, |h, v| fnv(h, &if v.is_nan() { u32::MAX } else { v.to_bits() }.to_le_bytes()))
}
/// All elements, row by row.
pub fn elements(t: &Tensor) -> impl Iterator<Item = f32> + '_ {
    let cols = t.cols as usize;
    (0..t.rows as usize * cols).map(move |i| get(t, i / cols, i % cols))
}
/// A number from -1 to 1 that follows from its names.
pub fn noise(names: [usize; 4]) -> f32 {
    let h = names.iter().fold(0xcbf29ce484222325, |h, n| fnv(h, &n.to_le_bytes()));
    let mixed = (h ^ h >> 29).wrapping_mul(0xbf58476d1ce4e5b9);
    (mixed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}
/// A tensor in memory of its own, with `gap` elements between rows that nobody may write.
pub fn tensor(rows: usize, cols: usize, gap: usize, dtype: u32) -> Tensor {
    let element = dtype_bytes(dtype, 1);
    let data = match rows {
        0 => std::ptr::null_mut(),
        _ => memory::alloc(((rows - 1) * (cols + gap) + cols) * element, element),
    };
    let stride = (cols + gap) as i64;
    Tensor {
        data: data as *mut c_void,
        rows: rows as i64,
        cols: cols as i64,
        stride,
        dtype,
        reserved: 0,
    }
}
