// One candidate of a negotiation: its stages from the search for its manifest to the session.
#pragma once

#include "negotiate.h"

namespace octavo {

// What a plugin is wanted for.
enum class Offer { kBackend, kKernels };

// Discovery, manifest, trust, library, handshake: fills plugin, or the verdicts say why it is null;
// also when it does not offer what is wanted.
void load_candidate(const Negotiation &n, Candidate &c, Offer wanted, const octavo_host *host);

// The options of a loaded candidate, in effect. Throws Failure: OCTAVO_INVALID when the
// configuration is wrong, another status when the plugin is.
void resolve_options(const Negotiation &n, Candidate &c);

// All stages. It may run when no verdict declines.
void evaluate(const Negotiation &n, Candidate &c, const octavo_host *host);

}  // namespace octavo
