// Reads answers, compares them with what is wanted, and looks for a mistake that gives the same wrong ones.
#include "examples/learn/checker/judge.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tensor/base/number_text.h"
#include "train/files/text_file.h"

namespace eddy::app {
using namespace training;
namespace {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, '\t');) cells.push_back(cell);
  return cells;
}

std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = number_from(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

bool is_near(const std::string& a, const std::string& b, double tolerance) {
  const std::optional<double> x = number_of(a), y = number_of(b);
  if (!x || !y) return a == b;
  if (std::isnan(*x) || std::isnan(*y)) return std::isnan(*x) && std::isnan(*y);
  return *x == *y || (std::isfinite(*y) && std::abs(*x - *y) <= tolerance * std::max(1.0, std::abs(*y)));
}

std::string shown(const std::string& value) {
  const std::optional<double> number = number_of(value);
  if (number && std::isnan(*number)) return "nan";                // which may have a sign
  return number ? fmt::format("{:.10g}", *number + 0.0) : value;  // 0 of -0
}

std::string shown(const Answer& answer) {
  if (answer.columns == 1 && answer.values.size() == 1) return shown(answer.values[0]);
  std::string text;
  for (std::size_t i = 0; i < answer.values.size(); ++i)
    text += (i == 0                                          ? ""
             : answer.columns > 0 && i % answer.columns == 0 ? "; "
                                                             : ", ") +
            shown(answer.values[i]);
  return "[" + text + "]";
}

}  // namespace

Answers read_answers(std::string_view lines) {
  Answers answers;
  std::istringstream stream{std::string(lines)};
  for (std::string line; std::getline(stream, line);) {
    std::vector<std::string> cells = cells_of(line);
    if (cells.empty()) continue;
    if (cells[0] == "ends") answers.complete = true;
    if (cells[0] == "asks") answers.asked_last = line.substr(std::min<std::size_t>(5, line.size()));
    if (cells[0] != "gives" || cells.size() < 4) continue;
    answers.all.push_back({answers.asked_last,
                           cells[1],
                           static_cast<std::size_t>(number_of(cells[2]).value_or(0)),
                           number_of(cells[3]).value_or(0),
                           {cells.begin() + 4, cells.end()}});
  }
  return answers;
}

bool are_near(const std::vector<std::string>& a, const std::vector<std::string>& b, double tolerance) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const std::string& x, const std::string& y) { return is_near(x, y, tolerance); });
}

PartValues values_of(const std::vector<Answer>& answers, const std::string& part) {
  PartValues values;
  for (const Answer& answer : answers)
    if (answer.part == part) values.push_back(answer.values);
  return values;
}

bool shows(const std::map<std::string, PartValues>& parts, const Mistake& mistake, const Wanted& wanted) {
  for (const auto& [part, values] : mistake.parts) {
    const auto found = parts.find(part);
    if (found == parts.end() || found->second.size() != values.size()) return false;
    std::size_t i = 0;
    for (const Answer& answer : wanted.all)
      if (answer.part == part && i < values.size()) {
        if (!are_near(found->second[i], values[i], answer.tolerance)) return false;
        ++i;
      }
  }
  return true;
}

Wanted read_wanted(const std::filesystem::path& path) {
  const nlohmann::json file = read_json_file(path);
  Wanted wanted;
  try {
    for (const nlohmann::json& answer : file.at("answers"))
      wanted.all.push_back({answer.at("asked"), answer.at("part"), answer.at("columns"),
                            answer.at("tolerance"), answer.at("values")});
    for (const nlohmann::json& mistake : file.at("mistakes"))
      wanted.mistakes.push_back({mistake.at("sentence"), mistake.at("parts")});
  } catch (const nlohmann::json::exception& error) {
    fail<FormatError>("learn: {}: {} (eddy learn record writes it)", path.string(), error.what());
  }
  return wanted;
}

std::string wanted_text(const Wanted& wanted) {
  nlohmann::ordered_json answers = nlohmann::ordered_json::array(), mistakes = answers;
  for (const Answer& answer : wanted.all)
    answers.push_back({{"asked", answer.asked},
                       {"part", answer.part},
                       {"columns", answer.columns},
                       {"tolerance", answer.tolerance},
                       {"values", answer.values}});
  for (const Mistake& mistake : wanted.mistakes)
    mistakes.push_back({{"sentence", mistake.sentence}, {"parts", mistake.parts}});
  const auto lines = [](const nlohmann::ordered_json& all) {
    std::string text;
    for (const nlohmann::ordered_json& one : all) text += (text.empty() ? "\n" : ",\n") + one.dump();
    return text;
  };
  return "{\"answers\": [" + lines(answers) + "\n],\n\"mistakes\": [" + lines(mistakes) + "\n]}\n";
}

Verdict judge(const Answers& given, const Wanted& wanted) {
  Verdict verdict;
  verdict.answers = wanted.all.size();
  std::map<std::string, PartValues> parts;
  for (const Answer& answer : wanted.all) parts.emplace(answer.part, values_of(given.all, answer.part));
  std::set<std::string> wrong;
  for (std::size_t i = 0; i < std::min(given.all.size(), wanted.all.size()); ++i) {
    const Answer &got = given.all[i], &want = wanted.all[i];
    if (got.asked != want.asked || got.part != want.part)
      fail<FormatError>(
          "learn: the check asks '{}' ({}) where '{}' ({}) is wanted: was a default of the exercise changed in your "
          "file? (whoever changes a check runs eddy learn record)",
          got.asked, got.part, want.asked, want.part);
    if (are_near(got.values, want.values, want.tolerance)) {
      ++verdict.right_answers;
      continue;
    }
    if (!wrong.insert(want.part).second) continue;
    verdict.text +=
        fmt::format("  {}\n    {} is {}, and should be {}\n", want.asked, want.part, shown(got), shown(want));
    for (const Mistake& mistake : wanted.mistakes) {
      if (!mistake.parts.contains(want.part) || !shows(parts, mistake, wanted)) continue;
      if (std::find(verdict.mistakes.begin(), verdict.mistakes.end(), mistake.sentence) !=
          verdict.mistakes.end())
        continue;
      verdict.mistakes.push_back(mistake.sentence);
      verdict.text += "    " + mistake.sentence + "\n";
    }
  }
  verdict.right =
      given.complete && given.all.size() == verdict.answers && verdict.right_answers == verdict.answers;
  verdict.text += fmt::format("{} of {} answers are right\n", verdict.right_answers, verdict.answers);
  return verdict;
}

}  // namespace eddy::app
