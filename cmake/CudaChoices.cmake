# What a CUDA build is made for: the GPUs that are here or those of a package, as far as nvcc knows them, and the host
# compiler that nvcc accepts. Nothing happens when this is included: a test runs the functions with programs that stand
# in for nvcc and nvidia-smi.

# What a package has machine code for. The newest of them comes as PTX too, which drivers compile for GPUs that are
# newer.
set(EDDY_CUDA_PACKAGED 80 86 89 90 100 120)

# The version of nvcc, "12.4".
# errors: an older one than 12.4, and one that does not run.
function(eddy_cuda_version nvcc result)
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
  if(NOT status STREQUAL "0" OR NOT text MATCHES "release ([0-9]+\\.[0-9]+)")
    message(FATAL_ERROR "${nvcc} does not tell its version (${status}): ${text}")
  endif()
  set(version ${CMAKE_MATCH_1})
  if(version VERSION_LESS 12.4)
    message(FATAL_ERROR "${nvcc} is of CUDA ${version}, and Eddy needs 12.4 or later: install a newer toolkit, name its "
      "compiler by -DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc, or configure with -DEDDY_CUDA=OFF")
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()

# "80" becomes "8.0", and a list "8.0, 8.6".
function(eddy_cuda_capabilities architectures result)
  list(TRANSFORM architectures REPLACE "^([0-9]+)([0-9])([af]?).*$" "\\1.\\2\\3")
  list(JOIN architectures ", " text)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# The capabilities of the GPUs that are here, each once, as "86;120"; without any an empty list, with the reason.
