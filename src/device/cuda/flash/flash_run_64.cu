#include "device/cuda/flash/flash_run.cuh"

namespace tandem::device::cuda::flash {

cudaError_t run_64(const PagedParams& params, const Partials& partials, int64_t tile_rows,
                   cudaStream_t stream) {
  return run_head_dim<64>(params, partials, tile_rows, stream);
}

}  // namespace tandem::device::cuda::flash
