// metrics.jsonl: lines are written in one call and parsed one by one. JSON by nlohmann_json.
#include "train/record/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "tensor/base/format.h"
#include "tensor/base/number_text.h"
#include "tensor/files/atomic_file.h"
#include "train/record/metrics_summary.h"

namespace eddy::training {

// What a line holds; that of a StepProgress is told by its beginning (kAgain).
enum class RecordKind { run, step, eval, sample, event, command };

}  // namespace eddy::training

template <>
struct eddy::ValueNames<eddy::training::RecordKind> {
  static constexpr const char* all[] = {"run", "step", "eval", "sample", "event", "command"};
};

namespace eddy::training {
namespace {

using Json = nlohmann::ordered_json;  // keeps the fields of a line in the order in which a person reads them

constexpr std::string_view kAgain = R"({"kind":"again",)";  // how the line of a StepProgress begins

// The fields of a step's record in the order of the file, but its kind and the step itself.
template <class Record, class Visit>
void visit_fields(Record& r, const Visit& visit) {
  visit("loss", r.loss);
  visit("learning_rate", r.learning_rate);
  visit("grad_norm", r.grad_norm);
  visit("tokens_per_second", r.tokens_per_second);
  visit("memory_bytes", r.memory_bytes);
  visit("resident_bytes", r.resident_bytes);
  visit("ms", r.ms);
  visit("graph_nodes", r.graph_nodes);
  visit("saved_bytes", r.saved_bytes);
  visit("graph_depth", r.graph_depth);
  visit("tokens", r.tokens);
  visit("seconds", r.seconds);
  visit("progress", r.progress);
}

// The same of a run's record.
template <class Record, class Visit>
void visit_run_fields(Record& r, const Visit& visit) {
  visit("name", r.name);
  visit("model", r.model);
  visit("task", r.task);
  visit("parameters", r.parameters);
  visit("state_bytes", r.state_bytes);
  visit("flops_per_token", r.flops_per_token);
  visit("text", r.text);
  visit("text_sha256", r.text_sha256);
}

// Invalid UTF-8 (a sample cut inside a character) becomes U+FFFD; numbers that are not finite become null.
std::string dump(const Json& record) {
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The file, open for reading.
// errors: IoError.
Descriptor open_metrics(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0)
    fail<IoError>("metrics: cannot open {}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail<IoError>("metrics: {} is not a regular file (remove it)", path.string());
  return file;
}

bool is_missing(const std::filesystem::path& path) {
  std::error_code ignored;  // a path that cannot be examined: reading it says why
  return std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found;
}

// Reads bytes of the file at `offset`; returns how many there are.
std::size_t read_at(const Descriptor& file, const std::filesystem::path& path, off_t offset, char* data,
                    std::size_t bytes) {
  for (;;) {
    const ssize_t got = ::pread(file.get(), data, bytes, offset);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) fail<IoError>("metrics: cannot read {}: {}", path.string(), std::strerror(errno));
  }
}

// A whole line of the file, without its newline.
struct Line {
  std::string_view text;
  std::int64_t number = 0;
  off_t begin = 0, end = 0;  // in the file, with the newline
};

// Calls visit(line) for every whole line; of one that is too long for a record the text is the beginning. Returns
// the number of bytes after the last newline: a line that was cut.
template <class Visit>
off_t visit_lines(const Descriptor& file, const std::filesystem::path& path, const Visit& visit) {
  constexpr std::size_t kBlock = std::size_t{1} << 20, kLongest = 16 * kBlock;
  std::string block(kBlock, '\0'), begun;
  Line line;
  off_t offset = 0;
  while (const std::size_t got = read_at(file, path, offset, block.data(), kBlock)) {
    const std::string_view read(block.data(), got);
    std::size_t at = 0;
    for (std::size_t end; (end = read.find('\n', at)) != std::string_view::npos; at = end + 1) {
      line.text = read.substr(at, end - at);
      if (!begun.empty()) line.text = begun += line.text;
      line.end = offset + static_cast<off_t>(end) + 1;
      ++line.number;
      visit(line);
      begun.clear();
      line.begin = line.end;
    }
    begun += read.substr(at, kLongest - std::min(kLongest, begun.size()));
    offset += static_cast<off_t>(got);
  }
  return offset - line.begin;
}

// The record of a step in the form in which it is written here, as most lines are: read in a fifth of the time
// that a JSON parser takes. Nothing for all other lines.
std::optional<StepRecord> plain_step(std::string_view line) {
  StepRecord record;
  bool good = true;
  const auto take = [&](std::string_view text) {
    good = good && line.starts_with(text);
    if (good) line.remove_prefix(text.size());
  };
  const auto take_number = [&](auto& value) {
    const auto [rest, error] = number_from(line.data(), line.data() + line.size(), value);
    good = good && error == std::errc() && std::isfinite(static_cast<double>(value));
    if (good) line.remove_prefix(static_cast<std::size_t>(rest - line.data()));
  };
  take("{\"kind\":\"step\",\"step\":");
  take_number(record.step);
  visit_fields(record, [&](const char* key, auto& value) {
    for (const char* part : {",\"", key, "\":"}) take(part);
    if (line.starts_with("null"))
      take("null");
    else
      take_number(value);
  });
  take("}");
  return good && line.empty() ? std::optional(record) : std::nullopt;
}

// Reads lines as flat records: one field after the other, without a document.
class Record final : public nlohmann::json_sax<nlohmann::json> {
 public:
  // Takes a line; every error, a FormatError, names it.
  void read(const Line& line) {
    number_ = line.number;
    depth_ = 0;
    fields_.clear();
    const bool good = line.text.find('\0') == std::string_view::npos &&
                      nlohmann::json::sax_parse(line.text.begin(), line.text.end(), this);
    if (!good) bad("no JSON object");
    if (find("step") == nullptr) bad("no field \"step\"");
  }

