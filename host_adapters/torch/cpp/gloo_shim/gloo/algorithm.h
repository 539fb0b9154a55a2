// Stands in for gloo/algorithm.h: see types.h.
#pragma once
#include "types.h"
