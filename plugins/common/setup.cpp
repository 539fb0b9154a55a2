// Texts and structs that every backend of this tree builds alike.
#include "setup.h"

#include "objects.h"
#include "octavo/kernels.h"

namespace octavo::plugin {

octavo_status refuse(const octavo_host *host, std::string_view domain, octavo_status status,
                     std::string_view text) {
  octavo_diagnostic d{};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_DIAGNOSTIC;
  d.code = status;
  d.severity = OCTAVO_SEVERITY_ERROR;
  d.domain = {domain.data(), domain.size()};
  d.text = {text.data(), text.size()};
  host->diagnose(host->ctx, &d);
  return status;
}

octavo_verdict make_verdict() {
  octavo_verdict v{};
  v.size = sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  return v;
}

octavo_verdict check_formats(const octavo_session_desc &desc) {
  octavo_verdict v = make_verdict();
  const uint64_t dtypes = OCTAVO_DTYPE_BIT(OCTAVO_E4M3FN) | OCTAVO_DTYPE_BIT(OCTAVO_E5M2);
  if ((desc.caps->dtypes & dtypes) != dtypes)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           OCTAVO_STR("the kernels lack float8_e4m3fn or float8_e5m2"));
  else if (desc.caps->flags & OCTAVO_CAPS_EMULATED)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT_EMULATED, OCTAVO_REASON_NONE,
           OCTAVO_STR("FP8 arithmetic is emulated exactly, without FP8 hardware"));
  else
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
           OCTAVO_STR("FP8 runs on the device"));
  return v;
}

std::string parameter_fault(const octavo_parameter_desc &d) {
  constexpr uint32_t known = OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN;
  if (d.reserved != 0 || (d.flags & ~known) != 0)
    return "expected reserved 0 and known flags, found reserved " + std::to_string(d.reserved) +
           ", flags " + std::to_string(d.flags);
  if (d.rows < 1 || d.cols < 1)
    return "expected at least one row and column, found [" + std::to_string(d.rows) + ", " +
           std::to_string(d.cols) + "]";
  // Padding and the bytes of every slot stay far below 2^63 then.
  constexpr int64_t most = int64_t{1} << 40;
  if (d.rows > most || d.cols > most || d.rows > (most << 10) / d.cols)
    return "expected at most 2^40 rows and columns and 2^50 elements, found [" +
           std::to_string(d.rows) + ", " + std::to_string(d.cols) + "]";
  return {};
}

octavo_value text_value(const char *s) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_TEXT;
  v.text = {s, std::strlen(s)};
  return v;
}

octavo_value integer_value(int64_t i) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_INT;
  v.integer = i;
  return v;
}

octavo_value bool_value(bool b) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_BOOL;
  v.integer = b ? 1 : 0;
  return v;
}

octavo_value real_value(double r) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_REAL;
  v.real = r;
  return v;
}

octavo_option option(const char *name, octavo_value initial, const char *help) {
  octavo_option o{};
  o.size = sizeof(o);
  o.kind = OCTAVO_KIND_OPTION;
  o.name = {name, std::strlen(name)};
  o.help = {help, std::strlen(help)};
  o.initial = initial;
  return o;
}

octavo_option with_range(octavo_option o, int64_t low, int64_t high) {
  o.low = integer_value(low);
  o.high = integer_value(high);
  return o;
}

octavo_option with_real_range(octavo_option o, double low, double high) {
  o.low = real_value(low);
  o.high = real_value(high);
  return o;
}

octavo_status list_all(const octavo_option_sink *sink, const octavo_option *options, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (const octavo_status status = sink->option(sink->ctx, &options[i]); status != OCTAVO_OK)
      return status;
  return OCTAVO_OK;
}

}  // namespace octavo::plugin
