/* carveout: memory that a GB10's firmware keeps for a display, borrowed and mapped for use. The C
 * ABI of libcarveout.so.0.
 *
 *     carveout_t* memory = NULL;
 *     carveout_options_t options;
 *     carveout_error_t error;
 *     carveout_options_init(&options, sizeof options);
 *     options.from_environment = 1;
 *     options.device = 0;   // on that GPU or not at all; -1: host_pointer may be all there is
 *     error.struct_size = sizeof error;
 *     switch (carveout_open(&options, &memory, &error)) {
 *       case CARVEOUT_OK:  ... carveout_get_info(), use it, carveout_close(memory, NULL); break;
 *       case CARVEOUT_OFF: ... go on without: nobody has asked for it; break;
 *       default:           ... error.message says why there is none, and what to do
 *     }
 *
 * What holds for every call:
 *
 * Structures (all but carveout_plane_t, which stays as it is) begin with struct_size, which the
 * caller sets to the sizeof that it was compiled with; what a later version appends is then neither
 * read nor written for an older caller. A structure that is passed in may be longer than this
 * library's if all that is beyond is zero. (64-bit only.)
 *
 * An error structure may be NULL where it is not wanted. One whose struct_size is too small for
 * this library's first version is not written: the calls that open something then open nothing and
 * return CARVEOUT_ERROR_INVALID, the others ignore it.
 *
 * Sizes are in bytes, times in milliseconds. Text is UTF-8, ends with a zero byte, and never has
 * the key in it. Where a setting is to blame, an error names it and does not show its value.
 *
 * Threads: different handles from any threads at once, but carveout_open() with the environment not
 * while another thread changes that (setenv()). On one handle: carveout_get_info(),
 * carveout_watch_fd() and carveout_is_lender_gone() from any threads at once; carveout_close() and
 * carveout_after_fork_in_child() alone, and nothing after the former.
 *
 * No call raises a signal, no C++ exception leaves one, none is a cancellation point
 * (pthread_cancel, of the deferred type), none writes to standard output or error. Every descriptor
 * of the library's is close-on-exec.
 *
 * fork(): open in the process that uses the memory, after the fork. CUDA, once it has been
 * initialised (by this library, too: every way of mapping but CARVEOUT_MAP_HOST does), works in no
 * child that is forked later. What is open already: see carveout_after_fork_in_child(). Not while
 * another thread is in carveout_open(): the child would have its connection, and no handle to it.
 *
 * Process exit: nothing has to be done. The kernel takes everything back, and the lease ends with
 * the process. carveout_close() may be called from a static object's destructor or an atexit()
 * function: once CUDA may be gone, nothing is asked of it. (A thread that is in a call while
 * another calls exit() may still come to ask it something.) dlclose(): the library stays loaded, as
 * CUDA's driver does; so does a plugin that has the archive linked in, once it has used CUDA.
 */
#ifndef CARVEOUT_CARVEOUT_H
#define CARVEOUT_CARVEOUT_H

#include <stddef.h>
#include <stdint.h>

/* C's names, not the project's C++ ones. NOLINTBEGIN(readability-identifier-naming) */

/* Of this header. The ABI of libcarveout.so.MAJOR only grows: symbols, values of enumerations,
 * members at the ends of structures. */
#define CARVEOUT_VERSION_MAJOR 0
#define CARVEOUT_VERSION_MINOR 1
#define CARVEOUT_VERSION_PATCH 0
#define CARVEOUT_VERSION \
  (CARVEOUT_VERSION_MAJOR * 10000 + CARVEOUT_VERSION_MINOR * 100 + CARVEOUT_VERSION_PATCH)

#if defined(__GNUC__)
#define CARVEOUT_API __attribute__((visibility("default")))
#else
#define CARVEOUT_API
#endif

