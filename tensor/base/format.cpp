// The one place where error texts are put together.
#include "tensor/base/format.h"

namespace eddy::detail {

template <class E>
void throw_formatted(fmt::string_view text, fmt::format_args args) {
  throw E(fmt::vformat(text, args));
}

template void throw_formatted<Error>(fmt::string_view, fmt::format_args);
template void throw_formatted<ShapeError>(fmt::string_view, fmt::format_args);
template void throw_formatted<DtypeError>(fmt::string_view, fmt::format_args);
template void throw_formatted<DeviceError>(fmt::string_view, fmt::format_args);
template void throw_formatted<ValueError>(fmt::string_view, fmt::format_args);
template void throw_formatted<GraphError>(fmt::string_view, fmt::format_args);
template void throw_formatted<VersionError>(fmt::string_view, fmt::format_args);
template void throw_formatted<NonFiniteError>(fmt::string_view, fmt::format_args);
template void throw_formatted<OutOfMemoryError>(fmt::string_view, fmt::format_args);
template void throw_formatted<IoError>(fmt::string_view, fmt::format_args);
template void throw_formatted<FormatError>(fmt::string_view, fmt::format_args);
template void throw_formatted<ConfigError>(fmt::string_view, fmt::format_args);

}  // namespace eddy::detail