  std::string kind() const {
    if (find("kind") == nullptr) bad("no field \"kind\"");
    return text_of("kind");
  }
  void read_field(const char* key, std::int64_t& value) const { value = integer_of(key); }
  void read_field(const char* key, double& value) const { value = number_of(key); }
  void read_field(const char* key, std::string& value) const { value = text_of(key); }
  std::int64_t integer_of(const char* key) const {
    const Field* field = find(key);
    if (field == nullptr || field->type == Type::null) return 0;
    if (field->type != Type::integer) bad_field(key, "a 64-bit integer");
    return field->integer;
  }
  double number_of(const char* key) const {
    const Field* field = find(key);
    if (field == nullptr || field->type == Type::null) return kNotMeasured;
    if (!is_number(*field)) bad_field(key, "a number or null");
    return field->number;
  }
  std::string text_of(const char* key) const {
    const Field* field = find(key);
    if (field == nullptr || field->type == Type::null) return "";
    if (field->type != Type::text) bad_field(key, "a string");
    return field->text;
  }
  bool is_true(const char* key) const {
    const Field* field = find(key);
    return field != nullptr && field->type == Type::boolean && field->integer != 0;
  }
  // Every number (NaN for null) but those of these names.
  std::vector<std::pair<std::string, double>> extra_numbers(
      std::initializer_list<std::string_view> names) const {
    std::vector<std::pair<std::string, double>> found;
    for (const Field& field : fields_)
      if (std::find(names.begin(), names.end(), field.key) == names.end() &&
          (is_number(field) || field.type == Type::null))
        found.emplace_back(field.key, field.type == Type::null ? kNotMeasured : field.number);
    return found;
  }

