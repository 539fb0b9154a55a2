//! Options, stated once: as fields of a struct with their defaults.
use std::ops::RangeInclusive;

use crate::barrier::{Done, Error};
use crate::growable::fresh;
use crate::sys::*;
use crate::text::{borrow, owned};

/// The options of a backend; [`options!`](macro@crate::options) writes it.
pub trait Options: Default {
    /// Calls `each` with every option, its default, its help and its bounds.
    fn list(each: &mut dyn FnMut(Entry<'_>) -> Done) -> Done;
    /// Sets the option of this name.
    fn set(&mut self, name: &str, value: &octavo_value) -> Done;
}

/// For a backend without options.
impl Options for () {
    fn list(_: &mut dyn FnMut(Entry<'_>) -> Done) -> Done {
        Ok(())
    }
    fn set(&mut self, name: &str, _: &octavo_value) -> Done {
        unknown(name)
    }
}

/// One option, as list_options emits it.
pub struct Entry<'a> {
    pub name: &'static str,
    pub help: &'static str,
    pub initial: &'a dyn Value,
    pub bounds: Bounds,
}

/// What a value may be, apart from its type.
#[derive(Default)]
pub struct Bounds {
    low: Option<octavo_value>,
    high: Option<octavo_value>,
    choices: &'static [&'static str],
}
impl From<RangeInclusive<i64>> for Bounds {
    fn from(range: RangeInclusive<i64>) -> Self {
        let (low, high) = range.into_inner();
        Bounds { low: Some(low.raw()), high: Some(high.raw()), choices: &[] }
    }
}
impl From<RangeInclusive<f64>> for Bounds {
    fn from(range: RangeInclusive<f64>) -> Self {
        let (low, high) = range.into_inner();
        Bounds { low: Some(low.raw()), high: Some(high.raw()), choices: &[] }
    }
}
impl<const N: usize> From<&'static [&'static str; N]> for Bounds {
    fn from(choices: &'static [&'static str; N]) -> Self {
        Bounds { choices, ..Bounds::default() }
    }
}

const NO_VALUE: octavo_value =
    octavo_value { type_: 0, reserved: 0, integer: 0, real: 0.0, text: borrow("") };

/// A type that an option can have: bool, i64, f64 or String.
pub trait Value {
    /// Texts are borrowed from `self`.
    fn raw(&self) -> octavo_value;
    fn set(&mut self, value: &octavo_value);
}
impl Value for i64 {
    fn raw(&self) -> octavo_value {
        octavo_value { type_: OCTAVO_VALUE_INT, integer: *self, ..NO_VALUE }
    }
    fn set(&mut self, value: &octavo_value) {
        *self = value.integer;
    }
}
impl Value for f64 {
    fn raw(&self) -> octavo_value {
        octavo_value { type_: OCTAVO_VALUE_REAL, real: *self, ..NO_VALUE }
    }
    fn set(&mut self, value: &octavo_value) {
        *self = value.real;
    }
}
impl Value for bool {
    fn raw(&self) -> octavo_value {
        octavo_value { type_: OCTAVO_VALUE_BOOL, integer: i64::from(*self), ..NO_VALUE }
    }
    fn set(&mut self, value: &octavo_value) {
        *self = value.integer != 0;
    }
}
impl Value for String {
    fn raw(&self) -> octavo_value {
        octavo_value { type_: OCTAVO_VALUE_TEXT, text: borrow(self), ..NO_VALUE }
    }
    fn set(&mut self, value: &octavo_value) {
        // SAFETY: a text of the host's, valid during the call that passed it.
        *self = unsafe { owned(value.text) };
    }
}

/// For [`options!`](macro@crate::options): the refusal of a name that is not listed.
pub fn unknown(name: &str) -> Done {
    Err(Error::invalid(format!("option \"{name}\": expected one of list_options, found none")))
}

