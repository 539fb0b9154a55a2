//! The memory of a slot, and of a parameter of the host.

use crate::abi::*;
use crate::memory;
use crate::values::{get, put, tensor};

pub struct SlotMemory {
    pub key: String,
    pub name: String,
    pub desc: Slot,
    pub labels: Option<Vec<String>>,
    pub data: *mut u8,
    pub bytes: usize,
}
impl SlotMemory {
    pub fn content(&self) -> &'static mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(self.data, self.bytes) }
    }
    pub fn is(&self, flag: u32) -> bool {
        self.desc.flags & flag != 0
    }
    /// Fills it with its initial value, which is 0 if an element is shorter than 4 bytes, or compares it
    /// with that if liboctavo has filled it.
    pub fn fill(&self, is_filled: bool) {
        let initial = match self.desc.dtype {
            F32 => (self.desc.initial as f32).to_ne_bytes(),
            I32 => (self.desc.initial as i32).to_ne_bytes(),
            _ => [0; 4],
        };
        for (i, b) in self.content().iter_mut().enumerate().filter(|_| !self.is(SLOT_NATIVE)) {
            assert!(!is_filled || *b == initial[i % 4], "{} has another initial value", self.key);
            *b = initial[i % 4];
        }
    }
}

/// A weight or a bias: the host's f32 master and momentum, and what calls get of it.
pub struct Parameter {
    pub name: String,
    pub cols: usize,
    pub master: Vec<f32>,
    pub momentum: Vec<f32>,
    pub value: Tensor,
    pub gradient: Tensor,
}
impl Parameter {
    pub fn new(
        name: &str,
        cols: usize,
        (dtype, gradient): (u32, u32),
        initial: Vec<f32>,
    ) -> Parameter {
        let rows = initial.len() / cols;
        let p = Parameter {
            name: name.into(),
            cols,
            momentum: vec![0.0; initial.len()],
            master: initial,
            value: tensor(rows, cols, 0, dtype),
            gradient: tensor(rows, cols, 0, gradient),
        };
        p.show();
        p
    }
    /// Writes the value that calls see.
    pub fn show(&self) {
        self.master
            .iter()
            .enumerate()
            .for_each(|(i, v)| put(&self.value, i / self.cols, i % self.cols, *v));
    }
    pub fn step(&mut self) {
        for i in 0..self.master.len() {
            self.momentum[i] =
                0.9 * self.momentum[i] + get(&self.gradient, i / self.cols, i % self.cols);
            self.master[i] -= 0.5 * self.momentum[i];
        }
        self.show();
    }
}
impl Drop for Parameter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        [self.value, self.gradient].into_iter().for_each(|t| memory::free(t.data as *mut u8));
    }
}
