// What the kernels of this build have shown on a GPU, and what is taken for it. It is kept in a small file, so that the
// same program on the same GPU takes the same kernels and gives the same bits.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/app/measure/kernels/trials.h"

namespace eddy::app {

struct KernelVerdict {
  std::string gpu, build;  // whose it is: gpu_identity(), and the digest of the program
  std::string day;         // "2026-11-26"
  std::vector<KernelTrial> trials;

  // The fastest kernels of those that passed, as set_automatic_kernels takes them: that whose time is the smallest
  // part of the plain one's, in every call that was timed.
  std::string kernels() const;
  // The choices that did not pass, as refuse_gpu_kernels takes them.
  std::string refused() const;
  // "attention=wgmma: what is wrong", for choices, or for ops, which have no other kernel.
  std::vector<std::string> refused_choices() const;
  std::vector<std::string> refused_ops() const;
};

nlohmann::json to_json(const KernelTrial& trial);
// errors: an exception of the JSON library for another form.
KernelTrial trial_from_json(const nlohmann::json& json);

// The file of a verdict in a cache: CACHE/kernels/DIGEST.json, with a digest of GPU and build.
std::filesystem::path verdict_file(const std::filesystem::path& cache, const std::string& gpu,
                                   const std::string& build);
// Returns the verdict in that file; nothing if there is none, or none of this GPU and build.
std::optional<KernelVerdict> read_verdict(const std::filesystem::path& cache, const std::string& gpu,
                                          const std::string& build);
// errors: IoError.
void write_verdict(const std::filesystem::path& cache, const KernelVerdict& verdict);

}  // namespace eddy::app
