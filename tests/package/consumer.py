"""As consumer.h, by ctypes."""

import ctypes
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int32, c_size_t, c_uint64, c_void_p


class Error(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("status", c_int32), ("system_errno", c_int32),
                ("cuda_result", c_int32), ("reserved", c_int32),
                ("setting", c_char * 32), ("message", c_char * 1024)]


class Info(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("bytes", c_uint64), ("device_pointer", c_uint64),
                ("host_pointer", c_void_p), ("source", c_int32), ("map", c_int32),
                ("kind", c_int32), ("device", c_int32), ("lender_base", c_uint64),
                ("source_name", c_char_p), ("map_name", c_char_p), ("description", c_char_p),
                ("why_not", c_char_p)]


OK, OFF = 0, 1

library = ctypes.CDLL("libcarveout.so.0")
library.carveout_open.argtypes = [c_void_p, POINTER(c_void_p), POINTER(Error)]
library.carveout_get_info.argtypes = [c_void_p, POINTER(Info)]
library.carveout_close.argtypes = [c_void_p, POINTER(Error)]
library.carveout_watch_fd.argtypes = [c_void_p]
library.carveout_is_lender_gone.argtypes = [c_void_p]
library.carveout_status_name.argtypes = [c_int32]
library.carveout_status_name.restype = c_char_p
for call in ("open", "get_info", "close", "watch_fd", "is_lender_gone"):
    getattr(library, "carveout_" + call).restype = c_int


def use_memory(handle):
    info = Info(struct_size=ctypes.sizeof(Info))
    assert library.carveout_get_info(handle, byref(info)) == OK
    view = memoryview((c_char * info.bytes).from_address(info.host_pointer)).cast("B")
    assert view == bytes(info.bytes)
    view[:] = b"\1" * info.bytes
    view.release()
    assert (library.carveout_watch_fd(handle) >= 0) == (info.source_name == b"daemon")
    assert library.carveout_is_lender_gone(handle) == 0
    print(f"{info.bytes} bytes of {info.source_name.decode()} by {info.map_name.decode()}, all zero")
    assert library.carveout_close(handle, None) == OK


def main():
    handle = c_void_p()
    error = Error(struct_size=ctypes.sizeof(Error))
    status = library.carveout_open(None, byref(handle), byref(error))
    assert status == error.status
    if status == OK:
        use_memory(handle)
    else:
        assert handle.value is None
        name = library.carveout_status_name(status).decode()
        refused = f"refused: {name} ({error.setting.decode()}) {error.message.decode()}"
        print("off" if status == OFF else refused)


main()
