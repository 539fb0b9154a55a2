//! What samples/rust_plugin does not use: slots by rule, a scale from the last step's amax, a kernel of
//! its own choice, plain operands, x in backward.
use octavo_sys::growable::fresh;
use octavo_sys::sys::*;
use octavo_sys::*;

struct Delayed {
    weight: MatrixSlot,
    rows: CodesSlot,
    columns: CodesSlot,
    nonfinite: FloatSlot,
    amax: FloatSlot,
    scale: FloatSlot,
}

impl Backend for Delayed {
    type Options = ();

    fn check(_: &Device, _: &(), verdicts: &mut Verdicts<'_>) {
        let plain = [OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16];
        verdicts.need_casts(&[OCTAVO_E4M3FN, OCTAVO_E5M2]);
        verdicts.need_calls(&[
            (OCTAVO_KIND_GEMM, OCTAVO_E4M3FN, OCTAVO_E4M3FN),
            (OCTAVO_KIND_GEMM, OCTAVO_E5M2, OCTAVO_E4M3FN),
            (OCTAVO_KIND_SCALE_FROM_AMAX, 0, 0),
            (OCTAVO_KIND_COPY, 0, 0),
        ]);
        for dtype in plain {
            verdicts.need_calls(&plain.map(|other| (OCTAVO_KIND_GEMM, dtype, other)));
            verdicts.need_calls(&[
                (OCTAVO_KIND_SUM, dtype, 0),
                (OCTAVO_KIND_COMPUTE_AMAX, dtype, 0),
                (OCTAVO_KIND_DEQUANTIZE, dtype, 0),
            ]);
        }
        verdicts.accept("the kernels have every call");
    }
    fn open(slots: &mut Slots, _: ()) -> Result<Self, Error> {
        let session = |name, role| SlotRule::new(Owner::Session, name, role);
        // end_step reads it, so it also clears it.
        let amax = session("x/amax", OCTAVO_ROLE_AMAX)
            .accumulate(OCTAVO_VERB_FORWARD, OCTAVO_COMBINE_MAX)
            .update(&[OCTAVO_VERB_END_STEP]);
        let mut scale = session("x/scale", OCTAVO_ROLE_SCALE);
        scale.flags = OCTAVO_SLOT_CHECKPOINT;
        scale.initial = 1.0;
        Ok(Delayed {
            rows: slots.weight_codes("rows", OCTAVO_E4M3FN, Directions::Rows),
            weight: slots.native_weight(&[OCTAVO_VERB_QUANTIZE_WEIGHT]),
            columns: slots.weight_codes("columns", OCTAVO_E4M3FN, Directions::Columns),
            nonfinite: slots.nonfinite(),
            amax: slots.floats(amax),
            scale: slots.floats(scale.read(&[OCTAVO_VERB_FORWARD]).update(&[OCTAVO_VERB_END_STEP])),
        })
    }

    fn quantize_weight<'c>(&self, p: &mut Pass<'c>, c: &WeightCall<'c>) -> Done {
        p.cast(c.at(self.weight), c.at(self.rows))?;
        p.cast(c.at(self.weight), c.at(self.columns))
    }

    fn linear_forward<'c>(&self, p: &mut Pass<'c>, c: &ForwardCall<'c>) -> Done {
        let x = p.codes(c.m(), c.k(), OCTAVO_E4M3FN, Directions::Rows)?;
        let (amax, scale) = (c.at(self.amax), c.at(self.scale));
        let how = Cast { amax, scale, rule: OCTAVO_RULE_GIVEN, ..Cast::default() };
        p.cast_with(c.x, x, how)?;
        p.multiply(x.by_rows(), c.at(self.rows).by_rows(), c.y, c.bias, false)
    }

    fn linear_backward<'c>(&self, p: &mut Pass<'c>, c: &BackwardCall<'c>) -> Done {
        let nonfinite = c.at(self.nonfinite);
        if let Some(dx) = c.dx {
            let dy = p.codes(c.m(), c.n(), OCTAVO_E5M2, Directions::Rows)?;
            p.cast_with(c.dy, dy, Cast { nonfinite, ..Cast::default() })?;
            p.multiply(dy.by_rows(), c.at(self.columns).by_columns(), dx, None, false)?;
        }
        if c.dx.is_none() || p.is_measuring() {
            let amax = p.floats(1)?;
            p.clear(amax)?;
            p.record_amax(c.dy, amax, nonfinite)?;
        }
        if let Some(dw) = c.dw {
            let (dy, x) = (Operand::transposed(c.dy), Operand::transposed(c.x()?));
            p.multiply(dy, x, dw, None, c.accumulates())?;
        }
        match c.db {
            Some(db) => p.add_column_sums(c.dy, db, c.accumulates()),
            None => Ok(()),
        }
    }

    /// The next scale: half of what the largest value of this step allows.
    fn end_step<'c>(&self, p: &mut Pass<'c>, c: &StepCall<'c>) -> Done {
        let (amax, scale) = (c.at(self.amax).raw(), c.at(self.scale).raw());
        let mut call: octavo_scale_from_amax = fresh();
        call.amax = amax;
        call.scale = scale;
        call.kept = scale;
        call.n = 1;
        call.format_max = 448.0;
        call.divide_by = 0.5;
        call.rule = OCTAVO_RULE_QUOTIENT;
        // SAFETY: both are slots of this call, of one value each.
        unsafe { p.run(|k| k.scale_from_amax, call) }?;
        p.clear(c.at(self.amax))
    }
}

octavo_sys::plugin!(Delayed);
