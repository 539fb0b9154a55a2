/* octavo/plugin.h: the entry point of a plugin and the table that it returns.
 *
 * A plugin is a shared library that exports OCTAVO_PLUGIN_SYMBOL and nothing else, together with a
 * manifest `<id>.octavo-plugin.toml` in the same directory. To install it, copy both files into a
 * directory of the search path. A host never unloads a library.
 *
 * `octavo plugin manifest ID --version V --options ID.so` prints the manifest of a backend, the
 * options with the texts of list_options included. A host without liboctavo needs these keys of it:
 *
 *   manifest_version = 1, [plugin] name = the id, version
 *   [library]   linux-x86_64 = "te.so"   the file, next to the manifest; other keys are other
 *                                        platforms. Or { file = "te.so", sha256 = "..." }
 *   [abi]       major = 1, minor = 0     the least ABI of a host; built_minor is for display
 *   [requires]  libc = "glibc-2.34", os, arch, cpu, libraries: refuse it where one is not met
 *   [kernels]   kind = "cuda", device_type = 2   of kernels only: their kind of device and its
 *                                        number (DLPack's)
 *
 * [provides] is for display; get_interface has the answer. Such a host loads the library with
 * RTLD_NOW and RTLD_LOCAL. Of the manifest only [requires] is nowhere else: get_interface tells a
 * backend from kernels, and probe_device which devices they are for.
 */
#ifndef OCTAVO_PLUGIN_H
#define OCTAVO_PLUGIN_H

#include "octavo/host.h"

/* The name that a plugin exports. While ABI 1.0 is a candidate, the name is the candidate's, so
 * that a plugin of another candidate or of the release is not found, by any host. Sources write
 * octavo_plugin_query_1, the name of the release; other languages export OCTAVO_PLUGIN_SYMBOL. */
#define OCTAVO_PLUGIN_SYMBOL "octavo_plugin_query_rc4"
#define octavo_plugin_query_1 octavo_plugin_query_rc4

/* Nonzero if the host can run a plugin built with this header. octavo_plugin_query_1 checks it
 * first. The comparison is signed because compilers warn about an unsigned value >= 0. */
#define OCTAVO_HOST_FITS(host)              \
  ((host)->abi_major == OCTAVO_ABI_MAJOR && \
   (int64_t)(host)->abi_minor >= (int64_t)OCTAVO_TARGET_MINOR)

typedef struct octavo_plugin {
  uint32_t size;
  uint32_t kind;      /* OCTAVO_KIND_PLUGIN */
  uint32_t abi_major; /* OCTAVO_ABI_MAJOR */
  uint32_t abi_minor; /* OCTAVO_TARGET_MINOR: the oldest host minor version supported; a host
                         refuses one above its own */
  octavo_str id;      /* as in the manifest: [a-z0-9_.-], at most 64 bytes */
  octavo_str version; /* of the plugin, for display */
  /* Returns the static table of the interface with exactly this id ("octavo.backend/1"), or null if
   * the plugin does not implement it. */
  const void *(*get_interface)(octavo_str id)OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
} octavo_plugin;

/* Returns the plugin's static table in *out. May be called repeatedly and concurrently; the result
 * is always the same table. There is no init and no shutdown function, because all resources of a
 * plugin belong to its sessions. The plugin may keep the first `host` for calls without a
 * session, such as list_options; a session reports through octavo_session_desc.host. Returns
 * OCTAVO_INCOMPATIBLE if OCTAVO_HOST_FITS is 0, and calls nothing of the host then. */
OCTAVO_EXPORT octavo_status octavo_plugin_query_1(
    const octavo_host *host, const octavo_plugin **out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;

#endif
