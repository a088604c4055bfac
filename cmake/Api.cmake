# The target `api`: pages by Doxygen of all that `#include <eddy/eddy.h>` gives, of the headers that ops/op_list.h names, and of
# those that an own op, model, task or loop includes beside it. The first page is README's map, with the headers of each folder.
# A public name without a comment is an error. The namespace eddy::detail is left out, so the kernels' side of the ops (their
# arguments, and the slots that hold a kernel per device): it is for those who write an op. cmake/api.awk reads the comments.
set(EDDY_API_HEADERS train/app/program/program.h train/loops/user_loop.h train/tasks/task.h train/tasks/synthetic/synthetic_task.h
  train/run/checkpoint.h)
# With these, all headers that they include.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/models/eddy/eddy.h ${PROJECT_SOURCE_DIR}/ops/op_list.h ${PROJECT_SOURCE_DIR}/README.md)
set(waiting models/eddy/eddy.h ops/op_list.h autograd/named_values.h autograd/scope.h ops/core/op_spec.h ops/core/checks.h)
while(waiting)
  list(POP_FRONT waiting header)
  set(file ${PROJECT_SOURCE_DIR}/${header})
  if(EXISTS ${file})
    list(APPEND EDDY_API_HEADERS ${header})
  else()
    set(file ${PROJECT_BINARY_DIR}/include/${header}) # written by the build
  endif()
  file(STRINGS ${file} lines REGEX "^#include \"")
  foreach(line ${lines})
    string(REGEX REPLACE "^#include \"(.*)\"$" "\\1" included "${line}")
    if(NOT included IN_LIST EDDY_API_HEADERS)
      list(APPEND waiting ${included})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES waiting)
endwhile()

find_program(EDDY_DOXYGEN doxygen)
if(NOT EDDY_DOXYGEN)
  add_custom_target(api COMMAND ${CMAKE_COMMAND} -E echo "api: doxygen is not installed (apt-get install doxygen, then run cmake again)"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  return()
endif()
list(SORT EDDY_API_HEADERS)
list(JOIN EDDY_API_HEADERS " " headers)
# The rows `| [folder/](page) | what is in it | ... |` of README.md.
file(STRINGS ${PROJECT_SOURCE_DIR}/README.md map REGEX "^\\| \\[[a-z]+/\\]")
set(rows)
foreach(row ${map})
  string(REGEX MATCH "^\\| \\[([a-z]+)/\\]\\([^)]*\\) \\| ([^|]*) \\|" row "${row}")
  set(folder ${CMAKE_MATCH_1})
  string(REGEX REPLACE "`([^`]*)`" "<tt>\\1</tt>" what "${CMAKE_MATCH_2}")
  set(within ${EDDY_API_HEADERS})
  list(FILTER within INCLUDE REGEX "^${folder}/")
  list(JOIN within "<br>" within)
  string(APPEND rows "<tr><td>${folder}/</td><td>${what}</td><td>${within}</td></tr>\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/api/map.dox @ONLY CONTENT [[
/** \mainpage The map
A program writes <tt>\#include &lt;eddy/eddy.h&gt;</tt>, and links <tt>eddy::eddy</tt>. The page of a header lists its names;
one page lists <a href="annotated.html">all types</a>, one the functions of \ref eddy::raw, which record no gradients, one those of
\ref eddy::rules. What is in <tt>train/</tt> a program includes beside it, and links <tt>eddy::train</tt> or <tt>eddy::commands</tt>.
<table>
<tr><th>folder</th><th>what is in it</th><th>headers for programs</th></tr>
@rows@</table>
*/
]])
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/api/Doxyfile @ONLY CONTENT [[
PROJECT_NAME = Eddy
PROJECT_NUMBER = @PROJECT_VERSION@
PROJECT_BRIEF = "The headers for programs of your own"
INPUT = @PROJECT_BINARY_DIR@/api/map.dox @headers@
FILTER_PATTERNS = "*.h=awk -f @PROJECT_SOURCE_DIR@/cmake/api.awk"
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
