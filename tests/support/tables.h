// Runs of tables of papers in tests.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tests/support/processes.h"
#include "train/app/reproduce/reproduce.h"
#include "train/app/reproduce/run.h"

namespace eddy::test {

using namespace training;
using namespace app;

struct Told {
  ReproduceEnd end = ReproduceEnd::failed;
  std::string text;
};

// Runs the rows of a table; what it prints is returned.
// errors: those of reproduce().
inline Told reproduce_quietly(const ReproduceOptions& options) {
  const Quiet quiet;
  Told told;
  told.end = reproduce(options, [&](std::string_view text) { told.text += text; });
  return told;
}

// Runs the rows of a table to their end; returns what it prints.
inline std::string reproduce_whole(const ReproduceOptions& options) {
  const Told told = reproduce_quietly(options);
  CHECK(told.end == ReproduceEnd::done);
  return told.text;
}

inline const ReproduceRow& row_of(const ReproduceTable& table, std::string_view name) {
  for (const ReproduceRow& row : table.rows)
    if (row.name == name) return row;
  FAIL("no such row: " << name);
  return table.rows.front();
}

// The result of a row that has been measured.
inline RowResult result_of(const ReproduceOptions& options, const std::string& name) {
  const ReproduceTable table = plan_table(options);
  return row_state(table, row_of(table, name), options.runs).result.value();
}

}  // namespace eddy::test
