# shellcheck shell=bash
# Read by tests/package/run: the man page and the guide for engines, held against the header, and what
# they show, built against the installed copy and run; the probe's page and guide, held against the probe.
# What is set there: build here work prefix libraries cc cxx strict.
# shellcheck disable=SC2154

# The reference page as a terminal shows it.
rendered() { groff -man -Tutf8 -P-cbou "$1"; }
section() { sed -n "/^$1\$/,/^[A-Z]/p"; }
example() { section EXAMPLES | sed -n '/^ *#include/,/^ \{7\}[A-Z]/{/^ \{7\}[A-Z]/!s/^ \{7\}//p}'; }

rows() { sed -n '/^| `CARVEOUT/s/^| \([^|]*\)|.*/\1/p' "$1" | grep -oE 'CARVEOUT[A-Z_]*' | sort; }
statuses() { grep -oE '^ *CARVEOUT_(OK|OFF|ERROR_[A-Z_]+) = ' "$1" | grep -oE '[A-Z_]+' | sort; }

# What the page (rendered) does not have: calls in its synopsis, statuses, rows with their own entries.
missing() {
  local name synopsis answers environment
  synopsis=$(section SYNOPSIS <"$1")
  answers=$(section 'RETURN VALUE' <"$1" && section ERRORS <"$1")
  environment=$(section ENVIRONMENT <"$1")
  for name in $(declared "$header"); do
    grep -qE "\b$name\(" <<<"$synopsis" || echo "$name()"
  done
  for name in $(statuses "$header"); do
    grep -qw "$name" <<<"$answers" || echo "$name"
  done
  for name in $(rows "$here/../../docs/library.md"); do
    grep -qE "^ {7}$name( |$)" <<<"$environment" || echo "$name in the environment"
  done
}

check_man() {
  local page call planted count
  header=$prefix/include/carveout/carveout.h
  page=$(find "$prefix" -name libcarveout.3)
  command -v groff >/dev/null || { echo "waived: no groff here" && exit 77; }
  groff -man -Tutf8 -ww -z "$page" >"$work/warnings" 2>&1
  [[ ! -s $work/warnings ]] || fail "$(cat "$work/warnings")"
  { cat "$page" && printf '.SH PLANTED\n.RB planted ( "\n.zz\n'; } >"$work/planted.3"
  [[ $(groff -man -Tutf8 -ww -z "$work/planted.3" 2>&1) == *zz* ]] || fail "a planted mistake is not noticed"

  count=$(declared "$header" | wc -l)
  ((count >= 20 && $(statuses "$header" | wc -l) >= 12 && $(rows "$here/../../docs/library.md" | wc -l) >= 10)) ||
    fail "the lists of calls, statuses and rows cannot be read"
  rendered "$page" >"$work/page"
  [[ ! $(missing "$work/page") ]] || fail "libcarveout.3 lacks: $(missing "$work/page")"
  for planted in 'carveout_close()' CARVEOUT_OFF CARVEOUT_ERROR_CLOSED 'CARVEOUT_KEY in the environment'; do
    sed "s/\b${planted%%[( ]*}\b/planted/" "$work/page" >"$work/without"
    [[ $(missing "$work/without") == "$planted" ]] || fail "that the page lacks $planted is not noticed: $(missing "$work/without")"
  done
  # Each call has a page that leads to it.
  for call in $(declared "$header"); do
    [[ $(cat "$(dirname "$page")/$call.3") == ".so man3/libcarveout.3" ]] || fail "man $call finds nothing"
  done
  [[ $(find "$(dirname "$page")" -name '*.3' | wc -l) == "$((count + 1))" ]] || fail "there are pages of other names"

  mapfile -t compile < <(flags --cflags)
  mapfile -t link < <(flags --libs)
  example <"$work/page" >"$work/example.c"
  "${cc[@]}" -std=c11 "${strict[@]}" "${compile[@]}" -o "$work/example" "$work/example.c" -xnone "${link[@]}"
  expect off -- "$work/example"
  expect "$(section EXAMPLES <"$work/page" | sed -n 's/^ *\(4194304 .*\)/\1/p')" \
    CARVEOUT=1 CARVEOUT_SOURCE=memfd CARVEOUT_MAP=host CARVEOUT_MIB=4 -- "$work/example"
}

