// Stands in for gloo/rendezvous/store.h: see types.h.
#pragma once
#include "../types.h"
