// Stands in for gloo/context.h: see types.h.
#pragma once
#include "types.h"
