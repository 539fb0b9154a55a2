// A caller of XLA FFI handlers: the call frame that XLA makes, without XLA.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "octavo/tensor.h"
#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  std::string text;
};
struct XLA_FFI_ExecutionContext {
  void *stream;
  int32_t device;
};

namespace octavo::test {

class Frame {
 public:
  // The stream and the GPU of a call on CUDA.
  void *stream = nullptr;
  int32_t device = 0;

  Frame &operand(void *data, std::vector<int64_t> dims, uint32_t dtype = OCTAVO_U8) {
    add(&arguments_, data, std::move(dims), dtype);
    return *this;
  }
  Frame &result(void *data, std::vector<int64_t> dims, uint32_t dtype = OCTAVO_U8) {
    add(&results_, data, std::move(dims), dtype);
    return *this;
  }
  Frame &attribute(int64_t value) {  // in the order of their names: count, flags, object, run
    numbers_.push_back(value);
    return *this;
  }
  // The text of the error; empty: none.
  std::string call(XLA_FFI_Handler *handler) {
    std::vector<void *> args, rets, attrs;
    for (XLA_FFI_Buffer &b : arguments_) args.push_back(&b);
    for (XLA_FFI_Buffer &b : results_) rets.push_back(&b);
    std::vector<XLA_FFI_ArgType> arg_types(args.size(), XLA_FFI_ArgType_BUFFER);
    std::vector<XLA_FFI_RetType> ret_types(rets.size(), XLA_FFI_RetType_BUFFER);
    std::deque<XLA_FFI_Scalar> scalars;
    for (int64_t &n : numbers_) {
      scalars.push_back({XLA_FFI_DataType_S64, &n});
      attrs.push_back(&scalars.back());
    }
    XLA_FFI_ByteSpan spans[] = {{"count", 5}, {"flags", 5}, {"object", 6}, {"run", 3}};
    XLA_FFI_ByteSpan *names[] = {&spans[0], &spans[1], &spans[2], &spans[3]};
    std::vector<XLA_FFI_AttrType> attr_types(attrs.size(), XLA_FFI_AttrType_SCALAR);
    XLA_FFI_ExecutionContext context = {stream, device};
    const XLA_FFI_Api functions = api();
    XLA_FFI_CallFrame frame = {};
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api = &functions;
    frame.ctx = &context;
    frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
    frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(args.size()),
                  arg_types.data(), args.data()};
    frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(rets.size()),
                  ret_types.data(), rets.data()};
    frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, static_cast<int64_t>(attrs.size()),
                   attr_types.data(),         names,   attrs.data()};
    XLA_FFI_Error *error = handler(&frame);
    const std::string text = error == nullptr ? "" : error->text;
    delete error;
    return text;
  }

 private:
  static XLA_FFI_DataType type_of(uint32_t dtype) {
    return dtype == OCTAVO_F32    ? XLA_FFI_DataType_F32
           : dtype == OCTAVO_BF16 ? XLA_FFI_DataType_BF16
                                  : XLA_FFI_DataType_U8;
  }
  void add(std::deque<XLA_FFI_Buffer> *to, void *data, std::vector<int64_t> dims, uint32_t dtype) {
    shapes_.push_back(std::move(dims));
    to->push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, type_of(dtype), data,
                   static_cast<int64_t>(shapes_.back().size()), shapes_.back().data()});
  }
  static XLA_FFI_Api api() {
    XLA_FFI_Api a = {};
    a.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    a.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                     XLA_FFI_API_MINOR};
    a.XLA_FFI_Error_Create = [](XLA_FFI_Error_Create_Args *e) {
      return new XLA_FFI_Error{e->message};
    };
    a.XLA_FFI_Error_GetMessage = [](XLA_FFI_Error_GetMessage_Args *e) {
      e->message = e->error->text.c_str();
    };
    a.XLA_FFI_Error_Destroy = [](XLA_FFI_Error_Destroy_Args *e) { delete e->error; };
    a.XLA_FFI_Stream_Get = [](XLA_FFI_Stream_Get_Args *s) -> XLA_FFI_Error * {
      s->stream = s->ctx->stream;
      return nullptr;
    };
    a.XLA_FFI_DeviceOrdinal_Get = [](XLA_FFI_DeviceOrdinal_Get_Args *d) -> XLA_FFI_Error * {
      d->device_ordinal = d->ctx->device;
      return nullptr;
    };
    a.XLA_FFI_ThreadPool_NumThreads = [](XLA_FFI_ThreadPool_NumThreads_Args *p) -> XLA_FFI_Error * {
      *p->num_threads = 1;
      return nullptr;
    };
    return a;
  }

  std::deque<XLA_FFI_Buffer> arguments_, results_;
  std::deque<std::vector<int64_t>> shapes_;
  std::deque<int64_t> numbers_;
};

}  // namespace octavo::test
