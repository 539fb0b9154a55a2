/* octavo/plugin.h: the one symbol that a plugin exports, and the table behind it.
 *
 * A plugin is a shared library that exports octavo_plugin_query_v1 and hides everything else, and a
 * manifest `<id>.octavo-plugin.toml` beside it. Dropping both into a directory of the search path
 * is all that an installation is. Libraries are never unloaded.
 */
#ifndef OCTAVO_PLUGIN_H
#define OCTAVO_PLUGIN_H

#include "octavo/host.h"

#define OCTAVO_PLUGIN_SYMBOL "octavo_plugin_query_v1"

/* Whether a host can run a plugin built with this header: the first question of query. Signed, so
 * that a target of 0 is no comparison that compilers warn about. */
#define OCTAVO_HOST_FITS(host)              \
  ((host)->abi_major == OCTAVO_ABI_MAJOR && \
   (int64_t)(host)->abi_minor >= (int64_t)OCTAVO_TARGET_MINOR)

typedef struct octavo_plugin {
  uint32_t size;
  uint32_t kind;      /* OCTAVO_KIND_PLUGIN */
  uint32_t abi_major; /* OCTAVO_ABI_MAJOR */
  uint32_t abi_minor; /* OCTAVO_TARGET_MINOR: the oldest host minor this plugin runs on */
  octavo_str id;      /* equals the name in the manifest: [a-z0-9_.-], at most 64 bytes */
  octavo_str version; /* the plugin's own, for people */
  /* The interface with exactly this id ("octavo.backend/1"), or null when absent. Its table is
   * static, too. */
  const void *(*get_interface)(octavo_str id)OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
} octavo_plugin;

/* Returns the plugin's static table in *out. May be called more than once and from several threads,
 * and always gives the same table; there is no init and no shutdown, since all that a plugin owns
 * belongs to a session. May keep `host`, though what a session has to say goes to
 * octavo_session_desc.host. Fails with OCTAVO_VERSION when OCTAVO_HOST_FITS is 0. */
OCTAVO_EXPORT octavo_status octavo_plugin_query_v1(
    const octavo_host *host, const octavo_plugin **out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;

#endif
