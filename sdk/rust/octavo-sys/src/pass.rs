//! One verb under way: its workspace, and the kernels that it calls.
//!
//! The same code runs in two ways. Measuring, when a session is sealed, there is no memory: pieces
//! are null, no kernel runs, and what everything needs is added up. Running, kernels are called.
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr::null_mut;

use crate::barrier::{Done, Error};
use crate::device::{round_up, Device};
use crate::growable::Call;
use crate::operands::{skip, width, Codes, Directions, Floats, Tensor};
use crate::sys::*;

/// Kernels promise that what they ask for is affine over multiples of 256 rows, and so
/// are pieces at multiples of 256 bytes: two questions give the formula.
pub(crate) const MEASURED_ROWS: i64 = 256;

/// A function of the kernels table.
pub type Kernel<C> = Option<unsafe extern "C" fn(*mut c_void, *const C) -> octavo_status>;

/// A buffer of the host's, handed out in order. `limit` is what the plan states.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    base: *mut c_void,
    used: u64,
    limit: u64,
}

impl Buffer {
    pub fn new(base: *mut c_void, limit: u64) -> Self {
        Buffer { base, used: 0, limit }
    }
    fn take(&mut self, bytes: i64) -> Result<*mut c_void, Error> {
        let at = skip(self.base, self.used as i64);
        self.used += bytes as u64;
        if self.used > self.limit {
            return Err(Error::new(
                OCTAVO_INTERNAL,
                format!(
                    "takes {} bytes where its plan states {}; a verb depends on nothing but the call and the options",
                    self.used, self.limit
                ),
            ));
        }
        Ok(at)
    }
}

/// What a verb works with.
pub struct Pass<'c> {
    device: &'c Device,
    measuring: bool,
    rows: i64,
    stream: *mut c_void,
    work: Buffer,
    saved: Buffer,
    saved_rows: i64,
    kernels: u64,
    kernels_end: u64,
    /// The session's flag, which casts of plain matrices set.
    pub(crate) flag: Floats<'c>,
    call: PhantomData<&'c ()>,
}

impl<'c> Pass<'c> {
    /// `rows` is M, or 0 where a verb has none.
    pub(crate) fn new(
        device: &'c Device,
        rows: i64,
        stream: *mut c_void,
        work: Buffer,
        saved: Buffer,
    ) -> Self {
        Pass {
            device,
            measuring: false,
            rows,
            stream,
            work,
            saved,
            saved_rows: 1,
            kernels: 0,
            kernels_end: 0,
            flag: Floats::none(),
            call: PhantomData,
        }
    }
    pub(crate) fn measure(device: &'c Device, rows: i64) -> Self {
        let endless = Buffer::new(null_mut(), u64::MAX);
        Pass { measuring: true, ..Pass::new(device, rows, null_mut(), endless, endless) }
    }
    pub(crate) fn workspace_bytes(&self) -> u64 {
        (self.work.used + self.kernels).max(self.kernels_end)
    }
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.saved.used
    }
    /// Rows of `saved` come in multiples of this.
    pub(crate) fn saved_rows(&self) -> i64 {
        self.saved_rows
    }
    pub fn device(&self) -> &'c Device {
        self.device
    }
    /// Nothing runs yet: a plan is made.
    pub fn is_measuring(&self) -> bool {
        self.measuring
    }

    /// A piece of the workspace, at a multiple of 256 bytes.
    fn take(&mut self, bytes: i64) -> Result<*mut c_void, Error> {
        self.work.used = (self.work.used + 255) & !255;
        self.work.take(bytes)
    }
    /// A matrix in the workspace.
    pub fn matrix(&mut self, rows: i64, cols: i64, dtype: u32) -> Result<Tensor<'c>, Error> {
        Ok(Tensor::new(self.take(bytes_of_matrix(rows, cols, dtype)?)?, rows, cols, dtype))
    }
    /// Float32 values in the workspace.
    pub fn floats(&mut self, count: i64) -> Result<Floats<'c>, Error> {
        Ok(Floats::new(self.matrix(1, count, OCTAVO_F32)?))
    }
    /// Room in the workspace for codes of a matrix [rows, cols], padded as FP8 products need it.
    pub fn codes(
        &mut self,
        rows: i64,
        cols: i64,
        dtype: u32,
        directions: Directions,
    ) -> Result<Codes<'c>, Error> {
        let (r, c) = (self.device.aligned(rows), self.device.aligned(cols));
        let scale_inv = self.floats(1)?;
        let mut rows = None;
        let mut columns = None;
        if directions.has_rows() {
            rows = Some(self.matrix(r, c, dtype)?);
        }
        if directions.has_columns() {
            columns = Some(self.matrix(c, r, dtype)?);
        }
        Ok(Codes::new(rows, columns, scale_inv))
    }
    /// Codes of x [M, cols], transposed, and their scale_inv in `saved`: the same in forward, which
    /// writes them, and in backward, which reads them.
    pub fn saved_columns(&mut self, cols: i64, dtype: u32) -> Result<Codes<'c>, Error> {
        // Both are powers of two.
        let multiple = self.device.alignment().max(16);
        self.saved_rows = self.saved_rows.max(multiple);
        let (height, rows) = (self.device.aligned(cols), round_up(self.rows, multiple));
        let bytes = bytes_of_matrix(height, rows, dtype)?;
        let codes = Tensor::new(self.saved.take(bytes)?, height, rows, dtype);
        let scale = Tensor::new(self.saved.take(width(OCTAVO_F32))?, 1, 1, OCTAVO_F32);
        Ok(Codes::new(None, Some(codes), Floats::new(scale)))
    }
    /// The same with rows [M, cols] in the workspace: for a forward that casts x once for both.
    pub fn saved_columns_and_rows(&mut self, cols: i64, dtype: u32) -> Result<Codes<'c>, Error> {
        let saved = self.saved_columns(cols, dtype)?;
        let (m, k) = (self.device.aligned(self.rows), self.device.aligned(cols));
        Ok(Codes { rows: Some(self.matrix(m, k, dtype)?), ..saved })
    }

    /// Any kernel: `p.run(|k| k.gemm, call)`. The stream and the workspace are set here.
    ///
    /// # Safety
    /// The addresses in `call` are of this verb's call and its workspace, as large as it states.
    pub unsafe fn run<C: Call>(
        &mut self,
        kernel: impl Fn(&octavo_kernels) -> Kernel<C>,
        mut call: C,
    ) -> Done {
        let workspace = if C::WORKS { self.take(0)? } else { null_mut() };
        call.place(self.stream, workspace);
        if self.measuring {
            return if C::WORKS { self.need((&call as *const C).cast()) } else { Ok(()) };
        }
        match kernel(&self.device.kernels) {
            Some(kernel) => Error::check(kernel(self.device.ctx, &call)),
            None => Err(Error::unsupported("the kernels lack a function that this backend calls")),
        }
    }

    /// Kernels run one after the other. In a verb of M rows the sum of what they ask for is enough,
    /// and affine in M, which their maximum need not be. Else the maximum is.
    fn need(&mut self, call: *const c_void) -> Done {
        let mut bytes = 0;
        let ask = self.device.kernels.workspace_bytes;
        let ask = ask.ok_or_else(|| Error::unsupported("the kernels state no workspaces"))?;
        // SAFETY: `call` is a struct of the kernels, in which only shapes are read.
        Error::check(unsafe { ask(self.device.ctx, call, &mut bytes) })?;
        let bytes = (bytes + 255) & !255;
        if self.rows > 0 {
            self.kernels += bytes;
        } else {
            self.kernels_end = self.kernels_end.max(self.work.used + bytes);
        }
        Ok(())
    }
}

