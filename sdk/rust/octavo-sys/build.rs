//! Makes the bindings: runs the command `bindgen` on the headers, and lists the structs that grow.
//!
//! The headers are those of OCTAVO_INCLUDE_DIR, else those that this crate was installed with, else
//! those that pkg-config knows. BINDGEN names another command than `bindgen`.
use std::path::{Path, PathBuf};
use std::process::{exit, Command};
use std::{env, fs};

const HEADERS: &str = "#include <stdint.h>
#include \"octavo/draft/fp4.h\"
#include \"octavo/draft/gradients.h\"
#include \"octavo/draft/grouped.h\"
#include \"octavo/draft/layer.h\"
#include \"octavo/draft/msamp.h\"
#include \"octavo/draft/one_pass.h\"
#include \"octavo/draft/streams.h\"
#include \"octavo/fused.h\"
#include \"octavo/memory.h\"
#include \"octavo/plugin.h\"
#include \"octavo/shard.h\"
";

fn fail(text: &str) -> ! {
    eprintln!("error: octavo-sys: {text}");
    exit(1);
}

fn has_headers(folder: &Path) -> bool {
    folder.join("octavo/plugin.h").is_file()
}

fn include_dir() -> PathBuf {
    if let Some(given) = env::var_os("OCTAVO_INCLUDE_DIR") {
        let given = PathBuf::from(given);
        if !has_headers(&given) {
            fail(&format!(
                "expected octavo/plugin.h in OCTAVO_INCLUDE_DIR, found none in {given:?}"
            ));
        }
        return given;
    }
    // <tree>/sdk/rust/octavo-sys and <prefix>/share/octavo/rust/octavo-sys.
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    for up in ["../../include", "../../../../include"] {
        if has_headers(&here.join(up)) {
            return here.join(up);
        }
    }
    let asked = Command::new("pkg-config").args(["--variable=includedir", "octavo"]).output();
    if let Ok(output) = asked {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        if output.status.success() && has_headers(&folder) {
            return folder;
        }
    }
    fail("expected Octavo's headers near this crate or by `pkg-config octavo`, found neither; set OCTAVO_INCLUDE_DIR to the folder that contains octavo/plugin.h")
}

fn bindings(include: &Path, header: &Path) -> String {
    let program = env::var("BINDGEN").unwrap_or_else(|_| "bindgen".into());
    let result = Command::new(&program)
        .arg(header)
        .args(["--allowlist-type", "octavo_.*", "--allowlist-var", "OCTAVO_.*"])
        .args(["--no-prepend-enum-name", "--no-doc-comments", "--no-rustfmt-bindings"])
        .args(["--", "-DOCTAVO_DECLARATIONS_ONLY"])
        .arg(format!("-I{}", include.display()))
        .output();
    match result {
        Err(error) => fail(&format!(
            "expected the command {program}, found: {error}; apt-get install bindgen clang, or name it in BINDGEN"
        )),
        Ok(output) if !output.status.success() => fail(&format!(
            "{program} cannot read the headers in {}:\n{}",
            include.display(),
            String::from_utf8_lossy(&output.stderr)
        )),
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
    }
}

/// `impl`s for every struct that begins with `size` and `kind`, and for every call of a kernel.
fn growable(bindings: &str) -> String {
    let packed: String = bindings.split_whitespace().collect();
    let mut text = String::new();
    for part in packed.split("pubstruct").skip(1) {
        let (name, rest) = part.split_once('{').unwrap_or((part, ""));
        let fields = rest.split_once('}').map_or("", |(fields, _)| fields);
        if !fields.starts_with("pubsize:u32,pubkind:u32,") {
            continue;
        }
        let kind = name.to_uppercase().replacen("OCTAVO_", "OCTAVO_KIND_", 1);
        text += &format!("unsafe impl Growable for {name} {{ const KIND: u32 = {kind}; }}\n");
        if fields.contains("pubstream:*mut") {
            let works = fields.contains("pubworkspace:*mut");
            let set = if works { "self.workspace = workspace;" } else { "let _ = workspace;" };
            text += &format!(
                "unsafe impl Call for {name} {{ const WORKS: bool = {works}; fn place(&mut self, \
                 stream: *mut c_void, workspace: *mut c_void) {{ self.stream = stream; {set} }} }}\n"
            );
        }
    }
    text
}

fn main() {
    let include = include_dir();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let header = out.join("all.h");
    let made = fs::write(&header, HEADERS).and_then(|()| {
        let bindings = bindings(&include, &header);
        fs::write(out.join("growable.rs"), growable(&bindings))?;
        fs::write(out.join("bindings.rs"), bindings)
    });
    if let Err(error) = made {
        fail(&format!("{}: {error}", out.display()));
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", include.join("octavo").display());
    for name in ["OCTAVO_INCLUDE_DIR", "BINDGEN"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
}
