// Exercise 1: softplus and its gradient
//
//   y  = log(1 + exp(x))
//   dx = dy / (1 + exp(-x))
//
// The first line is right on paper. In numbers of 64 bits exp(1000) is infinite, and 1 + exp(-40) is 1. Write both
// functions so that they are right for every x: softplus(1000) is 1000, and softplus(-40) is 4.2e-18, not 0.
#include <cmath>

double softplus(double x) {
  return 0;  // your code
}

// The gradient with respect to x of a loss whose gradient with respect to y is dy.
double softplus_gradient(double x, double dy) {
  return 0;  // your code
}
