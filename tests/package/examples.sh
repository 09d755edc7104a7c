# shellcheck shell=bash
# Read by tests/package/run: the programs in examples/, built against the installed copy and run.
# What is set there: build here work prefix libraries cc cxx strict.
# shellcheck disable=SC2154
examples=$here/../../examples
lent=(CARVEOUT=1 CARVEOUT_MAP=host CARVEOUT_SOCKET="$work/lend.sock" CARVEOUT_KEY_FILE="$work/key")
memfd=(CARVEOUT=1 CARVEOUT_SOURCE=memfd CARVEOUT_MAP=host)
# The tests' own driver: memory that only a device can use, without one.
device=(CARVEOUT=1 CARVEOUT_SOURCE=cuda CARVEOUT_MAP=vmm LD_LIBRARY_PATH="$build/lib/fake_cuda:$libraries")

# ends STATUS PRINTED SAID [ROW...] -- COMMAND...: its exit code, and patterns for what is on its standard
# output (which stays in $printed) and error.
ends() {
  local status=$1 wanted=$2 said=$3 rows=() code=0 heard
  shift 3
  while [[ $1 != -- ]]; do
    rows+=("$1")
    shift
  done
  shift
  printed=$(env "${rows[@]}" "$@" 2>"$work/said") || code=$?
  heard=$(<"$work/said")
  ((code == status)) || fail "${rows[*]}: exit code $code instead of $status: $printed $heard"
  # shellcheck disable=SC2053
  [[ $printed == $wanted ]] || fail "${rows[*]}: \"$printed\" instead of \"$wanted\""
  # shellcheck disable=SC2053
  [[ $heard == $said ]] || fail "${rows[*]}: said \"$heard\" instead of \"$said\""
}

build_c() {
  local compile link
  mapfile -t compile < <(flags --cflags)
  mapfile -t link < <(flags --libs)
  "${cc[@]}" -std=c11 -O2 "${strict[@]}" "${compile[@]}" "${@:3}" -o "$2" "$1" "${link[@]}"
}

build_cxx() {
  local compile link
  mapfile -t compile < <(flags --cflags)
  mapfile -t link < <(flags --libs)
  "$cxx" -std=c++17 -O2 "${strict[@]}" "${compile[@]}" "${@:3}" -o "$2" "$1" "${link[@]}"
}

# Every lease that the daemon of this test has granted is over.
given_back() {
  local granted
  granted=$(grep -c 'granted lease' "$work/daemon.log") || fail "nothing was lent"
  for _ in $(seq 50); do
    if (($(grep -c 'released lease' "$work/daemon.log") == granted)); then return; fi
    sleep 0.1
  done
  cat "$work/daemon.log" && fail "not all was given back"
}

# borrow.c and borrow.py print the same.
borrows() {
  local all='4 MiB of %s by host: wrote to 64 blocks'
  start_daemon 4MiB
  ends 0 'off: nobody has asked for it' '' -- "$@"
  ends 0 'off: nobody has asked for it' '' CARVEOUT=0 CARVEOUT_MIB=many -- "$@"
  ends 0 "${all/\%s/memfd}" '' "${memfd[@]}" CARVEOUT_MIB=3 -- "$@"
  ends 0 "${all/\%s/daemon}" '' "${lent[@]}" CARVEOUT_MIB=4 -- "$@"
  ends 0 "${all/\%s/daemon}" '' "${lent[@]}" CARVEOUT_MIB=4 -- "$@"  # it was given back
  ends 1 '4 MiB of cuda by vmm: not for the processor' '' "${device[@]}" CARVEOUT_MIB=4 -- "$@"
  ends 1 '' 'borrow: CARVEOUT_MIB: *a whole number*' "${memfd[@]}" CARVEOUT_MIB=many -- "$@"
  ends 1 '' 'borrow: CARVEOUT_MIB: *1792 MiB were asked for*' "${lent[@]}" -- "$@"
  ends 1 '' 'borrow: CARVEOUT_SOCKET: *is carveoutd running*' "${lent[@]}" CARVEOUT_SOCKET="$work/none" -- "$@"
  given_back
}

