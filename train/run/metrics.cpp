// metrics.jsonl: lines are written in one call and parsed one by one. JSON by nlohmann_json.
#include "train/run/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "tensor/base/format.h"
#include "train/files/text_file.h"

namespace eddy {
namespace {

using Json = nlohmann::ordered_json;  // keeps the fields of a line in the order in which a person reads them

// The fields of a step's record in the order of the file, but its kind and the step itself.
template <class Record, class Visit>
void visit_fields(Record& r, const Visit& visit) {
  visit("loss", r.loss);
  visit("learning_rate", r.learning_rate);
  visit("grad_norm", r.grad_norm);
  visit("tokens_per_second", r.tokens_per_second);
  visit("memory_bytes", r.memory_bytes);
  visit("ms", r.ms);
  visit("graph_nodes", r.graph_nodes);
  visit("saved_bytes", r.saved_bytes);
  visit("graph_depth", r.graph_depth);
}

// Invalid UTF-8 (a sample cut inside a character) becomes U+FFFD; numbers that are not finite become null.
std::string dump(const Json& record) {
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

struct Line {
  std::string_view text;
  std::int64_t number = 0;
};

// The whole lines of a text, empty ones left out; what follows the last newline was cut and is no line.
std::vector<Line> whole_lines(std::string_view text) {
  std::vector<Line> lines;
  std::int64_t number = 0;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return lines;
    ++number;
    const std::string_view line = text.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) lines.push_back({line, number});
    begin = end + 1;
  }
}

// One parsed line with typed access to its fields; every error, a FormatError, names the line.
class Record {
 public:
  explicit Record(const Line& line) : line_(line) {
    // Records are flat. Depth is bounded so that a hostile line cannot build a deep value.
    const auto flat = [](int depth, Json::parse_event_t, Json&) { return depth < 8; };
    json_ = Json::parse(line.text, flat, false);
    if (!json_.is_object()) bad("no JSON object");
    if (!json_.contains("step")) bad("no field \"step\"");
  }

  std::string kind() const {
    if (!json_.contains("kind")) bad("no field \"kind\"");
    return string("kind");
  }
  void read(const char* key, std::int64_t& value) const { value = integer(key); }
  void read(const char* key, double& value) const { value = number(key); }
  std::int64_t integer(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return 0;
    const bool too_large = value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX;
    if (!value->is_number_integer() || too_large) bad_field(key, "a 64-bit integer");
    return value->get<std::int64_t>();
  }
  double number(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return kNotMeasured;
    if (!value->is_number()) bad_field(key, "a number or null");
    return value->get<double>();
  }
  // Every number (NaN for null) but those of these names.
  std::vector<std::pair<std::string, double>> extra_numbers(
      std::initializer_list<std::string_view> names) const {
    std::vector<std::pair<std::string, double>> found;
    for (const auto& [key, value] : json_.items())
      if (std::find(names.begin(), names.end(), key) == names.end() && (value.is_number() || value.is_null()))
        found.emplace_back(key, value.is_null() ? kNotMeasured : value.get<double>());
    return found;
  }
  std::string string(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) bad_field(key, "a string");
    return value->get<std::string>();
  }

 private:
  // The field, or nullptr when it is missing or null.
  const Json* find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  [[noreturn]] void bad(const char* what) const {
    fail<FormatError>("line {}: {} (every line is an object with \"kind\" and \"step\")", line_.number, what);
  }
  [[noreturn]] void bad_field(const char* key, const char* rule) const {
    fail<FormatError>("line {}: field \"{}\" has the wrong type (it is {})", line_.number, key, rule);
  }

  Line line_;
  Json json_;
};

// Adds the record of a line.
// errors: FormatError when it is none.
void add_record(Metrics& metrics, const Line& line) {
  const Record r(line);
  const std::string kind = r.kind();
  const std::int64_t step = r.integer("step");
  if (kind == "step") {
    StepRecord record;
    record.step = step;
    visit_fields(record, [&](const char* key, auto& value) { r.read(key, value); });
    metrics.steps.push_back(record);
  } else if (kind == "eval") {
    metrics.evals.push_back({step, r.string("split"), r.number("loss"), r.integer("tokens"),
                             r.extra_numbers({"kind", "step", "split", "loss", "tokens"})});
  } else if (kind == "sample") {
    metrics.samples.push_back({step, r.string("text")});
  } else if (kind == "event") {
    metrics.events.push_back({step, r.string("text")});
  }
}

// The step of a line; nothing when it is no record.
std::optional<std::int64_t> step_of_line(const Line& line) {
  try {
    return Record(line).integer("step");
  } catch (const FormatError&) {
    return std::nullopt;
  }
}

}  // namespace

double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return kNotMeasured;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644)) {
  if (file_.get() < 0)
    fail<IoError>("MetricsWriter: cannot open: {}: {}", path.string(), std::strerror(errno));
  const std::string text = read_text_file(path);
  const std::size_t whole = text.rfind('\n') + 1;  // npos + 1 == 0: no whole line
  if (whole < text.size() && ::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0)
    fail<IoError>("MetricsWriter: cannot remove the cut last line: {}: {}", path.string(),
                  std::strerror(errno));
}

void MetricsWriter::write(const StepRecord& r) {
  Json record{{"kind", "step"}, {"step", r.step}};
  visit_fields(r, [&](const char* key, const auto& value) { record[key] = value; });
  append_line(dump(record));
}

void MetricsWriter::write(const EvalRecord& r) {
  Json record{{"kind", "eval"}, {"step", r.step}, {"split", r.split}, {"loss", r.loss}, {"tokens", r.tokens}};
  for (const auto& [name, value] : r.extras) record.emplace(name, value);
  append_line(dump(record));
}

void MetricsWriter::write(const SampleRecord& r) {
  append_line(dump({{"kind", "sample"}, {"step", r.step}, {"text", r.text}}));
}

void MetricsWriter::write(const EventRecord& r) {
  append_line(dump({{"kind", "event"}, {"step", r.step}, {"text", r.text}}));
}

void MetricsWriter::append_line(std::string line) {
  line += '\n';
  struct stat before {};
  if (::fstat(file_.get(), &before) != 0)
    fail<IoError>("MetricsWriter: cannot stat: {}: {}", path_.string(), std::strerror(errno));
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // A half-written line would join the next one into a line that cannot be read.
      (void)!::ftruncate(file_.get(), before.st_size);
      fail<IoError>("MetricsWriter: cannot write: {}: {}", path_.string(), std::strerror(error));
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

Metrics read_metrics(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  Metrics metrics;
  for (const Line& line : whole_lines(text)) {
    try {
      add_record(metrics, line);
    } catch (const FormatError& error) {
      metrics.foreign.emplace_back(error.what());
    }
  }
  return metrics;
}

std::int64_t drop_metrics_after(const std::filesystem::path& path, std::int64_t step) {
  std::error_code ignored;  // a path that cannot be examined: reading it below says why
  if (std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found) return 0;
  const std::string text = read_text_file(path);
  std::string kept;
  std::int64_t dropped = !text.empty() && text.back() != '\n' ? 1 : 0;  // the cut last line
  for (const Line& line : whole_lines(text)) {
    const std::optional<std::int64_t> at = step_of_line(line);
    if (at && *at > step) {
      ++dropped;
      continue;
    }
    kept.append(line.text);
    kept += '\n';
  }
  if (dropped > 0) replace_text_file(path, kept);
  return dropped;
}

}  // namespace eddy
