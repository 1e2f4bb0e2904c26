// The compute threads. Work is claimed, never handed out: a thread that the kernel has put to sleep holds up nobody
// but the one chunk it was in, so the pool keeps its pace beside busy neighbours.
//
// A run is a list of stages; a stage is cut into chunks that threads claim from one shared word (`epoch`, chunks left).
// A stage is over when its chunks are done, not when all threads have come by, and whoever ends its last chunk opens
// the next stage. What a chunk computes must depend on its number alone; how chunks meet threads never matters.
#pragma once
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace octavo {

// One stage of a run: call(context, chunk, thread) for every chunk in [0, chunks).
struct Stage {
  int chunks;
  void (*call)(void* context, int chunk, int thread);
  void* context;
  int64_t* ended_ns = nullptr;  // where to put steady_ns() when the last chunk has ended; null: nowhere
};

class ThreadPool {
 public:
  // `threads` in [1, 256], the caller of a run included. Workers start with the first run.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Runs the stages one after another and returns when all chunks are done. The caller works too, as thread 0.
  // Calls from several threads queue up. A chunk's exception ends the run (stages already open are finished) and is
  // rethrown here. Throws std::logic_error when called from inside a chunk.
  // After a fork the child gets workers of its own with its first run.
  void run(const Stage* stages, int count);

  // f(chunk, thread) for every chunk in [0, chunks); thread in [0, threads()).
  template <class F>
  void parallel_for(int chunks, F&& f) {
    using Callable = std::remove_reference_t<F>;
    Stage stage{chunks, [](void* context, int chunk, int thread) { (*static_cast<Callable*>(context))(chunk, thread); },
                const_cast<void*>(static_cast<const void*>(&f))};
    run(&stage, 1);
  }

 private:
  class Crew;
  Crew& crew();

  const int threads_;
  std::atomic<Crew*> crew_{nullptr};  // replaced by the first run after a fork
};

}  // namespace octavo