fn bytes_of_matrix(rows: i64, cols: i64, dtype: u32) -> Result<i64, Error> {
    let elements = rows.checked_mul(cols).filter(|_| rows >= 0 && cols >= 0);
    elements.and_then(|n| n.checked_mul(width(dtype))).ok_or_else(|| {
        let text = format!("expected sizes of a matrix in memory, found [{rows}, {cols}]");
        Error::new(OCTAVO_INTERNAL, text)
    })
}

/// The formula of what `used` says. Pieces that grow by multiples of 256 bytes over 256 rows are affine; their rounding
/// hides the growth of others, for which the formula is the least one that suffices.
pub(crate) fn extent_of(
    row_multiple: i64,
    mut used: impl FnMut(i64) -> Result<u64, Error>,
) -> Result<octavo_extent, Error> {
    const PERIOD: i64 = 256; // so many times 256 rows, every piece grows by 256 bytes or more
    let rows = MEASURED_ROWS as u64;
    let mut at = |multiple: i64| used(multiple * MEASURED_ROWS);
    let (one, two, far, farther) = (at(1)?, at(2)?, at(PERIOD)?, at(2 * PERIOD)?);
    let (grows, period) = (two - one, PERIOD as u64);
    if grows % rows == 0 && far - one == (period - 1) * grows && farther - far == period * grows {
        let bytes_per_row = grows / rows;
        let fixed_bytes = one - grows;
        return Ok(octavo_extent { row_multiple: row_multiple as u64, bytes_per_row, fixed_bytes });
    }
    let bytes_per_row = (farther - far + period * rows - 1) / (period * rows);
    let mut fixed_bytes = 0;
    for m in 0..=PERIOD {
        fixed_bytes = fixed_bytes.max(at(m)?.saturating_sub(bytes_per_row * rows * m as u64));
    }
    Ok(octavo_extent { row_multiple: rows, bytes_per_row, fixed_bytes })
}

/// What an extent gives for `rows`, which the verbs bound.
pub(crate) fn bytes_of(extent: &octavo_extent, rows: i64) -> u64 {
    let multiple = extent.row_multiple.max(1);
    let rows = (rows as u64 + multiple - 1) / multiple * multiple;
    rows.saturating_mul(extent.bytes_per_row).saturating_add(extent.fixed_bytes)
}
