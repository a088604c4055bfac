# The CUDA backend: finds the toolkit, or stops with an error that says what to install.
if(NOT CMAKE_CUDA_COMPILER)
  find_program(EDDY_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(NOT EDDY_NVCC)
    message(FATAL_ERROR "EDDY_CUDA=ON and no nvcc on the PATH or in /usr/local/cuda/bin. "
      "Install the CUDA toolkit 12.4 or later, or configure with -DEDDY_CUDA=OFF")
  endif()
  set(CMAKE_CUDA_COMPILER ${EDDY_NVCC})
endif()

include(CudaChoices)
set(EDDY_CUDA_ARCHITECTURES "" CACHE STRING
  "GPUs to build for: a list as \"86;120\", packages, or empty for the GPU that is here")
eddy_cuda_architectures(${CMAKE_CUDA_COMPILER} "${EDDY_CUDA_ARCHITECTURES}" CMAKE_CUDA_ARCHITECTURES)
# Asked once for a build folder: CMake keeps the compilers that it found.
if(NOT DEFINED CACHE{EDDY_CUDA_HOST_COMPILER})
  set(given "${CMAKE_CUDA_HOST_COMPILER}")
  if(NOT given)
    set(given "$ENV{CUDAHOSTCXX}")
  endif()
  eddy_cuda_host_compiler(${CMAKE_CUDA_COMPILER} "${given}" host)
  set(EDDY_CUDA_HOST_COMPILER "${host}" CACHE INTERNAL "The compiler of the host's code in .cu files; empty: nvcc's own choice")
endif()
if(EDDY_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${EDDY_CUDA_HOST_COMPILER})
endif()
enable_language(CUDA)
# Where nvcc takes an older g++ than the one that links, that one's folder has an older libstdc++, which must not be found first.
foreach(folders CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES CMAKE_CUDA_HOST_IMPLICIT_LINK_DIRECTORIES)
  set(others ${${folders}})
  list(FILTER others INCLUDE REGEX "/lib/gcc/[^/]+/[^/]+$")
  list(REMOVE_ITEM others ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
  list(REMOVE_ITEM ${folders} ${others})
endforeach()
# CMake 3.25.1, Debian 12's, tells projects that need 3.25 that CUDA::nvToolsExt is deprecated, and stops where CUDA 13 has
# none.
set(minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${minimum})
if(NOT TARGET CUDA::cublasLt)
  message(FATAL_ERROR "EDDY_CUDA=ON and no cuBLASLt in ${CUDAToolkit_LIBRARY_DIR}. "
    "Install the toolkit's libcublas development package, or configure with -DEDDY_CUDA=OFF")
endif()

# Files that use wgmma are compiled only for sm_90a, whatever the list above says: no other architecture has it, not
# even sm_90. They are chosen at run time.
eddy_sources(EDDY_CUDA_SOURCES *.cu ${EDDY_CUDA_FOLDERS})
eddy_sources(EDDY_CUDA_HOST_SOURCES *.cpp ${EDDY_CUDA_FOLDERS})
list(APPEND EDDY_CUDA_SOURCES ${EDDY_CUDA_HOST_SOURCES})
eddy_sources(EDDY_WGMMA_SOURCES *_wgmma_*.cu ${EDDY_CUDA_FOLDERS})
list(REMOVE_ITEM EDDY_CUDA_SOURCES ${EDDY_WGMMA_SOURCES})
# CMake 3.25 does not know the flag of nvcc for C++20: it refuses, or falls back to C++17.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
add_library(eddy_cuda OBJECT ${EDDY_CUDA_SOURCES})
add_library(eddy_cuda_90a OBJECT ${EDDY_WGMMA_SOURCES})
set_target_properties(eddy_cuda_90a PROPERTIES CUDA_ARCHITECTURES 90a-real)
# Their PTX alone, which tests/ptx runs on machines without a GPU: in a sixth of the time that the objects take. The example's
# is read for the order of its fences.
set(ptx_sources ${EDDY_CUDA_SOURCES})
list(FILTER ptx_sources INCLUDE REGEX "\\.cu$")
add_library(eddy_ptx OBJECT EXCLUDE_FROM_ALL ${ptx_sources})
add_library(eddy_ptx_90a OBJECT EXCLUDE_FROM_ALL ${EDDY_WGMMA_SOURCES} examples/kernels/attention_wgmma.cu)
set_target_properties(eddy_ptx PROPERTIES CUDA_ARCHITECTURES 90-virtual CUDA_PTX_COMPILATION ON)
set_target_properties(eddy_ptx_90a PROPERTIES CUDA_ARCHITECTURES 90a-virtual CUDA_PTX_COMPILATION ON)
foreach(part eddy_cuda eddy_cuda_90a eddy_ptx eddy_ptx_90a)
  set_target_properties(${part} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  # cuBLASLt is linked as a shared library: the static one adds 700 MB to every program.
  target_link_libraries(${part} PRIVATE eddy_options fmt::fmt CUDA::cudart_static CUDA::cublasLt)
  # -lineinfo gives profilers and compute-sanitizer line numbers; it does not change the code.
  target_compile_options(${part} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -Xcompiler=-Wall,-Wextra>)
endforeach()
string(REPLACE ";" " " EDDY_CUDA_ARCHITECTURES_TEXT "${CMAKE_CUDA_ARCHITECTURES}")
foreach(part eddy_cuda eddy_ptx)
  target_compile_definitions(${part} PRIVATE EDDY_CUDA_ARCHITECTURES="${EDDY_CUDA_ARCHITECTURES_TEXT}")
endforeach()
target_sources(eddy PRIVATE $<TARGET_OBJECTS:eddy_cuda> $<TARGET_OBJECTS:eddy_cuda_90a>)
target_link_libraries(eddy PRIVATE CUDA::cudart_static CUDA::cublasLt)
# Only several processes with a GPU each use NCCL.
find_path(EDDY_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(EDDY_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(EDDY_NCCL_INCLUDE AND EDDY_NCCL_LIBRARY)
  target_include_directories(eddy_cuda PRIVATE ${EDDY_NCCL_INCLUDE})
  target_compile_definitions(eddy_cuda PRIVATE EDDY_NCCL)
  target_link_libraries(eddy PRIVATE ${EDDY_NCCL_LIBRARY})
else()
  message(STATUS "NCCL was not found: a run on GPUs trains in one process (for several: sudo apt-get install libnccl-dev)")
endif()
