// Segments of streams and documents, held against plain indexing.
#include "train/tasks/sequence_reader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using Ids = std::vector<std::int32_t>;

Ids ids_of(const Tensor& tensor) {
  return tensor.to_vector<std::int32_t>();
}

Ids row_of(const Tensor& tensor, std::int64_t row) {
  return ids_of(raw::contiguous(raw::select(tensor, 0, row)));
}

bool starts(const Batch& batch, std::int64_t row) {
  return batch.start.defined() && batch.start.data<std::int64_t>()[row] == 1;
}

// `count` ids from `first` on.
Ids run_of(std::int32_t first, std::int64_t count) {
  Ids ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

std::vector<Sequence> sequences_of(const std::vector<Ids>& texts) {
  std::vector<Sequence> sequences;
  for (const Ids& text : texts) sequences.push_back({text, {}});
  return sequences;
}

ReadingOptions options_of(std::int64_t rows, std::int64_t segment) {
  ReadingOptions options;
  options.rows = rows;
  options.segment = segment;
  return options;
}

Batch next_of(SequenceReader& reader) {
  Batch batch;
  REQUIRE(reader.next(batch));
  return batch;
}

// A reader of documents over texts of these lengths; the ids of text i begin at 100 * (i + 1).
struct DocumentTokens {
  explicit DocumentTokens(const std::vector<std::int64_t>& lengths) {
    for (const std::int64_t length : lengths)
      texts.push_back(run_of(static_cast<std::int32_t>(100 * (texts.size() + 1)), length));
  }
  SequenceReader reader(std::int64_t rows, std::int64_t segment, std::uint64_t seed = 1,
                        bool once = false) const {
    ReadingOptions options = options_of(rows, segment);
    options.pad = true;
    options.shuffle = !once;
    options.seed = seed;
    options.once = once;
    return SequenceReader(sequences_of(texts), options);
  }
  std::vector<Ids> texts;
};

}  // namespace

TEST_CASE("stream: the first input of a batch is the last target of the one before in every row") {
  const Ids text = run_of(0, 103);
  SequenceReader reader(equal_spans({text, {}}, 3), options_of(3, 4));
  Batch before = next_of(reader);
  for (int t = 0; t < 40; ++t) {
    const Batch batch = next_of(reader);
    for (std::int64_t row = 0; row < 3; ++row)
      if (!starts(batch, row)) CHECK(row_of(batch.tokens, row).front() == row_of(before.targets, row).back());
    before = batch;
  }
}

TEST_CASE("stream: each row reads its own span and begins it again when it is used up") {
  const Ids text = run_of(0, 32);  // spans of 10: two segments of 4, and one token is left over
  SequenceReader reader(equal_spans({text, {}}, 3), options_of(3, 4));
  for (int epoch = 0; epoch < 3; ++epoch)
    for (std::int32_t segment = 0; segment < 2; ++segment) {
      const Batch batch = next_of(reader);
      CHECK(batch.scored == 12);
      for (std::int32_t row = 0; row < 3; ++row) {
        CHECK(row_of(batch.tokens, row) == run_of(10 * row + 4 * segment, 4));
        CHECK(row_of(batch.targets, row) == run_of(10 * row + 4 * segment + 1, 4));
        CHECK(starts(batch, row) == (segment == 0));
      }
    }
}

TEST_CASE("stream: a row whose stream is used up begins another while the others go on") {
  const std::vector<Ids> texts{run_of(100, 9), run_of(200, 5), run_of(300, 13)};
  ReadingOptions options = options_of(2, 4);
  SequenceReader reader(sequences_of(texts), options);
  Batch batch = next_of(reader);
  CHECK((starts(batch, 0) && starts(batch, 1)));
  CHECK(row_of(batch.tokens, 1) == run_of(200, 4));
  batch = next_of(reader);
  CHECK(!starts(batch, 0));
  CHECK(starts(batch, 1));
  CHECK(row_of(batch.tokens, 0) == run_of(104, 4));
  CHECK(row_of(batch.tokens, 1) == run_of(300, 4));
  batch = next_of(reader);
  CHECK(starts(batch, 0));
  CHECK(!starts(batch, 1));
  CHECK(row_of(batch.tokens, 0) == run_of(100, 4));  // the second epoch
  CHECK(reader.row_positions()[1].sequence == 2);
  CHECK(reader.row_positions()[1].position == 4);
}

TEST_CASE("stream: labels belong to the tokens they stand at") {
  const Ids tokens = run_of(0, 10);
  Ids labels = run_of(50, 10);
  labels[2] = kNotScored;
  SequenceReader reader({{tokens, labels}}, options_of(1, 5));
  Batch batch = next_of(reader);
  CHECK(ids_of(batch.targets) == Ids{50, 51, kNotScored, 53, 54});
  CHECK(batch.scored == 4);
  batch = next_of(reader);  // no token is needed behind the last
  CHECK(ids_of(batch.targets) == run_of(55, 5));
  CHECK(reader.targets() == 10);
}

