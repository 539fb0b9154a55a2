//! The objects of a session, and what its seals emit.
//!
//! A seal that fails changes nothing: places are found in a copy, and emitted at the end.
use crate::barrier::{Done, Error};
use crate::growable::fresh;
use crate::operands::width;
use crate::slots::{Linear, Owner, Parameter, Place, SlotRule, NOWHERE};
use crate::sys::*;
use crate::text::borrow;

/// The session's slots that end_step clears.
#[derive(Clone, Copy)]
pub(crate) struct Cleared {
    pub position: u32,
    pub count: i64,
}

#[derive(Clone, Default)]
pub(crate) struct Objects {
    pub parameters: Vec<Parameter>,
    pub linears: Vec<Linear>,
    pub session: Vec<Place>,
    pub cleared: Vec<Cleared>,
    pub sealed_parameters: usize,
    pub sealed_linears: usize,
    slots: u32,
}

enum Emission {
    Slot(octavo_slot),
    Use(octavo_slot_use),
}

const OF_LINEARS: [u32; 2] = [OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD];
const OF_WEIGHTS: [u32; 3] =
    [OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD];

/// What one seal adds.
pub(crate) struct Sealed<'a> {
    rules: &'a [SlotRule],
    pub objects: Objects,
    emissions: Vec<Emission>,
}

impl<'a> Sealed<'a> {
    pub fn new(rules: &'a [SlotRule], objects: &Objects) -> Self {
        let mut s = Sealed { rules, objects: objects.clone(), emissions: Vec::new() };
        if s.objects.session.is_empty() {
            s.session();
        }
        for id in s.objects.sealed_parameters..s.objects.parameters.len() {
            s.parameter(id);
        }
        for id in s.objects.sealed_linears..s.objects.linears.len() {
            s.linear(id);
        }
        s.objects.sealed_parameters = s.objects.parameters.len();
        s.objects.sealed_linears = s.objects.linears.len();
        s
    }

    /// # Safety
    /// `sink` is the host's.
    pub unsafe fn emit(&self, sink: &octavo_slot_sink) -> Done {
        let (slot, use_) = match (sink.slot, sink.use_) {
            (Some(slot), Some(use_)) => (slot, use_),
            _ => return Err(Error::invalid("expected a sink with two functions, found null")),
        };
        self.emissions.iter().try_for_each(|emission| {
            Error::check(match emission {
                Emission::Slot(s) => slot(sink.ctx, s),
                Emission::Use(u) => use_(sink.ctx, u),
            })
        })
    }

    /// The next slot, as the rule states it for this object.
    fn place(&mut self, rule: usize, of: Option<&Parameter>) -> Place {
        let r = &self.rules[rule];
        let own = of.map_or(OCTAVO_F32, |parameter| parameter.dtype);
        let (rows, cols) = of.map_or((1, 1), |parameter| (r.shape)(parameter));
        let slot = self.objects.slots;
        self.objects.slots += 1;
        Place { position: OCTAVO_NONE, slot, dtype: r.dtype.unwrap_or(own), rows, cols }
    }

    /// `places`: of the same object, in which every slot has its id.
    fn emit_slot(&mut self, rule: usize, owner: (u32, usize), places: &[Place]) {
        let (r, place) = (&self.rules[rule], places[rule]);
        let mut slot: octavo_slot = fresh();
        slot.id = place.slot;
        slot.owner_kind = owner.0;
        slot.owner = owner.1 as u32;
        slot.role = r.role;
        slot.dtype = place.dtype;
        slot.flags = r.flags;
        slot.combine = r.combine;
        slot.shard = r.shard;
        slot.scale_slot = r.scale_inv.map_or(OCTAVO_NONE, |scale| places[scale.0].slot);
        slot.rows = place.rows;
        slot.cols = place.cols;
        slot.initial = r.initial;
        slot.access = r.access;
        slot.name = borrow(&r.name);
        if owner.0 == OCTAVO_OWNER_PARAMETER && !self.objects.parameters[owner.1].is_linear_weight()
        {
            // The verbs of linears get no call for another parameter.
            for verb in OF_WEIGHTS {
                slot.access[verb as usize] = OCTAVO_ACCESS_NONE as u8;
            }
        }
        self.emissions.push(Emission::Slot(slot));
    }

