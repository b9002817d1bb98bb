#!/bin/bash
# `make test`: style, types, structure, all tests, and the tests of the hot modules once more against their uncompiled sources.
set -eu
cd "$(dirname "$0")/.."
BIN="${VENV:-.venv}/bin"
export PATH="$PATH:/usr/sbin:/sbin" PYTHONDONTWRITEBYTECODE=

# Nothing of a run stays behind: what tests, browsers and terminals put into temporary folders goes with this one.
TMPDIR="$(mktemp -d /tmp/lmq.XXXX)"
export TMPDIR TMUX_TMPDIR="$TMPDIR"
trap 'rm -rf "$TMPDIR"' EXIT

step() { printf '\n== %s\n' "$1"; }

bash tests/install_test_needs.sh
step "style (ruff)";                       "$BIN/ruff" check .
step "types (mypy --strict)";              "$BIN/mypy"
step "structure (import-linter)";          "$BIN/lint-imports" --no-timing 2>/dev/null || "$BIN/lint-imports"
# --basetemp: a socket's path has room for 107 characters
step "tests";                              "$BIN/python" -m pytest --basetemp="$TMPDIR/t" "$@"
step "hot modules, uncompiled";            LMQ_PURE=1 "$BIN/python" -m pytest --basetemp="$TMPDIR/t" $(ls -d tests/mqtt_proxy/{packets,topics,session,net} tests/lmq_store tests/loadtest/hot 2>/dev/null)
