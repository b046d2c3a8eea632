#include "device/cuda/op_graphs.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "device/op_queries.h"

namespace tandem::device::cuda {
namespace {

constexpr uint64_t mix(uint64_t digest, uint64_t number) {
  digest = (digest ^ number) * 0x9e3779b97f4a7c15U;
  return digest ^ digest >> 29;
}

// Digests the addresses and sizes of the operands; equal ops have equal digests.
uint64_t digest_of(const Op& op) {
  uint64_t digest = op.index();
  for_each_operand(op, [&digest](const Operand& operand) {
    digest = mix(digest, reinterpret_cast<uintptr_t>(operand.data));
    digest = mix(digest, static_cast<uint64_t>(operand.rows));
  });
  if (const auto* write = std::get_if<RopeWriteOp>(&op)) {
    digest = mix(digest, static_cast<uint64_t>(write->layer));
  }
  return digest;
}

Op op_of(const auto& any) {
  return std::visit([](const auto& op) { return Op(op); }, any);
}

}  // namespace

bool OpGraphs::add(const Op& op) {
  if (run_.size() == kMaxOps || label_of(op).value > kMaxRows) {
    return false;
  }
  return std::visit(
      [this]<class AnyOp>(const AnyOp& any) {
        if constexpr (std::is_constructible_v<GraphedOp, AnyOp>) {
          run_.emplace_back(any);
          return true;
        } else {
          return false;
        }
      },
      op);
}

cudaError_t OpGraphs::launch(cudaStream_t stream, const LaunchOne& launch_one) {
  uint64_t digest = 0;
  for (const GraphedOp& op : run_) {
    digest = mix(digest, digest_of(op_of(op)));
  }
  ++runs_since_capture_;
  const Graph* graph = find(digest);
  if (graph == nullptr && is_due(digest) && capture(stream, digest, launch_one)) {
    graph = find(digest);
  }
  const cudaError_t error =
      graph == nullptr ? launch_each(launch_one) : cudaGraphLaunch(graph->executable, stream);
  run_.clear();
  return error;
}

const OpGraphs::Graph* OpGraphs::find(uint64_t digest) const {
  const auto [begin, end] = graphs_.equal_range(digest);
  const auto found =
      std::find_if(begin, end, [this](const auto& entry) { return entry.second.ops == run_; });
  return found == end ? nullptr : &found->second;
}

// Counts the sighting. A run of one op gains nothing.
bool OpGraphs::is_due(uint64_t digest) {
  const size_t place = digest % sightings_.size();
  Sighting* own = &sightings_.at(place);
  Sighting* other = &sightings_.at(place ^ 1);
  if (other->digest == digest || (own->digest != digest && other->count < own->count)) {
    std::swap(own, other);
  }
  if (own->digest != digest) {
    *own = {.digest = digest};
  }
  ++own->count;
  return own->count >= kSightings && run_.size() > 1 && runs_since_capture_ >= kRunsApart &&
         graphs_.size() < kMaxGraphs && !given_up_;
}

cudaError_t OpGraphs::launch_each(const LaunchOne& launch_one) const {
  cudaError_t error = cudaSuccess;
  for (size_t i = 0; i < run_.size() && error == cudaSuccess; ++i) {
    error = launch_one(op_of(run_[i]));
  }
  return error;
}

// Nothing runs by a capture. False: there is no graph; an error that the GPU keeps is found by the
// next launch.
bool OpGraphs::capture(cudaStream_t stream, uint64_t digest, const LaunchOne& launch_one) {
  runs_since_capture_ = 0;
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess || free < kReserveBytes) {
    give_up("little of the GPU's memory is left");
    return false;
  }
  Graph graph{.ops = run_};
  // Relaxed: other threads call the driver meanwhile.
  cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
  if (error == cudaSuccess) {
    error = instantiate(stream, launch_each(launch_one), graph.executable);
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // a later launch must not find it
    give_up(cudaGetErrorString(error));
    return false;
  }
  if (graphs_.empty()) {
    log::info("cuda: the first {} operations of a layer are a CUDA graph from now on", run_.size());
  }
  graphs_.emplace(digest, std::move(graph));
  return true;
}

void OpGraphs::give_up(const char* why) {
  given_up_ = true;
  log::warn(
      "{}: {} graphs were made, no more can be ({}); other operations are launched one by one",
      kGraphsVariable, graphs_.size(), why);
}

// Ends the capture also after an error of its launches, else the stream stays in it.
cudaError_t OpGraphs::instantiate(cudaStream_t stream, cudaError_t launched,
                                  cudaGraphExec_t& executable) {
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  cudaError_t error = launched == cudaSuccess ? ended : launched;
  if (error == cudaSuccess) {
    error = cudaGraphInstantiate(&executable, graph, 0);
  }
  if (graph != nullptr) {
    const cudaError_t destroyed = cudaGraphDestroy(graph);
    error = error == cudaSuccess ? destroyed : error;
  }
  if (error == cudaSuccess) {  // takes its memory of the GPU now, not at its launch
    error = cudaGraphUpload(executable, stream);
  }
  if (error != cudaSuccess && executable != nullptr) {
    static_cast<void>(cudaGraphExecDestroy(std::exchange(executable, nullptr)));
  }
  return error;
}

cudaError_t OpGraphs::clear() {
  cudaError_t error = cudaSuccess;
  for (auto& [digest, graph] : graphs_) {
    if (error == cudaSuccess) {
      error = cudaGraphExecDestroy(graph.executable);
    }
  }
  graphs_.clear();
  sightings_ = {};
  runs_since_capture_ = kRunsApart;
  return error;
}

}  // namespace tandem::device::cuda
