// glibc's checked longjmp takes a jump to another stack for a mistake.
#undef _FORTIFY_SOURCE
#define _FORTIFY_SOURCE 0

#include "simt.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "cuda_runtime.h"

thread_local constinit uint3 threadIdx{};
thread_local constinit uint3 blockIdx{};
thread_local constinit dim3 blockDim{};
thread_local constinit dim3 gridDim{};

namespace cuda_on_host {
namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr size_t kSharedAlignment = 128;

// Stacks of all fibers of a thread, each with a page below that nothing may touch.
class Stacks {
 public:
  static constexpr size_t kBytes = size_t{64} << 10;

  Stacks() {
    void* const memory = mmap(nullptr, kMaxThreads * kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::bad_alloc();
    }
    begin_ = static_cast<std::byte*>(memory);
    for (unsigned i = 0; i < kMaxThreads; ++i) {
      mprotect(begin_ + i * kBytes, page(), PROT_NONE);
    }
  }
  ~Stacks() { munmap(begin_, kMaxThreads * kBytes); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  [[nodiscard]] std::byte* begin(unsigned i) const { return begin_ + i * kBytes + page(); }
  // Their ends lie apart, or they would all use the same places of the processor's cache.
  [[nodiscard]] static size_t bytes(unsigned i) {
    constexpr size_t kStep = 5 * 64;
    return kBytes - page() - i * kStep % (kBytes / 2);
  }

 private:
  static size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  std::byte* begin_ = nullptr;
};

enum class State : uint8_t { kReady, kAtBarrier, kInWarp, kEnded };

struct Fiber {
  bool begun = false;
  State state = State::kReady;
  SourceLine where;   // it waits
  unsigned mask = 0;  // of its last exchange
  uint64_t given = 0;
  std::jmp_buf context{};
};
bool same_place(const Fiber& a, const Fiber& b) {
  return a.where.line == b.where.line &&
         (a.where.file == b.where.file || std::strcmp(a.where.file, b.where.file) == 0);
}

// The fibers of one thread of the machine. Each serves one thread of a block after another.
class Runner {
 public:
  void run(const Blocks& blocks, const std::function<void(void*)>& body);

  // Of the fiber that runs.
  void wait(State state, const SourceLine& where) {
    fibers_[current_].state = state;
    fibers_[current_].where = where;
    leave();
  }
  const std::array<uint64_t, kLanes>& exchange(unsigned mask, uint64_t own,
                                               const SourceLine& where) {
    const unsigned warp = current_ / kLanes;
    fibers_[current_].mask = mask;
    fibers_[current_].given = own;
    wait(State::kInWarp, where);
    return given_[warp];
  }

 private:
  void run_block(bool reverse);
  void run_warp(unsigned warp, bool reverse);
  void resume(unsigned thread);
  void begin(unsigned thread);
  void leave();
  static void serve();
  [[noreturn]] void fail(const std::string& rule, unsigned a, unsigned b) const;
  [[nodiscard]] std::string describe(unsigned thread) const;