  // What the parser calls. Values inside a field's array or object are passed over.
  bool null() override { return place(Type::null, 0, 0); }
  bool boolean(bool value) override { return place(Type::boolean, value ? 1 : 0, 0); }
  bool number_integer(number_integer_t value) override {
    return place(Type::integer, value, static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value <= INT64_MAX;
    return place(fits ? Type::integer : Type::number, fits ? static_cast<std::int64_t>(value) : 0,
                 static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return place(Type::number, 0, value); }
  bool string(string_t& value) override {
    if (!place(Type::text, 0, 0)) return false;
    if (depth_ == 1) fields_.back().text = std::move(value);
    return true;
  }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& name) override {
    if (depth_ == 1) fields_.push_back({.key = std::move(name)});
    return true;
  }
  bool start_object(std::size_t) override { return ++depth_ > 0; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return depth_++ > 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  enum class Type { other, null, boolean, integer, number, text };
  struct Field {
    std::string key;
    Type type = Type::other;
    std::int64_t integer = 0;
    double number = 0;
    std::string text{};
  };

  bool place(Type type, std::int64_t integer, double number) {
    if (depth_ != 1) return depth_ > 1;  // a line of one value alone is no record
    fields_.back().type = type;
    fields_.back().integer = integer;
    fields_.back().number = number;
    return true;
  }
  static bool is_number(const Field& field) {
    return field.type == Type::integer || field.type == Type::number;
  }
  const Field* find(std::string_view key) const {
    const auto found =
        std::find_if(fields_.begin(), fields_.end(), [&](const Field& field) { return field.key == key; });
    return found == fields_.end() ? nullptr : &*found;
  }
  [[noreturn]] void bad(const char* what) const {
    fail<FormatError>("line {}: {} (every line is an object with \"kind\" and \"step\")", number_, what);
  }
  [[noreturn]] void bad_field(const char* key, const char* rule) const {
    fail<FormatError>("line {}: field \"{}\" has the wrong type (it is {})", number_, key, rule);
  }

  std::int64_t number_ = 0, depth_ = 0;
  std::vector<Field> fields_;
};

// Adds what a line holds, whose step is known.
// errors: FormatError when it is no record.
void add_record(MetricsSummary& summary, const Record& r, std::int64_t step) {
  const std::optional<RecordKind> kind = value_named<RecordKind>(r.kind());
  if (kind == RecordKind::step) {
    StepRecord record;
    record.step = step;
    visit_fields(record, [&](const char* key, auto& value) { r.read_field(key, value); });
    summary.add(record);
  } else if (kind == RecordKind::eval) {
    summary.add(EvalRecord{step, r.text_of("split"), r.number_of("loss"), r.integer_of("tokens"),
                           r.extra_numbers({"kind", "step", "split", "loss", "tokens", "of"}),
                           r.is_true("of_task"), r.integer_of("of"), r.is_true("whole")});
  } else if (kind == RecordKind::sample) {
    summary.add(SampleRecord{step, r.text_of("text"), r.integer_of("words"), r.integer_of("known_words")});
  } else if (kind == RecordKind::event) {
    summary.add(EventRecord{step, r.text_of("text")});
  } else if (kind == RecordKind::command) {
    summary.add(CommandRecord{step, r.text_of("text")});
  } else if (kind == RecordKind::run) {
    RunRecord record;
    record.step = step;
    visit_run_fields(record, [&](const char* key, auto& value) { r.read_field(key, value); });
    summary.add(record);
  }
}

// Adds the lines of a file but those of steps after `last`, and calls each(line, stays). Returns the number of
// bytes after the last newline.
template <class Each>
off_t add_lines(MetricsSummary& summary, const Descriptor& file, const std::filesystem::path& path,
                std::int64_t last, const Each& each) {
  Record record;
  return visit_lines(file, path, [&](const Line& line) {
    std::int64_t step = 0;
    if (const std::optional<StepRecord> plain = plain_step(line.text)) {
      step = plain->step;
      if (step <= last) summary.add(*plain);
    } else if (line.text.find_first_not_of(" \t\r") != std::string_view::npos) {
      try {
        record.read(line);
        step = record.integer_of("step");
        if (step <= last) add_record(summary, record, step);
      } catch (const FormatError& error) {
        summary.add_foreign(error.what());
      }
    }
    each(line, step <= last);
  });
}

}  // namespace

std::string known_words_text(const SampleRecord& sample) {
  if (sample.words == 0) return {};
  return fmt::format("{} of its {} words stand in the training text", sample.known_words, sample.words);
}

bool compares(const EvalRecord& eval) {
  return value_is(eval.split, Split::valid) && !eval.whole;
}

bool is_better(const EvalRecord& eval, const EvalRecord* best) {
  return compares(eval) && std::isfinite(eval.loss) && (best == nullptr || eval.loss < best->loss);
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return kNotMeasured;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path)
    : path_(path),
      file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666)) {
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0)
    fail<IoError>("metrics: cannot open {}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail<IoError>("metrics: {} is not a regular file (remove it)", path.string());
  // The end of the last whole line, looked for from the end.
  off_t whole = status.st_size;
  for (char block[4096]; whole > 0;) {
    const off_t begin = std::max<off_t>(0, whole - static_cast<off_t>(sizeof block));
    const std::size_t got = read_at(file_, path, begin, block, static_cast<std::size_t>(whole - begin));
    const std::size_t newline = std::string_view(block, got).rfind('\n');
    whole = newline == std::string_view::npos ? begin : begin + static_cast<off_t>(newline) + 1;
    if (newline != std::string_view::npos) break;
  }
  if (whole < status.st_size && ::ftruncate(file_.get(), whole) != 0)
    fail<IoError>("metrics: cannot remove the cut last line of {}: {}", path.string(), std::strerror(errno));
}

void MetricsWriter::write(const RunRecord& r) {
  Json record{{"kind", value_name(RecordKind::run)}, {"step", r.step}};
  visit_run_fields(r, [&](const char* key, const auto& value) { record[key] = value; });
  append_line(dump(record));
}

void MetricsWriter::write(const StepRecord& r) {
  Json record{{"kind", value_name(RecordKind::step)}, {"step", r.step}};
  visit_fields(r, [&](const char* key, const auto& value) { record[key] = value; });
  append_line(dump(record));
}

void MetricsWriter::write(const EvalRecord& r) {
  Json record{{"kind", value_name(RecordKind::eval)},
              {"step", r.step},
              {"split", r.split},
              {"loss", r.loss},
              {"tokens", r.tokens}};
  for (const auto& [name, value] : r.metrics) record.emplace(name, value);
  if (r.of_task) record.emplace("of_task", true);
  if (r.of > 0) record.emplace("of", r.of);
  if (r.whole) record.emplace("whole", true);
  append_line(dump(record));
}

void MetricsWriter::write(const SampleRecord& r) {
  Json record = {{"kind", value_name(RecordKind::sample)}, {"step", r.step}, {"text", r.text}};
  if (r.words > 0) record.update({{"words", r.words}, {"known_words", r.known_words}});
  append_line(dump(record));
}

void MetricsWriter::write(const EventRecord& r) {
  append_line(dump({{"kind", value_name(RecordKind::event)}, {"step", r.step}, {"text", r.text}}));
}

void MetricsWriter::write(const CommandRecord& r) {
  append_line(dump({{"kind", value_name(RecordKind::command)}, {"step", r.step}, {"text", r.text}}));
}

void MetricsWriter::append_line(std::string line) {
  line += '\n';
  struct stat before {};
  if (::fstat(file_.get(), &before) != 0)
    fail<IoError>("metrics: cannot examine {}: {}", path_.string(), std::strerror(errno));
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // A half-written line would join the next one into a line that cannot be read.
      (void)!::ftruncate(file_.get(), before.st_size);
      fail<IoError>("metrics: cannot write {}: {}", path_.string(), std::strerror(error));
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

Metrics read_metrics(const std::filesystem::path& path) {
  MetricsSummary summary;
  add_lines(summary, open_metrics(path), path, INT64_MAX, [](const Line&, bool) {});
  return summary.metrics();
}

std::vector<StepProgress> progress_after(const std::filesystem::path& path, std::int64_t step) {
  if (is_missing(path)) return {};
  std::map<std::int64_t, double> found;
  Record record;
  visit_lines(open_metrics(path), path, [&](const Line& line) {
    if (const std::optional<StepRecord> taken = plain_step(line.text); taken && taken->step > step)
      found[taken->step] = taken->progress;
    if (!line.text.starts_with(kAgain)) return;
    try {
      record.read(line);
      if (const std::int64_t of = record.integer_of("of"); of > step)
        found[of] = record.number_of("progress");
    } catch (const FormatError&) {  // drop_metrics_after counts it
    }
  });
  if (std::none_of(found.begin(), found.end(), [](const auto& one) { return std::isfinite(one.second); }))
    return {};
  std::vector<StepProgress> again;
  for (const auto& [of, progress] : found) again.push_back({of, progress});
  return again;
}

std::int64_t drop_metrics_after(const std::filesystem::path& path, std::int64_t step, MetricsSummary& kept,
                                const std::vector<StepProgress>& again) {
  if (is_missing(path)) return 0;
  const Descriptor file = open_metrics(path);
  std::vector<std::pair<off_t, off_t>> parts;  // that stay: begin and end
  std::int64_t dropped = 0;
  const off_t cut = add_lines(kept, file, path, step, [&](const Line& line, bool stays) {
    if (!stays || line.text.starts_with(kAgain))
      ++dropped;
    else if (!parts.empty() && parts.back().second == line.begin)
      parts.back().second = line.end;
    else
      parts.emplace_back(line.begin, line.end);
  });
  if (cut > 0) ++dropped;
  struct stat status {};
  const bool shared = ::fstat(file.get(), &status) == 0 && status.st_nlink > 1;
  if (dropped == 0 && !shared) return 0;
  AtomicFile left(path.string());
  std::string block(std::size_t{1} << 20, '\0');
  for (auto [begin, end] : parts)
    while (begin < end) {
      const auto wanted = static_cast<std::size_t>(std::min<off_t>(end - begin, std::ssize(block)));
      const std::size_t got = read_at(file, path, begin, block.data(), wanted);
      if (got == 0) fail<IoError>("metrics: {} was cut while it was read", path.string());
      left.write(block.data(), static_cast<std::int64_t>(got));
      begin += static_cast<off_t>(got);
    }
  for (const auto& [of, progress] : again) {
    const std::string line =
        dump({{"kind", "again"}, {"step", step}, {"of", of}, {"progress", progress}}) + "\n";
    left.write(line.data(), std::ssize(line));
  }
  left.commit();
  return dropped;
}

}  // namespace eddy::training
