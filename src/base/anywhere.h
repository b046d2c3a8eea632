// TANDEM_ANYWHERE: before a function that a GPU's code calls as well as the host's. Empty where no
// CUDA compiler reads it. constexpr functions need none.
#pragma once

#ifdef __CUDACC__
#define TANDEM_ANYWHERE __host__ __device__
#else
#define TANDEM_ANYWHERE
#endif
