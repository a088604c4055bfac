# What follows from the list of families (EDDY_FAMILY_FOLDERS in Folders.cmake): the build writes what names each family, so
# that no source does.

# eddy_each_family(result text): sets `result` to the text once for each family, with its name in place of @family@.
function(eddy_each_family result text)
  set(all)
  foreach(folder ${EDDY_FAMILY_FOLDERS})
    cmake_path(GET folder FILENAME family)
    string(CONFIGURE "${text}" one @ONLY)
    string(APPEND all "${one}")
  endforeach()
  set(${result} "${all}" PARENT_SCOPE)
endfunction()

# eddy_embed_of_families(target file ...): makes `#include "embedded/models/FILE"` the texts of this file of each family, as
# string literals with a comma behind each; "" for a family without the file.
function(eddy_embed_of_families target)
  foreach(file ${ARGN})
    set(texts)
    foreach(folder ${EDDY_FAMILY_FOLDERS})
      file(GLOB data CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/${file})
      if(data)
        eddy_embed(${target} ${data})
        string(APPEND texts "#include \"embedded/${folder}/${file}\"\n,\n")
      else()
        string(APPEND texts "\"\",\n")
      endif()
    endforeach()
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/embedded/models/${file} CONTENT "@texts@" @ONLY)
  endforeach()
endfunction()

eddy_each_family(includes "#include \"models/@family@/config.h\"\n")
eddy_each_family(rows " ROW(@family@)")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/include/models/eddy/families.h @ONLY CONTENT
"// The families of models, from the list in cmake/Folders.cmake. EDDY_FAMILIES(ROW): ROW(family) for each family.
#pragma once

@includes@
#define EDDY_FAMILIES(ROW)@rows@
")
