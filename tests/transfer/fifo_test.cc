// SPDX-License-Identifier: Apache-2.0
#include "transfer/fifo.h"

#include <algorithm>
#include <deque>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

TEST(Fifo, AgreesWithADequeForAnyMixOfCalls) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    Fifo<int> fifo;
    std::deque<int> model;
    for (int step = 0; step < 600; ++step) {
      switch (random.below(5)) {
        case 0:
        case 1: {
          const int value = static_cast<int>(random.below(100));
          fifo.push(value);
          model.push_back(value);
          break;
        }
        case 2: {
          const size_t count = random.below(model.size() + 1);
          fifo.pop(count);
          model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(count));
          break;
        }
        case 3: {
          std::vector<int> out(random.below(4));
          const size_t count = fifo.take(out);
          ASSERT_EQ(count, std::min(out.size(), model.size()));
          for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(out[i], model.front());
            model.pop_front();
          }
          break;
        }
        default: {
          const int divisor = static_cast<int>(random.between(2, 9));
          const auto divides = [divisor](int value) { return value % divisor == 0; };
          fifo.remove_if(divides);
          std::erase_if(model, divides);
        }
      }
      ASSERT_EQ(fifo.size(), model.size());
      ASSERT_EQ(fifo.empty(), model.empty());
      for (size_t i = 0; i < model.size(); ++i) ASSERT_EQ(fifo[i], model[i]);
    }
  }
}

}  // namespace
}  // namespace tiercel