function(eddy_cuda_gpus result why)
  # In WSL the driver of Windows brings it.
  find_program(EDDY_NVIDIA_SMI nvidia-smi HINTS /usr/lib/wsl/lib)
  mark_as_advanced(EDDY_NVIDIA_SMI)
  set(gpus)
  set(reason "there is no nvidia-smi")
  if(EDDY_NVIDIA_SMI)
    execute_process(COMMAND ${EDDY_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE status TIMEOUT 30)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" gpus "${text}")
    if(NOT status STREQUAL "0")
      set(gpus)
    endif()
    string(REGEX REPLACE "[ \n]+" " " reason "nvidia-smi shows no GPU: ${text}${error}")
    string(STRIP "${reason}" reason)
    list(TRANSFORM gpus REPLACE "\\." "")
    list(SORT gpus COMPARE NATURAL)
    list(REMOVE_DUPLICATES gpus)
  endif()
  set(${result} "${gpus}" PARENT_SCOPE)
  set(${why} "${reason}" PARENT_SCOPE)
endfunction()

# What to build for GPUs of these capabilities: themselves where nvcc knows them, else the packages' newest before them,
# whose PTX the driver compiles. `note` gets a line on each of those.
function(eddy_cuda_code_for gpus known version result note)
  set(targets)
  set(text "")
  foreach(gpu ${gpus})
    set(target ${gpu})
    if(NOT gpu IN_LIST known)
      foreach(packaged ${EDDY_CUDA_PACKAGED})
        if(packaged LESS gpu AND packaged IN_LIST known)
          set(target ${packaged})
        endif()
      endforeach()
      eddy_cuda_capabilities("${gpu}" gpu_text)
      eddy_cuda_capabilities("${target}" target_text)
      string(APPEND text "; it does not know ${gpu_text}, for which the driver compiles the PTX of ${target_text} when a program "
        "first starts (a newer toolkit saves that)")
    endif()
    list(APPEND targets ${target})
  endforeach()
  set(${result} "${targets}" PARENT_SCOPE)
  set(${note} "${text}" PARENT_SCOPE)
endfunction()

# The list for CMAKE_CUDA_ARCHITECTURES, which is told. `wanted`: such a list, "packages", or empty for the GPUs that
# are here; where there is none, it is that of packages.
# errors: architectures that nvcc does not know, and those below 8.0.
function(eddy_cuda_architectures nvcc wanted result)
  eddy_cuda_version("${nvcc}" version)
  execute_process(COMMAND ${nvcc} --list-gpu-code OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE status)
  string(REGEX MATCHALL "sm_[0-9]+" known "${text}")
  if(NOT status STREQUAL "0" OR NOT known)
    message(FATAL_ERROR "${nvcc} --list-gpu-code names no architecture (${status}): ${text}${error}")
  endif()
  list(TRANSFORM known REPLACE "sm_" "")
  list(SORT known COMPARE NATURAL)
  set(needs "Eddy's kernels need compute capability 8.0 or later (A100, RTX 30 and what came after them): bf16 on tensor cores, and \
asynchronous copies into shared memory")

  set(gpus)
  set(named ${wanted})
  if(wanted STREQUAL "packages")
    set(named)
  elseif(wanted STREQUAL "")
    eddy_cuda_gpus(gpus why)
    set(old ${gpus})
    list(FILTER old EXCLUDE REGEX "^([89]|[1-9][0-9])[0-9]$")
    if(old)
      list(REMOVE_ITEM gpus ${old})
      eddy_cuda_capabilities("${old}" old_text)
      if(NOT gpus)
        message(FATAL_ERROR "The GPU here has compute capability ${old_text}, and ${needs}. Compute on the CPU (cmake --preset "
          "release), or build for GPUs of other machines (-DEDDY_CUDA_ARCHITECTURES=packages)")
      endif()
      message(STATUS "CUDA: not for the GPU here of ${old_text}: ${needs}")
    endif()
    if(NOT gpus)
      message(STATUS "CUDA: ${why}; without one the build is for packages (-DEDDY_CUDA_ARCHITECTURES=86 names one of 8.6)")
    endif()
  endif()

  foreach(target ${named})
    if(NOT target MATCHES "^([0-9]+)[af]?(-real|-virtual)?$")
      message(FATAL_ERROR "EDDY_CUDA_ARCHITECTURES: '${target}' is no architecture (a list as \"86;120\", packages, or empty for "
        "the GPU that is here)")
    endif()
    if(CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR "EDDY_CUDA_ARCHITECTURES: ${target} is too old: ${needs}")
    elseif(NOT CMAKE_MATCH_1 IN_LIST known)
      list(JOIN known ", " text)
      message(FATAL_ERROR "EDDY_CUDA_ARCHITECTURES: nvcc ${version} does not know ${target} (it knows ${text}; where the GPU is, "
        "leave the list out, or install a newer toolkit)")
    endif()
  endforeach()
  if(named)
    list(JOIN named ", " text)
    message(STATUS "CUDA: nvcc ${version} builds for ${text}, as EDDY_CUDA_ARCHITECTURES says")
    set(${result} "${named}" PARENT_SCOPE)
    return()
  endif()

  if(gpus)
    eddy_cuda_code_for("${gpus}" "${known}" "${version}" found note)
    eddy_cuda_capabilities("${gpus}" text)
    set(text "for the GPU here, of ${text}")
  else()
    set(found ${EDDY_CUDA_PACKAGED})
    set(unknown ${found})
    list(REMOVE_ITEM unknown ${known})
    set(note "")
    if(unknown)
      list(REMOVE_ITEM found ${unknown})
      eddy_cuda_capabilities("${unknown}" text)
      set(note "; it does not know ${text}")
    endif()
    eddy_cuda_capabilities("${found}" text)
    set(text "for packages, machine code for ${text}")
  endif()
  # PTX once, of the newest.
  list(SORT found COMPARE NATURAL)
  list(REMOVE_DUPLICATES found)
  list(POP_BACK found newest)
  list(TRANSFORM found APPEND "-real")
  list(APPEND found ${newest})
  eddy_cuda_capabilities("${newest}" newest)
  message(STATUS "CUDA: nvcc ${version} builds ${text}; and PTX of ${newest}, for what is newer${note}")
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# The compiler of the host's code in .cu files: empty where nvcc accepts the one that it takes by itself, else the first
# here that it accepts, which is said. Where `given` is not empty, that one alone is tried.
# errors: where nvcc accepts none.
function(eddy_cuda_host_compiler nvcc given result)
  set(candidates ${given})
  if(NOT given)
    set(candidates g++ ${CMAKE_CXX_COMPILER})  # g++ is what nvcc takes by itself
    foreach(version RANGE 16 11 -1)
      find_program(found g++-${version} NO_CACHE)
      if(found)
        list(APPEND candidates ${found})
      endif()
      unset(found)
    endforeach()
  endif()
  # A limit of nvcc's version, or headers of the system that it cannot read: a trial shows both.
  set(source ${CMAKE_CURRENT_BINARY_DIR}/cuda_host_compiler.cu)
  file(WRITE ${source} "#include <algorithm>\n#include <string>\n__global__ void kernel() {}\n")
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_CUDA_FLAGS} $ENV{CUDAFLAGS}")
  set(refused "")
  foreach(candidate ${candidates})
    set(host -ccbin ${candidate})
    if(candidate STREQUAL "g++" AND NOT given)
      set(host)
    endif()
    execute_process(COMMAND ${nvcc} ${flags} ${host} -std=c++20 -c -o ${source}.o ${source}
      OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
    if(status STREQUAL "0")
      if(host AND NOT given)
        message(STATUS "CUDA: ${candidate} compiles the host's code in .cu files; nvcc refuses${refused}")
      elseif(NOT host)
        set(candidate "")
      endif()
      set(${result} "${candidate}" PARENT_SCOPE)
      return()
    endif()
    if(refused STREQUAL "")  # the others are refused for the same reason, or for a worse one
      string(REGEX MATCH "[^\n]*error[^\n]*" line "${text}")
      if(line STREQUAL "")
        set(line "${text} (${status})")
      endif()
      string(STRIP "${line}" line)
      set(refused " ${candidate}: ${line}")
    endif()
  endforeach()
  message(FATAL_ERROR "nvcc accepts none of the compilers here for the host's code: not${refused}. Install one that it accepts (CUDA "
    "12.4 takes g++ up to 13: sudo apt-get install g++-13), and name it where it has another name: "
    "-DCMAKE_CUDA_HOST_COMPILER=/usr/bin/g++-13")
endfunction()