    /// Gives each place that an object has its position in the object's list.
    fn emit_uses(&mut self, owner: (u32, usize), places: &mut [Place]) {
        for (position, place) in places.iter_mut().filter(|p| p.slot != OCTAVO_NONE).enumerate() {
            place.position = position as u32;
            self.emissions.push(Emission::Use(octavo_slot_use {
                owner_kind: owner.0,
                owner: owner.1 as u32,
                slot: place.slot,
                first: 0,
                count: 0,
                reserved: 0,
            }));
        }
    }

    fn session(&mut self) {
        let owner = (OCTAVO_OWNER_SESSION, 0);
        let mut places = vec![NOWHERE; self.rules.len()];
        let rules = self.rules;
        let own = |(_, r): &(usize, &SlotRule)| r.owner == Owner::Session;
        for (i, _) in rules.iter().enumerate().filter(own) {
            places[i] = self.place(i, None);
        }
        for (i, r) in rules.iter().enumerate().filter(own) {
            self.emit_slot(i, owner, &places);
            if u32::from(r.access[OCTAVO_VERB_END_STEP as usize]) == OCTAVO_ACCESS_WRITE {
                self.objects.cleared.push(Cleared { position: i as u32, count: 0 });
            }
        }
        self.emit_uses(owner, &mut places);
        for cleared in &mut self.objects.cleared {
            let place = places[cleared.position as usize];
            *cleared = Cleared { position: place.position, count: place.rows * place.cols };
        }
        self.objects.session = places;
    }

    fn parameter(&mut self, id: usize) {
        let owner = (OCTAVO_OWNER_PARAMETER, id);
        let parameter = self.objects.parameters[id].clone();
        let own = |r: &SlotRule| match r.owner {
            Owner::Parameter => true,
            Owner::LinearWeight => parameter.is_linear_weight(),
            _ => false,
        };
        let mut places = vec![NOWHERE; self.rules.len()];
        let rules = self.rules;
        for (i, r) in rules.iter().enumerate() {
            if own(r) {
                places[i] = self.place(i, Some(&parameter));
            } else if r.owner == Owner::Session && r.uses(&[OCTAVO_VERB_QUANTIZE_WEIGHT]) {
                places[i] = self.objects.session[i];
            }
        }
        for (i, _) in rules.iter().enumerate().filter(|(_, r)| own(r)) {
            self.emit_slot(i, owner, &places);
        }
        self.emit_uses(owner, &mut places);
        self.objects.parameters[id].places = places;
    }

    fn linear(&mut self, id: usize) {
        let owner = (OCTAVO_OWNER_LINEAR, id);
        let weight = self.objects.parameters[self.objects.linears[id].weight as usize].clone();
        let mut places = vec![NOWHERE; self.rules.len()];
        let rules = self.rules;
        for (i, r) in rules.iter().enumerate() {
            if r.owner == Owner::Linear {
                places[i] = self.place(i, Some(&weight));
            } else if r.uses(&OF_LINEARS) {
                let session = r.owner == Owner::Session;
                places[i] = if session { self.objects.session[i] } else { weight.places[i] };
            }
        }
        for (i, _) in rules.iter().enumerate().filter(|(_, r)| r.owner == Owner::Linear) {
            self.emit_slot(i, owner, &places);
        }
        self.emit_uses(owner, &mut places);
        self.objects.linears[id].places = places;
    }
}

/// Bytes of a slot's element are whole: codes of less than a byte have no place here yet.
pub(crate) fn check_rules(rules: &[SlotRule]) -> Done {
    match rules.iter().find(|r| r.dtype.map_or(false, |dtype| width(dtype) < 1)) {
        Some(r) => Err(Error::new(
            OCTAVO_INTERNAL,
            format!("slot \"{}\": expected a dtype of whole bytes", r.name),
        )),
        None => Ok(()),
    }
}
