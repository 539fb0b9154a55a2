/* octavo/draft/layer.h: a layer, which adds calls to the kernels of a device that are below it.
 *
 * Provisional, as all of octavo/draft: the id and the numbers change when anything of it changes.
 *
 * A plugin whose manifest states [kernels] over = ["cpu", "cuda"] answers OCTAVO_LAYER_ID with an
 * octavo_layer. So the author of a number format brings its casts and products, and every other
 * call goes to the kernels below. liboctavo makes one octavo_kernels of both, which backends are
 * given as octavo_session_desc.kernels: neither hosts nor backends see a difference. Memory is the
 * device's.
 *
 * A layer does not change calls that the kernels below execute: their numbers are fixed.
 */
#ifndef OCTAVO_DRAFT_LAYER_H
#define OCTAVO_DRAFT_LAYER_H

#include "octavo/kernels.h"

#define OCTAVO_LAYER_ID "octavo.kernels.layer/1"

#define OCTAVO_KIND_LAYER 0x8030u
#define OCTAVO_KIND_LAYER_CTX 0x8031u

/* The ctx of every function of a layer points to this: of octavo_layer.calls, and of the tables
 * that its get_extension returns. */
typedef struct octavo_layer_ctx {
  uint32_t size;
  uint32_t kind;               /* OCTAVO_KIND_LAYER_CTX */
  const octavo_kernels *below; /* no function is null; a layer may call them with below_ctx */
  void *below_ctx;
  const octavo_kernels_caps *below_caps;
  const octavo_host *host;
  octavo_device device;
  void *own; /* the layer's; null until open_layer sets it */
} octavo_layer_ctx;

/* Required: every function but close_layer, and `calls`. */
typedef struct octavo_layer {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_LAYER */
  /* Emits verdicts on whether the layer can stand on the kernels below, one or more. It asks
   * below->ability for each call that it needs. Only if none declines, the layer is opened. */
  octavo_status (*open_layer)(octavo_layer_ctx *ctx,
                              const octavo_verdict_sink *sink) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Also called after verdicts that decline. May be null. */
  void (*close_layer)(octavo_layer_ctx *ctx) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
  /* The layer's functions. A null function passes every call on. The others return
   * OCTAVO_UNSUPPORTED, without a diagnostic, for a call that is not the layer's: then the kernels
   * below are asked, with their own answer or diagnostic. The same holds for `ability` and
   * workspace_bytes. probe_device, open_device and close_device are null.
   * `describe` is given the answer of the kernels below, and may change flags and alignment; the id
   * is made of both. get_extension returns null for an id that the layer does not have; of the
   * kernels below only tables of octavo/draft are passed on, since a vendor's would be called with
   * another ctx. */
  const octavo_kernels *calls;
} octavo_layer;

#endif
