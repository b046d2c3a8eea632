// Runs of ops as CUDA graphs. Between two attentions of a step lie some eight ops, whose arguments
// are the same in later steps of equal rows: their variable inputs are read from memory (ops.h). A
// run that comes again is captured as a graph. From then on one call launches it, and the GPU
// begins each kernel sooner after its predecessor.
//
// A graph serves a run of exactly its ops, with equal arguments; so its results are theirs.
// A capture keeps the issuing thread for a while, so captures are spread over steps. If CUDA
// refuses a graph, or the GPU's memory comes to its end, no more are made: other runs are launched
// op by op.
//
// Not thread-safe: the stream's issuing thread.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "device/ops.h"

namespace tandem::device::cuda {

// "layers": as above. "off", the default: ops are launched one by one. Read once.
inline constexpr const char* kGraphsVariable = "TANDEM_CUDA_GRAPHS";

class OpGraphs {
 public:
  static constexpr int64_t kMaxRows =
      64;  // an op with more rows is in no run: its kernels take long
  static constexpr size_t kMaxGraphs = 4096;  // 32 layers, 64 numbers of rows, two staging rooms
  static constexpr uint32_t kSightings = 3;   // a run is captured when it comes for this time
  static constexpr int64_t kRunsApart = 8;    // from one capture to the next
  static constexpr size_t kMaxOps = 32;       // a run has at most this number
  // Left to the libraries, whose kernels are loaded when they first run.
  static constexpr size_t kReserveBytes = size_t{512} << 20;

  OpGraphs() = default;
  ~OpGraphs() = default;
  OpGraphs(const OpGraphs&) = delete;
  OpGraphs& operator=(const OpGraphs&) = delete;

  // Adds an op to the run. False: it can be part of none, or the run is full; launch() first.
  bool add(const Op& op);
  [[nodiscard]] bool empty() const { return run_.empty(); }
  // Launches the run's ops, by its graph or by `launch_one`, and empties it. `launch_one` must not
  // order streams: the caller holds all memory that the ops share with other streams.
  using LaunchOne = std::function<cudaError_t(const Op&)>;
  cudaError_t launch(cudaStream_t stream, const LaunchOne& launch_one);
  // Forgets all graphs; none may run, and no run may be held.
  cudaError_t clear();

 private:
  // The ops that can be part of a run. Compared by all their arguments.
  using GraphedOp = std::variant<CastOp, GateUpOp, GemmOp, RmsNormOp, RopeWriteOp>;
  struct Graph {
    std::vector<GraphedOp> ops;
    cudaGraphExec_t executable = nullptr;
  };
  struct Sighting {
    uint64_t digest = 0;
    uint32_t count = 0;
  };

  [[nodiscard]] const Graph* find(uint64_t digest) const;
  bool is_due(uint64_t digest);
  cudaError_t launch_each(const LaunchOne& launch_one) const;
  bool capture(cudaStream_t stream, uint64_t digest, const LaunchOne& launch_one);
  static cudaError_t instantiate(cudaStream_t stream, cudaError_t launched,
                                 cudaGraphExec_t& executable);
  void give_up(const char* why);

  std::vector<GraphedOp> run_;
  std::unordered_multimap<uint64_t, Graph> graphs_;  // by the digest of their ops
  // Counts of digests. A digest has two places; a new digest takes the place with the lower count.
  std::array<Sighting, kMaxGraphs> sightings_{};
  int64_t runs_since_capture_ = kRunsApart;
  bool given_up_ = false;
};

}  // namespace tandem::device::cuda
