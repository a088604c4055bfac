# The folders of the source tree, in the order in which they may include each other; no other folder
# includes cuda/. A new file in one of them is found automatically; a new folder is added here. A test compares
# these lists with the tree.
set(EDDY_TENSOR_FOLDERS tensor/base tensor/system tensor/memory tensor/threads tensor tensor/random tensor/files)
set(EDDY_AUTOGRAD_FOLDERS autograd)
set(EDDY_OPS_FOLDERS ops/core ops/cpu ops/cast ops/reduce ops/views ops/pointwise ops/optimizer ops/index ops/composed
  ops/product ops/norm ops/memory ops/loss ops/attention ops/recurrence ops ops/cost)
set(EDDY_CUDA_FOLDERS cuda/runtime cuda/core cuda/views cuda/pointwise cuda/reduce cuda/norm cuda/index cuda/optimizer
  cuda/memory cuda/loss cuda/product cuda/attention cuda/recurrence cuda)
set(EDDY_MODELS_FOLDERS models models/optimizer)
# The families of models, in the order in which lists show them. All that names each family follows from this one list
# (Families.cmake).
set(EDDY_FAMILY_FOLDERS models/recurrent_transformer models/block_recurrent models/blockwise_recurrent models/staircase)
set(EDDY_REGISTRY_FOLDERS models/eddy)
set(EDDY_TRAIN_FOLDERS train/words train/files train/process train/fetch train/config train/ranks train/step train/text/stories train/text train/eval
  train/record train/generate train/tasks train/tasks/synthetic train/plan train/run train/loops)
# What looks at a run or talks to a person. It may include all of the above; none of the above includes it.
set(EDDY_APP_FOLDERS train/app/views train/app/report train/app/inspect train/app/measure train/app/measure/kernels train/app/exchange
  train/app/reproduce train/app/terminal train/app/launch examples/learn/checker train/app/program)

# eddy_sources(result pattern folder ...): sets `result` to the files of these folders, without subfolders, that match
# the pattern. One that ends in _linux.cpp is for Linux alone; its neighbour that ends in _portable.cpp stands in its place
# elsewhere (EDDY_SYSTEM).
function(eddy_sources result pattern)
  set(found "")
  foreach(folder ${ARGN})
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/${pattern})
    list(APPEND found ${files})
  endforeach()
  # A limit on memory is for the program alone, which names that file.
  list(FILTER found EXCLUDE REGEX "/memory_limit_linux\\.cpp$")
  if(EDDY_CALLS STREQUAL "linux")
    list(FILTER found EXCLUDE REGEX "_portable\\.cpp$")
  else()
    list(FILTER found EXCLUDE REGEX "_linux\\.cpp$")
  endif()
  set(${result} ${found} PARENT_SCOPE)
endfunction()