# What carveout-probe has, a line each: its options with their defaults and its commands, by --help; the rows, by the
# table of results.cpp; the exit codes, by their header; where the result lies for others to read.
probe_facts() {
  local text constant value
  { "$build/bin/carveout-probe" --help && "$build/bin/carveout-probe" residency --help; } >"$work/help"
  sed -nE '/^Options:/,/^$/s/^  (-h,)?(--[a-z-]+) ?(.*)$/\2 \3/p' "$work/help" | sed -E 's/  .*//; s/ \.\.\.$//' |
    sed -E 's/^(--[a-z-]+) [^=]*=(.*)$/option \1 \2/; t; s/^(--[a-z-]+).*/option \1/' | sort -u
  sed -nE '/^Subcommands:/,/^$/s/^  ([a-z]+) .*/command \1/p' "$work/help"
  text=$(tr '\n' ' ' <"$1/tools/carveout-probe/results.cpp")
  for constant in kOnce kOneWay; do
    value=$(grep -oE "$constant = \"[^\"]*\"" <<<"$text" | grep -oE '".*"')
    text=$(sed -E "s/, *$constant\}/, $value}/g" <<<"$text")
  done
  grep -oE '\{Row::k[A-Za-z]+, "[a-z_]+", "[^"]*", Unit::k[A-Za-z]+, *"[^"]*"\}' <<<"$text" |
    sed -E 's/.*, "([a-z_]+)", "([^"]*)", Unit::k([A-Za-z]+), *"([^"]*)"\}/row|\1|\2|\3|\4/; s/GbPerSecond/GB\/s/; s/Nanoseconds/ns/; s/Milliseconds/ms/'
  grep '^enum Exit ' "$1/tools/carveout-probe/exit_codes.hpp" | grep -oE '= [0-9]+' | sed 's/= /exit /'
  sed -nE 's/.* kL2ClassFile = "(.*)";/file \1/p' "$1/libcarveout/client/l2_class.hpp"
}

# An entry of a rendered page as one line.
entry() { awk -v name="       $1 " '/^       [^ ]/ { here = index($0 " ", name) == 1 } /^[^ ]/ { here = 0 } here' | tr -s ' \n' ' '; }
entries() { grep -oE "^ {7}$1( |\$)" | tr -d ' ' | sort; }

# In what the page (rendered) and the facts are unlike.
unlike() {
  local what name rest default title unit counted
  while IFS= read -r what; do
    case $what in
      option*)
        read -r _ name default <<<"$what"
        rest=$(section OPTIONS <"$1" | sed 's/^ *-h, --help/       --help/' | entry "$name")
        [[ $rest ]] || echo "no $name"
        [[ ! $default || ! $rest || $rest == *"Default: $default."* ]] || echo "$name has not the default $default"
        [[ $default || $rest != *Default:* ]] || echo "$name has a default"
        ;;
      command*) [[ $(section COMMANDS <"$1" | entry "${what#* }") ]] || echo "no command ${what#* }" ;;
      row*)
        IFS='|' read -r _ name title unit counted <<<"$what"
        rest=$(section ROWS <"$1" | entry "$name")
        [[ $rest == *"\"$title\", $unit"* && $rest == *"$counted"* ]] || echo "row $name is not \"$title\", $unit, $counted"
        ;;
      exit*) [[ $(section 'EXIT STATUS' <"$1" | entry "${what#* }") ]] || echo "no exit code ${what#* }" ;;
      file*) [[ $(section FILES <"$1" | entry "${what#* }") ]] || echo "no file ${what#* }" ;;
    esac
  done <"$2"
  # And nothing that the program has not.
  diff <(section OPTIONS <"$1" | sed 's/^ *-h, --help/       --help/' | entries '--[a-z-]+') \
    <(sed -nE 's/^option ([^ ]+).*/\1/p' "$2" | sort) | sed -n 's/^< /the program has no /p'
  diff <(section COMMANDS <"$1" | entries '[a-z]+') <(sed -n 's/^command //p' "$2" | sort) | sed -n 's/^< /the program has no command /p'
  diff <(section ROWS <"$1" | entries '[a-z_]+') <(sed -nE 's/^row\|([a-z_]+).*/\1/p' "$2" | sort) | sed -n 's/^< /the program has no row /p'
  diff <(section 'EXIT STATUS' <"$1" | entries '[0-9]+') <(sed -n 's/^exit //p' "$2" | sort) | sed -n 's/^< /the program has no exit code /p'
}

