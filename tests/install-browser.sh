#!/bin/sh
# Has a Chromium on this machine for the tests of the page: Debian's package, nothing from elsewhere. Quiet and quick if
# there is one already.
set -eu

for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done

if ! command -v apt-get >/dev/null 2>&1; then
    echo "install-browser: no chromium and no apt-get here; install Chromium with this system's package manager" >&2
    exit 1
fi

if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "install-browser: no chromium here and no right to install it; run: sudo apt-get install chromium" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    # -q twice: no progress; the full output is only of interest when it fails
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 --no-install-recommends \
        install -y chromium fonts-dejavu-core >"$log" 2>&1
}
if ! install; then
    # lists that are missing or older than the mirror's packages
    $as_root apt-get -qq -o DPkg::Lock::Timeout=300 update >"$log" 2>&1 || true
    if ! install; then
        tail -n 5 "$log" >&2
        echo "install-browser: chromium could not be installed; try: sudo apt-get update && sudo apt-get install chromium" >&2
        exit 1
    fi
fi
