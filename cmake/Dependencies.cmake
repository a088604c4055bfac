# The packages that Eddy needs, each with the name of its Debian or Ubuntu package.
include(GNUInstallDirs)

# A parent project that links eddy::eddy sees these targets too.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)

function(eddy_missing what package)
  if(APPLE)
    message(FATAL_ERROR "${what} was not found. Install it with Homebrew (docs/platforms.md names all packages)")
  endif()
  message(FATAL_ERROR "${what} was not found. Install it: sudo apt-get install ${package} (or run cmake/install_dependencies.sh)")
endfunction()

if(EMSCRIPTEN)
  include(Emscripten)
  return()
endif()

# ---- the library ----------------------------------------------------------------------------------------------------
find_package(Threads REQUIRED)

find_package(fmt CONFIG QUIET)
if(NOT fmt_FOUND)
  eddy_missing("fmt" libfmt-dev)
endif()

# Headers alone, to build with: users of the built library need none of it.
find_package(nlohmann_json CONFIG QUIET)
if(NOT nlohmann_json_FOUND)
  eddy_missing("nlohmann_json" nlohmann-json3-dev)
endif()

# OpenBLAS with pthreads or OpenMP: the serial build gives wrong results when several threads call it.
set(EDDY_BLAS_TARGET)
if(EDDY_BLAS STREQUAL "OpenBLAS")
  set(BLA_VENDOR OpenBLAS)
  find_package(BLAS QUIET)
  find_path(EDDY_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread
    PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} /usr/include /opt/homebrew/opt/openblas/include)
  if(NOT BLAS_FOUND OR NOT EDDY_CBLAS_INCLUDE)
    eddy_missing("OpenBLAS, without which -DEDDY_BLAS=none builds," libopenblas-dev)
  endif()
  set(EDDY_BLAS_TARGET BLAS::BLAS)
elseif(EDDY_BLAS STREQUAL "Accelerate")
  set(BLA_VENDOR Apple)
  find_package(BLAS QUIET)
  if(NOT BLAS_FOUND)
    message(FATAL_ERROR "Accelerate was not found: it is a part of macOS (elsewhere -DEDDY_BLAS=OpenBLAS, or none)")
  endif()
  set(EDDY_BLAS_TARGET BLAS::BLAS)
endif()

# ---- training and the program ---------------------------------------------------------------------------------------
if(EDDY_BUILD_TRAIN)
  find_package(CLI11 CONFIG QUIET)
  if(NOT CLI11_FOUND)
    eddy_missing("CLI11" libcli11-dev)
  endif()

  find_path(EDDY_TOMLPLUSPLUS_INCLUDE toml++/toml.h)
  if(NOT EDDY_TOMLPLUSPLUS_INCLUDE)
    eddy_missing("toml++" libtomlplusplus-dev)
  endif()

  # xxHash is compiled in from its header.
  find_path(EDDY_XXHASH_INCLUDE xxhash.h)
  if(NOT EDDY_XXHASH_INCLUDE)
    eddy_missing("xxHash" libxxhash-dev)
  endif()

  # Two that the program does without: what they are for then says what to install. Of libevent only the parts for events
  # and HTTP are linked, which need no other library.
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(EDDY_LIBEVENT QUIET IMPORTED_TARGET GLOBAL libevent_extra libevent_core)
    pkg_check_modules(EDDY_LIBEDIT QUIET IMPORTED_TARGET GLOBAL libedit)
  endif()
  foreach(optional libevent libedit)
    string(TOUPPER ${optional} name)
    if(NOT EDDY_${name}_FOUND)
      message(STATUS "Without ${optional}-dev: the program does without what it is for")
    endif()
  endforeach()

  find_package(SentencePiece QUIET)
  if(NOT SentencePiece_FOUND)
    eddy_missing("SentencePiece" "libsentencepiece-dev libabsl-dev")
  endif()

  # Only the program uses MPI: several processes that share a run. Without it everything else works.
  option(EDDY_MPI "Let several processes share a run, where MPI is found" ON)
  if(EDDY_MPI)
    find_package(MPI QUIET COMPONENTS C)
    if(NOT MPI_C_FOUND)
      message(STATUS "MPI was not found: a run trains in one process (for several: sudo apt-get install libopenmpi-dev openmpi-bin)")
    endif()
  endif()
endif()