TEST_CASE("stream: a random offset begins anywhere at first and within a segment later") {
  const Ids text = run_of(0, 200);
  std::set<std::int32_t> first, later;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    ReadingOptions options = options_of(2, 8);
    options.seed = seed;
    options.random_offset = true;
    SequenceReader reader(equal_spans({text, {}}, 2), options);
    Batch batch = next_of(reader);
    first.insert(row_of(batch.tokens, 0).front());
    CHECK(row_of(batch.tokens, 1).front() == row_of(batch.tokens, 0).front() + 100);  // spans go in step
    while (!starts(batch = next_of(reader), 0)) {
    }
    CHECK(starts(batch, 1));
    later.insert(row_of(batch.tokens, 0).front());
  }
  CHECK(*first.rbegin() > 50);
  CHECK(*first.rbegin() <= 100 - 9);
  CHECK(*later.rbegin() < 8);
  CHECK(later.size() > 4);
}

TEST_CASE("documents: targets lie inside the segment and the last segment is padded") {
  const DocumentTokens documents({7});
  SequenceReader reader = documents.reader(1, 4);
  Batch batch = next_of(reader);
  CHECK(ids_of(batch.tokens) == Ids{100, 101, 102, 103});
  CHECK(ids_of(batch.targets) == Ids{101, 102, 103, kNotScored});
  CHECK(starts(batch, 0));
  CHECK(batch.scored == 3);
  batch = next_of(reader);
  CHECK(ids_of(batch.tokens) == Ids{104, 105, 106, 0});
  CHECK(ids_of(batch.targets) == Ids{105, 106, kNotScored, kNotScored});
  CHECK(!starts(batch, 0));
  CHECK(starts(next_of(reader), 0));
  CHECK(reader.targets() == 5);
}

TEST_CASE("documents: tokens of value zero are not scored when they are padding") {
  const Ids text{5, 0, 6, 7, 0, 8, 9};
  ReadingOptions options = options_of(1, 7);
  options.pad = true;
  SequenceReader plain({{text, {}}}, options);
  options.skip_zero = true;
  SequenceReader skipping({{text, {}}}, options);
  CHECK(ids_of(next_of(plain).targets) == Ids{0, 6, 7, 0, 8, 9, kNotScored});
  CHECK(ids_of(next_of(skipping).targets) ==
        Ids{kNotScored, kNotScored, 7, kNotScored, kNotScored, 9, kNotScored});
}

TEST_CASE("documents: every epoch takes each document once in an order of its own that the seed gives") {
  const DocumentTokens documents({5, 5, 5, 5, 5, 5, 5, 5});
  const auto order = [&](std::uint64_t seed) {
    SequenceReader reader = documents.reader(2, 8, seed);
    std::vector<std::int64_t> taken;
    for (int t = 0; t < 8; ++t) {
      static_cast<void>(next_of(reader));
      for (const SequenceReader::RowPosition& place : reader.row_positions()) taken.push_back(place.sequence);
    }
    return taken;
  };
  const std::vector<std::int64_t> a = order(1);
  const std::vector<std::int64_t> one(a.begin(), a.begin() + 8), two(a.begin() + 8, a.end());
  CHECK(std::set<std::int64_t>(one.begin(), one.end()).size() == 8);
  CHECK(std::set<std::int64_t>(two.begin(), two.end()).size() == 8);
  CHECK(one != two);
  CHECK(order(1) == a);
  CHECK(order(2) != a);
}

TEST_CASE("documents: a text that predicts nothing is passed over") {
  const DocumentTokens documents({1, 0, 3, 1});
  SequenceReader reader = documents.reader(2, 4);
  for (int t = 0; t < 5; ++t) {
    const Batch batch = next_of(reader);
    CHECK(ids_of(batch.tokens) == Ids{300, 301, 302, 0, 300, 301, 302, 0});
  }
}