# What ctypes lays out is what the compiler does.
check_layouts() {
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$examples python3 - >"$work/layouts.c" <<'PYTHON'
import ctypes
import borrow
print("#include <carveout/carveout.h>")
for ours, name in (borrow.Error, "carveout_error_t"), (borrow.Info, "carveout_info_t"):
    print(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(ours)}, "");')
    for field, *_ in ours._fields_:
        print(f'_Static_assert(offsetof({name}, {field}) == {getattr(ours, field).offset}, "");')
        print(f'_Static_assert(sizeof((({name}*)0)->{field}) == {getattr(ours, field).size}, "");')
PYTHON
  (($(wc -l <"$work/layouts.c") > 40)) || fail "the layouts cannot be read"
  "${cc[@]}" -std=c11 -I"$prefix/include" -fsyntax-only "$work/layouts.c"
  sed -i '0,/map) ==/s//kind) ==/' "$work/layouts.c"
  ! "${cc[@]}" -std=c11 -I"$prefix/include" -fsyntax-only "$work/layouts.c" 2>"$work/log" || fail "a wrong layout is not noticed"
}

# decodes PLACE SAID [ROW...] -- ENGINE: ends well, with its cache there and the digest that the first run had.
decodes() {
  local place=$1 said=$2
  shift 2
  ends 0 "kv $place: 6 MiB, 128 blocks, peak *; * tokens, * preempted; digest ????????????????" "$said" "$@"
  local got=${printed##* }
  [[ ${digest:=$got} == "$got" ]] || fail "$place: digest $got instead of $digest"
}

check_engine() {
  local engine=$1 own='toy_engine: its KV cache is in its own memory:'
  digest=
  start_daemon 8MiB
  echo marlin >"$work/other_key"
  decodes 'own (off)' '' -- "$engine"
  decodes 'own (off)' '' CARVEOUT=0 CARVEOUT_MIB=many -- "$engine"
  decodes 'own (off)' '' MALLOC_PERTURB_=128 -- "$engine"  # nor does it read what it did not write: 3e38 here, not zero
  decodes memfd '' "${memfd[@]}" -- "$engine"
  decodes memfd '' "${memfd[@]}" CARVEOUT_MIB=64 -- "$engine"
  decodes memfd '' "${memfd[@]}" CARVEOUT_MAP=register LD_LIBRARY_PATH="$build/lib/fake_cuda:$libraries" -- "$engine"
  decodes daemon '' "${lent[@]}" -- "$engine"
  decodes daemon '' "${lent[@]}" CARVEOUT_MIB=8 -- "$engine"
  grep -q 'granted lease .*: 6 MiB to toy_engine' "$work/daemon.log" || fail "what it needs was not borrowed"
  # None of the cache is in memory that has no room for all of it.
  decodes 'own (too small)' "$own plane 4: *" "${memfd[@]}" CARVEOUT_MIB=2 -- "$engine"
  decodes 'own (too small)' "$own plane 8: *" "${lent[@]}" CARVEOUT_MIB=4 -- "$engine"
  decodes 'own (no host pointer)' "$own *" "${device[@]}" -- "$engine"
  decodes 'own (CARVEOUT_ERROR_REFUSED)' "$own CARVEOUT_MIB: *" "${lent[@]}" CARVEOUT_MIB=10 -- "$engine"
  decodes 'own (CARVEOUT_ERROR_REFUSED)' "$own *key*" "${lent[@]}" CARVEOUT_KEY_FILE="$work/other_key" -- "$engine"
  decodes 'own (CARVEOUT_ERROR_SYSTEM)' "$own CARVEOUT_SOCKET: *" "${lent[@]}" CARVEOUT_SOCKET="$work/none" -- "$engine"
  decodes 'own (CARVEOUT_ERROR_INVALID)' "$own CARVEOUT_MIB: *" "${memfd[@]}" CARVEOUT_MIB=many -- "$engine"
  given_back
}

# The digest is of what is computed, and of what is in the cache.
check_digest() {
  local wrong
  [[ $("$1" --seed 1) == *" $digest" ]] || fail "seed 1 is another"
  ends 0 'kv own (off): *' '' -- "$1" --seed 2
  [[ $printed != *" $digest" ]] || fail "another seed has the same digest"
  sed 's/at(2 \* layer + 1, block)/at(2 * layer, block)/' "$examples/toy_engine.cpp" >"$work/planted.cpp"
  ! cmp -s "$examples/toy_engine.cpp" "$work/planted.cpp" || fail "no fault was planted"
  build_cxx "$work/planted.cpp" "$work/planted"
  ends 0 'kv own (off): *' '' -- "$work/planted"
  [[ $printed != *" $digest" ]] || fail "values written over keys have the same digest"
  for wrong in '--seed' '--seed x' '--seed 1x' '--seed 1 2' '--sed 1'; do
    # shellcheck disable=SC2086
    ends 2 '' 'usage: *' -- "$1" $wrong
  done
}

check_sanitized() {
  local sanitize=(-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all)
  echo 'int main() {}' | "$cxx" -xc++ "${sanitize[@]}" -o "$work/probe" - 2>/dev/null ||
    { echo "waived: no sanitizers here" && exit 77; }
  export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
  build_c "$examples/borrow.c" "$work/borrow" "${sanitize[@]}"
  borrows "$work/borrow"
  build_cxx "$examples/toy_engine.cpp" "$work/toy_engine" "${sanitize[@]}"
  digest=
  decodes 'own (too small)' 'toy_engine: *' "${memfd[@]}" CARVEOUT_MIB=2 -- "$work/toy_engine"
  decodes memfd '' "${memfd[@]}" -- "$work/toy_engine"
}

# Its commands build, and what it shows is what is printed (digests are the compiler's and its library's).
check_readme() {
  command -v python3 >/dev/null || { echo "waived: no python3 here" && exit 77; }
  local command shown printed
  cp "$examples"/* "$work"
  cc() { command "${cc[@]}" "$@"; }
  c++() { command "$cxx" "$@"; }
  while read -r command; do (cd "$work" && eval "$command"); done < <(grep -E '^ {4}(cc|c\+\+) ' "$examples/README.md")
  start_daemon 64MiB
  export CARVEOUT_SOCKET="$work/lend.sock" CARVEOUT_KEY_FILE="$work/key"
  shown=$(grep -E '^ {4}(off:|[0-9]+ MiB of|kv |toy_engine:|borrow:)' "$examples/README.md")
  while read -r command; do
    (cd "$work" && eval "$command" 2>&1) || true
  done >"$work/printed" < <(sed -nE 's/^ {4}\$ //p' "$examples/README.md")
  printed=$(sed 's/^/    /' "$work/printed")
  diff <(without_digests <<<"$shown") <(without_digests <<<"$printed") || fail "README.md shows something else"
}
without_digests() { sed -E 's/digest [0-9a-f]{16}$/digest/'; }

check_example() {
  case $1 in
    borrow_c)
      (($(wc -l <"$examples/borrow.c") < 40)) || fail "borrow.c is not short"
      build_c "$examples/borrow.c" "$work/borrow"
      borrows "$work/borrow"
      ;;
    borrow_py)
      command -v python3 >/dev/null || { echo "waived: no python3 here" && exit 77; }
      check_layouts
      borrows python3 "$examples/borrow.py"
      ;;
    engine)
      build_cxx "$examples/toy_engine.cpp" "$work/toy_engine"
      check_engine "$work/toy_engine"
      check_digest "$work/toy_engine"
      ;;
    sanitized) check_sanitized ;;
    readme) check_readme ;;
    *) fail "no such example: $1" ;;
  esac
}
