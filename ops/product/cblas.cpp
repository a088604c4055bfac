// Products by CBLAS, which OpenBLAS and Accelerate share; and what Accelerate, Apple's framework, is asked for beside
// them. The latter was compiled for macOS and never run.
#include "ops/product/blas.h"

#if defined(EDDY_ACCELERATE)
#include <stdlib.h>

// Its own header stands in Apple's SDK alone, where it calls these functions deprecated in favour of others of the same
// names, which macOS has from 13.3 on.
extern "C" {

using blasint = int;
enum CBLAS_ORDER { CblasRowMajor = 101, CblasColMajor = 102 };
enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112, CblasConjTrans = 113 };

void cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE a_form, CBLAS_TRANSPOSE b_form, blasint m, blasint n,
                 blasint k, float alpha, const float* a, blasint lda, const float* b, blasint ldb, float beta,
                 float* c, blasint ldc);
void cblas_dgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE a_form, CBLAS_TRANSPOSE b_form, blasint m, blasint n,
                 blasint k, double alpha, const double* a, blasint lda, const double* b, blasint ldb,
                 double beta, double* c, blasint ldc);
}
#else
#include <cblas.h>
#endif

namespace eddy {

using namespace detail;

void detail::multiply_by_blas(const GemmArgs& g, std::int64_t m, std::int64_t n, const void* a, const void* b,
                              void* c) {
  const auto int_of = [](std::int64_t x) { return static_cast<blasint>(x); };
  const CBLAS_TRANSPOSE ta = g.transpose_a ? CblasTrans : CblasNoTrans,
                        tb = g.transpose_b ? CblasTrans : CblasNoTrans;
  if (g.dtype == Dtype::f32) {
    cblas_sgemm(CblasRowMajor, ta, tb, int_of(m), int_of(n), int_of(g.k), static_cast<float>(g.alpha),
                static_cast<const float*>(a), int_of(g.lda), static_cast<const float*>(b), int_of(g.ldb),
                static_cast<float>(g.beta), static_cast<float*>(c), int_of(g.ldc));
  } else {
    cblas_dgemm(CblasRowMajor, ta, tb, int_of(m), int_of(n), int_of(g.k), g.alpha,
                static_cast<const double*>(a), int_of(g.lda), static_cast<const double*>(b), int_of(g.ldb),
                g.beta, static_cast<double*>(c), int_of(g.ldc));
  }
  if (g.relu) apply_relu(g, m, n, c);
}

#if defined(EDDY_ACCELERATE)
void detail::prepare_blas() {
  // Each product runs on the thread that calls it. Accelerate reads this at its first product. A user's value stays.
  ::setenv("VECLIB_MAXIMUM_THREADS", "1", 0);
}

void reserve_product_memory(int) {}

const char* blas_name() {
  return "Accelerate";
}

std::string blas_core() {
  return "";
}

std::string blas_build(const std::string&) {
  return "Accelerate";
}
#endif

}  // namespace eddy