TEST_CASE("documents: read once they all come and then the end") {
  const DocumentTokens documents({9, 3, 6, 1, 4, 9});
  SequenceReader reader = documents.reader(2, 4, 1, true);
  std::multiset<std::int32_t> predicted;
  Batch batch;
  std::int64_t idle = 0, scored = 0;
  while (reader.next(batch)) {
    scored += batch.scored;
    for (const std::int32_t target : ids_of(batch.targets))
      if (target != kNotScored) predicted.insert(target);
    for (std::int64_t row = 0; row < 2; ++row)
      if (reader.row_positions()[static_cast<std::size_t>(row)].sequence < 0) {
        ++idle;
        CHECK(row_of(batch.tokens, row) == Ids{0, 0, 0, 0});
        CHECK(row_of(batch.targets, row) == Ids{-1, -1, -1, -1});
        CHECK(starts(batch, row));
      }
  }
  CHECK(predicted == std::multiset<std::int32_t>{101, 102, 103, 105, 106, 107, 201, 202, 301, 302, 303,
                                                 305, 501, 502, 503, 601, 602, 603, 605, 606, 607});
  CHECK(scored == 21);
  CHECK(reader.targets() == 21);
  CHECK(idle > 0);
  CHECK(!reader.next(batch));
}

TEST_CASE("sequences: a reader that takes over positions goes on as the one that saved them") {
  const DocumentTokens documents({9, 30, 6, 17, 4, 22});
  for (const int steps : {0, 1, 7, 20}) {
    CAPTURE(steps);
    SequenceReader whole = documents.reader(3, 4, 5);
    for (int t = 0; t < steps; ++t) static_cast<void>(next_of(whole));
    SequenceReader rest = documents.reader(3, 4, 5);
    rest.load(nlohmann::json::parse(whole.save().dump()), "state.json");
    for (int t = 0; t < 30; ++t) {
      const Batch a = next_of(whole), b = next_of(rest);
      CHECK(ids_of(a.tokens) == ids_of(b.tokens));
      CHECK(ids_of(a.targets) == ids_of(b.targets));
      for (std::int64_t row = 0; row < 3; ++row) CHECK(starts(a, row) == starts(b, row));
    }
    CHECK(whole.save() == rest.save());
  }
}

TEST_CASE("sequences: positions that do not fit are refused and change nothing") {
  const DocumentTokens documents({9, 30, 6});
  SequenceReader reader = documents.reader(2, 4);
  static_cast<void>(next_of(reader));
  const nlohmann::json good = reader.save();
  const auto text_of = [&](const nlohmann::json& saved) {
    return error_of<Error>([&] { reader.load(saved, "state.json"); });
  };
  nlohmann::json bad = good;
  bad["rows"].push_back(bad["rows"][0]);
  CHECK(contains(text_of(bad), "3 rows, and train.batch is 2"));
  bad["sequences"] = 5;  // as of a stream, which has a sequence for each row
  CHECK(contains(text_of(bad), "resume with train.batch 3"));
  bad = good;
  bad["sequences"] = 4;
  CHECK(contains(text_of(bad), "4 sequences, and there are 3"));
  for (const char* key : {"next", "rows", "sequences"}) {
    bad = good;
    bad.erase(key);
    CHECK(contains(text_of(bad), "state.json is damaged"));
  }
  for (const nlohmann::json& value :
       {nlohmann::json(-2), nlohmann::json(3), nlohmann::json("x"), nlohmann::json(1.5)}) {
    bad = good;
    bad["rows"][1]["sequence"] = value;
    CHECK(contains(text_of(bad), "damaged"));
  }
  bad = good;
  bad["rows"][0]["position"] = -1;
  CHECK(contains(text_of(bad), "damaged"));
  CHECK(contains(text_of(nlohmann::json::array()), "damaged"));
  CHECK(contains(text_of(nullptr), "damaged"));
  CHECK(reader.save() == good);
}

TEST_CASE("sequences: what cannot be read is refused") {
  const Ids text = run_of(0, 16);
  CHECK(contains(error_of<ValueError>([&] {
                   SequenceReader({{text, {}}}, options_of(1, 16));
                 }),
                 "has 16 tokens, and a segment needs 17"));
  CHECK_NOTHROW(SequenceReader({{text, {}}}, options_of(1, 15)));
  CHECK(contains(error_of<ValueError>([&] { SequenceReader({}, options_of(1, 4)); }), "none of 0 sequences"));
  CHECK(contains(error_of<ValueError>([&] {
                   SequenceReader({{text, {}}}, options_of(0, 4));
                 }),
                 "at least 1"));
  CHECK(contains(error_of<ValueError>([&] {
                   SequenceReader({{text, {}}}, options_of(1, 0));
                 }),
                 "at least 1"));
  const Ids few = run_of(0, 3);
  CHECK(contains(error_of<ValueError>([&] { SequenceReader({{text, few}}, options_of(1, 4)); }), "3 labels"));
  CHECK(contains(error_of<ValueError>([&] {
                   static_cast<void>(DocumentTokens({1, 0}).reader(1, 4));
                 }),
                 "none of 2"));
  CHECK_THROWS_AS(static_cast<void>(equal_spans({text, {}}, 0)), ValueError);
}