# The options that a guide uses and none of the programs has.
unknown_options() {
  sed 's/systemd-tmpfiles --create//; s/--gtest_filter//' "$1" | grep -oE '(^|[ `(])--[a-z][a-z-]+' | grep -oE -e '--.*' | sort -u |
    while read -r option; do grep -qE -e "(^|[ ,])$option\b" "$work/helps" || echo "$option"; done
}

check_probe() {
  local root page planted kind
  root=$(cd "$here/../.." && pwd)
  command -v groff >/dev/null || { echo "waived: no groff here" && exit 77; }
  cmake --install "$build" --component Unspecified --prefix "$work/programs" >"$work/install.log" ||
    { cat "$work/install.log" && exit 1; }
  page=$(find "$work/programs" -path '*/man1/carveout-probe.1')
  [[ $page ]] || fail "carveout-probe.1 is not installed with the program"
  groff -man -Tutf8 -ww -z "$page" >"$work/warnings" 2>&1
  [[ ! -s $work/warnings ]] || fail "$(cat "$work/warnings")"

  probe_facts "$root" >"$work/facts"
  for kind in 'option 15' 'command 5' 'row 12' 'exit 5' 'file 1'; do
    (($(grep -c "^${kind% *}" "$work/facts") >= ${kind#* })) || fail "the list of ${kind% *}s cannot be read: $(cat "$work/facts")"
  done
  rendered "$page" >"$work/page"
  [[ ! $(unlike "$work/page" "$work/facts") ]] || fail "carveout-probe.1: $(unlike "$work/page" "$work/facts")"
  # What was to be noticed: a change of the page, or of the program.
  plant_probe() {
    sed -E "$2" "$work/page" >"$work/planted"
    sed -E "$3" "$work/facts" >"$work/planted_facts"
    [[ $(unlike "$work/planted" "$work/planted_facts") == "$1" ]] ||
      fail "\"$1\" is not noticed: $(unlike "$work/planted" "$work/planted_facts")"
  }
  plant_probe 'no --blocks' 's/^ {7}--blocks/       planted/' ''
  plant_probe 'no --planted' '' '$a option --planted'
  plant_probe '--blocks has not the default 9' '' 's/^(option --blocks) .*/\1 9/'
  plant_probe '--heap has not the default system' '' 's/^(option --heap)$/\1 system/'
  plant_probe '--size has a default' '' 's/^(option --size) .*/\1/'
  plant_probe 'the program has no --heap' '' '/^option --heap/d'
  plant_probe 'no command latency' 's/^ {7}latency/       Latency/' ''
  plant_probe 'the program has no command info' '' '/^command info/d'
  plant_probe 'row gather is not "gather of 64 KiB spans", ns, each byte once' '' 's/^(row.gather.*)GB.s/\1ns/'
  plant_probe 'row copy_into is not "copy into", GB/s, each byte twice' '' 's/^(row.copy_into.*\|).*/\1each byte twice/'
  plant_probe 'the program has no row claim' '' '/^row.claim/d'
  plant_probe 'no exit code 4' '' '$a exit 4'
  plant_probe 'the program has no exit code 77' '' '/^exit 77/d'
  plant_probe 'no file /planted' '' 's/^file .*/file \/planted/'

  for program in carveout-probe carveoutd carveoutctl; do "$build/bin/$program" --help; done >"$work/helps"
  for program in carveout-probe\ residency carveoutctl\ status; do "$build/bin/${program% *}" "${program#* }" --help; done >>"$work/helps"
  [[ ! $(unknown_options "$root/docs/measuring.md") ]] || fail "measuring.md has $(unknown_options "$root/docs/measuring.md")"
  { cat "$root/docs/measuring.md" && echo 'carveout-probe --planted'; } >"$work/planted.md"
  [[ $(unknown_options "$work/planted.md") == --planted ]] || fail "a planted option of measuring.md is not noticed"
  check_measuring "$root/docs/measuring.md"
}

run_example() {
  TMPDIR=$work bash -euc 'trap "kill \$! 2>/dev/null || true" EXIT; . "$1"' - "$1" >"$work/printed" 2>&1
}

# The guide's example as it stands there, with less of everything.
check_measuring() {
  local all
  all=$(cd "$build" && pwd)
  awk '$0 == "```" { on = 0 } on; $0 == "```sh" { on = 1 }' "$1" |
    sed -E "s|\\\$PWD/build/release|$all|; s/--size [0-9]+MiB/--size 4MiB/; s/carveout-probe (residency|bandwidth)/& --blocks 2 --repetitions 2/" >"$work/example.sh"
  (($(grep -c carveout-probe "$work/example.sh") == 5)) || fail "the example of measuring.md cannot be read"
  run_example "$work/example.sh" || fail "the example of measuring.md ends with $?: $(cat "$work/printed")"
  [[ $(<"$work/printed") == *'daemon/host: inconclusive'*'first:  first.json'*'residency.json is about the processor'* ]] ||
    fail "the example of measuring.md prints something else: $(cat "$work/printed")"
  sed 's/carveout-probe info/carveout-probe planted/' "$work/example.sh" >"$work/planted.sh"
  ! run_example "$work/planted.sh" || fail "a planted mistake in the example is not noticed"
}

# The fenced blocks of a language, each into a file: $work/LANGUAGE-N.
blocks() {
  awk -v language="$2" -v to="$work/" '
    $0 == "```" { out = "" }
    out { print >out }
    $0 == "```" language { out = to language "-" ++n }' "$1"
  find "$work" -name "$2-*" | sort
}

# The offset and size of each member of the structures that a Python file declares, by ctypes; with a C program that
# says the same of carveout.h's. Nothing else of the file is run.
layout_by_ctypes='
import ast, sys
tree = ast.parse(open(sys.argv[1]).read())
keep = [n for n in tree.body if isinstance(n, ast.ClassDef) or (isinstance(n, ast.Import) and n.names[0].name == "ctypes")]
names = {}
exec(compile(ast.Module(keep, []), sys.argv[1], "exec"), names)
with open(sys.argv[2], "w") as c:
    print("#include <carveout/carveout.h>\n#include <stdio.h>\nint main(void) {", file=c)
    for t in [names[n.name] for n in keep if isinstance(n, ast.ClassDef)]:
        print(t.__name__, names["ctypes"].sizeof(t))
        print("printf(\"%s %%zu\\n\", sizeof(%s));" % (t.__name__, t.__name__), file=c)
        for member, _ in t._fields_:
            at = getattr(t, member)
            print(t.__name__, member, at.offset, at.size)
            print("printf(\"%s %s %%zu %%zu\\n\", offsetof(%s, %s), sizeof ((%s*)0)->%s);"
                  % (t.__name__, member, t.__name__, member, t.__name__, member), file=c)
    print("return 0; }", file=c)
'
same_layout() {
  python3 -c "$layout_by_ctypes" "$1" "$work/layout.c" >"$work/ctypes" &&
    "${cc[@]}" -std=c11 -I"$prefix/include" -o "$work/layout" "$work/layout.c" || fail "the layout of $1 cannot be told"
  "$work/layout" | diff - "$work/ctypes"
}

# What the snippet uses of RMM. It is not RMM: it only holds carveout.hpp to the types of its callbacks.
stand_in_for_rmm() {
  mkdir -p "$work/stand_in/rmm/mr"
  cat >"$work/stand_in/rmm/cuda_stream_view.hpp" <<'END'
#pragma once
#include <cstddef>
#include <functional>
#include <utility>
struct CUstream_st;
namespace rmm {
struct cuda_stream_view {
  CUstream_st* value() const noexcept { return nullptr; }
  void synchronize() const {}
};
inline constexpr cuda_stream_view cuda_stream_default{};
namespace mr {
struct callback_memory_resource {
  using allocate_callback_t = std::function<void*(std::size_t, cuda_stream_view, void*)>;
  using deallocate_callback_t = std::function<void(void*, std::size_t, cuda_stream_view, void*)>;
  callback_memory_resource(allocate_callback_t allocate, deallocate_callback_t deallocate,
                           void* allocate_with = nullptr, void* deallocate_with = nullptr)
      : take([=](std::size_t bytes) { return allocate(bytes, {}, allocate_with); }),
        give([=](void* at, std::size_t bytes) { deallocate(at, bytes, {}, deallocate_with); }) {}
  std::function<void*(std::size_t)> take;
  std::function<void(void*, std::size_t)> give;
};
}  // namespace mr
struct device_buffer {
  device_buffer(std::size_t bytes, cuda_stream_view, mr::callback_memory_resource& from)
      : resource(from), size(bytes), at(from.take(bytes)) {}
  ~device_buffer() { resource.give(at, size); }
  const void* data() const { return at; }
  mr::callback_memory_resource& resource;
  std::size_t size;
  void* at;
};
}  // namespace rmm
END
  echo '#include <rmm/cuda_stream_view.hpp>' | tee "$work/stand_in/rmm/device_buffer.hpp" \
    >"$work/stand_in/rmm/mr/callback_memory_resource.hpp"
}

check_docs() {
  local page=$here/../../docs/engines.md cuda block ran=0
  mapfile -t compile < <(flags --cflags)
  mapfile -t link < <(flags --libs)
  for cuda in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include ''; do
    if [[ -f $cuda/cuda.h ]]; then break; fi
  done

  for block in $(blocks "$page" c); do
    if grep -q '<cuda.h>' "$block" && [[ ! $cuda ]]; then
      echo "waived: no cuda.h here: $(basename "$block") of engines.md is not compiled"
    else
      "${cc[@]}" -xc -std=c11 "${strict[@]}" "${compile[@]}" ${cuda:+-isystem "$cuda"} -fsyntax-only "$block"
    fi
  done
  for block in $(blocks "$page" cpp); do
    if grep -q '<rmm/' "$block"; then
      if grep -q rmm_allocate "$prefix/include/carveout/carveout.hpp"; then
        stand_in_for_rmm
        "$cxx" -xc++ -std=c++17 "${strict[@]}" "${compile[@]}" -I"$work/stand_in" -fsyntax-only "$block"
      else
        echo "waived: carveout.hpp has no rmm_allocate: $(basename "$block") of engines.md is not compiled"
      fi
      continue
    fi
    "$cxx" -xc++ -std=c++17 "${strict[@]}" "${compile[@]}" -o "$work/snippet" "$block" -xnone "${link[@]}"
    expect off -- "$work/snippet"
    expect '262144 keys in 4194304 bytes' CARVEOUT=1 CARVEOUT_SOURCE=memfd CARVEOUT_MAP=host CARVEOUT_MIB=4 -- "$work/snippet"
    ran=$((ran + 1))
  done
  ((ran == 1)) || fail "engines.md has $ran C++ snippets that run, instead of 1"

  command -v python3 >/dev/null || { echo "waived: no python3 here: the Python of engines.md is not parsed" && return; }
  [[ $(blocks "$page" python) ]] || fail "engines.md has no Python"
  for block in $(blocks "$page" python); do
    python3 -m py_compile "$block" || fail "the Python of engines.md does not parse"
    same_layout "$block" || fail "engines.md's structures are not carveout.h's"
    sed 's/("device", ctypes.c_int32)/("device", ctypes.c_int64)/' "$block" >"$work/planted.py"
    ! same_layout "$work/planted.py" >/dev/null || fail "a planted member of another size is not noticed"
  done
}
