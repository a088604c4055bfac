// The CBLAS of Accelerate, Apple's framework, as far as Eddy calls it. Its own header stands in Apple's SDK alone, where it
// calls these functions deprecated in favour of others of the same names, which macOS has from 13.3 on.
#pragma once

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
