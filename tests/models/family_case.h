// What a test that goes over all models must know of a family: small configurations, and which calls its models take.
// Each family says it in <family>_case.h of its folder, where <family>_case() returns it.
//
//   one call          | segment | segment | rest |            uneven_time
//   calls in a row    | call_time | call_time | call_time |   each goes on from the state of the one before
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tests/models/compare.h"

namespace eddy::test {

// Where rows of a batch may begin a document.
enum class Starts { nowhere, calls, segments };

// After how many tokens of a stream a call may go on from its state, and a part of the error after a single token.
struct StreamCut {
  std::int64_t tokens = 1;
  std::string inside{};
};

class FamilyCase {
 public:
  FamilyCase() = default;
  virtual ~FamilyCase() = default;
  FamilyCase(const FamilyCase&) = delete;
  FamilyCase& operator=(const FamilyCase&) = delete;

  // Every model with every switch.
  virtual std::vector<ModelCase> all() const = 0;
  // The configuration from which a model's cases begin.
  virtual ModelConfig plain(const std::string& model) const = 0;
  // A model with random parameters: no scale is 1, no memory begins with zeros.
  virtual std::unique_ptr<Model> random(const ModelConfig& config, Dtype dtype) const {
    return random_model(config, dtype);
  }

  // Tokens after which a call that carries its state may end: whole windows, chunks or segments.
  virtual std::int64_t call_time(const ModelConfig&) const { return 8; }
  // Tokens of a call with several segments, blocks or chunks, of which the last is short where it may be.
  virtual std::int64_t uneven_time(const ModelConfig&) const { return 17; }
  // Tokens of a last call that is shorter than the others where it may be.
  virtual std::int64_t rest_of(const ModelConfig&) const { return 3; }
  // Lengths of calls that a model must get right: one token or block, and whole numbers of them, with a rest and
  // without one.
  virtual std::vector<std::int64_t> lengths_of(const ModelConfig&) const { return {1, 2, 3, 17}; }
  virtual StreamCut stream_cut(const ModelConfig&) const { return {}; }

  virtual Starts starts(const ModelConfig&) const { return Starts::nowhere; }
  // Whether rows with and without a past can stand in one batch.
  virtual bool mixes_starts(const ModelConfig&) const { return true; }
  // Whether a call with another number of rows than its state begins anew.
  virtual bool forgets_other_rows() const { return false; }
  // Whether a stream writes into the tensors of the state that it is given.
  virtual bool writes_state() const { return false; }

  // Whether the loss has kinks: ReLUs, or a choice among stored keys.
  virtual bool has_kinks(const ModelConfig&) const { return false; }
  // Tokens of a call whose gradients are compared with differences of the loss. It may shorten segments.
  virtual std::int64_t gradient_time(ModelConfig&) const { return 11; }
  // Tokens at whose end the way of a gradient ends; 0: those of a call.
  virtual std::int64_t gradient_segment(const ModelConfig&) const { return 0; }
  // Whether the word-for-word form draws the same dropout masks.
  virtual bool forms_share_masks(const ModelConfig&) const { return false; }
  // Why a parameter that exists has no influence on the loss, whatever the input; "" for the others.
  virtual std::string without_influence(const ModelConfig&, const std::string& /*parameter*/) const {
    return "";
  }
};

// Whether a parameter's name has one of these parts.
inline bool has_part(const std::string& parameter, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* one) { return parameter.find(one) != std::string::npos; });
}

}  // namespace eddy::test
