// Options that are numbers, where CLI11 takes too much: its conversions turn -1 into the largest unsigned
// number and cut what is too large, and its ranges hold a NaN.
#pragma once

#include <CLI/CLI.hpp>

namespace eddy {

// A whole number from 0 to 2^64 - 1.
CLI::Validator seed_number();

// A number from `low` to `high`; a NaN is none.
CLI::Validator number_between(double low, double high);

}  // namespace eddy
