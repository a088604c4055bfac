// The page of a table, made of the records of its rows.
#include "train/app/reproduce/page.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/record/metrics.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

TEST_CASE("the curves of a table show samples of the validation split and no point of the whole of it") {
  const TempFolder folder;
  MetricsWriter writer(folder.write("row/metrics.jsonl", ""));
  for (int i = 1; i <= 3; ++i) {
    writer.write(StepRecord{.step = 10 * i, .loss = 2, .tokens = 1000 * i, .seconds = 1.0 * i});
    writer.write(EvalRecord{
        .step = 10 * i, .loss = 2.0 + i, .tokens = 8, .metrics = {{"accuracy", 0.1 * i}}, .of = 80});
  }
  ReproduceTable table;
  table.name = table.title = "t";
  table.chart_key = "accuracy";
  ReproduceRow row;
  row.name = row.title = row.group = "row";
  table.rows = {row};
  const std::vector<ShownRow> rows{{&table.rows[0], {}, "command", folder.path("row")}};
  const std::string samples = table_page(table, rows);
  CHECK(contains(samples, "Validation loss of all rows"));
  writer.write(EvalRecord{
      .step = 40, .loss = 9, .tokens = 80, .metrics = {{"accuracy", 0.9}}, .of = 80, .whole = true});
  CHECK(table_page(table, rows) == samples);
}
