// SPDX-License-Identifier: Apache-2.0
//
// Mutex, MutexLock and CondVar with annotations, so that Clang's thread-safety analysis checks
// which lock guards what (std::mutex has none, and the analysis then only makes noise). With other
// compilers the annotations are nothing. For the data plane: the control plane takes no lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "tiercel/clock.h"

#if defined(__clang__)
#define TIERCEL_THREAD_ANNOTATION_(x) __attribute__((x))
#else
#define TIERCEL_THREAD_ANNOTATION_(x)
#endif

#define TIERCEL_CAPABILITY(name) TIERCEL_THREAD_ANNOTATION_(capability(name))
#define TIERCEL_SCOPED_CAPABILITY TIERCEL_THREAD_ANNOTATION_(scoped_lockable)
#define TIERCEL_GUARDED_BY(mutex) TIERCEL_THREAD_ANNOTATION_(guarded_by(mutex))
#define TIERCEL_PT_GUARDED_BY(mutex) TIERCEL_THREAD_ANNOTATION_(pt_guarded_by(mutex))
#define TIERCEL_REQUIRES(...) TIERCEL_THREAD_ANNOTATION_(requires_capability(__VA_ARGS__))
#define TIERCEL_EXCLUDES(...) TIERCEL_THREAD_ANNOTATION_(locks_excluded(__VA_ARGS__))
#define TIERCEL_ACQUIRE(...) TIERCEL_THREAD_ANNOTATION_(acquire_capability(__VA_ARGS__))
#define TIERCEL_RELEASE(...) TIERCEL_THREAD_ANNOTATION_(release_capability(__VA_ARGS__))
#define TIERCEL_NO_THREAD_SAFETY_ANALYSIS TIERCEL_THREAD_ANNOTATION_(no_thread_safety_analysis)

namespace tiercel {

class TIERCEL_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() TIERCEL_ACQUIRE() { mutex_.lock(); }
  void unlock() TIERCEL_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex for its own lifetime.
class TIERCEL_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TIERCEL_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() TIERCEL_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits wake up without cause: call them in a loop that checks the condition.
class CondVar {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  void wait(Mutex& mutex) TIERCEL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // False if the time passed without a notification. Real time, whatever clock is injected
  // elsewhere.
  bool wait_for(Mutex& mutex, Duration timeout) TIERCEL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_for(lock, timeout);
    lock.release();
    return status == std::cv_status::no_timeout;
  }

 private:
  std::condition_variable condition_;
};

}  // namespace tiercel
