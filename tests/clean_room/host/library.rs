//! The same session through liboctavo's public functions: it finds and opens the plugin, brings the kernels,
//! and owns the memory of the slots and the lists.

use crate::abi::*;
use crate::check;
use std::ffi::CString;

type Run = *const c_void;

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $out:ty)?;)*) => {
        /// The functions of octavo.h that a host needs.
        pub struct Library { $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $out)?),* }
        impl Library {
            pub unsafe fn load(path: &str) -> &'static Library {
                let library = crate::open_library(path);
                Box::leak(Box::new(Library {
                    $($name: std::mem::transmute(crate::symbol(library, concat!("octavo_", stringify!($name), "\0")))),*
                }))
            }
        }
    };
}
functions! {
    open: fn(*const OpenDesc, *mut Run) -> Status;
    close: fn(Run);
    add_parameter: fn(Run, *const ParameterDesc, *mut Verdict, *mut u32) -> Status;
    add_linear: fn(Run, *const LinearDesc, *mut Verdict, *mut u32) -> Status;
    seal: fn(Run) -> Status;
    run_slot_count: fn(Run) -> u32;
    run_slot: fn(Run, u32) -> *const Slot;
    run_use_count: fn(Run, u32, u32) -> u32;
    run_use: fn(Run, u32, u32, u32) -> *const SlotUse;
    run_plan: fn(Run, u32) -> *const LinearPlan;
    run_backend: fn(Run) -> *const Backend;
    run_session: fn(Run) -> Session;
    store_open: fn(Run, *mut Run) -> Status;
    store_extend: fn(Run) -> Status;
    store_native: fn(Run, u32, u32, *mut c_void) -> Status;
    store_slots: fn(Run, u32, u32, u32) -> *const *mut c_void;
    store_address: fn(Run, u32) -> *mut c_void;
    store_close: fn(Run);
}

/// A run of liboctavo, and its store once it is sealed.
pub struct Through {
    pub library: &'static Library,
    pub run: Run,
    pub store: Run,
}
impl Through {
    /// `plugin` is the backend's library in the folder of its manifest.
    pub unsafe fn open(
        library: &'static Library,
        host: *const Host,
        plugin: &str,
        options: &[OptionValue],
    ) -> Through {
        let (folder, file) = plugin.rsplit_once('/').expect("a path with a folder");
        let id = file.strip_suffix(".so").expect("a library");
        let text = CString::new(format!(
            "fp8.backend = \"{id}\"\nlayers.skip = []\nlayers.min_gain = \"off\"\n"
        ))
        .unwrap();
        let name = |o: &OptionValue| format!("fp8.{id}.{}", o.name.text());
        let names: Vec<String> = options.iter().map(name).collect();
        let renamed =
            |(o, name): (&OptionValue, &String)| OptionValue { name: Str::new(name), ..*o };
        let overrides: Vec<OptionValue> = options.iter().zip(&names).map(renamed).collect();
        let mut desc = OpenDesc::blank();
        desc.config_text = Str::new(text.to_str().unwrap());
        desc.overrides = overrides.as_ptr();
        desc.override_count = overrides.len() as u64;
        let folder = Str::new(folder);
        desc.plugin_dirs = &folder;
        desc.plugin_dir_count = 1;
        desc.host = host;
        let mut run = std::ptr::null();
        check((library.open)(&desc, &mut run), "octavo_open");
        Through { library, run, store: std::ptr::null() }
    }
    /// Seals, and allocates what the seal emitted.
    pub unsafe fn seal(&mut self) {
        check((self.library.seal)(self.run), "octavo_seal");
        match self.store.is_null() {
            true => {
                check((self.library.store_open)(self.run, &mut self.store), "octavo_store_open")
            }
            false => check((self.library.store_extend)(self.store), "octavo_store_extend"),
        }
    }
    pub unsafe fn uses(&self, kind: u32, owner: u32) -> Vec<SlotUse> {
        let count = (self.library.run_use_count)(self.run, kind, owner);
        (0..count).map(|i| *(self.library.run_use)(self.run, kind, owner, i)).collect()
    }
}
impl Drop for Through {
    fn drop(&mut self) {
        unsafe {
            (self.library.store_close)(self.store);
            (self.library.close)(self.run);
        }
    }
}
