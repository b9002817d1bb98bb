#!/bin/bash
# Brings what the tests need beside Python packages: Debian packages (with root rights) and node packages (into .tools/).
# What cannot be brought is named, and its tests are skipped; under CI=true that is a failure.
set -u
cd "$(dirname "$0")/.."

declare -A PACKAGE_OF=([mosquitto]=mosquitto [mosquitto_pub]=mosquitto-clients [chromium]=chromium)
export PATH="$PATH:/usr/sbin:/sbin"
missing=()

absent() { for program in "${!PACKAGE_OF[@]}"; do command -v "$program" >/dev/null || echo "$program"; done; }

install_packages() {
  local packages=() program
  for program in $(absent); do packages+=("${PACKAGE_OF[$program]}"); done
  [ ${#packages[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || return
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || return
    root=(sudo -n)
  fi
  echo "installing for the tests: ${packages[*]}"
  # RUNLEVEL=1: a package that brings a service must not start it
  "${root[@]}" apt-get -qq update >/dev/null 2>&1
  "${root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null 2>&1 ||
    echo "apt-get could not install: ${packages[*]}" >&2
}

install_node_packages() {
  [ -d .tools/node_modules/mqtt ] && return
  command -v npm >/dev/null || return
  echo "installing for the tests: mqtt (node) into .tools/"
  npm install --silent --no-audit --no-fund --no-save --prefix .tools mqtt@5 >/dev/null 2>&1 || echo "npm could not install mqtt" >&2
}

install_packages
install_node_packages
for program in $(absent); do missing+=("$program (Debian package ${PACKAGE_OF[$program]})"); done
[ -d .tools/node_modules/mqtt ] || missing+=("mqtt (node package: npm install --prefix .tools mqtt@5)")
[ ${#missing[@]} -eq 0 ] && exit 0
for one in "${missing[@]}"; do echo "missing, its tests are skipped: $one" >&2; done
[ "${CI:-}" != true ]
