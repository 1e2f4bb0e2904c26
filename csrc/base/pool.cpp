#include "base/pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

// Waking a parked thread costs about 50 us, so workers stay awake over the gap between two steps. The caller waits
// only for a chunk in somebody's hands: if that takes long, its owner lost its core, and sleeping gives it ours.
constexpr auto kWorkerSpin = std::chrono::microseconds(250);
constexpr auto kCallerSpin = std::chrono::microseconds(60);
constexpr int kMaxThreads = 256;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Counts forks on the way from the first process to this one: threads do not survive a fork.
std::atomic<unsigned> fork_generation{0};

void register_fork_handler() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); });
  if (registered != 0) throw std::runtime_error("pthread_atfork failed with code " + std::to_string(registered));
}

thread_local bool inside_chunk = false;

// The shared word: epoch (40 bits) of the open stage, chunks of it that nobody has claimed yet (24 bits).
constexpr int kLeftBits = 24;
constexpr uint64_t kLeftMask = (uint64_t{1} << kLeftBits) - 1;
uint64_t left_of(uint64_t cursor) {
  return cursor & kLeftMask;
}
uint64_t next_epoch(uint64_t cursor, uint64_t left) {
  return ((cursor >> kLeftBits) + 1) << kLeftBits | left;
}

}  // namespace

// The threads of one process, and the state of the run they share.
class ThreadPool::Crew {
 public:
  explicit Crew(int threads) : generation(fork_generation.load()), threads_(threads) {}

  ~Crew() {
    stop_.store(true);
    wake();
    for (auto& worker : workers_) worker.join();
  }

  void run(const Stage* stages, int count) {
    std::lock_guard<std::mutex> one_run_at_a_time(run_mutex_);
    hire();
    next_ = stages;
    end_ = stages + count;
    error_ = nullptr;
    running_.store(true, std::memory_order_relaxed);
    open_next();
    while (running_.load(std::memory_order_acquire)) {
      if (!work(0)) wait(kCallerSpin, true);
    }
    if (error_) std::rethrow_exception(error_);
  }

  const unsigned generation;

 private:
  void hire() {
    while (static_cast<int>(workers_.size()) < threads_ - 1) {
      const int thread = static_cast<int>(workers_.size()) + 1;
      workers_.emplace_back([this, thread] {
        while (!stop_.load(std::memory_order_acquire)) {
          if (!work(thread)) wait(kWorkerSpin, false);
        }
      });
    }
  }

  // Claims and runs one chunk of the open stage; false if there is none to claim.
  bool work(int thread) {
    uint64_t cursor = cursor_.load(std::memory_order_acquire);
    while (left_of(cursor) != 0) {
      if (cursor_.compare_exchange_weak(cursor, cursor - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        // The claim keeps the stage open, so reading it is safe until `done_` counts this chunk.
        perform(open_, open_.chunks - static_cast<int>(left_of(cursor)), thread);
        return true;
      }
    }
    return false;
  }

  void perform(const Stage& stage, int chunk, int thread) {
    inside_chunk = true;
    try {
      stage.call(stage.context, chunk, thread);
    } catch (...) {
      std::lock_guard<std::mutex> lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    inside_chunk = false;
    const int chunks = stage.chunks;
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks) open_next();
  }

  // Called by the one thread that ended the last chunk of a stage (or starts the run): nobody else writes here.
  void open_next() {
    if (open_.ended_ns) *open_.ended_ns = steady_ns();
    open_.ended_ns = nullptr;
    while (next_ != end_ && next_->chunks == 0) ++next_;
    const bool over = next_ == end_ || error_;
    if (!over) open_ = *next_++;
    done_.store(0, std::memory_order_relaxed);
    const uint64_t left = over ? 0 : static_cast<uint64_t>(open_.chunks);
    cursor_.store(next_epoch(cursor_.load(std::memory_order_relaxed), left), std::memory_order_seq_cst);
    // Last, because the caller may start the next run as soon as it sees this.
    if (over) running_.store(false, std::memory_order_seq_cst);
    // A stage of one chunk is this thread's; nobody is woken for it.
    if (over ? caller_parked_.load(std::memory_order_seq_cst)
             : left > 1 && parked_.load(std::memory_order_seq_cst) > 0) {
      wake();
    }
  }

  bool idle(bool caller) const {
    if (left_of(cursor_.load(std::memory_order_seq_cst)) != 0) return false;
    return caller ? running_.load(std::memory_order_seq_cst) : !stop_.load(std::memory_order_seq_cst);
  }

  // Returns when there may be something to do: spins for a while, then sleeps.
  void wait(Clock::duration spin, bool caller) {
    const auto deadline = Clock::now() + spin;
    do {
      for (int i = 0; i < 64; ++i) {
        if (!idle(caller)) return;
        relax();
      }
    } while (Clock::now() < deadline);
    std::unique_lock<std::mutex> lock(park_mutex_);
    parked_.fetch_add(1, std::memory_order_seq_cst);
    if (caller) caller_parked_.store(true, std::memory_order_seq_cst);
    park_.wait(lock, [&] { return !idle(caller); });
    if (caller) caller_parked_.store(false, std::memory_order_seq_cst);
    parked_.fetch_sub(1, std::memory_order_seq_cst);
  }

  void wake() {
    {
      std::lock_guard<std::mutex> lock(park_mutex_);
    }
    park_.notify_all();
  }

  const int threads_;
  std::vector<std::thread> workers_;
  std::mutex run_mutex_, park_mutex_, error_mutex_;
  std::condition_variable park_;
  std::exception_ptr error_;
  Stage open_{0, nullptr, nullptr, nullptr};  // the stage that `cursor_` counts
  const Stage* next_ = nullptr;
  const Stage* end_ = nullptr;
  alignas(64) std::atomic<uint64_t> cursor_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<int> parked_{0};
  std::atomic<bool> caller_parked_{false};
  std::atomic<bool> running_{false};
  std::atomic<bool> stop_{false};
};

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  if (threads < 1 || threads > kMaxThreads) {
    throw std::invalid_argument("threads=" + std::to_string(threads) + ": must be in [1, 256]");
  }
  register_fork_handler();
  crew_.store(new Crew(threads));
}

ThreadPool::~ThreadPool() {
  Crew* crew = crew_.load();
  // The threads of a crew from before a fork exist only in the parent: there is nobody to join.
  if (crew->generation == fork_generation.load()) delete crew;
}

ThreadPool::Crew& ThreadPool::crew() {
  Crew* current = crew_.load();
  if (current->generation == fork_generation.load()) return *current;
  auto fresh = std::make_unique<Crew>(threads_);
  if (crew_.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;
}

void ThreadPool::run(const Stage* stages, int count) {
  if (inside_chunk) throw std::logic_error("ThreadPool::run called from inside a chunk: chunks must not nest");
  for (int i = 0; i < count; ++i) {
    if (stages[i].chunks < 0 || static_cast<uint64_t>(stages[i].chunks) > kLeftMask) {
      throw std::invalid_argument("stage of " + std::to_string(stages[i].chunks) + " chunks: must be in [0, 2^24)");
    }
  }
  crew().run(stages, count);
}

}  // namespace octavo
