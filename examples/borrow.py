"""Borrows memory as the environment says, takes blocks of it, writes to them, gives it back."""

import ctypes
import sys
from ctypes import (POINTER, byref, c_char, c_char_p, c_int, c_int32, c_size_t, c_uint8, c_uint32,
                    c_uint64, c_void_p, sizeof)

OK, OFF = 0, 1
BLOCK = 64 * 1024
PAGE = 4096  # what is borrowed begins at one


class Error(ctypes.Structure):  # carveout_error_t
    _fields_ = [("struct_size", c_size_t), ("status", c_int32), ("system_errno", c_int32),
                ("cuda_result", c_int32), ("reserved", c_int32),
                ("setting", c_char * 32), ("message", c_char * 1024)]


class Info(ctypes.Structure):  # carveout_info_t
    _fields_ = [("struct_size", c_size_t), ("bytes", c_uint64), ("device_pointer", c_uint64),
                ("host_pointer", c_void_p), ("source", c_int32), ("map", c_int32),
                ("kind", c_int32), ("device", c_int32), ("lender_base", c_uint64),
                ("source_name", c_char_p), ("map_name", c_char_p), ("description", c_char_p),
                ("why_not", c_char_p)]


def load():
    """The library, its calls declared: ctypes takes what isn't for an int, and cuts pointers."""
    library = ctypes.CDLL("libcarveout.so.0")
    handle, error = c_void_p, POINTER(Error)
    for call, result, *arguments in (
            ("open", c_int, c_void_p, POINTER(handle), error),
            ("get_info", c_int, handle, POINTER(Info)),
            ("close", c_int, handle, error),
            ("blocks_create", c_int, *[c_uint64] * 4, POINTER(handle), error),
            ("blocks_take", c_int, handle, POINTER(c_uint32), POINTER(c_uint64)),
            ("blocks_give_back", c_int, handle, c_uint32),
            ("blocks_destroy", None, handle)):
        function = getattr(library, "carveout_" + call)
        function.restype, function.argtypes = result, arguments
    return library


def use(library, info, error):
    """Takes every block of the memory, writes to it by a memoryview, gives all back."""
    blocks, index, address, taken = c_void_p(), c_uint32(), c_uint64(), []
    if library.carveout_blocks_create(info.host_pointer, info.bytes, BLOCK, PAGE, byref(blocks),
                                      byref(error)) != OK:
        sys.exit("borrow: " + error.message.decode())
    while library.carveout_blocks_take(blocks, byref(index), byref(address)) == OK:
        # Python does not know whose memory it is: no view of it may be used after the close.
        with memoryview((c_uint8 * BLOCK).from_address(address.value)).cast("B") as view:
            view[:] = b"\1" * BLOCK
        taken.append(index.value)
    for block in taken:
        library.carveout_blocks_give_back(blocks, block)
    library.carveout_blocks_destroy(blocks)  # before the memory that it counts
    return len(taken)


def main():
    library = load()
    memory, error = c_void_p(), Error(struct_size=sizeof(Error))
    status = library.carveout_open(None, byref(memory), byref(error))
    if status == OFF:
        print("off: nobody has asked for it")
        return
    if status != OK:  # a program can go on without: see README.md
        sys.exit("borrow: " + error.message.decode())
    try:
        info = Info(struct_size=sizeof(Info))
        library.carveout_get_info(memory, byref(info))
        what = f"{info.bytes >> 20} MiB of {info.source_name.decode()} by {info.map_name.decode()}"
        if info.host_pointer is None:  # device_pointer is all there is: for a GPU's blocks
            print(what + ": not for the processor")
            sys.exit(1)
        print(f"{what}: wrote to {use(library, info, error)} blocks")
    finally:
        if library.carveout_close(memory, byref(error)) != OK:
            sys.exit("borrow: " + error.message.decode())


if __name__ == "__main__":
    main()
