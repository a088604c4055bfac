// All ops, for code that composes them. Their headers stand in the list alone.
#pragma once

#include "ops/op_list.h"