  const Stacks stacks_;
  std::vector<Fiber> fibers_{kMaxThreads};
  std::array<std::array<uint64_t, kLanes>, kMaxThreads / kLanes> given_{};
  std::jmp_buf own_{};
  unsigned current_ = 0;
  const Blocks* blocks_ = nullptr;
  const std::function<void(void*)>* body_ = nullptr;
  void* shared_ = nullptr;
};

// Lives as long as the thread: fibers remember it. After a broken rule the next run makes another.
thread_local std::unique_ptr<Runner> t_kept_runner;
thread_local constinit Runner* t_runner = nullptr;  // the same

void Runner::serve() {
  for (;;) {
    Runner& own = *t_runner;
    (*own.body_)(own.shared_);
    own.wait(State::kEnded, {});
  }
}

// The two halves of a change of fibers. Nothing lives in their frames, which are passed twice.
[[gnu::noinline]] void Runner::leave() {
  if (_setjmp(fibers_[current_].context) == 0) {  // NOLINT(cert-err52-cpp)
    _longjmp(own_, 1);                            // NOLINT(cert-err52-cpp)
  }
}
[[gnu::noinline]] void Runner::resume(unsigned thread) {
  current_ = thread;
  threadIdx = {thread, 0, 0};
  if (_setjmp(own_) == 0) {  // NOLINT(cert-err52-cpp)
    if (!fibers_[thread].begun) {
      begin(thread);
    }
    _longjmp(fibers_[thread].context, 1);  // NOLINT(cert-err52-cpp)
  }
}
[[gnu::noinline]] void Runner::begin(unsigned thread) {
  fibers_[thread].begun = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stacks_.begin(thread);
  context.uc_stack.ss_size = Stacks::bytes(thread);
  context.uc_link = nullptr;
  makecontext(&context, &Runner::serve, 0);
  setcontext(&context);
}

void Runner::run(const Blocks& blocks, const std::function<void(void*)>& body) {
  struct Free {
    void operator()(void* memory) const {
      ::operator delete (memory, std::align_val_t{kSharedAlignment});
    }
  };
  blocks_ = &blocks;
  if (blocks.threads == 0 || blocks.threads > kMaxThreads || blocks.threads % kLanes != 0) {
    throw BrokenRule(blocks.kernel + ": a block of " + std::to_string(blocks.threads) +
                     " threads: whole warps, at most " + std::to_string(kMaxThreads));
  }
  const std::unique_ptr<void, Free> shared(
      ::operator new (blocks.shared_bytes, std::align_val_t{kSharedAlignment}));
  shared_ = shared.get();
  body_ = &body;
  blockDim = dim3(blocks.threads);
  gridDim = blocks.grid;
  const uint64_t plane = uint64_t{gridDim.x} * gridDim.y;
  for (uint64_t block = plane * gridDim.z; block-- > 0;) {
    blockIdx = {static_cast<unsigned>(block % gridDim.x),
                static_cast<unsigned>(block / gridDim.x % gridDim.y),
                static_cast<unsigned>(block / plane)};
    std::memset(shared_, 0xff, blocks.shared_bytes);
    run_block(block % 2 == 0);
  }
}

void Runner::run_block(bool reverse) {
  const unsigned threads = blocks_->threads;
  const unsigned warps = threads / kLanes;
  for (;; reverse = !reverse) {
    for (unsigned i = 0; i < threads; ++i) {
      fibers_[i].state = State::kReady;
    }
    for (unsigned i = 0; i < warps; ++i) {
      run_warp(reverse ? warps - 1 - i : i, reverse);
    }
    for (unsigned i = 1; i < threads; ++i) {
      if (fibers_[i].state != fibers_[0].state) {
        fail("a thread ends while others wait at a barrier", 0, i);
      }
      if (!same_place(fibers_[i], fibers_[0])) {
        fail("threads of a block wait at different barriers", 0, i);
      }
    }
    if (fibers_[0].state == State::kEnded) {
      return;
    }
  }
}

// Until all its lanes wait at a barrier or have ended.
void Runner::run_warp(unsigned warp, bool reverse) {
  const unsigned first = warp * kLanes;
  for (;;) {
    for (unsigned i = 0; i < kLanes; ++i) {
      const unsigned thread = first + (reverse ? kLanes - 1 - i : i);
      if (fibers_[thread].state == State::kReady) {
        resume(thread);
      }
    }
    unsigned waiting = 0;
    for (unsigned i = 0; i < kLanes; ++i) {
      const Fiber& fiber = fibers_[first + i];
      given_[warp][i] = fiber.given;
      const bool waits = fiber.state == State::kInWarp;
      waiting += waits ? 1 : 0;
      if (waits != (fibers_[first].state == State::kInWarp) ||
          (waits && !same_place(fiber, fibers_[first]))) {
        fail("lanes of a warp do not meet in one exchange", first, first + i);
      }
      if (waits && fiber.mask != kAllLanes) {
        fail("an exchange of a part of a warp", first + i, first + i);
      }
    }
    if (waiting == 0) {
      return;
    }
    for (unsigned i = 0; i < kLanes; ++i) {
      fibers_[first + i].state = State::kReady;
    }
  }
}

std::string Runner::describe(unsigned thread) const {
  const Fiber& fiber = fibers_[thread];
  const std::string name = "thread " + std::to_string(thread);
  if (fiber.state == State::kEnded) {
    return name + " has ended";
  }
  return name +
         (fiber.state == State::kAtBarrier ? " is at the barrier " : " is in the exchange ") +
         fiber.where.file + ":" + std::to_string(fiber.where.line);
}

void Runner::fail(const std::string& rule, unsigned a, unsigned b) const {
  throw BrokenRule(blocks_->kernel + ", block " + std::to_string(blockIdx.x) + ", " +
                   std::to_string(blockIdx.y) + ": " + rule + ": " + describe(a) + ", " +
                   describe(b));
}

struct Counts {
  std::mutex mutex;
  std::map<std::string, int64_t> blocks;  // by kernel; guarded by `mutex`
};
// Lives to the process's end, as streams of a lost GPU do.
Counts& counts() {
  static Counts& counts = *new Counts;
  return counts;
}

}  // namespace

void run_blocks(const Blocks& blocks, const std::function<void(void*)>& body) {
  if (t_runner == nullptr) {
    t_kept_runner = std::make_unique<Runner>();
    t_runner = t_kept_runner.get();
  }
  try {
    t_runner->run(blocks, body);
  } catch (...) {
    t_runner = nullptr;  // its fibers are in the midst of a kernel
    throw;
  }
  Counts& all = counts();
  const std::lock_guard lock(all.mutex);
  all.blocks[blocks.kernel] += int64_t{blocks.grid.x} * blocks.grid.y * blocks.grid.z;
}

void wait_for_block(const SourceLine& where) { t_runner->wait(State::kAtBarrier, where); }

const std::array<uint64_t, kLanes>& exchange(unsigned mask, uint64_t own, const SourceLine& where) {
  return t_runner->exchange(mask, own, where);
}

std::string readable(const char* type_name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(type_name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : type_name;
}

void enqueue_blocks(cudaStream_t stream, Blocks blocks, std::function<void(void*)> body) {
  enqueue(stream, [blocks = std::move(blocks), body = std::move(body)] {
    try {
      run_blocks(blocks, body);
    } catch (const BrokenRule& error) {
      std::fprintf(stderr, "the host's CUDA: %s\n", error.what());
      std::abort();
    }
  });
}

}  // namespace cuda_on_host

int64_t cuda_on_host_blocks(const char* kernel) {
  cuda_on_host::Counts& all = cuda_on_host::counts();
  const std::lock_guard lock(all.mutex);
  int64_t blocks = 0;
  for (const auto& [name, count] : all.blocks) {
    blocks += name.find(kernel) != std::string::npos ? count : 0;
  }
  return blocks;
}
