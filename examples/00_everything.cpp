// All of it in one file: matrices with gradients, a recurrent transformer of one layer, AdamW, training and
// sampling, in plain C++20 without Eddy. The rest of the tree does the same, only faster and larger.
//
// The model learns to write streams like 11e0e10o1e: one or two random bits, then a letter that says whether
// the ones so far are odd or even. Nobody can foresee the bits. Whoever remembers the parity can foresee the
// letters: a loss of 0.70 a token. Whoever guesses them has 0.99 at best. Here only the state remembers.
//
//   g++ -std=c++20 -O2 00_everything.cpp -o everything && ./everything [TEXT]     # yours, names.txt, say
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

using Index = std::size_t;
using Numbers = std::vector<double>;

// ---- matrices with gradients

// A matrix and the gradient of the loss with respect to it.
struct Node {
  double* row(Index r) { return value.data() + r * columns; }
  double* row_gradient(Index r) { return gradient.data() + r * columns; }

  Index rows, columns;
  Numbers value, gradient;
  std::function<void()> backward;  // adds its share to the gradient of each matrix it was made from
};
using Matrix = std::shared_ptr<Node>;

std::vector<Matrix> tape;  // in the order in which they were made

Matrix make(Index rows, Index columns) {
  const Numbers zeros(rows * columns);
  return tape.emplace_back(std::make_shared<Node>(Node{rows, columns, zeros, zeros, nullptr}));
}

// The same numbers, made from nothing: gradients stop here, and nothing from before is kept for their sake.
Matrix detach(const Matrix& x) {
  Matrix y = make(x->rows, x->columns);
  y->value = x->value;
  return y;
}

// The chain rule, last matrix first: all that used a matrix have by then added to its gradient.
void backward(const Matrix& loss) {
  loss->gradient[0] = 1;
  for (auto node = tape.rbegin(); node != tape.rend(); ++node)
    if ((*node)->backward) (*node)->backward();
  tape.clear();
}

double dot(const double* a, const double* b, Index n) {
  return std::inner_product(a, a + n, b, 0.0);
}

// x w^T + residual: each row of y holds the scalar products of a row of x with all rows of w. The closure
// owns x and w, and only points to y, which owns it: two that own each other would never be freed.
Matrix linear(const Matrix& x, const Matrix& w, const Matrix& residual = nullptr) {
  Matrix y = make(x->rows, w->rows);
  if (residual) y->value = residual->value;
  for (Index r = 0; r < x->rows; ++r)
    for (Index o = 0; o < w->rows; ++o) y->row(r)[o] += dot(x->row(r), w->row(o), x->columns);
  y->backward = [=, y = y.get()] {
    for (Index i = 0; residual && i < y->value.size(); ++i) residual->gradient[i] += y->gradient[i];
    for (Index r = 0; r < x->rows; ++r)
      for (Index o = 0; o < w->rows; ++o)
        for (Index i = 0; i < x->columns; ++i) {
          x->row_gradient(r)[i] += y->row_gradient(r)[o] * w->row(o)[i];
          w->row_gradient(o)[i] += y->row_gradient(r)[o] * x->row(r)[i];
        }
  };
  return y;
}

Matrix relu(const Matrix& x) {
  Matrix y = make(x->rows, x->columns);
  for (Index i = 0; i < y->value.size(); ++i) y->value[i] = std::max(0.0, x->value[i]);
  y->backward = [=, y = y.get()] {
    for (Index i = 0; i < y->value.size(); ++i)
      if (x->value[i] > 0) x->gradient[i] += y->gradient[i];
  };
  return y;
}

