# Finds SentencePiece and defines the target SentencePiece::SentencePiece, including the library that trains
# vocabularies. The Debian package brings no CMake files.
include(FindPackageHandleStandardArgs)
find_path(SentencePiece_INCLUDE_DIR sentencepiece_processor.h)
find_library(SentencePiece_LIBRARY sentencepiece)
find_library(SentencePiece_TRAIN_LIBRARY sentencepiece_train)
mark_as_advanced(SentencePiece_INCLUDE_DIR SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY)
# Since 0.2.2 its headers include Abseil's (Debian's libabsl-dev).
set(SentencePiece_ABSEIL)
if(SentencePiece_INCLUDE_DIR)
  file(STRINGS ${SentencePiece_INCLUDE_DIR}/sentencepiece_processor.h SentencePiece_ABSEIL
    REGEX "#include <absl/status/" LIMIT_COUNT 1)
endif()
if(SentencePiece_ABSEIL)
  find_package(absl CONFIG QUIET)
  set(SentencePiece_ABSEIL absl_FOUND)
endif()
find_package_handle_standard_args(SentencePiece
  REQUIRED_VARS SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY SentencePiece_INCLUDE_DIR ${SentencePiece_ABSEIL})
if(SentencePiece_FOUND AND NOT TARGET SentencePiece::SentencePiece)
  add_library(SentencePiece::SentencePiece INTERFACE IMPORTED)
  target_link_libraries(SentencePiece::SentencePiece INTERFACE
    ${SentencePiece_TRAIN_LIBRARY} ${SentencePiece_LIBRARY} $<$<BOOL:${SentencePiece_ABSEIL}>:absl::status>)
  target_include_directories(SentencePiece::SentencePiece SYSTEM INTERFACE ${SentencePiece_INCLUDE_DIR})
endif()
