// Products of blocks in float and double, by PyTorch's BLAS: operands are used in place.
#pragma once

#include "kernels/attention.h"
#include "kernels/batch_invariant.h"
#include "kernels/row_dots.h"

extern "C" {
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const double* alpha, const double* a, const int* lda, const double* b, const int* ldb,
            const double* beta, double* c, const int* ldc);
}

namespace isthmus::kernels::attention {

// A matrix by rows, or its transpose.
template <typename W>
struct Matrix {
  const W* data;
  int64_t pitch;
  bool transposed = false;
};

// c = a @ b + beta * c, all by rows; c is [m, n].
template <typename W>
void multiply(int64_t m, int64_t n, int64_t k, Matrix<W> a, Matrix<W> b, W beta, W* c, int64_t pitch) {
  if (m == 0 || n == 0) return;
  const int rows = static_cast<int>(n), columns = static_cast<int>(m), inner = static_cast<int>(k);
  const int lda = static_cast<int>(std::max<int64_t>(b.pitch, 1)),
            ldb = static_cast<int>(std::max<int64_t>(a.pitch, 1)), ldc = static_cast<int>(pitch);
  const W one = 1;
  const char *first = b.transposed ? "T" : "N", *second = a.transposed ? "T" : "N";
  // BLAS is column-major, so it computes the transposed product.
  if constexpr (std::is_same_v<W, float>)
    sgemm_(first, second, &rows, &columns, &inner, &one, b.data, &lda, a.data, &ldb, &beta, c, &ldc);
  else
    dgemm_(first, second, &rows, &columns, &inner, &one, b.data, &lda, a.data, &ldb, &beta, c, &ldc);
}

// Blocks of the forward pass, of at most kQueries by kKeys.
template <typename T>
class ForwardProducts {
 public:
  using Wide = T;
  using Weight = T;
  const int64_t block_queries, block_keys;

  ForwardProducts(const Call& call, Operand<const T> query, Operand<const T> key, Operand<const T> value)
      : block_queries(call.longest(&Span::queries) < 512 ? 64 : 128),
        block_keys(std::clamp<int64_t>(call.longest(&Span::keys), 1, 512)),
        call_(call),
        query_(query),
        key_(key),
        value_(value) {}

  int64_t value_pitch() const { return std::max<int64_t>(call_.value_features, 1); }

  // One thread's block of queries that the next products are of.
  class Block {
   public:
    explicit Block(const ForwardProducts& of) : of_(of) {}

    void begin(const Span& span, int64_t, int64_t head, int64_t query, int64_t queries) {
      span_ = span;
      head_ = head / of_.call_.groups();
      query_ = of_.query_.at(span.batch, span.query + query, head);
      queries_ = queries;
    }
    // Products with keys first up to first + count, a row of block_keys for each query.
    void scores(int64_t first, int64_t count, T* out) {
      if (of_.invariant_)
        return row_dots::multiply<T>(queries_, count, of_.call_.features, query_, of_.query_.token,
                                     of_.key_.at(span_.batch, span_.key + first, head_), of_.key_.token, out,
                                     of_.block_keys);
      multiply<T>(queries_, count, of_.call_.features, {query_, of_.query_.token},
                  {of_.key_.at(span_.batch, span_.key + first, head_), of_.key_.token, true}, 0, out,
                  of_.block_keys);
    }
    // out += weights @ values of those keys.
    void add_values(const T* weights, int64_t first, int64_t count, T* out) {
      if (of_.invariant_)
        return row_dots::add_product<T>(queries_, of_.call_.value_features, count, weights, of_.block_keys,
                                        of_.value_.at(span_.batch, span_.key + first, head_),
                                        of_.value_.token, out, of_.value_pitch());
      multiply<T>(queries_, of_.call_.value_features, count, {weights, of_.block_keys},
                  {of_.value_.at(span_.batch, span_.key + first, head_), of_.value_.token}, 1, out,
                  of_.value_pitch());
    }

   private:
    const ForwardProducts& of_;
    Span span_{};
    const T* query_ = nullptr;
    int64_t head_ = 0, queries_ = 0;
  };

 private:
  const Call& call_;
  Operand<const T> query_, key_, value_;
  const bool invariant_ = batch_invariant;
};

// Blocks of the backward pass; gradients begin at 0.
template <typename T>
class BackwardProducts {
 public:
  using Wide = T;
  static constexpr int64_t kQueries = 128, kKeys = 256;

  const Call& call;
  Operand<const T> query, key, value, grad;
  Operand<T> grad_query, grad_key, grad_value;

  // One thread's head of the key and the heads of the query that share it, one after another.
  class Pair {
   public:
    explicit Pair(const BackwardProducts& of) : of_(of) {}

    void begin(const Span& span, int64_t key_head) {
      span_ = span;
      key_head_ = key_head;
    }
    void begin_head(int64_t head) { head_ = head; }
    // Products of query and key, and of the gradient and the value, a row of kKeys for each query.
    void products(int64_t query, int64_t queries, int64_t key, int64_t keys, T* scores, T* weights) {
      multiply<T>(queries, keys, of_.call.features, at(of_.query, query), turned(of_.key, key), 0, scores,
                  kKeys);
      multiply<T>(queries, keys, of_.call.value_features, at(of_.grad, query), turned(of_.value, key), 0,
                  weights, kKeys);
    }
    // Adds to the gradients of query, key and value: weights (after dropout), and gradients of the products.
    void add(int64_t query, int64_t queries, int64_t key, int64_t keys, const T* weights, const T* slopes) {
      const auto& call = of_.call;
      multiply<T>(keys, call.value_features, queries, {weights, kKeys, true}, at(of_.grad, query), 1,
                  to(of_.grad_value, key), of_.grad_value.token);
      multiply<T>(keys, call.features, queries, {slopes, kKeys, true}, at(of_.query, query), 1,
                  to(of_.grad_key, key), of_.grad_key.token);
      multiply<T>(queries, call.features, keys, {slopes, kKeys}, of_key(key), 1,
                  of_.grad_query.at(span_.batch, span_.query + query, head_), of_.grad_query.token);
    }
    void end_head() {}
    void end() {}

   private:
    Matrix<T> at(const Operand<const T>& operand, int64_t query) const {
      return {operand.at(span_.batch, span_.query + query, head_), operand.token};
    }
    Matrix<T> turned(const Operand<const T>& operand, int64_t key) const {
      return {operand.at(span_.batch, span_.key + key, key_head_), operand.token, true};
    }
    Matrix<T> of_key(int64_t key) const {
      return {of_.key.at(span_.batch, span_.key + key, key_head_), of_.key.token};
    }
    T* to(const Operand<T>& operand, int64_t key) const {
      return operand.at(span_.batch, span_.key + key, key_head_);
    }

    const BackwardProducts& of_;
    Span span_{};
    int64_t key_head_ = 0, head_ = 0;
  };
};

}  // namespace isthmus::kernels::attention
