// Stands in for gloo/config.h: see types.h.
#pragma once
#include "types.h"
