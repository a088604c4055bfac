// The one header for programs that use the library: tensors, gradients, ops, modules, optimizers and the models
// of all four families. Installed as <eddy/eddy.h>. docs/library.md shows it at work.
#pragma once

// Tensors
#include "models/optimizer/optimizer.h"
#include "tensor/base/error.h"
#include "tensor/create.h"
#include "tensor/files/safetensors.h"
#include "tensor/print.h"
#include "tensor/random/random_tensors.h"
#include "tensor/tensor.h"
#include "tensor/threads/thread_pool.h"

// Gradients
#include "autograd/checkpoint.h"
#include "autograd/gradcheck.h"
#include "autograd/tape.h"

// Ops
#include "ops/attention/attention.h"
#include "ops/attention/rotary.h"
#include "ops/backends.h"
#include "ops/cast/cast.h"
#include "ops/index/gather.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/product/matmul.h"
#include "ops/recurrence/lstm_cell.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "ops/views/views.h"
#include "ops/write_instead.h"

// Modules, optimizers, models
#include "models/layers.h"
#include "models/model.h"
#include "models/module.h"
#include "models/optimizer/adam.h"
#include "models/params.h"
#include "models/weights.h"
