//! What an author writes: one type with the method of training.
use crate::barrier::{Done, Error};
use crate::calls::{BackwardCall, ForwardCall, StepCall, WeightCall};
use crate::device::{Device, Verdict, Verdicts};
use crate::options::Options;
use crate::pass::Pass;
use crate::slots::{Linear, Parameter, Slots};
use crate::sys::*;

/// A session of an FP8 method. The three verbs with a [`Pass`] depend on nothing but the call and
/// the options: they also run without memory, to find the sizes of a plan.
pub trait Backend: Sized + Send + Sync + 'static {
    type Options: Options;

    /// Whether a session can run here: says so in `verdicts`, at least once. It asks about each
    /// call of the verbs.
    fn check(_device: &Device, _options: &Self::Options, verdicts: &mut Verdicts<'_>) {
        verdicts.need_casts(&[OCTAVO_E4M3FN, OCTAVO_E5M2]);
        verdicts.need_calls(&[
            (OCTAVO_KIND_GEMM, OCTAVO_E4M3FN, OCTAVO_E4M3FN),
            (OCTAVO_KIND_GEMM, OCTAVO_E5M2, OCTAVO_E4M3FN),
            (OCTAVO_KIND_SUM, OCTAVO_F32, 0),
            (OCTAVO_KIND_DEQUANTIZE, OCTAVO_F32, 0),
            (OCTAVO_KIND_COPY, 0, 0),
        ]);
        verdicts.accept("the kernels have float8_e4m3fn and float8_e5m2");
    }
    /// A session: states its slots and keeps their handles.
    fn open(slots: &mut Slots<'_>, options: Self::Options) -> Result<Self, Error>;
    /// Whether a tensor of a plain dtype runs in FP8; a refusal leaves it with the host.
    fn add_parameter(&self, _parameter: &Parameter) -> Verdict {
        Verdict::accept()
    }
    fn add_linear(&self, _linear: &Linear, _weight: &Parameter) -> Verdict {
        Verdict::accept()
    }
    /// OCTAVO_LINEAR_DECLINES_...: x, y, dy and dx of these dtypes are not taken. Calls with them
    /// are refused before a verb runs.
    fn declines(&self) -> u32 {
        0
    }
    /// Refreshes the weight cache, of which it is the only writer.
    fn quantize_weight<'c>(&self, _p: &mut Pass<'c>, _c: &WeightCall<'c>) -> Done {
        Ok(())
    }
    fn linear_forward<'c>(&self, p: &mut Pass<'c>, c: &ForwardCall<'c>) -> Done;
    fn linear_backward<'c>(&self, p: &mut Pass<'c>, c: &BackwardCall<'c>) -> Done;
    /// Derives the next scales. What verbs accumulated is cleared after it.
    fn end_step<'c>(&self, _p: &mut Pass<'c>, _c: &StepCall<'c>) -> Done {
        Ok(())
    }
}
