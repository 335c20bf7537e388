// The lock between a cache's thread and its visitors. Run under ThreadSanitizer too.
#include "allocator/base/owner_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace weir {
namespace {

void Visit(OwnerLock& lock) {
  lock.Stop();
  OwnerLock::Fence();
  lock.AwaitOwner();
}

TEST_CASE("an owner enters unless a visitor has stopped it", "[owner_lock]") {
  OwnerLock lock;
  REQUIRE(lock.TryEnter());
  lock.Exit();
  Visit(lock);
  REQUIRE_FALSE(lock.TryEnter());
  lock.AwaitOwner();  // an owner that was refused is not busy
  lock.Resume();
  REQUIRE(lock.TryEnter());
  lock.Exit();
}

TEST_CASE("a visitor waits for an owner that is inside", "[owner_lock]") {
  OwnerLock lock;
  std::atomic<bool> arrived{false};
  REQUIRE(lock.TryEnter());
  std::thread visitor([&] {
    Visit(lock);
    arrived = true;
    lock.Resume();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const bool too_early = arrived;
  lock.Exit();
  visitor.join();
  REQUIRE_FALSE(too_early);
  REQUIRE(arrived);
}

TEST_CASE("an owner and its visitors exclude each other", "[owner_lock]") {
  // Values that nothing else protects: lost updates, and races for ThreadSanitizer.
  struct Guarded {
    OwnerLock lock;
    uint64_t first = 0, second = 0;
  };
  std::array<Guarded, 3> all;  // with one fence for all
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> torn{0};
  std::vector<uint64_t> entered(all.size());
  std::vector<std::thread> owners;
  for (size_t i = 0; i < all.size(); ++i) {
    owners.emplace_back([&, i] {
      Guarded& own = all[i];
      while (!stop.load(std::memory_order_relaxed)) {
        if (!own.lock.TryEnter()) continue;
        if (own.first != own.second) ++torn;
        ++own.first;
        ++own.second;
        ++entered[i];
        own.lock.Exit();
      }
    });
  }
  uint64_t visits = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < end) {
    for (Guarded& each : all) each.lock.Stop();
    OwnerLock::Fence();
    for (Guarded& each : all) each.lock.AwaitOwner();
    for (Guarded& each : all) {
      if (each.first != each.second) ++torn;
      ++each.second;
      ++each.first;
    }
    for (Guarded& each : all) each.lock.Resume();
    ++visits;
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& owner : owners) owner.join();
  REQUIRE(torn == 0);
  REQUIRE(visits > 0);
  for (size_t i = 0; i < all.size(); ++i) {
    REQUIRE(all[i].first == entered[i] + visits);
    REQUIRE(all[i].second == entered[i] + visits);
  }
}

TEST_CASE("a child after fork can own and visit", "[owner_lock]") {
  OwnerLock lock;
  const pid_t child = fork();
  if (child == 0) {
    Visit(lock);
    const bool refused = !lock.TryEnter();
    lock.Resume();
    _exit(refused && lock.TryEnter() ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace weir
