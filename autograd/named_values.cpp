// The capture of named values on a thread.
#include "autograd/named_values.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <set>

#include "autograd/scope.h"
#include "autograd/tape.h"

namespace eddy {
namespace detail {

class ValueCapture {
 public:
  explicit ValueCapture(const std::function<bool(const std::string&)>& wants) : wants_(wants) {}

  bool wants(const std::string& path) const { return wants_(path); }
  void keep(const std::string& path, const Tensor& value) {
    if (value.defined()) values_[path].push_back(raw::copy(detach(value)));
  }
  NamedValues taken() && { return std::move(values_); }

 private:
  const std::function<bool(const std::string&)>& wants_;
  NamedValues values_;
};

namespace {

std::string path_of(std::string_view name) {
  const std::string& scope = current_scope()->path;
  return scope.empty() ? std::string(name) : fmt::format("{}.{}", scope, name);
}

}  // namespace

void offer_value(std::string_view name, const std::function<Tensor()>& make) {
  const std::string path = path_of(name);
  if (!value_capture->wants(path)) return;
  ValueCapture& capture = *value_capture;
  // What makes a value is no part of the run.
  const Setting<ValueCapture*> away(value_capture, nullptr);
  const NoGrad no_grad;
  capture.keep(path, make());
}

}  // namespace detail

NamedValues capture_values(const std::vector<std::string>& patterns, const std::function<void()>& run) {
  std::vector<bool> fits(patterns.size(), false);
  std::set<std::string> names;
  const auto wants = [&](const std::string& path) {
    names.insert(path);
    bool wanted = false;
    for (std::size_t i = 0; i < patterns.size(); ++i)
      if (fnmatch(patterns[i].c_str(), path.c_str(), FNM_NOESCAPE) == 0) wanted = fits[i] = true;
    return wanted;
  };
  NamedValues values = capture_values_if(wants, run);
  for (std::size_t i = 0; i < patterns.size(); ++i)
    if (!fits[i])
      throw CaptureError(fmt::format("capture_values: nothing is named \"{}\" ({})", patterns[i],
                                     names.empty()
                                         ? "this run names no values"
                                         : fmt::format("this run names {}", fmt::join(names, ", "))));
  return values;
}

NamedValues capture_values_if(const std::function<bool(const std::string& path)>& wants,
                              const std::function<void()>& run) {
  detail::ValueCapture capture(wants);
  {
    const detail::Setting<detail::ValueCapture*> here(detail::value_capture, &capture);
    run();
  }
  return std::move(capture).taken();
}

}  // namespace eddy
