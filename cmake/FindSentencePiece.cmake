# Finds SentencePiece and defines the target SentencePiece::SentencePiece, including the library that trains
# vocabularies. The Debian package brings no CMake files.
include(FindPackageHandleStandardArgs)
find_path(SentencePiece_INCLUDE_DIR sentencepiece_processor.h)
find_library(SentencePiece_LIBRARY sentencepiece)
find_library(SentencePiece_TRAIN_LIBRARY sentencepiece_train)
mark_as_advanced(SentencePiece_INCLUDE_DIR SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY)
find_package_handle_standard_args(SentencePiece
  REQUIRED_VARS SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY SentencePiece_INCLUDE_DIR)
if(SentencePiece_FOUND AND NOT TARGET SentencePiece::SentencePiece)
  add_library(SentencePiece::SentencePiece INTERFACE IMPORTED)
  target_link_libraries(SentencePiece::SentencePiece INTERFACE
    ${SentencePiece_TRAIN_LIBRARY} ${SentencePiece_LIBRARY})
  target_include_directories(SentencePiece::SentencePiece SYSTEM INTERFACE ${SentencePiece_INCLUDE_DIR})
endif()
