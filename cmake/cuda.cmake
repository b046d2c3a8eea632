# The CUDA back end, a shared library of its own. TANDEM_CUDA: AUTO builds it where nvcc 13 is found, ON fails where it is not, OFF
# does not look. TANDEM_NVCC names it; else it is looked for in build/cuda-toolchain (tools/gpu/install_nvcc.sh), PATH and /usr/local/cuda.
set(TANDEM_CUDA AUTO CACHE STRING "Build the CUDA back end: AUTO, ON or OFF")
set(TANDEM_NVCC "" CACHE FILEPATH "nvcc 13 (empty: look for it)")
set(TANDEM_CUDA_ARCHITECTURES "80;90a" CACHE STRING "What GPUs to compile kernels for: numbers of sm_N, a list; PTX of the first too")

# tandem_find_nvcc(): sets TANDEM_CUDA_COMPILER, TANDEM_CUDA_HEADERS (a folder) and TANDEM_CUDART (the static runtime), or leaves them
# empty and says why.
function(tandem_find_nvcc)
  set(TANDEM_CUDA_COMPILER "" PARENT_SCOPE)
  if(NOT TANDEM_CUDA)
    return()
  endif()
  if(TANDEM_CUDA STREQUAL "AUTO" AND (TANDEM_SANITIZE OR CMAKE_CROSSCOMPILING))
    message(STATUS "CUDA back end: not built with sanitizers or for another machine")
    return()
  endif()
  find_program(in_path nvcc NO_CACHE)
  set(candidates ${TANDEM_ROOT}/build/cuda-toolchain/nvidia/cu13/bin/nvcc "${in_path}" /usr/local/cuda/bin/nvcc)
  if(TANDEM_NVCC)
    set(candidates ${TANDEM_NVCC})
  endif()
  set(why "no nvcc was found (tools/gpu/install_nvcc.sh installs one)")
  foreach(nvcc IN LISTS candidates)
    if(NOT nvcc OR NOT EXISTS ${nvcc})
      continue()
    endif()
    execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text ERROR_QUIET)
    if(NOT text MATCHES "release (13\\.[0-9]+)")
      set(why "${nvcc} is not of CUDA 13")
      continue()
    endif()
    set(release ${CMAKE_MATCH_1})
    file(REAL_PATH ${nvcc} nvcc)
    get_filename_component(toolkit ${nvcc}/../.. ABSOLUTE)
    unset(runtime)
    unset(headers)
    find_library(runtime cudart_static PATHS ${toolkit} ${toolkit}/targets/x86_64-linux PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH NO_CACHE)
    find_path(headers cuda_runtime_api.h PATHS ${toolkit} ${toolkit}/targets/x86_64-linux PATH_SUFFIXES include NO_DEFAULT_PATH NO_CACHE)
    if(NOT runtime OR NOT headers)
      set(why "beside ${nvcc} there is no libcudart_static.a or no cuda_runtime_api.h")
      continue()
    endif()
    message(STATUS "CUDA back end: nvcc ${release} (${nvcc})")
    set(TANDEM_CUDA_COMPILER ${nvcc} PARENT_SCOPE)
    set(TANDEM_CUDA_HEADERS ${headers} PARENT_SCOPE)
    set(TANDEM_CUDART ${runtime} PARENT_SCOPE)
    return()
  endforeach()
  if(TANDEM_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA back end: not built: ${why}")
  else()
    message(FATAL_ERROR "TANDEM_CUDA=${TANDEM_CUDA}: ${why}")
  endif()
endfunction()

# tandem_find_flashinfer(): sets TANDEM_FLASHINFER_HEADERS, folders of FlashInfer's headers and of the CCCL that they need, or leaves it
# empty: the plain kernels attend then. TANDEM_CUTLASS_HEADERS is the folder of CUTLASS that came with them, or empty: then there are no
# kernels for Hopper.
function(tandem_find_flashinfer)
  set(found)
  set(cutlass)
  # Beside nvcc, as install_nvcc.sh lays both out, or in its usual folder.
  foreach(folder IN ITEMS ${TANDEM_CUDA_HEADERS}/../../../flashinfer ${TANDEM_ROOT}/build/cuda-toolchain/flashinfer)
    if(NOT found AND EXISTS ${folder}/include/flashinfer/attention/prefill.cuh AND EXISTS ${folder}/cccl/cuda/std/cstdint)
      set(found ${folder}/cccl ${folder}/include)
      if(EXISTS ${folder}/cutlass/cute/tensor.hpp AND EXISTS ${folder}/include/flashinfer/attention/hopper/prefill_sm90.cuh)
        set(cutlass ${folder}/cutlass)
      endif()
    endif()
  endforeach()
  if(NOT found)
    message(STATUS "CUDA back end: without FlashInfer (tools/gpu/install_nvcc.sh installs its headers)")
  elseif(NOT cutlass)
    message(STATUS "CUDA back end: without kernels for Hopper's prompts (tools/gpu/install_nvcc.sh installs CUTLASS's headers, too)")
  endif()
  set(TANDEM_FLASHINFER_HEADERS "${found}" PARENT_SCOPE)
  set(TANDEM_CUTLASS_HEADERS "${cutlass}" PARENT_SCOPE)
endfunction()

# tandem_cuda_object(variable source [ONLY architecture] [flags...]): compiles a source by nvcc into an object file, whose name goes to
# `variable`, for all architectures or for one. Flags replace the flags of the plain kernels, whose products and sums stay apart
# (-fmad=false), so that a kernel gives the same results here and on the host.
function(tandem_cuda_object variable source)
  cmake_parse_arguments(PARSE_ARGV 2 own "" ONLY "")
  set(flags -O2 -fmad=false -Werror all-warnings -Xcompiler -Wall,-Wextra,-ffp-contract=off)
  if(own_UNPARSED_ARGUMENTS)
    set(flags ${own_UNPARSED_ARGUMENTS})
  endif()
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.cuda.o)
  set(gencode)
  if(own_ONLY)
    set(gencode -gencode arch=compute_${own_ONLY},code=sm_${own_ONLY})
  else()
    foreach(architecture IN LISTS TANDEM_CUDA_ARCHITECTURES)
      list(APPEND gencode -gencode arch=compute_${architecture},code=sm_${architecture})
    endforeach()
    list(GET TANDEM_CUDA_ARCHITECTURES 0 first)
    list(APPEND gencode -gencode arch=compute_${first},code=compute_${first})
  endif()
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${TANDEM_CUDA_COMPILER} -x cu -std=c++20 -DNDEBUG --expt-relaxed-constexpr ${flags}
            ${gencode} --threads 2
            -ccbin ${CMAKE_CXX_COMPILER} -Xcompiler -fPIC -I${TANDEM_ROOT}/src
            -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d
    COMMENT "Compiling ${source} by nvcc"
    VERBATIM)
  set(${variable} ${object} PARENT_SCOPE)
endfunction()
