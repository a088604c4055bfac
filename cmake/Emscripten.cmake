# A build for WebAssembly takes headers alone from the system, and has one thread. Dependencies.cmake includes this in place
# of its own rules when Emscripten's toolchain file is given; examples/browser/make.sh does so.
if(NOT EDDY_BLAS STREQUAL "none" OR EDDY_BUILD_TRAIN OR EDDY_CUDA)
  message(FATAL_ERROR "With Emscripten the library alone is built: -DEDDY_BLAS=none -DEDDY_BUILD_TRAIN=OFF -DEDDY_BUILD_TESTS=OFF "
    "-DEDDY_BUILD_EXAMPLES=OFF -DEDDY_INSTALL=OFF")
endif()

# The system's include folder has headers of another processor too: a folder of links has these two alone.
set(headers ${PROJECT_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})
foreach(needed fmt/format.h:libfmt-dev nlohmann/json.hpp:nlohmann-json3-dev)
  string(REGEX REPLACE ":.*" "" header ${needed})
  string(REGEX REPLACE ".*:" "" package ${needed})
  cmake_path(GET header PARENT_PATH folder)
  find_path(EDDY_HEADERS_${folder} ${header} PATHS /usr/include /usr/local/include /opt/homebrew/include NO_CMAKE_FIND_ROOT_PATH)
  if(NOT EDDY_HEADERS_${folder})
    eddy_missing(${header} ${package})
  endif()
  file(CREATE_LINK ${EDDY_HEADERS_${folder}}/${folder} ${headers}/${folder} SYMBOLIC)
endforeach()
add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
target_include_directories(fmt::fmt SYSTEM INTERFACE ${headers})
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
target_include_directories(nlohmann_json::nlohmann_json SYSTEM INTERFACE ${headers})
add_library(Threads::Threads INTERFACE IMPORTED GLOBAL)

add_compile_options(-msimd128 -fwasm-exceptions)
add_link_options(-msimd128 -fwasm-exceptions)