#ifdef __cplusplus
extern "C" {
#define CARVEOUT_NOEXCEPT noexcept
#else
#define CARVEOUT_NOEXCEPT
#endif

/* Memory that is borrowed (or the process's own, from a direct source) and mapped. */
typedef struct carveout_handle carveout_t;

/* Errors are negative. Values keep their meaning; later versions may add some. */
typedef enum carveout_status {
  CARVEOUT_OK = 0,
  CARVEOUT_OFF = 1,                /* CARVEOUT is unset or 0: no error, and no handle */
  CARVEOUT_ERROR_SYSTEM = -1,      /* a call of the kernel's or the driver's failed */
  CARVEOUT_ERROR_INVALID = -2,     /* a setting or an argument is not acceptable */
  CARVEOUT_ERROR_NOT_FOUND = -3,   /* no such heap, card, driver or device */
  CARVEOUT_ERROR_EXHAUSTED = -4,   /* a direct source has less, or the driver to map it with */
  CARVEOUT_ERROR_REFUSED = -5,     /* the lender said no: the message has its own words */
  CARVEOUT_ERROR_TIMED_OUT = -6,   /* the lender was silent for timeout_ms */
  CARVEOUT_ERROR_PROTOCOL = -7,    /* the lender answered what is none, or with less than asked */
  CARVEOUT_ERROR_CLOSED = -8,      /* the lender closed the connection without an answer */
  CARVEOUT_ERROR_OUT_OF_HEAP = -9, /* malloc() failed in this process */
  CARVEOUT_ERROR_INTERNAL = -10    /* a fault of the library's */
} carveout_status_t;

/* Where the memory comes from. */
typedef enum carveout_source {
  CARVEOUT_SOURCE_DAEMON = 0,   /* lent by carveoutd, or by another lender with its protocol */
  CARVEOUT_SOURCE_DRM = 1,      /* dumb buffers of a DRM card, without a daemon */
  CARVEOUT_SOURCE_DMA_HEAP = 2, /* a dma-heap */
  CARVEOUT_SOURCE_MEMFD = 3,    /* ordinary memory */
  CARVEOUT_SOURCE_CUDA = 4      /* a GPU's own memory */
} carveout_source_t;

/* How it is mapped. What is possible depends on the kind of descriptor that the memory came as. */
typedef enum carveout_map {
  CARVEOUT_MAP_AUTO = 0,     /* the first of those below that works; HOST not for a device */
  CARVEOUT_MAP_VMM = 1,      /* NVIDIA files: cuMemImportFromShareableHandle; GPU only */
  CARVEOUT_MAP_EXTERNAL = 2, /* NVIDIA files, dma-bufs: cuImportExternalMemory; GPU only */
  CARVEOUT_MAP_REGISTER = 3, /* dma-bufs, memfds: mmap, cuMemHostRegister; GPU and processor */
  CARVEOUT_MAP_HOST = 4      /* dma-bufs, memfds: mmap; processor only, and without CUDA */
} carveout_map_t;

typedef enum carveout_kind {
  CARVEOUT_KIND_MEMFD = 0,
  CARVEOUT_KIND_DMA_BUF = 1,
  CARVEOUT_KIND_NVIDIA_FILE = 2
} carveout_kind_t;

typedef enum carveout_log_level {
  CARVEOUT_LOG_ERROR = 0,   /* why carveout_open() has failed, whole */
  CARVEOUT_LOG_WARNING = 1, /* it works, but not as well as it could; or closing went wrong */
  CARVEOUT_LOG_INFO = 2
} carveout_log_level_t;

/* Receives one line of text, without a line end, valid during the call. It is called on the thread
 * that is in carveout_open() or carveout_close(), never by another. It must return (no longjmp),
 * throw nothing, and not use the handle. */
typedef void (*carveout_log_fn)(void* context, int32_t level, const char* line);

/* What is wanted. carveout_options_init() sets every field to what is given as its default.
 * In brackets: the row of the environment that says the same. */
typedef struct carveout_options {
  size_t struct_size;
  /* Not 0: CARVEOUT=0 or unset is CARVEOUT_OFF, and a row that is set counts instead of what is
   * said here (either row of the key instead of both). Default: 0: no row is looked at. */
  int32_t from_environment;
  int32_t source; /* carveout_source_t [CARVEOUT_SOURCE]. Default: CARVEOUT_SOURCE_DAEMON */
  int32_t map;    /* carveout_map_t [CARVEOUT_MAP]. Default: CARVEOUT_MAP_AUTO */
  /* The CUDA device's number: it is mapped for that one, or not at all (CARVEOUT_MAP_HOST is then
   * refused). -1, the default: for that of the calling thread's current context, or device 0 (a
   * thread that the runtime's cudaSetDevice() has been called on may have no current context yet),
   * or, where CUDA cannot, for the processor only. CARVEOUT_SOURCE_CUDA also takes its memory from
   * it; there, -1 is device 0. */
  int32_t device;
  /* 1 byte to 1 PiB, rounded up to whole slices of 2 MiB [CARVEOUT_MIB, in MiB]. Default: 1792 MiB,
   * never "what is free". What is less is refused, not given. */
  uint64_t bytes;
  /* 1 to 86400000, for connecting to the lender and its answer, together [CARVEOUT_TIMEOUT_MS].
   * Default: 10000 */
  uint32_t timeout_ms;
  uint32_t reserved; /* 0 */
  /* The caller's; read during carveout_open() only. NULL, the default, is what is said here. */
  const char* socket_path; /* [CARVEOUT_SOCKET] "/run/carveout/carveout.sock" */
  const char* key;         /* [CARVEOUT_KEY] the first line of key_file */
  const char* key_file;    /* [CARVEOUT_KEY_FILE] "/etc/carveout/key". Not with key */
  const char* drm_card;    /* [CARVEOUT_DRM_CARD] "auto": the first that can */
  const char* heap;        /* [CARVEOUT_HEAP] a name in /dev/dma_heap; there is no default */
  /* NULL, the default: silent. Otherwise both are used until carveout_close() has returned. */
  carveout_log_fn log;
  void* log_context;
} carveout_options_t;

/* Why something failed. The caller's, written by the call; but for struct_size, which has to be set
 * (error.struct_size = sizeof error), what it held before does not matter. After CARVEOUT_OK and
 * CARVEOUT_OFF the texts are empty. */
typedef struct carveout_error {
  size_t struct_size;
  int32_t status;       /* carveout_status_t: what the call returned */
  int32_t system_errno; /* of the kernel's refusal, or 0 */
  int32_t cuda_result;  /* CUDA's CUresult, or 0 */
  int32_t reserved;     /* 0 */
  char setting[32];     /* the row that is to blame ("CARVEOUT_KEY_FILE"), or "" */
  char message[1024];   /* for people, one line; cut with "..." where it would be longer */
} carveout_error_t;

/* What a handle is. */
typedef struct carveout_info {
  size_t struct_size;
  uint64_t bytes;          /* at least what was asked for, from either pointer on */
  uint64_t device_pointer; /* a CUdeviceptr of `device`; 0 where mapped for the processor only */
  void* host_pointer;      /* NULL where it is mapped for the GPU only */
  int32_t source;          /* carveout_source_t */
  int32_t map;             /* carveout_map_t: what has worked, never CARVEOUT_MAP_AUTO */
  int32_t kind;            /* carveout_kind_t */
  int32_t device;          /* the CUDA device's number; -1 where mapped for the processor only */
  uint64_t lender_base;    /* where the lender says that its reservation is, for people; or 0 */
  const char* source_name; /* as CARVEOUT_SOURCE has it; valid for ever, as is map_name */
  const char* map_name;    /* as CARVEOUT_MAP has it */
  const char* description; /* of the memory, for people; the handle's, as is why_not */
  const char* why_not;     /* what CARVEOUT_MAP_AUTO tried before, and why that failed; or "" */
} carveout_info_t;

/* The library's version, "0.1.0"; it may be newer than the header's. Valid for ever. */
CARVEOUT_API const char* carveout_version(void) CARVEOUT_NOEXCEPT;

/* "CARVEOUT_ERROR_REFUSED" and so on; "CARVEOUT_ERROR_?" for what is none. Valid for ever. */
CARVEOUT_API const char* carveout_status_name(int32_t status) CARVEOUT_NOEXCEPT;

/* Fills in the defaults, and struct_size, which is sizeof(carveout_options_t) as the caller knows
 * it. CARVEOUT_ERROR_INVALID, and nothing written, for NULL or a size that is smaller than the
 * first version's or beyond 64 KiB; what is beyond this library's own size is set to zero. */
CARVEOUT_API carveout_status_t carveout_options_init(carveout_options_t* options,
                                                     size_t struct_size) CARVEOUT_NOEXCEPT;

/* Borrows memory and maps it: all of it, or nothing.
 *
 * options: the caller's, not used after the return but for log and log_context. NULL: the defaults,
 *   from_environment (secure_getenv(): nothing is set in a program that runs with more rights than
 *   its user has, set-user-ID, set-group-ID or with file capabilities).
 * handle: not NULL. Receives the handle, which the caller owns and gives to carveout_close(); NULL
 *   after every answer but CARVEOUT_OK.
 * error: NULL, or the caller's. One whose struct_size is too small for this library's first version
 *   is CARVEOUT_ERROR_INVALID, and is not written.
 *
 * Returns CARVEOUT_OK, CARVEOUT_OFF, or an error, after which nothing is borrowed, mapped or open
 * that was not before, but for libcuda.so.1, which stays loaded and initialised once it has been.
 *
 * Blocks: with a lender until timeout_ms at the longest, from connecting to its answer; as long as
 * the kernel needs to find and zero the pages of a direct source; and as CUDA needs to start and to
 * map (seconds). CARVEOUT_MAP_REGISTER has every page brought in. A lender that
 * sends something else than memory, a file of a file system in user space say, is refused, but the
 * kernel may wait in closing that for as long as it likes, unkillably.
 *
 * The memory is all zero, as far as a lender of another make than carveoutd keeps to that (and does
 * not cut an unsealed memfd short, which would be a SIGBUS for whoever uses it), and ready for any
 * stream. device_pointer is device memory of that one device (VMM, EXTERNAL: no peer access, no
 * CUDA IPC) or registered host memory (REGISTER). Both pointers are at least at a page of the
 * host's (4096 bytes or more), and under VMM at 2 MiB. What the processor writes the GPU sees, and
 * the other way round, as far as the hardware is coherent: no cache is flushed for it.
 *
 * On the GPU it belongs to the calling thread's current context if that is one of the device asked
 * for, and to the device's primary context otherwise, which is retained (and made, if need be)
 * until carveout_close(): the caller's own must outlive the handle, and cudaDeviceReset() ends what
 * is mapped. The current context is the same before and after. No call here while a stream is being
 * captured; CARVEOUT_SOURCE_CUDA waits for what the primary context has been given to do.
 *
 * Descriptors: while the handle lives it has one, the connection (carveout_watch_fd()); none with a
 * direct source. The memory's own is closed when it is mapped, but for a dma-buf under EXTERNAL:
 * CUDA is given a duplicate, and keeps it. */
CARVEOUT_API carveout_status_t carveout_open(const carveout_options_t* options, carveout_t** handle,
                                             carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* Tells what the handle is. The texts stay the library's: description and why_not are valid until
 * carveout_close(). Does not block. CARVEOUT_ERROR_INVALID, and nothing written, where either is
 * NULL or struct_size is too small. */
CARVEOUT_API carveout_status_t carveout_get_info(const carveout_t* handle,
                                                 carveout_info_t* info) CARVEOUT_NOEXCEPT;

/* A descriptor that says when the lender is gone; it is the connection, and stays the library's:
 * borrowed until carveout_close(), neither to be read, written nor closed. poll() it for POLLRDHUP
 * (of _GNU_SOURCE; POLLHUP and POLLERR come unasked): any of these, and it stays so, means that the
 * lender has closed the connection or died. POLLIN alone means nothing. The memory remains mapped
 * and can be used: nobody else is lent it while that is so, though the lender no longer counts it
 * as lent. Nothing has to be done; what is opened next is a new lease. A lender that is restarted
 * and keeps its leases shows nothing here. -1 with a direct source, NULL, and after
 * carveout_after_fork_in_child(). */
CARVEOUT_API int carveout_watch_fd(const carveout_t* handle) CARVEOUT_NOEXCEPT;

/* What carveout_watch_fd() says now: 1 gone, 0 not. For memory that was lent, 1 after
 * carveout_after_fork_in_child(). Always 0 with a direct source, which has no lender, and for NULL.
 * Does not block. */
CARVEOUT_API int carveout_is_lender_gone(const carveout_t* handle) CARVEOUT_NOEXCEPT;

/* To be called in the child after fork(), unless it calls exec() at once: the child has inherited
 * the connection, and with it the lease would not end before the child does, even if the parent
 * closes it or dies. This closes the child's copy; the parent's lease is untouched. Nothing is
 * unmapped: the child may go on using host_pointer as long as the parent holds the lease (after
 * that the lender may find the memory still in use), and calls carveout_close() to be rid of it.
 * device_pointer is of no use there.
 *
 * Only calls close(): async-signal-safe, so it may stand between fork() and exec() of a process
 * with threads, or in a child handler of pthread_atfork(). Never in a child of vfork() or of
 * clone(CLONE_VM), which shares the handle with its parent, nor in the parent: it would end the
 * lease under a mapping that is in use. NULL is ignored. */
CARVEOUT_API void carveout_after_fork_in_child(carveout_t* handle) CARVEOUT_NOEXCEPT;

/* Unmaps the memory, then gives it back by closing the connection, in that order. What uses it on
 * the GPU must have finished: this waits for nothing by itself, though the driver may for the work
 * of its own. The handle and its texts are gone afterwards,
 * whatever is returned; NULL is ignored.
 *
 * CARVEOUT_OK, or CARVEOUT_ERROR_SYSTEM where the driver refused to undo a step: the rest is undone
 * all the same and the memory given back, and what that step held may stay with the driver until
 * the process ends. (CARVEOUT_ERROR_OUT_OF_HEAP: the same, and there was no memory left for its
 * words.) error: as in carveout_open(); one that is too small is ignored.
 *
 * In a forked child only what is the child's is given up. */
CARVEOUT_API carveout_status_t carveout_close(carveout_t* handle,
                                              carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* ---- Pages: handles of 2 MiB, for engines that map them themselves (vAttention, kvcached) ----
 *
 * The same memory as carveout_open()'s, borrowed one slice at a time on one connection. Each is
 * imported by cuMemImportFromShareableHandle() and mapped nowhere: what to cuMemMap(), and where,
 * is the engine's to say. Threads, fork and the process's end: what is said above of a carveout_t
 * holds for a carveout_pages_t. */
typedef struct carveout_pages carveout_pages_t;

typedef struct carveout_pages_info {
  size_t struct_size;
  uint64_t count;          /* of pages: the bytes asked for, rounded up */
  uint64_t page_bytes;     /* of each: 2097152 */
  const uint64_t* handles; /* `count` of CUmemGenericAllocationHandle; valid until ..._close() */
  uint64_t lender_base;    /* as in carveout_info_t, as are those below */
  int32_t source;
  int32_t device; /* whose memory they are to be: cuMemSetAccess() for it */
  const char* source_name;
  const char* description;
} carveout_pages_info_t;

/* Borrows options->bytes in slices, and imports each: all of them, or none. Options, NULL for them,
 * and their rows: as in carveout_open(). There is no asking for "as many as there are". A lender is
 * first asked whether it has as much; where somebody else was faster then, all are given back.
 *
 * What can be imported are NVIDIA files: lent by a carveoutd of the backend cuda, or of drm with
 * --lend-as nvidia, or of the direct sources drm and cuda. Another source is refused
 * (CARVEOUT_SOURCE), as is another map than CARVEOUT_MAP_AUTO and CARVEOUT_MAP_VMM (CARVEOUT_MAP),
 * and a lender that lends something else. (Others report that L2 does not hold what is mapped so.)
 *
 * options->device: -1 is the current context's, or device 0. No context need be current; the
 * device's primary one is retained until ..._close(), unless the current one is of that device.
 *
 * Answers, errors, and the state after one: as carveout_open(). *pages is NULL after every answer
 * but CARVEOUT_OK. Blocks: timeout_ms for all claims together (1792 MiB are 896; a lender that
 * zeroes them itself may need more than the default), and as CUDA needs.
 *
 * The handles stay the library's: cuMemMap(address, page_bytes, 0, handle, 0) and
 * cuMemSetAccess(), not cuMemRelease(). Each maps whole, at offset 0, also at several addresses;
 * all of it is zero at first. Copy them as what they are, CUmemGenericAllocationHandle is an
 * unsigned long long. No page can be given back by itself, and none exported again. The process
 * needs no descriptor a page, but for what CUDA keeps. */
CARVEOUT_API carveout_status_t carveout_pages_open(const carveout_options_t* options,
                                                   carveout_pages_t** pages,
                                                   carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* As carveout_get_info(), carveout_watch_fd(), carveout_is_lender_gone() and
 * carveout_after_fork_in_child() have it for a carveout_t. */
CARVEOUT_API carveout_status_t carveout_pages_get_info(
    const carveout_pages_t* pages, carveout_pages_info_t* info) CARVEOUT_NOEXCEPT;
CARVEOUT_API int carveout_pages_watch_fd(const carveout_pages_t* pages) CARVEOUT_NOEXCEPT;
CARVEOUT_API int carveout_pages_is_lender_gone(const carveout_pages_t* pages) CARVEOUT_NOEXCEPT;
CARVEOUT_API void carveout_pages_after_fork_in_child(carveout_pages_t* pages) CARVEOUT_NOEXCEPT;

/* Releases the handles, then gives the memory back by closing the connection. cuMemUnmap() all of
 * them before, and release what cuMemRetainAllocationHandle() has given: what is still mapped stays
 * so, of memory that the lender takes for returned, and the driver need not say so. Answers as
 * carveout_close(). */
CARVEOUT_API carveout_status_t carveout_pages_close(carveout_pages_t* pages,
                                                    carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* ---- An allocator for PyTorch: torch.cuda.memory.CUDAPluggableAllocator ----
 *
 * One for the process (for each copy of the library, where several plugins have the archive linked
 * in). Each request is carved from a carveout, or, where that is off, could not be opened, has no
 * room or is of another device, allocated by the driver (cuMemAlloc(), in the device's primary
 * context, which is the CUDA runtime's), which is then asked exactly once.
 *
 * The carveout is opened once, by carveout_torch_open() or by the first request: as the rows of the
 * environment say, for that device or not at all (so CARVEOUT_MAP=host is an error), in its primary
 * context. A first request that fails in this says so in carveout_torch_get_state() only. The
 * environment is read then: not while another thread changes it. It lives as long as the process; a
 * forked child gives up its copy of the connection by itself, unless it was forked while another
 * thread was opening it: call carveout_torch_open() before there are threads that fork.
 *
 * Threads: any calls from any threads at once. Fork: where these calls have used CUDA in the
 * parent, it does not work in a child, and nothing is given and nothing taken back there; a child
 * of another parent begins anew. (One that was forked while another thread was in one of these
 * calls may find that nothing is given.) */

struct CUstream_st; /* CUDA's: a cudaStream_t points to it */

/* Opens the carveout for `device` (0 or more), so that its answer is heard: CARVEOUT_OK,
 * CARVEOUT_OFF, or the error. options: as in carveout_open(), NULL for the environment's; device in
 * it is -1 or the same. Once it is open: CARVEOUT_OK for that device, whatever the options, and
 * CARVEOUT_ERROR_INVALID for others. Otherwise it is tried anew, which a request does not. Blocks
 * as carveout_open(). There is no closing. */
CARVEOUT_API carveout_status_t carveout_torch_open(int32_t device,
                                                   const carveout_options_t* options,
                                                   carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* `bytes`, carved at a multiple of 512, or as cuMemAlloc() gives it; ready for any stream (`stream`
 * is not used), with whatever was there last. NULL where the driver has none either, for 0 bytes,
 * in a forked child, and where malloc() fails in this process: "out of memory" to a pool (MemPool)
 * of PyTorch's; who else calls it has to look. By CARVEOUT_MAP_REGISTER it is registered host
 * memory, which cudaPointerGetAttributes() says.
 *
 * Blocks: the first request, unless carveout_torch_open() came before it, as that; where the
 * carveout has room, no longer; otherwise as cuMemAlloc(), and where pieces are `waiting`, before
 * that for the device, as carveout_torch_free(). While a stream is being captured, only a request
 * that the open carveout has room for is allowed. */
CARVEOUT_API void* carveout_torch_alloc(size_t bytes, int device,
                                        struct CUstream_st* stream) CARVEOUT_NOEXCEPT;

/* Gives back what carveout_torch_alloc() gave (`bytes`, `device` and `stream` are not used; NULL is
 * ignored, and what it did not give, or has back, is refused and counted). As cudaFree() does, it
 * waits for all that the device has been given to do in its primary context, since the next owner
 * may be on another stream. Where that wait fails (while a stream is being captured, it may not be
 * done, and CUDA may end the capture for it), the piece is not had again before a later wait has
 * worked. What the driver gave is given to cuMemFree(), once, and is lost where that fails: not
 * while a stream is being captured. Needs no heap. */
CARVEOUT_API void carveout_torch_free(void* pointer, size_t bytes, int device,
                                      struct CUstream_st* stream) CARVEOUT_NOEXCEPT;

typedef struct carveout_torch_state {
  size_t struct_size;
  int32_t status;          /* of the last opening; before the first, CARVEOUT_OFF */
  int32_t tried;           /* 1 once there was one, for a device that there is */
  int32_t device;          /* the carveout's, as are those below; -1 where there is none */
  int32_t source;          /* carveout_source_t */
  int32_t map;             /* carveout_map_t */
  int32_t kind;            /* carveout_kind_t */
  const char* description; /* as in carveout_info_t; valid for ever; "" where there is none */
  const char* why_not;
  uint64_t device_pointer; /* where it begins: what lies from here to + bytes is carved; or 0 */
  uint64_t bytes;
  uint64_t in_use;    /* rounded up to 512 a piece */
  uint64_t peak;      /* the most that in_use has been */
  uint64_t largest;   /* that there is room for now, in one piece */
  uint64_t waiting;   /* pieces of in_use: given back, and the device not waited for, or not yet */
  uint64_t carved;    /* requests that the carveout served */
  uint64_t fell_back; /* that the driver served */
  uint64_t failed;    /* that got NULL */
  uint64_t refused;   /* given back, and not allocated; or the driver did not take it */
} carveout_torch_state_t;

/* Does not block but for another thread's opening. CARVEOUT_ERROR_INVALID, and nothing written,
 * where state is NULL or struct_size is none; CARVEOUT_ERROR_OUT_OF_HEAP likewise. error, where not
 * NULL, is the last opening's after CARVEOUT_OK: its status is state's, not what this call
 * returned. In a forked child: as before the first request. */
CARVEOUT_API carveout_status_t carveout_torch_get_state(carveout_torch_state_t* state,
                                                        carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* ---- Arenas: what an engine carves from memory that it has mapped ----
 *
 * They count addresses and touch nothing: `base` may be a device_pointer, a host_pointer, or a part
 * of either. They know nothing of the handle whose memory it is: destroy them, or stop using what
 * they gave, before carveout_close(). Any calls on one arena from any threads at once, but
 * ..._destroy(), which is alone and the last. None blocks longer than another thread's call on the
 * same arena. Not in a child of fork(), nor ..._destroy(): its arena is a copy, which another
 * thread may have been in, and both would hand out the same memory. */

/* Planes: a plan of several (each layer's keys and values) is placed whole or not at all. */
typedef struct carveout_planes carveout_planes_t;

typedef struct carveout_plane {
  uint64_t bytes;     /* not 0 */
  uint64_t alignment; /* of the address; a power of two */
  uint64_t address;   /* written where the plan is placed */
} carveout_plane_t;

typedef struct carveout_planes_statistics {
  size_t struct_size;
  uint64_t bytes;      /* of the arena: in_use + holes + free */
  uint64_t in_use;     /* of plans that are placed, with what alignment costs */
  uint64_t peak;       /* the most that in_use has been */
  uint64_t padding;    /* of in_use: what alignment costs */
  uint64_t holes;      /* given back, but a plan behind it is still placed */
  uint64_t free;       /* behind the last plan: what the next one can have */
  uint64_t plans;      /* that are placed */
  uint64_t placed;     /* so often */
  uint64_t not_placed; /* so often there was no room */
} carveout_planes_statistics_t;

/* *planes receives the arena, which the caller owns; NULL after an error. CARVEOUT_ERROR_INVALID
 * for NULL, and for bytes that are at address 0 (as device_pointer is where it is mapped for the
 * processor only) or beyond 2^64. */
CARVEOUT_API carveout_status_t carveout_planes_create(uint64_t base, uint64_t bytes,
                                                      carveout_planes_t** planes,
                                                      carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* Places `count` planes (there must be as many) in their order and writes the address of each, and
 * *plan_id, by which it is given back: never 0, and no other arena's. Constant time a plane. After
 * any failure nothing is placed, and nothing written but the error. CARVEOUT_ERROR_EXHAUSTED: not
 * all of them fit; the error says which plane was the first without room. CARVEOUT_ERROR_INVALID:
 * NULL, no planes, an empty one, an alignment that is none. */
CARVEOUT_API carveout_status_t carveout_planes_place(carveout_planes_t* planes,
                                                     carveout_plane_t* plan, size_t count,
                                                     uint64_t* plan_id,
                                                     carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* Gives a whole plan back. It can be had again once all that was placed behind it has been given
 * back as well. CARVEOUT_ERROR_INVALID, and nothing changed, for what is not placed. */
CARVEOUT_API carveout_status_t carveout_planes_give_back(carveout_planes_t* planes,
                                                         uint64_t plan_id,
                                                         carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* CARVEOUT_ERROR_INVALID, and nothing written, where either is NULL or struct_size is none. */
CARVEOUT_API carveout_status_t carveout_planes_get_statistics(
    const carveout_planes_t* planes, carveout_planes_statistics_t* statistics) CARVEOUT_NOEXCEPT;

/* NULL is ignored. */
CARVEOUT_API void carveout_planes_destroy(carveout_planes_t* planes) CARVEOUT_NOEXCEPT;

/* Blocks of one size: paged KV. A block's index is what a block table holds; where each layer has
 * planes of its own, one arena over the first plane counts for all: block `index` of any plane is
 * at that plane's address + index * stride_bytes. */
typedef struct carveout_blocks carveout_blocks_t;

typedef struct carveout_blocks_statistics {
  size_t struct_size;
  uint64_t first; /* the address of block 0 */
  uint64_t block_bytes;
  uint64_t stride_bytes; /* from one block's address to the next one's */
  uint64_t taken;        /* so often */
  uint64_t not_had;      /* so often there was none */
  uint64_t refused;      /* so often one was given back that was not taken, or none */
  uint32_t blocks;
  uint32_t in_use;
  uint32_t peak; /* the most that in_use has been */
  uint32_t reserved;
} carveout_blocks_statistics_t;

/* As many blocks as fit into base to base + bytes, the first and each of them at a multiple of
 * `alignment` (a power of two). What is mapped begins at a page of the host's (4096): a larger
 * alignment than base has costs a block. *blocks receives the arena, which the caller owns; NULL
 * after an error. CARVEOUT_ERROR_EXHAUSTED where not one fits, or 2^32 - 2 or more would;
 * CARVEOUT_ERROR_INVALID as carveout_planes_create(), and for a block_bytes of 0 or an alignment
 * that is none; CARVEOUT_ERROR_OUT_OF_HEAP: a block costs 4 bytes of the process's own memory, at
 * once. */
CARVEOUT_API carveout_status_t carveout_blocks_create(uint64_t base, uint64_t bytes,
                                                      uint64_t block_bytes, uint64_t alignment,
                                                      carveout_blocks_t** blocks,
                                                      carveout_error_t* error) CARVEOUT_NOEXCEPT;

/* Takes a block that nobody has, the last one given back first; writes its index (not NULL; never
 * UINT32_MAX) and its address (NULL where it is not wanted). Constant time. Nothing is written
 * after CARVEOUT_ERROR_EXHAUSTED, all are taken, and CARVEOUT_ERROR_INVALID, for NULL. */
CARVEOUT_API carveout_status_t carveout_blocks_take(carveout_blocks_t* blocks, uint32_t* index,
                                                    uint64_t* address) CARVEOUT_NOEXCEPT;

/* Constant time. CARVEOUT_ERROR_INVALID, and nothing changed, for what is no block or not taken. */
CARVEOUT_API carveout_status_t carveout_blocks_give_back(carveout_blocks_t* blocks,
                                                         uint32_t index) CARVEOUT_NOEXCEPT;
/* The same by the block's address. */
CARVEOUT_API carveout_status_t carveout_blocks_give_back_at(carveout_blocks_t* blocks,
                                                            uint64_t address) CARVEOUT_NOEXCEPT;

/* CARVEOUT_ERROR_INVALID, and nothing written, where either is NULL or struct_size is none. */
CARVEOUT_API carveout_status_t carveout_blocks_get_statistics(
    const carveout_blocks_t* blocks, carveout_blocks_statistics_t* statistics) CARVEOUT_NOEXCEPT;

/* NULL is ignored. */
CARVEOUT_API void carveout_blocks_destroy(carveout_blocks_t* blocks) CARVEOUT_NOEXCEPT;

#ifdef __cplusplus
}
#endif

/* NOLINTEND(readability-identifier-naming) */

#endif
