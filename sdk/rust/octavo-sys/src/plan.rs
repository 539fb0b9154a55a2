//! Sizes of a linear's calls: its verbs run without memory, for two numbers of rows.
use std::cell::Cell;
use std::ptr::{null, null_mut};

use crate::backend::Backend;
use crate::barrier::Error;
use crate::calls::{Addresses, BackwardCall, ForwardCall, WeightCall};
use crate::growable::fresh;
use crate::operands::Tensor;
use crate::pass::{extent_of, Pass, MEASURED_ROWS};
use crate::session::Session;
use crate::slots::{Linear, Parameter};
use crate::sys::*;
use crate::verbs::declined_flag;

impl<B: Backend> Session<B> {
    pub(crate) fn plan(&self, l: &Linear, w: &Parameter) -> Result<octavo_linear_plan, Error> {
        let mut plan: octavo_linear_plan = fresh();
        // What forward writes to `saved` before a backward, it may write to the workspace else.
        let forward = |saves, flags| {
            extent_of(MEASURED_ROWS, |m| {
                Ok(self.measure_forward(l, w, m, saves, flags)?.workspace_bytes())
            })
        };
        plan.forward_workspace = forward(true, 0)?;
        for one in [forward(false, 0)?, forward(false, OCTAVO_FORWARD_EVALUATION)?] {
            let all = &mut plan.forward_workspace;
            all.bytes_per_row = all.bytes_per_row.max(one.bytes_per_row);
            all.fixed_bytes = all.fixed_bytes.max(one.fixed_bytes);
        }
        let multiple = self.measure_forward(l, w, 0, true, 0)?.saved_rows();
        plan.saved =
            extent_of(multiple, |m| Ok(self.measure_forward(l, w, m, true, 0)?.saved_bytes()))?;
        plan.backward_workspace =
            extent_of(MEASURED_ROWS, |m| Ok(self.measure_backward(l, w, m)?.0.workspace_bytes()))?;
        if self.measure_backward(l, w, MEASURED_ROWS)?.1 {
            plan.flags |= OCTAVO_LINEAR_NEEDS_X;
        }
        plan.flags |= self.backend.declines() | self.device.declines();
        let trained = if w.is_frozen() { OCTAVO_GRADIENT_NONE } else { OCTAVO_GRADIENT_TENSOR };
        plan.gradient = trained;
        let mut p = Pass::measure(&self.device, 0);
        // SAFETY: without a list every address is null.
        let addresses = unsafe { Addresses::new(&w.places, null()) };
        self.backend.quantize_weight(&mut p, &WeightCall { parameter: w, addresses })?;
        plan.weight_workspace = p.workspace_bytes();
        Ok(plan)
    }

    /// A dtype to measure with: the first that is not declined.
    fn taken_dtype(&self) -> u32 {
        let declined = self.backend.declines() | self.device.declines();
        let all = [OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16];
        all.into_iter().find(|&dtype| declined_flag(dtype) & declined == 0).unwrap_or(OCTAVO_F32)
    }

    fn measure_forward<'c>(
        &'c self,
        linear: &'c Linear,
        weight: &'c Parameter,
        m: i64,
        saves: bool,
        flags: u32,
    ) -> Result<Pass<'c>, Error> {
        let dtype = self.taken_dtype();
        let matrix = |rows, cols| Tensor::new(null_mut(), rows, cols, dtype);
        let mut p = Pass::measure(&self.device, m);
        let call = ForwardCall {
            linear,
            weight,
            x: matrix(m, weight.cols),
            y: matrix(m, weight.rows),
            bias: Some(matrix(1, weight.rows)),
            flags,
            saves,
            // SAFETY: without a list every address is null.
            addresses: unsafe { Addresses::new(&linear.places, null()) },
        };
        self.backend.linear_forward(&mut p, &call)?;
        Ok(p)
    }

    /// The second: whether backward asks for x.
    fn measure_backward<'c>(
        &'c self,
        linear: &'c Linear,
        weight: &'c Parameter,
        m: i64,
    ) -> Result<(Pass<'c>, bool), Error> {
        let dtype = self.taken_dtype();
        let matrix = |rows, cols| Tensor::new(null_mut(), rows, cols, dtype);
        let mut p = Pass::measure(&self.device, m);
        let call = BackwardCall {
            linear,
            weight,
            dy: matrix(m, weight.rows),
            dx: Some(matrix(m, weight.cols)),
            dw: Some(matrix(weight.rows, weight.cols)).filter(|_| !weight.is_frozen()),
            db: Some(matrix(1, weight.rows)),
            x: Some(matrix(m, weight.cols)),
            asks_for_x: Cell::new(false),
            flags: 0,
            // SAFETY: without a list every address is null.
            addresses: unsafe { Addresses::new(&linear.places, null()) },
        };
        self.backend.linear_backward(&mut p, &call)?;
        let asks_for_x = call.asks_for_x.get();
        Ok((p, asks_for_x))
    }
}
