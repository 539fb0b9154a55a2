// Stands in for gloo/common/error.h: see types.h.
#pragma once
#include "../types.h"