/// For [`options!`](macro@crate::options): a value of the option's own type, or the reason.
pub fn set(name: &str, field: &mut dyn Value, value: &octavo_value) -> Done {
    let (wanted, found) = (field.raw().type_, value.type_);
    if wanted != found {
        return Err(Error::invalid(format!(
            "option \"{name}\": expected a value of type {wanted}, found type {found}"
        )));
    }
    field.set(value);
    Ok(())
}

/// list_options
///
/// # Safety
/// `sink` is the host's.
pub(crate) unsafe fn emit<T: Options>(sink: &octavo_option_sink) -> Done {
    let option = sink.option.ok_or_else(|| Error::invalid("expected a sink, found null"))?;
    T::list(&mut |entry| {
        let choices: Vec<octavo_str> = entry.bounds.choices.iter().map(|one| borrow(one)).collect();
        let mut o: octavo_option = fresh();
        o.name = borrow(entry.name);
        o.help = borrow(entry.help.trim());
        o.initial = entry.initial.raw();
        o.low = entry.bounds.low.unwrap_or(NO_VALUE);
        o.high = entry.bounds.high.unwrap_or(NO_VALUE);
        if !choices.is_empty() {
            o.choices = choices.as_ptr();
            o.choice_count = choices.len() as u64;
        }
        Error::check(option(sink.ctx, &o))
    })
}

/// The values of a session, whose flags are known ones.
///
/// # Safety
/// `desc` is the host's; this is one of the calls during which its options are valid.
pub(crate) unsafe fn parse<T: Options>(desc: &octavo_session_desc) -> Result<T, Error> {
    let known = u64::from(OCTAVO_SESSION_DETERMINISTIC);
    if desc.flags & !known != 0 {
        let found = desc.flags;
        return Err(Error::invalid(format!(
            "expected known flags of the session, at most {known}, found {found}"
        )));
    }
    let mut options = T::default();
    for i in 0..desc.option_count as usize {
        let given = desc.options.add(i).read();
        options.set(&owned(given.name), &given.value)?;
    }
    Ok(options)
}

/// A struct of options. The comment of a field, one line, is its help; `=>` bounds it.
///
/// ```
/// octavo_sys::options! {
///     pub struct Options {
///         /// keeps FP8 codes of the weights between steps
///         weight_cache: bool = true,
///         /// lowers each scale by a power of two, in exponents
///         margin: i64 = 0 => 0..=8,
///         /// what follows an overflow
///         overflow: String = "skip" => &["skip", "clip"],
///     }
/// }
/// assert!(Options::default().weight_cache && Options::default().overflow == "skip");
/// ```
#[macro_export]
macro_rules! options {
    ($(#[$attribute:meta])* $visible:vis struct $name:ident {
        $(#[doc = $help:literal] $field:ident: $type:ty = $initial:expr $(=> $bounds:expr)?),* $(,)?
    }) => {
        $(#[$attribute])*
        $visible struct $name { $(#[doc = $help] pub $field: $type),* }
        impl Default for $name {
            fn default() -> Self {
                $name { $($field: <$type>::from($initial)),* }
            }
        }
        impl $crate::Options for $name {
            fn list(each: &mut dyn FnMut($crate::options::Entry<'_>) -> $crate::Done) -> $crate::Done {
                let initial = $name::default();
                $(
                    #[allow(unused_mut, unused_assignments)]
                    let mut bounds = $crate::options::Bounds::default();
                    $(bounds = $bounds.into();)?
                    each($crate::options::Entry {
                        name: stringify!($field), help: $help, initial: &initial.$field, bounds
                    })?;
                )*
                Ok(())
            }
            fn set(&mut self, name: &str, value: &$crate::sys::octavo_value) -> $crate::Done {
                match name {
                    $(stringify!($field) => $crate::options::set(name, &mut self.$field, value),)*
                    _ => $crate::options::unknown(name),
                }
            }
        }
    };
}
