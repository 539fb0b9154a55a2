// Stands in for gloo/transport/device.h: see types.h.
#pragma once
#include "../types.h"
