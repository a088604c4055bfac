# The target `api`: pages by Doxygen of what `#include <eddy/eddy.h>` gives, the headers that it and ops/op_list.h name, and of
# those that an own op, model, task or loop includes beside it.
# A public name without a comment is an error. The namespace eddy::detail is left out, so the kernels' side of the ops (their
# arguments, and the slots that hold a kernel per device): it is for those who write an op. cmake/api.awk reads the comments.
set(EDDY_API_HEADERS models/eddy/eddy.h autograd/named_values.h autograd/scope.h ops/core/op_spec.h ops/core/checks.h
  train/app/program/program.h train/loops/user_loop.h train/tasks/task.h train/tasks/synthetic/synthetic_task.h train/run/checkpoint.h)
foreach(list models/eddy/eddy.h ops/op_list.h)
  file(STRINGS ${PROJECT_SOURCE_DIR}/${list} lines REGEX "^#include \"")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${list})
  foreach(line ${lines})
    string(REGEX REPLACE "^#include \"(.*)\"$" "\\1" header "${line}")
    list(APPEND EDDY_API_HEADERS ${header})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES EDDY_API_HEADERS)

find_program(EDDY_DOXYGEN doxygen)
if(NOT EDDY_DOXYGEN)
  add_custom_target(api COMMAND ${CMAKE_COMMAND} -E echo "api: doxygen is not installed (apt-get install doxygen, then run cmake again)"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  return()
endif()
list(JOIN EDDY_API_HEADERS " " headers)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/api/Doxyfile @ONLY CONTENT [[
PROJECT_NAME = Eddy
PROJECT_NUMBER = @PROJECT_VERSION@
PROJECT_BRIEF = "The headers for programs of your own"
INPUT = @headers@
INPUT_FILTER = "awk -f @PROJECT_SOURCE_DIR@/cmake/api.awk"
STRIP_FROM_PATH = @PROJECT_SOURCE_DIR@
OUTPUT_DIRECTORY = @PROJECT_BINARY_DIR@/api
MARKDOWN_SUPPORT = NO
GENERATE_LATEX = NO
HAVE_DOT = NO
VERBATIM_HEADERS = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = EDDY_HD_INLINE=inline
HIDE_FRIEND_COMPOUNDS = YES
EXCLUDE_SYMBOLS = eddy::detail eddy::detail::* EDDY_*
QUIET = YES
WARN_IF_UNDOCUMENTED = YES
WARN_IF_DOC_ERROR = YES
WARN_IF_INCOMPLETE_DOC = NO
WARN_AS_ERROR = FAIL_ON_WARNINGS
]])
add_custom_target(api COMMAND ${EDDY_DOXYGEN} ${PROJECT_BINARY_DIR}/api/Doxyfile
  COMMAND ${CMAKE_COMMAND} -E echo "api: ${PROJECT_BINARY_DIR}/api/html/index.html"
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
