// SPDX-License-Identifier: Apache-2.0
//
// Driver: one episode of the simulation: a production Cache over simulated ranks, a toy engine on
// top, and a clock that the driver moves. All of them may die at any step and begin anew over what
// their disks still have.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/manual_clock.h"
#include "base/random.h"
#include "episode.h"
#include "failure.h"
#include "sim_config.h"
#include "toy_engine.h"

namespace tiercel::sim {

class Driver final : public Episode {
 public:
  Driver(const SimConfig& config, const Sabotage& sabotage, uint64_t episode_seed);
  ~Driver() override;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void step(uint64_t number) override;
  void finish() override;
  Coverage take_coverage() override;
  void set_trace(std::function<void(const std::string&)> trace) override;

 private:
  struct Process;
  struct World;
  enum class Ending : uint8_t { kClosed, kCrash, kPowerCut };

  void pick_faults(Random& random);
  void lose_rank(Random& random);
  void pick_disk_faults(Random& random);
  void restart(Random& random);
  // False: something has not let go in time.
  bool close_process(Random& random);
  // `power_may_go`: also after all has been closed.
  void begin_anew(Random& random, Ending ending, bool power_may_go = true);
  void clear(Random& random);
  // All that was put is safe, and all that was closed is found again.
  void check_synced();
  void check_reopened();
  void count_process();
  void move_clock(Random& random);
  void advance_clock(Duration by, bool finely);
  void settle();
  void check();
  void lose_answers();
  void close_down();
  void note(const std::string& what);

  const SimConfig& config_;
  const Sabotage sabotage_;
  const uint64_t seed_;
  const bool faultless_;
  Coverage coverage_;
  SimulatedFaults faults_;
  uint64_t process_number_ = 0;
  bool is_closing_ = false;  // what has not run then is cancelled
  std::unique_ptr<World> world_;
  std::function<void(const std::string&)> trace_;
};

}  // namespace tiercel::sim
