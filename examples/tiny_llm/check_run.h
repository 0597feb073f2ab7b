// SPDX-License-Identifier: Apache-2.0
//
// Runs the cases of the check: the same prompts with and without a cache must give the same logits
// and tokens bit by bit, and every block that is found in a cache must have the bytes that were
// computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/local_cache.h"
#include "tiercel/status.h"

#include "tiny_llm/check_case.h"
#include "tiny_llm/planted_fault.h"
#include "tiny_llm/tiny_engine.h"
#include "tiny_llm/workload.h"

namespace tiercel::tiny {

// Two models of one shape with different weights, and what each answers without any cache.
class CheckWorld {
 public:
  struct Options {
    TinyConfig config;
    WorkloadOptions workload;
    PlantedFault fault = PlantedFault::kNone;
    bool new_weights = true;                  // false: no case that needs them will be run
    std::string store_url = "memory:tiny";    // what the cases with a store use
    std::string disk_folder;                  // what the cases with a disk use; must be there
    const std::atomic<bool>* stop = nullptr;  // set by someone else: end with kCancelled
  };
  // kInvalid as TinyConfig::validate; kNoSpace if the KV of the reference does not fit.
  static Result<std::unique_ptr<CheckWorld>> create(const Options& options, const Clock& clock);

  struct Revision {
    std::unique_ptr<TinyModel> model;
    std::unique_ptr<KvRecorder> recorder;
    TinyWeightsRevision weights;
    Workload workload;
  };
  const Options& options() const { return options_; }
  const Clock& clock() const { return clock_; }
  const Revision& old_weights() const { return revisions_[0]; }
  const Revision& new_weights() const { return revisions_[1]; }

 private:
  CheckWorld(const Options& options, const Clock& clock) : options_(options), clock_(clock) {}
  Status add_revision(uint64_t weights_seed, uint64_t namespace_seed);

  const Options options_;
  const Clock& clock_;
  std::vector<Revision> revisions_;
};

// What came of one case.
struct CaseOutcome {
  uint64_t requests = 0;         // whose answers were compared
  uint64_t computed_tokens = 0;  // by the model, in all
  uint64_t preempted = 0, aborted = 0;
  // Blocks by where they were found; what was loaded came from the host tier, where it may have
  // come from disk or store before.
  uint64_t device_blocks = 0, loaded_blocks = 0, disk_blocks = 0, store_blocks = 0;
  uint64_t wrong_answers = 0;           // logits or tokens that are not those of the reference
  TinyFindings findings;                // of all engines
  std::vector<std::string> complaints;  // what else is wrong
  std::vector<std::string> unproven;    // what the case is for, and did not come to
  bool stuck = false;                   // it was given up; one of `unproven` says where

  bool is_wrong() const {
    return wrong_answers > 0 || findings.wrong_blocks > 0 || !complaints.empty();
  }
  bool ok() const { return !is_wrong() && unproven.empty(); }
};

// An error is one of the machinery (a folder that cannot be written, a store that does not open),
// or kCancelled.
Result<CaseOutcome> run_case(const CheckCase& check_case, const CheckWorld& world);

}  // namespace tiercel::tiny
