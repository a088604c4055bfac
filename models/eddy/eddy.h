// The one header for programs that use the library: tensors, gradients, ops, modules, optimizers and the models
// of all families. Installed as <eddy/eddy.h>. docs/library.md shows it at work.
#pragma once

// Tensors
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
#include "ops/backends.h"
#include "ops/ops.h"

// Modules, optimizers, models
#include "models/dropout_site.h"
#include "models/eddy/registry.h"
#include "models/layers.h"
#include "models/model.h"
#include "models/module.h"
#include "models/optimizer/adam.h"
#include "models/optimizer/optimizer.h"
#include "models/params.h"
#include "models/recompute.h"
#include "models/weights.h"
