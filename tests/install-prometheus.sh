#!/bin/sh
# Prints the folder with `prometheus` and `promtool`. Without them on the path, unpacks Debian's package into the folder
# $1, once: as any user, and without starting the server, which an installation would do.
set -eu

if command -v promtool >/dev/null 2>&1 && command -v prometheus >/dev/null 2>&1; then
    dirname "$(command -v promtool)"
    exit 0
fi

mkdir -p "$1"
cd "$1"
exec 9>lock
flock 9
if ! [ -x usr/bin/promtool ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "install-prometheus: no promtool and no apt-get here; install Prometheus with this system's packages" >&2
        exit 1
    fi
    if ! apt-get -qq download prometheus >log 2>&1; then
        # lists that are missing or older than the mirror's packages
        apt-get -qq -o DPkg::Lock::Timeout=300 update >log 2>&1 || sudo -n apt-get -qq update >log 2>&1 || true
        apt-get -qq download prometheus >log 2>&1 || {
            tail -n 5 log >&2
            echo "install-prometheus: the package could not be loaded; try: sudo apt-get update" >&2
            exit 1
        }
    fi
    # no symbolic links: the package's web interface is in packages of other names
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool ./usr/bin/prometheus
    rm -f prometheus_*.deb
fi
echo "$PWD/usr/bin"
