//! FP8 linear layers with current scaling, E4M3 forward and E5M2 backward, in safe Rust.
//!
//! It says what memory it needs and which casts and products make a layer; octavo-sys does the
//! rest: options, verdicts, seal, sizes, padding, tables and the barrier against panics.
#![forbid(unsafe_code)]
use octavo_sys::sys::*;
use octavo_sys::*;

octavo_sys::options! {
    pub struct Options {
        /// keeps FP8 codes of the weights between steps; false: casts them in every call
        weight_cache: bool = true,
    }
}

/// Handles of the session's slots. Without a cache the verbs read the weight itself.
struct Current {
    weight: MatrixSlot,
    cache: Option<CodesSlot>,
}

impl Backend for Current {
    type Options = Options;

    fn open(slots: &mut Slots, options: Options) -> Result<Self, Error> {
        slots.nonfinite();
        let (readers, cache) = if options.weight_cache {
            let cache = slots.weight_codes("weight_cache", OCTAVO_E4M3FN, Directions::Both);
            (vec![OCTAVO_VERB_QUANTIZE_WEIGHT], Some(cache))
        } else {
            (vec![OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD], None)
        };
        Ok(Current { weight: slots.native_weight(&readers), cache })
    }

    fn quantize_weight<'c>(&self, p: &mut Pass<'c>, c: &WeightCall<'c>) -> Done {
        match self.cache {
            Some(cache) => p.cast(c.at(self.weight), c.at(cache)),
            None => Ok(()),
        }
    }

    /// y = x w^T + bias
    fn linear_forward<'c>(&self, p: &mut Pass<'c>, c: &ForwardCall<'c>) -> Done {
        let x = if c.keeps() {
            p.saved_columns_and_rows(c.k(), OCTAVO_E4M3FN)?
        } else {
            p.codes(c.m(), c.k(), OCTAVO_E4M3FN, Directions::Rows)?
        };
        p.cast(c.x, x)?;
        let w = self.codes_of(p, c, c.weight, Directions::Rows)?;
        p.multiply(x.by_rows(), w.by_rows(), c.y, c.bias, false)
    }

    /// dx = dy w, dw += dy^T x, db += column sums of dy
    fn linear_backward<'c>(&self, p: &mut Pass<'c>, c: &BackwardCall<'c>) -> Done {
        let directions = if c.dw.is_some() { Directions::Both } else { Directions::Rows };
        let dy = p.codes(c.m(), c.n(), OCTAVO_E5M2, directions)?;
        p.cast(c.dy, dy)?;
        if let Some(dx) = c.dx {
            let w = self.codes_of(p, c, c.weight, Directions::Columns)?;
            p.multiply(dy.by_rows(), w.by_columns(), dx, None, false)?;
        }
        if let Some(dw) = c.dw {
            let x = p.saved_columns(c.k(), OCTAVO_E4M3FN)?;
            p.multiply(dy.by_columns(), x.by_columns(), dw, None, c.accumulates())?;
        }
        match c.db {
            Some(db) => p.add_column_sums(c.dy, db, c.accumulates()),
            None => Ok(()),
        }
    }
}

impl Current {
    /// The cached codes of a weight, or codes of this call's own.
    fn codes_of<'c>(
        &self,
        p: &mut Pass<'c>,
        slots: &Addresses<'c>,
        w: &Parameter,
        directions: Directions,
    ) -> Result<Codes<'c>, Error> {
        if let Some(cache) = self.cache {
            return Ok(slots.at(cache));
        }
        let codes = p.codes(w.rows, w.cols, OCTAVO_E4M3FN, directions)?;
        p.cast(slots.at(self.weight), codes)?;
        Ok(codes)
    }
}

octavo_sys::plugin!(Current);