// Each row divided by the root of its mean square.
Matrix rms_norm(const Matrix& x) {
  const auto n = static_cast<double>(x->columns);
  Matrix y = make(x->rows, x->columns);
  Numbers inverse;
  for (Index r = 0; r < x->rows; ++r) {
    inverse.push_back(1 / std::sqrt(dot(x->row(r), x->row(r), x->columns) / n + 1e-6));
    for (Index i = 0; i < x->columns; ++i) y->row(r)[i] = x->row(r)[i] * inverse[r];
  }
  y->backward = [=, y = y.get()] {
    for (Index r = 0; r < x->rows; ++r) {
      const double along = dot(y->row_gradient(r), y->row(r), x->columns) / n;  // what the norm takes away
      for (Index i = 0; i < x->columns; ++i)
        x->row_gradient(r)[i] += (y->row_gradient(r)[i] - y->row(r)[i] * along) * inverse[r];
    }
  };
  return y;
}

Numbers softmax(const double* scores, Index n) {
  const double largest = *std::max_element(scores, scores + n);
  Numbers p;
  for (Index i = 0; i < n; ++i) p.push_back(std::exp(scores[i] - largest));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

// Attention of one query to a few positions, row by row: the softmax of q k / sqrt(width) weighs the values.
Matrix attend(const Matrix& q, const std::vector<Matrix>& k, const std::vector<Matrix>& v) {
  Matrix y = make(q->rows, q->columns);
  const double scale = 1 / std::sqrt(static_cast<double>(q->columns));
  std::vector<Numbers> p;  // the probabilities of each row
  for (Index r = 0; r < q->rows; ++r) {
    Numbers scores;
    for (const Matrix& key : k) scores.push_back(scale * dot(q->row(r), key->row(r), q->columns));
    p.push_back(softmax(scores.data(), scores.size()));
    for (Index t = 0; t < k.size(); ++t)
      for (Index i = 0; i < q->columns; ++i) y->row(r)[i] += p[r][t] * v[t]->row(r)[i];
  }
  y->backward = [=, y = y.get()] {
    for (Index r = 0; r < q->rows; ++r) {
      Numbers dp;  // the gradient of p
      for (const Matrix& value : v) dp.push_back(dot(y->row_gradient(r), value->row(r), q->columns));
      const double mean = dot(dp.data(), p[r].data(), dp.size());  // what the softmax takes away
      for (Index t = 0; t < k.size(); ++t)
        for (Index i = 0; i < q->columns; ++i) {
          const double dscore = scale * p[r][t] * (dp[t] - mean);
          q->row_gradient(r)[i] += dscore * k[t]->row(r)[i];
          k[t]->row_gradient(r)[i] += dscore * q->row(r)[i];
          v[t]->row_gradient(r)[i] += p[r][t] * y->row_gradient(r)[i];
        }
    }
  };
  return y;
}

// The rows of a table that tokens name.
Matrix embed(const Matrix& table, const std::vector<Index>& tokens) {
  Matrix y = make(tokens.size(), table->columns);
  for (Index r = 0; r < y->rows; ++r) std::copy_n(table->row(tokens[r]), y->columns, y->row(r));
  y->backward = [=, y = y.get()] {
    for (Index r = 0; r < y->rows; ++r)
      for (Index i = 0; i < y->columns; ++i) table->row_gradient(tokens[r])[i] += y->row_gradient(r)[i];
  };
  return y;
}

// `before` plus weight times -log p(target) of each row; a 1 x 1 matrix.
Matrix add_loss(const Matrix& before, const Matrix& logits, const std::vector<Index>& targets,
                double weight) {
  Matrix y = make(1, 1);
  y->value = before->value;
  for (Index r = 0; r < logits->rows; ++r)
    y->value[0] -= weight * std::log(softmax(logits->row(r), logits->columns)[targets[r]]);
  y->backward = [=, y = y.get()] {
    before->gradient[0] += y->gradient[0];
    for (Index r = 0; r < logits->rows; ++r) {
      const Numbers p = softmax(logits->row(r), logits->columns);
      for (Index i = 0; i < p.size(); ++i)
        logits->row_gradient(r)[i] += y->gradient[0] * weight * (p[i] - (i == targets[r] ? 1 : 0));
    }
  };
  return y;
}

// ---- the model: unit recurrence with forget (Kausik, "Recurrent transformers", 2025)

struct Parameter {
  Matrix w;
  Numbers mean, square;  // of its gradients, for AdamW
};

struct Model {
  Matrix weight(Index rows, Index columns) {
    Matrix w = make(rows, columns);
    for (double& x : w->value) x = std::normal_distribution(0.0, 0.1)(random);
    parameters.push_back({w, Numbers(w->value.size()), Numbers(w->value.size())});
    return w;
  }

  // A transformer layer for the last of one or two positions: attention and an MLP, each added to its input.
  Matrix layer(const std::vector<Matrix>& window) const {
    std::vector<Matrix> keys, values;
    for (const Matrix& x : window) {
      keys.push_back(linear(rms_norm(x), key));
      values.push_back(linear(rms_norm(x), value));
    }
    const Matrix q = linear(rms_norm(window.back()), query);
    const Matrix x = linear(attend(q, keys, values), out, window.back());
    return linear(relu(linear(rms_norm(x), up)), down, x);
  }

  // Reads one token of each stream. The new state is the layer's output for the token beside the old state.
  // The logits of the next token come from the layer's output for the new state alone.
  Matrix step(Matrix& state, const std::vector<Index>& read) const {
    const Matrix x = embed(tokens, read);
    state = state ? layer({state, x}) : layer({x});
    return linear(rms_norm(layer({state})), tokens);
  }

  Index width = 32;
  std::string alphabet = "01eo";
  std::mt19937 random{1};
  std::vector<Parameter> parameters{};
  Matrix tokens = weight(alphabet.size(), width), query = weight(width, width);
  Matrix key = weight(width, width), value = weight(width, width), out = weight(width, width);
  Matrix up = weight(4 * width, width), down = weight(width, 4 * width);
};

// ---- training and sampling

// Streams side by side: the first token of each, then the second. A token is a letter's place in 01eo.
using Streams = std::vector<std::vector<Index>>;
Streams write_streams(Index count, Index length, std::mt19937& random) {
  Streams streams(length);
  for (Index row = 0; row < count; ++row)
    for (Index t = 0, parity = 0, left = 1 + random() % 2; t < length; ++t, --left) {
      streams[t].push_back(left > 0 ? random() % 2 : 2 + parity);
      if (left > 0) parity ^= streams[t].back();
      if (left == 0) left = 2 + random() % 2;
    }
  return streams;
}

// Pieces of a text from anywhere in it, likewise.
Streams cut_streams(const std::string& text, const std::string& alphabet, Index count, Index length,
                    std::mt19937& random) {
  Streams streams(length);
  for (Index row = 0; row < count; ++row)
    for (Index t = 0, begin = random() % (text.size() - length); t < length; ++t)
      streams[t].push_back(alphabet.find(text[begin + t]));
  return streams;
}

// The mean loss of a token, in nats.
Matrix loss_of(const Model& model, const Streams& streams) {
  const double weight = 1 / static_cast<double>((streams.size() - 1) * streams[0].size());
  Matrix state, loss = make(1, 1);
  for (Index t = 0; t + 1 < streams.size(); ++t)
    loss = add_loss(loss, model.step(state, streams[t]), streams[t + 1], weight);
  return loss;
}

// The largest difference of a gradient from the slope of the loss, at some places of every parameter.
double check_gradients(const Model& model, const Streams& streams) {
  backward(loss_of(model, streams));
  double worst = 0;
  for (const auto& [w, mean, square] : model.parameters)
    for (Index i = 0; i < w->value.size(); i += 50) {
      const double kept = w->value[i], h = 1e-5;
      double slope = 0;
      for (const double side : {-1, 1}) {
        w->value[i] = kept + side * h;
        slope += side * loss_of(model, streams)->value[0] / (2 * h);
        tape.clear();
      }
      w->value[i] = kept;
      worst = std::max(worst, std::abs(slope - w->gradient[i]));
    }
  for (const Parameter& p : model.parameters) std::fill(p.w->gradient.begin(), p.w->gradient.end(), 0.0);
  return worst;
}

// AdamW: a number's step is the running mean of its gradient over the root of that of the gradient's square.
void adamw_step(std::vector<Parameter>& parameters, int step, double rate, double decay) {
  for (auto& [w, mean, square] : parameters)
    for (Index i = 0; i < w->value.size(); ++i) {
      const double g = std::exchange(w->gradient[i], 0);  // the next step begins at 0
      mean[i] = 0.9 * mean[i] + 0.1 * g;
      square[i] = 0.95 * square[i] + 0.05 * g * g;
      const double m = mean[i] / (1 - std::pow(0.9, step)), s = square[i] / (1 - std::pow(0.95, step));
      w->value[i] -= rate * (m / (std::sqrt(s) + 1e-8) + decay * w->value[i]);
    }
}

// A stream that the model writes. Between tokens the state's numbers stay, and not what they were made from.
std::string sample(const Model& model, std::string text, Index length, std::mt19937& random) {
  for (Matrix state; text.size() < length;) {
    const Matrix logits = model.step(state, {model.alphabet.find(text.back())});
    const Numbers p = softmax(logits->row(0), logits->columns);
    state = detach(state);
    tape.clear();
    text += model.alphabet[std::discrete_distribution<Index>(p.begin(), p.end())(random)];
  }
  return text;
}

int main(int argc, char** argv) {
  constexpr Index kLength = 16, kWritten = 2000;
  std::string own, alphabet = argc > 1 ? "" : "01eo";  // the reader's text, and its letters
  if (argc > 1) std::getline(std::ifstream(argv[1]), own, '\0');
  for (const char letter : own)
    if (alphabet.find(letter) == std::string::npos) alphabet += letter;
  if (argc > 1 && own.size() <= kLength) return std::printf("%s: no text to learn from\n", argv[1]), 2;
  Model model{.alphabet = alphabet};
  std::mt19937 random{2};
  const auto streams = [&](Index count, Index length) {
    return argc > 1 ? cut_streams(own, alphabet, count, length, random)
                    : write_streams(count, length, random);
  };
  const double difference = check_gradients(model, streams(2, 6));
  std::printf("gradients differ from slopes of the loss by %.1e at most\n", difference);

  for (int step = 1, steps = argc > 1 ? 2000 : 300; step <= steps; ++step) {
    const Matrix loss = loss_of(model, streams(16, kLength));  // forward: the tape grows
    backward(loss);  // back along the tape: every parameter gets its gradient
    adamw_step(model.parameters, step, 0.003 * std::min(1.0, step / 20.0), 0.01);  // update
    if (step % (steps / 12) == 0) std::printf("step %3d  loss %.3f\n", step, loss->value[0]);
  }

  const std::string text = sample(model, argc > 1 ? alphabet.substr(0, 1) : "1", kWritten, random);
  if (argc > 1) return std::printf("%s\n", text.c_str()), difference < 1e-6 ? 0 : 1;
  Index parity = 0;
  double letters = 0, right = 0;  // a wrong letter counts once: what follows may go on from it
  for (const char c : text) {
    const Index token = alphabet.find(c);
    letters += token >= 2;
    right += token == 2 + parity;
    parity = token < 2 ? parity ^ token : token - 2;
  }
  std::printf("%s...\n%.0f of its %.0f letters are right, in %zu times the length of training\n",
              text.substr(0, 72).c_str(), right, letters, kWritten / kLength);
  return difference < 1e-6 && letters > 500 && right > 0.8 * letters ? 0 : 1;
}

// Break a gradient, and the first line says 4.3e-01 without `if (x->value[i] > 0)` in relu, 1.5e-01 without
// ` - y->row(r)[i] * along` in rms_norm, 7.1e-02 with `if (state) state = detach(state);` first in step. All
// three still learn. Break the model: `state = layer({x});` in step leaves half of its letters wrong.
